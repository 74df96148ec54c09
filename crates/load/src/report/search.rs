//! The result of a search for the highest rate, and every round of it with its verdict.

use serde::{Deserialize, Serialize};
use strum::AsRefStr;

use super::Report;
use onrush_text::numbers::{Unit, grouped};

/// The bounds within which a rate counts as held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Lost requests, in percent of those that deserve a reply.
    pub loss_percent: f64,
    /// 99th percentile of latency in milliseconds, counted from the time a request was due.
    pub p99_ms: f64,
}

/// A search for the highest rate within the bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The bounds.
    pub bounds: Bounds,
    /// Wanted distance between the highest held rate and the lowest failed one, in percent.
    pub resolution_percent: f64,
    /// The requests per second of the closed loop that the search began with.
    pub closed_loop: f64,
    /// The highest held rate in requests per second; none when no rate was held.
    pub found: Option<f64>,
    /// Whether a longer round confirmed it.
    pub confirmed: bool,
    /// Verdict of the next higher rate, or of its confirmation; none when no rate failed.
    pub limit: Option<Verdict>,
    /// All rounds in their order.
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Its purpose.
    pub purpose: Purpose,
    /// Requests per second that were due.
    pub rate: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests per second that were sent.
    pub sent_rate: f64,
    /// Right replies per second.
    pub replies_rate: f64,
    /// Lost requests, in percent.
    pub loss_percent: f64,
    /// 99th percentile of latency in microseconds.
    pub p99: f64,
    /// 99th percentile of the load tester's own delay before sending, in microseconds.
    pub behind_p99: f64,
    /// Wrong replies.
    pub wrong: u64,
    /// Its verdict.
    pub verdict: Verdict,
    /// The reason of a failure; empty when the rate was held.
    pub why: String,
}

/// The purpose of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Purpose {
    /// Raises the rate until it fails, or lowers it until it is held.
    Grow,
    /// Halves the interval between the highest held and the lowest failed rate.
    Narrow,
    /// Repeats the highest held rate for longer.
    Confirm,
}

/// The verdict of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the bounds.
    Held,
    /// Loss above its bound.
    Lost,
    /// Latency above its bound.
    Slow,
    /// The load tester reached its own limit, which says nothing about the tracker.
    LoadTester,
}

/// Share of the p99 bound above which the load tester's own delay is the cause of a high latency.
const MAX_BEHIND: f64 = 0.5;
/// Share of due requests that may stay unsent before a rate counts as not sent.
const MAX_UNSENT: f64 = 0.001;

impl Bounds {
    /// The verdict of a round, and the reason of a failure.
    pub fn judge(&self, report: &Report) -> (Verdict, String) {
        let Report { loss_percent, unsent, dropped_here, not_sent, no_room, .. } = *report;
        let lost = loss_percent > self.loss_percent;
        // Without the losses of the load tester the remaining ones may still exceed the bound.
        let lost_here = dropped_here + not_sent;
        let own = lost_here as f64 * 100.0;
        let lost_anyway =
            loss_percent - own / report.answerable().max(1) as f64 > self.loss_percent;
        let slow = report.latency.p99 > self.p99_ms * 1e3;
        let due = unsent as f64 + report.sent_rate * report.seconds;
        let unsent_many = unsent as f64 > due * MAX_UNSENT;
        let behind = report.behind.p99 / 1e3;
        if !(lost || slow || unsent_many) {
            return (Verdict::Held, String::new());
        }
        // At the limit of requests in flight the cause is missing replies, not a slow sender.
        let lost_there = loss_percent / 100.0 * report.answerable() as f64 + unsent as f64;
        let own = if unsent_many && no_room > 0 && (lost_here as f64) < lost_there / 2.0 {
            let why = "were due and never sent, as too many requests were unanswered";
            return (Verdict::Lost, format!("{unsent} requests {why}"));
        } else if unsent_many {
            format!("{unsent} requests were due and never sent")
        } else if behind > self.p99_ms * MAX_BEHIND && no_room == 0 {
            format!("requests left {behind:.1} ms late at p99")
        } else if lost && !lost_anyway && not_sent > dropped_here {
            format!("the kernel refused {not_sent} requests")
        } else if lost && !lost_anyway {
            format!("its sockets dropped {dropped_here} replies")
        } else if lost {
            let why = format!("loss {loss_percent:.3} % > {} %", self.loss_percent);
            return (Verdict::Lost, why);
        } else {
            let p99 = report.latency.p99 / 1e3;
            return (Verdict::Slow, format!("p99 {p99:.1} ms > {} ms", self.p99_ms));
        };
        (Verdict::LoadTester, format!("the load tester's own limit: {own}"))
    }
}

impl Round {
    /// The round at `rate` with this report.
    pub fn new(purpose: Purpose, rate: f64, report: &Report, bounds: &Bounds) -> Self {
        let (verdict, why) = bounds.judge(report);
        Self {
            purpose,
            rate,
            seconds: report.seconds,
            sent_rate: report.sent_rate,
            replies_rate: report.rate,
            loss_percent: report.loss_percent,
            p99: report.latency.p99,
            behind_p99: report.behind.p99,
            wrong: report.wrong_replies(),
            verdict,
            why,
        }
    }

    /// Whether the rate was held.
    pub fn held(&self) -> bool {
        self.verdict == Verdict::Held
    }

    /// Purpose, due rate, rate of right replies, loss, p99, p99 of the load tester's own delay, and
    /// verdict.
    pub(super) fn cells(&self) -> [String; 7] {
        [
            self.purpose.as_ref().to_owned(),
            grouped(self.rate),
            grouped(self.replies_rate),
            format!("{:.3} %", self.loss_percent),
            Unit::Micros.label(self.p99),
            Unit::Micros.label(self.behind_p99),
            if self.held() { "held".into() } else { format!("failed: {}", self.why) },
        ]
    }

    /// The round's line in the text. The figures beside the verdict show its reason.
    pub fn line(&self) -> String {
        let [purpose, rate, replies, loss, p99, ..] = self.cells();
        let verdict = match self.verdict {
            Verdict::Held => "held",
            Verdict::Lost => "loss",
            Verdict::Slow => "slow",
            Verdict::LoadTester => "load tester",
        };
        let wrong = match self.wrong {
            0 => String::new(),
            wrong => format!("\n{:7} WRONG {wrong}", ""),
        };
        format!(
            "{purpose:<7}{rate:>11}/s{replies:>11} right/s{loss:>10} lost{p99:>8} p99  \
             {verdict}{wrong}"
        )
    }
}

impl Search {
    /// The bounds, and the lowest rate above the found one that was not held. Time may not allow to
    /// come closer.
    pub fn headline(&self) -> String {
        let Bounds { loss_percent, p99_ms } = self.bounds;
        let higher = self.rounds.iter().filter(|round| Some(round.rate) > self.found);
        let failed = higher.filter(|round| !round.held()).map(|round| round.rate);
        let next = failed.min_by(f64::total_cmp).map_or_else(
            || "no higher rate failed".to_owned(),
            |failed| format!("the lowest that failed: {}/s", grouped(failed)),
        );
        format!("rounds (bounds: loss <= {loss_percent} %, p99 <= {p99_ms} ms); {next}")
    }

    /// The result in a sentence.
    pub fn sentence(&self) -> String {
        let per_second = |rate: f64| format!("{} requests per second", grouped(rate));
        match (self.found.map(per_second), self.rounds.last()) {
            (Some(rate), Some(Round { seconds, .. })) if self.confirmed => {
                format!("Highest rate: {rate}, confirmed over {seconds:.1} s.")
            }
            (Some(rate), last) => {
                let failed = last.filter(|round| round.purpose == Purpose::Confirm);
                let why = failed.map_or("the search was ended before", |round| round.why.as_str());
                format!("Highest rate: {rate}, not confirmed: {why}.")
            }
            (None, Some(Round { rate, why, .. })) => {
                format!("No rate held; the last one tried was {}: {why}.", per_second(*rate))
            }
            (None, None) => "No rate was tried: the search was ended before.".into(),
        }
    }

    /// The limit of the found rate, in a sentence; none where no rate failed or held.
    pub fn limit(&self) -> Option<String> {
        self.found?;
        let Bounds { loss_percent, p99_ms } = self.bounds;
        let by = match self.limit? {
            Verdict::Held => return None,
            Verdict::Lost => format!("loss: higher rates lose more than {loss_percent} %"),
            Verdict::Slow => format!("latency: at higher rates the p99 exceeds {p99_ms} ms"),
            Verdict::LoadTester => {
                "the load tester, not by the tracker: give it more --workers and vCPUs".into()
            }
        };
        Some(format!("Limited by {by}."))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { loss_percent: 0.1, p99_ms: 10.0 };

    fn report(change: fn(&mut Report)) -> Report {
        let mut report = crate::report::tests::example();
        (report.loss_percent, report.latency.p99, report.dropped_here) = (0.05, 9000.0, 0);
        change(&mut report);
        report
    }

    #[test]
    fn a_round_is_judged_by_the_bounds() {
        type Change = fn(&mut Report);
        let own = |named| format!("the load tester's own limit: {named}");
        let cases: [(Change, Verdict, String); 10] = [
            (|_| {}, Verdict::Held, String::new()),
            (|report| report.loss_percent = 0.2, Verdict::Lost, "loss 0.200 % > 0.1 %".into()),
            (|report| report.latency.p99 = 11e3, Verdict::Slow, "p99 11.0 ms > 10 ms".into()),
            // Late, but within the bound.
            (|report| report.behind.p99 = 8000.0, Verdict::Held, String::new()),
            (
                |report| report.unsent = 50,
                Verdict::LoadTester,
                own("50 requests were due and never sent"),
            ),
            (
                |report| (report.latency.p99, report.behind.p99) = (50e3, 40e3),
                Verdict::LoadTester,
                own("requests left 40.0 ms late at p99"),
            ),
            (
                |report| (report.loss_percent, report.dropped_here) = (5.0, 70),
                Verdict::LoadTester,
                own("its sockets dropped 70 replies"),
            ),
            (
                |report| (report.loss_percent, report.not_sent) = (5.0, 60),
                Verdict::LoadTester,
                own("the kernel refused 60 requests"),
            ),
            // The load tester lost seven of some fifty lost requests.
            (
                |report| (report.loss_percent, report.dropped_here) = (5.0, 7),
                Verdict::Lost,
                "loss 5.000 % > 0.1 %".into(),
            ),
            (
                |report| (report.loss_percent, report.not_sent) = (5.0, 7),
                Verdict::Lost,
                "loss 5.000 % > 0.1 %".into(),
            ),
        ];
        for (case, (change, verdict, why)) in cases.into_iter().enumerate() {
            assert_eq!(BOUNDS.judge(&report(change)), (verdict, why), "case {case}");
        }
    }

    /// A search with one round.
    pub(crate) fn example() -> Search {
        let round = Round::new(
            Purpose::Grow,
            20_000.0,
            &report(|report| report.loss_percent = 3.0),
            &BOUNDS,
        );
        Search {
            bounds: BOUNDS,
            resolution_percent: 2.0,
            closed_loop: 30_000.0,
            found: Some(12_345.6),
            confirmed: true,
            limit: Some(Verdict::LoadTester),
            rounds: vec![round],
        }
    }

    #[test]
    fn the_text_has_every_round() {
        let mut report = crate::report::tests::example();
        report.search = Some(example());
        let text = report.to_table();
        for part in ["p99 <= 10 ms); ", "failed: ", "20,000/s", "3.000 % lost", "  loss\n"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    /// The line fits a terminal whatever its figures.
    #[test]
    fn a_line_fits_80_columns() {
        for verdict in [Verdict::Held, Verdict::Lost, Verdict::Slow, Verdict::LoadTester] {
            let mut round = example().rounds.remove(0);
            (round.purpose, round.verdict) = (Purpose::Confirm, verdict);
            (round.rate, round.replies_rate) = (99_999_999.0, 99_999_999.0);
            (round.loss_percent, round.p99) = (100.0, 999.4e6);
            let fits = |line: &str| line.len() <= 80;
            assert!(round.wrong > 0 && round.line().lines().all(fits), "{}", round.line());
        }
    }

    #[test]
    fn the_result_is_a_sentence() {
        let confirm = |mut search: Search, why: &str| {
            let mut round = search.rounds[0].clone();
            (round.purpose, round.why) = (Purpose::Confirm, why.into());
            search.rounds.push(round);
            search
        };
        let unconfirmed = Search { confirmed: false, ..example() };
        let nothing = Search { found: None, confirmed: false, ..example() };
        for (search, parts) in [
            (example(), ["12,346 requests per second", "confirmed over 2.0 s"]),
            (confirm(unconfirmed.clone(), "loss 1 %"), ["not confirmed: loss 1 %", "12,346"]),
            (unconfirmed, ["not confirmed", "was ended before"]),
            (nothing.clone(), ["No rate held", "20,000 requests per second: loss 3.000 %"]),
            (Search { rounds: Vec::new(), ..nothing }, ["No rate", "was ended before"]),
        ] {
            let sentence = search.sentence();
            assert!(parts.iter().all(|part| sentence.contains(part)), "{parts:?}: {sentence}");
        }
    }
}
