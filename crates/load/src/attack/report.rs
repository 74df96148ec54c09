//! The result of an attack beside an honest load: figures, whether every datagram is accounted
//! for, and the verdict.

use std::collections::BTreeMap;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::kind::Attack;
use crate::latency::Latency;
use crate::options::{SOMETIMES, number};
use crate::text::{fact, wrapped};
use onrush_text::numbers::{Unit, grouped};

/// The version of the JSON. Keys are only added under one version.
pub const FORMAT: u32 = 2;

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackReport {
    /// [`FORMAT`].
    pub format: u32,
    /// This tool's version.
    pub version: String,
    /// Start, in seconds since 1970.
    pub started: u64,
    /// The command line.
    pub command: String,
    /// The attack.
    pub attack: Attack,
    /// The tracker's addresses.
    pub targets: Vec<String>,
    /// Seconds of the attack that were asked for.
    pub duration: f64,
    /// Seconds of the attack, which are the measured ones: fewer when it was interrupted.
    pub seconds: f64,
    /// Seed of population, mix and attack.
    pub seed: u64,
    /// Traffic of the attack.
    pub flood: FloodReport,
    /// Requests of clients with connection ids.
    pub established: HonestReport,
    /// Connects of sources that are new each time.
    pub newcomers: HonestReport,
    /// Wrong replies to established clients.
    pub wrong_replies: u64,
    /// Delay of the load tester's own sending, which is part of the latency.
    pub behind: Latency,
    /// The tracker's process and overload control.
    pub tracker: Option<TrackerFigures>,
    /// The balance of all datagrams.
    pub conservation: Option<Conservation>,
    /// The tracker's counters that have grown, by name and labels.
    pub counters: BTreeMap<String, u64>,
    /// The bounds that were given.
    pub bounds: AttackBounds,
    /// Reasons to doubt these figures.
    pub warnings: Vec<String>,
    /// Conditions that did not hold; empty for a success.
    pub failures: Vec<String>,
}

/// Traffic of the attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FloodReport {
    /// Datagrams per second that were asked for, while sending.
    pub rate: f64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams left out, because the load tester was late or an attacker had no connection id.
    pub skipped: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
}

/// Honest requests of the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HonestReport {
    /// Requests that were due.
    pub requests: u64,
    /// Requests that were answered in time.
    pub answered: u64,
    /// Latency from the due time to the reply.
    pub latency: Latency,
}

impl HonestReport {
    /// Answered requests in percent; 0 without requests.
    pub fn percent(&self) -> f64 {
        self.answered as f64 * 100.0 / self.requests.max(1) as f64
    }

    /// Why these requests show nothing about the tracker; `rate` is the argument that sets theirs.
    fn emptiness(&self, what: &str, rate: &str) -> Option<String> {
        match (self.requests, self.answered) {
            (0, _) => Some(format!("no request of {what} was due: raise {rate} or --duration")),
            (due, 0) => Some(format!(
                "none of the {due} requests of {what} was answered: check the tracker's log, and \
                 the route to the sources"
            )),
            _ => None,
        }
    }
}

/// The tracker's process and overload control over the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackerFigures {
    /// CPU time in percent of one vCPU.
    pub cpu_percent: f64,
    /// Resident memory in bytes: at the start, the highest, at the end.
    pub memory: [f64; 3],
    /// Growth of resident memory in the second half, bytes per second: the difference between the
    /// medians of its two quarters, by the length of a quarter. None for too few readings.
    pub memory_slope: Option<f64>,
    /// Growth of the number of stored peers in the second half, per second, likewise.
    pub peers_slope: Option<f64>,
    /// Overload step: the highest and the last.
    pub step: [f64; 2],
    /// Stored peers: at the start and at the end.
    pub peers: [f64; 2],
}

/// The balance of all datagrams from before the warm-up until all is quiet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conservation {
    /// Datagrams sent: established clients, newcomers, the attack with its own connects.
    pub sent: [u64; 3],
    /// Datagrams that the tracker received.
    pub received: u64,
    /// Datagrams dropped before the tracker, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Requests answered, other than by an error.
    pub answered: u64,
    /// Requests refused, in silence or by an error, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl Conservation {
    /// sent - received - dropped.
    pub fn lost_on_the_way(&self) -> i64 {
        let sent: u64 = self.sent.iter().sum();
        let dropped: u64 = self.dropped.values().sum();
        sent as i64 - self.received as i64 - dropped as i64
    }

    /// received - answered - refused.
    pub fn lost_in_the_tracker(&self) -> i64 {
        let refused: u64 = self.refused.values().sum();
        self.received as i64 - self.answered as i64 - refused as i64
    }
}

/// Bounds of a success.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[command(next_help_heading = SOMETIMES)]
pub struct AttackBounds {
    /// Least percentage of established clients' requests that have to be answered.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub min_established: Option<f64>,

    /// Least percentage of newcomers that have to be answered.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub min_newcomers: Option<f64>,

    /// Upper bound on the 99th percentile of established clients' latency in milliseconds.
    #[arg(long, value_name = "MS", value_parser = number(0.01..=60e3, ""))]
    pub max_p99: Option<f64>,
}

impl AttackReport {
    /// Adds warnings about the attack and the readings to those about the run.
    pub(super) fn warn(&mut self) {
        let FloodReport { skipped, sent, .. } = self.flood;
        if skipped * 10 > sent {
            let text = format!("{skipped} datagrams of the attack were left out: lower --attack");
            self.warnings.push(text);
        }
        if self.tracker.is_some_and(|tracker| tracker.memory_slope.is_none()) {
            let text = "the tracker's memory was read too seldom to say whether it grows: raise \
                        --duration";
            self.warnings.push(text.into());
        }
    }

    /// Fills in what did not hold.
    pub(super) fn judge(&mut self) {
        let bounds = self.bounds;
        let mut failures = self.incomplete();
        let mut least = |what: &str, found: f64, bound: Option<f64>| {
            if let Some(bound) = bound.filter(|bound| found < *bound) {
                failures.push(format!("{what} {found:.3} % is below {bound} %"));
            }
        };
        least("established clients answered:", self.established.percent(), bounds.min_established);
        least("newcomers answered:", self.newcomers.percent(), bounds.min_newcomers);
        let p99 = self.established.latency.p99 / 1e3;
        if let Some(bound) = bounds.max_p99.filter(|bound| p99 > *bound) {
            failures.push(format!("p99 of established clients: {p99:.3} ms exceeds {bound} ms"));
        }
        let lost = self.conservation.iter().flat_map(|balance| {
            [
                ("sent differs from received + dropped", balance.lost_on_the_way()),
                ("received differs from answered + refused", balance.lost_in_the_tracker()),
            ]
        });
        let lost = lost.filter(|(_, lost)| *lost != 0);
        failures.extend(lost.map(|(equation, lost)| format!("{equation} by {lost}")));
        if self.wrong_replies > 0 {
            failures.push(format!("{} wrong replies to established clients", self.wrong_replies));
        }
        self.failures = failures;
    }

    /// Reasons why the run shows nothing about the tracker, at any bounds.
    fn incomplete(&self) -> Vec<String> {
        // The measured window has its length in whole nanoseconds.
        let interrupted = (self.seconds < self.duration - 1e-3).then(|| {
            format!(
                "interrupted after {:.1} of {:.1} s of the attack: run it to its end, or with a \
                 shorter --duration",
                self.seconds, self.duration
            )
        });
        let unsent = (self.flood.sent == 0)
            .then(|| "the attack sent nothing: its sources got no connection id".to_owned());
        let established = self.established.emptiness("established clients", "--honest");
        let newcomers = self.newcomers.emptiness("newcomers", "--newcomers");
        [interrupted, established, newcomers, unsent].into_iter().flatten().collect()
    }

    /// The report as text; ends with a line feed.
    pub fn to_table(&self) -> String {
        let FloodReport { sent, skipped, refused, .. } = self.flood;
        let [sent, skipped, refused] = [sent, skipped, refused].map(grouped);
        let (name, seconds, rate) = (self.attack.as_ref(), self.seconds, grouped(self.flood.rate));
        let mut facts = vec![
            ("tracker", self.targets.join(", ")),
            (
                "attack",
                format!(
                    "{name}, {sent} sent in {seconds:.1} s ({rate} per second asked, {skipped} \
                     left out, {refused} refused here)"
                ),
            ),
            ("established", honest(&self.established)),
            ("newcomers", honest(&self.newcomers)),
            ("sent late by", format!("{} at p99", Unit::Micros.label(self.behind.p99))),
        ];
        if let Some(tracker) = &self.tracker {
            let [before, highest, after] = tracker.memory.map(|bytes| Unit::Bytes.label(bytes));
            let slope = tracker.memory_slope.map_or_else(
                || "growth unknown".into(),
                |slope| format!("{:+.2} MiB/s", slope / f64::from(1 << 20)),
            );
            let memory = format!("{before} before, {highest} at most, {after} after, {slope}");
            let (step, [first, last]) = (tracker.step, tracker.peers.map(grouped));
            facts.extend([
                ("tracker's CPU", format!("{:.0} % of a vCPU", tracker.cpu_percent)),
                ("tracker's memory", memory),
                ("overload step", format!("{} at most, {} at the end", step[0], step[1])),
                ("peers stored", format!("{first} before, {last} after")),
            ]);
        }
        if let Some(conservation) = &self.conservation {
            facts.extend(balance(conservation));
        }
        let mut lines: Vec<_> = facts.iter().flat_map(|(name, text)| fact(name, text)).collect();
        lines.extend(self.warnings.iter().flat_map(|text| wrapped("warning: ", text)));
        lines.extend(self.failures.iter().flat_map(|text| wrapped("failed: ", text)));
        lines.join("\n") + "\n"
    }
}

fn honest(of: &HonestReport) -> String {
    let [p50, p99, max] =
        [of.latency.p50, of.latency.p99, of.latency.max].map(|us| Unit::Micros.label(us));
    let ([answered, requests], percent) = ([of.answered, of.requests].map(grouped), of.percent());
    format!("{answered} of {requests} answered ({percent:.3} %), p50 {p50}, p99 {p99}, max {max}")
}

/// The two equations.
fn balance(conservation: &Conservation) -> [(&'static str, String); 2] {
    let parts = |parts: &BTreeMap<String, u64>| {
        let nonzero = parts.iter().filter(|(_, count)| **count > 0);
        let parts: Vec<_> =
            nonzero.map(|(name, count)| format!("{name} {}", grouped(count))).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    };
    // A sum, with its parts, that makes an equation exact.
    let total = |what: &str, all: &BTreeMap<String, u64>, lost: i64| {
        let exact = if lost == 0 { "exact".to_owned() } else { format!("differs by {lost}") };
        format!("{} {what}{}: {exact}", grouped(all.values().sum::<u64>()), parts(all))
    };
    let Conservation { sent, received, dropped, answered, refused } = conservation;
    let sent = grouped(sent.iter().sum::<u64>());
    let [received, answered] = [received, answered].map(grouped);
    let dropped = total("dropped", dropped, conservation.lost_on_the_way());
    let refused = total("refused", refused, conservation.lost_in_the_tracker());
    [
        ("sent", format!("{sent} = {received} received + {dropped}")),
        ("received", format!("{received} = {answered} answered + {refused}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    fn report() -> AttackReport {
        let latency = Latency { p50: 40.0, p99: 900.0, max: 2000.0, ..Latency::default() };
        AttackReport {
            format: FORMAT,
            version: "1".into(),
            started: 1,
            command: String::new(),
            attack: Attack::GuessedIds,
            targets: vec!["10.77.0.1:6969".into()],
            duration: 8.0,
            seconds: 8.0,
            seed: 1,
            flood: FloodReport { rate: 15_000.0, sent: 120_000, ..FloodReport::default() },
            established: HonestReport { requests: 40_000, answered: 39_999, latency },
            newcomers: HonestReport { requests: 400, answered: 399, latency },
            wrong_replies: 0,
            behind: latency,
            tracker: Some(TrackerFigures {
                memory: [1e7, 2e7, 2e7],
                step: [2.0, 1.0],
                ..TrackerFigures::default()
            }),
            conservation: Some(Conservation {
                sent: [40_000, 400, 120_000],
                received: 160_300,
                dropped: BTreeMap::from([("no room".into(), 100)]),
                answered: 40_300,
                refused: BTreeMap::from([("connection_id".into(), 120_000)]),
            }),
            counters: BTreeMap::new(),
            bounds: AttackBounds::default(),
            warnings: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn failures(change: impl FnOnce(&mut AttackReport)) -> Vec<String> {
        let mut report = report();
        change(&mut report);
        report.judge();
        report.failures
    }

    /// Each bound by itself; the words name which.
    #[test]
    fn the_verdict_names_what_failed() {
        assert_eq!(failures(|_| ()), Vec::<String>::new());
        type Change = fn(&mut AttackReport);
        let cases: [(Change, &str); 12] = [
            (|report| report.bounds.min_established = Some(99.999), "established"),
            (|report| report.bounds.min_newcomers = Some(99.8), "newcomers"),
            (|report| report.bounds.max_p99 = Some(0.8), "p99"),
            (|report| report.conservation.as_mut().unwrap().received += 1, "received"),
            (|report| report.conservation.as_mut().unwrap().sent[1] += 3, "by 3"),
            (|report| report.conservation.as_mut().unwrap().answered -= 2, "by 2"),
            (|report| report.wrong_replies = 1, "wrong replies"),
            (|report| report.flood.sent = 0, "sent nothing"),
            (|report| report.seconds = 7.9, "shorter --duration"),
            (|report| report.established = HonestReport::default(), "raise --honest"),
            (|report| report.newcomers = HonestReport::default(), "raise --newcomers"),
            (|report| report.established.answered = 0, "none of the 40000"),
        ];
        for (change, named) in cases {
            let found = failures(change);
            assert!(found.iter().any(|failure| failure.contains(named)), "{named}: {found:?}");
        }
    }

    #[test]
    fn bounds_that_hold_pass() {
        let found = failures(|report| {
            report.bounds = AttackBounds {
                min_established: Some(99.9),
                min_newcomers: Some(99.0),
                max_p99: Some(10.0),
            };
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn the_table_has_both_equations() {
        let mut report = report();
        report.judge();
        let table = report.to_table();
        for part in [
            "guessed-ids, 120,000 sent",
            "39,999 of 40,000 answered (99.998 %)",
            "160,400 = 160,300 received + 100 dropped (no room 100): exact",
            "160,300 = 40,300 answered + 120,000 refused (connection_id 120,000): exact",
        ] {
            let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(part), "{part:?} is not in:\n{table}");
        }
        assert!(table.lines().all(|line| line.chars().count() <= WIDTH), "{table}");
        let back: AttackReport =
            serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(back, report);
    }
}
