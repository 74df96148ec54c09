//! What a search for the highest rate found, and every round of it with its verdict.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Report, count};

/// What a rate must keep to count as held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bounds {
    /// Requests given up, in percent of those that a reply is due to.
    pub loss_percent: f64,
    /// The 99th percentile of latency, from when a request should have been sent, in milliseconds.
    pub p99_ms: f64,
}

/// A search for the highest rate that keeps the bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Search {
    /// What a rate must keep.
    pub bounds: Bounds,
    /// How close the highest rate held and the lowest one failed were to come, in percent.
    pub resolution_percent: f64,
    /// The highest rate, in requests per second; none when no rate kept the bounds.
    pub found: Option<f64>,
    /// Whether it was held for longer too. A search that is ended early confirms nothing.
    #[serde(default)]
    pub confirmed: bool,
    /// What kept the next higher rate from being held, or confirmed; none when nothing did.
    pub limit: Option<Verdict>,
    /// In the order in which they were run.
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Round {
    /// What it was for.
    pub purpose: Purpose,
    /// Requests per second that were due.
    pub rate: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests per second that were sent.
    pub sent_rate: f64,
    /// Right replies per second.
    pub replies_rate: f64,
    /// Requests given up, in percent.
    pub loss_percent: f64,
    /// 99th percentile of latency in microseconds.
    pub p99: f64,
    /// 99th percentile of how late the load tester itself sent, in microseconds.
    pub behind_p99: f64,
    /// Wrong replies.
    pub wrong: u64,
    /// Whether it held.
    pub verdict: Verdict,
    /// Why not; empty when it held.
    pub why: String,
}

/// What a round is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Finding a rate that is too high, by doubling (or one that is not, by dividing).
    Grow,
    /// Finding the border between held and failed, by halving the distance.
    Narrow,
    /// Seeing for longer whether the rate found is held.
    Confirm,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within the bounds.
    Held,
    /// Too much was lost.
    Lost,
    /// Latency was too high.
    Slow,
    /// The load tester could not do it: nothing is known of the tracker.
    LoadTester,
}

/// A sender that is this much of the p99 bound behind makes latencies its own fault.
const BEHIND: f64 = 0.5;
/// Share of requests that may be missing before a rate counts as not sent.
const UNSENT: f64 = 0.001;

impl Bounds {
    /// Whether a round kept them, and in words why not.
    pub fn judge(&self, report: &Report) -> (Verdict, String) {
        let Report { loss_percent, unsent, dropped_here, not_sent, no_room, .. } = *report;
        let lost = loss_percent > self.loss_percent;
        // What was lost here does not excuse what the tracker lost beside it.
        let lost_here = dropped_here + not_sent;
        let own = lost_here as f64 * 100.0;
        let lost_anyway =
            loss_percent - own / report.answerable().max(1) as f64 > self.loss_percent;
        let slow = report.latency.p99 > self.p99_ms * 1e3;
        let due = unsent as f64 + report.sent_rate * report.seconds;
        let unsent_much = unsent as f64 > due * UNSENT;
        let behind = report.behind.p99 / 1e3;
        if !(lost || slow || unsent_much) {
            return (Verdict::Held, String::new());
        }
        // Where too many were under way it was replies that were missing, not the sender.
        let lost_there = loss_percent / 100.0 * report.answerable() as f64 + unsent as f64;
        let own = if unsent_much && no_room > 0 && (lost_here as f64) < lost_there / 2.0 {
            let why = "were due and never sent, as too many replies were missing";
            return (Verdict::Lost, format!("{unsent} requests {why}"));
        } else if unsent_much {
            format!("{unsent} requests were due and never sent")
        } else if behind > self.p99_ms * BEHIND && no_room == 0 {
            format!("it sent {behind:.1} ms late at p99")
        } else if lost && !lost_anyway && not_sent > dropped_here {
            format!("the kernel did not take {not_sent} requests")
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

impl Purpose {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Narrow => "narrow",
            Self::Confirm => "confirm",
        }
    }
}

impl Round {
    /// What came of `rate`.
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

    /// Whether the bounds were kept.
    pub fn held(&self) -> bool {
        self.verdict == Verdict::Held
    }

    /// In one line.
    pub fn line(&self) -> String {
        let purpose = self.purpose.name();
        let verdict = if self.held() { "held".into() } else { format!("failed: {}", self.why) };
        let wrong = match self.wrong {
            0 => String::new(),
            wrong => format!("  WRONG {wrong}"),
        };
        format!(
            "{purpose:<8}{:>12}/s{:>12} replies/s  loss {:>7.3} %  p99 {:>8.0} us  {verdict}{wrong}",
            count(self.rate),
            count(self.replies_rate),
            self.loss_percent,
            self.p99,
        )
    }
}

impl Search {
    /// What was looked for, and what was found.
    pub fn headline(&self) -> String {
        format!(
            "highest rate with loss <= {} % and p99 <= {} ms, to {} %: {}",
            self.bounds.loss_percent,
            self.bounds.p99_ms,
            self.resolution_percent,
            match self.found {
                Some(rate) if self.confirmed => format!("{} requests per second", count(rate)),
                Some(rate) => format!("{} requests per second, not confirmed", count(rate)),
                None => "none".into(),
            },
        )
    }

    /// For people; ends with a line feed.
    pub fn to_table(&self) -> String {
        let mut out = format!("\n{}\n", self.headline());
        for round in &self.rounds {
            let _ = writeln!(out, "  {}", round.line());
        }
        out
    }

    /// What to know before the result is believed.
    pub fn warning(&self) -> Option<String> {
        match (self.found, self.limit) {
            (Some(_), _) if !self.confirmed => Some(
                "the search was ended early: the highest rate held until then is not confirmed"
                    .into(),
            ),
            (None, Some(Verdict::LoadTester)) => Some(
                "no rate was found because of the load tester itself, not of the tracker: give it \
                 more --workers and vCPUs"
                    .into(),
            ),
            (Some(_), Some(Verdict::LoadTester)) => Some(
                "the highest rate is the load tester's limit, not the tracker's: give it more \
                 --workers and vCPUs"
                    .into(),
            ),
            (Some(_), None) => Some("no rate that was tried was too high for the tracker".into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latency;

    const BOUNDS: Bounds = Bounds { loss_percent: 0.1, p99_ms: 10.0 };

    fn report(change: fn(&mut Report)) -> Report {
        let mut report = crate::report::tests::example();
        (report.loss_percent, report.latency.p99, report.dropped_here) = (0.05, 9000.0, 0);
        change(&mut report);
        report
    }

    #[test]
    fn a_round_is_judged_by_the_bounds() {
        let judge = |change| BOUNDS.judge(&report(change));
        assert_eq!(judge(|_| {}), (Verdict::Held, String::new()));
        let (verdict, why) = judge(|report| report.loss_percent = 0.2);
        assert_eq!((verdict, why.as_str()), (Verdict::Lost, "loss 0.200 % > 0.1 %"));
        let (verdict, why) = judge(|report| report.latency.p99 = 11_000.0);
        assert_eq!((verdict, why.as_str()), (Verdict::Slow, "p99 11.0 ms > 10 ms"));
    }

    #[test]
    fn what_the_load_tester_cannot_do_is_not_charged_to_the_tracker() {
        for (change, named) in [
            ((|report| report.unsent = 50) as fn(&mut Report), "50 requests were due"),
            (
                |report| {
                    report.latency.p99 = 50_000.0;
                    report.behind = Latency { p99: 40_000.0, ..Latency::default() };
                },
                "40.0 ms late",
            ),
            (|report| (report.loss_percent, report.dropped_here) = (5.0, 70), "dropped 70"),
            (|report| (report.loss_percent, report.not_sent) = (5.0, 60), "did not take 60"),
        ] {
            let (verdict, why) = BOUNDS.judge(&report(change));
            assert_eq!(verdict, Verdict::LoadTester, "{why}");
            assert!(why.contains("own limit") && why.contains(named), "{why}");
        }
        // Of some fifty lost ones, seven are its own: the others are not.
        for change in [
            (|report| (report.loss_percent, report.dropped_here) = (5.0, 7)) as fn(&mut Report),
            |report| (report.loss_percent, report.not_sent) = (5.0, 7),
        ] {
            let (verdict, why) = BOUNDS.judge(&report(change));
            assert_eq!((verdict, why.as_str()), (Verdict::Lost, "loss 5.000 % > 0.1 %"));
        }
        // Late, but within the bound all the same.
        let late = |report: &mut Report| report.behind.p99 = 8000.0;
        assert_eq!(BOUNDS.judge(&report(late)).0, Verdict::Held);
    }

    #[test]
    fn the_table_has_every_round() {
        let round = Round::new(
            Purpose::Grow,
            20_000.0,
            &report(|report| report.loss_percent = 3.0),
            &BOUNDS,
        );
        let search = Search {
            bounds: BOUNDS,
            resolution_percent: 2.0,
            found: Some(12_345.6),
            confirmed: true,
            limit: Some(Verdict::LoadTester),
            rounds: vec![round],
        };
        let table = search.to_table();
        assert!(table.contains("p99 <= 10 ms, to 2 %: 12,346 requests per second"), "{table}");
        assert!(table.contains("20,000/s") && table.contains("failed: loss 3.000 %"), "{table}");
        assert!(search.warning().unwrap().contains("the load tester's limit"));
    }
}
