//! Raw results, a line of JSON each, appended at once, so that an interrupted bench has a report.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::contender::Variant;
use crate::cpus::Assignment;
use crate::mix::Mix;

/// A case: a tracker in a variant, on these vCPUs, under this load.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// The tracker.
    pub variant: Variant,
    /// Its vCPUs and those of the load.
    pub seats: Assignment,
    /// The load.
    pub mix: Mix,
}

/// One round of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// From 1.
    pub round: u32,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// The case.
    pub case: Case,
    /// The outcome.
    pub outcome: RoundOutcome,
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoundOutcome {
    /// Figures.
    Measured(Box<Measured>),
    /// A failure and its reason.
    Failed(String),
}

/// The figures of a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The closed loop: the maximum.
    pub most: Point,
    /// Open loops at shares of that.
    pub shares: Vec<Share>,
    /// Peak resident memory over the round, in bytes.
    pub peak_rss: Option<u64>,
    /// Memory of an idle connection in bytes, where it is measured: the growth of resident memory
    /// of a process of its own, by the number of connections.
    #[serde(default)]
    pub idle_bytes: Option<f64>,
    /// The number of these connections, which are fewer than were asked for where the tracker or
    /// its host held no more.
    #[serde(default)]
    pub idle_held: Option<u64>,
    /// Warnings of the load tester about them.
    #[serde(default)]
    pub idle_warnings: Vec<String>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Right replies per second; under `published` all replies that are no errors; over WebSocket
    /// messages sent, and right ones received, and what is per reply is per message.
    pub rate: f64,
    /// Right replies per second where the rate is that of messages.
    #[serde(default)]
    pub requests: Option<f64>,
    /// Number of right replies; over WebSocket of right messages received.
    pub right: u64,
    /// Wrong replies, or messages.
    pub wrong: u64,
    /// Findings about the wrong replies.
    pub findings: Vec<String>,
    /// Requests without a reply, in percent; `None` where they are not counted.
    pub loss_percent: Option<f64>,
    /// CPU time of the tracker in percent of one vCPU.
    pub cpu_percent: f64,
    /// CPU time of the tracker per right reply, in microseconds.
    pub cpu_per_reply: f64,
    /// CPU usage in percent of the busiest load worker; under `published` the average of all
    /// workers over the run. `None` where it is not measured.
    pub load_percent: Option<f64>,
    /// CPU time of the load tester in percent of one vCPU. `None` where it is not measured.
    #[serde(default)]
    pub load_cpu_percent: Option<f64>,
    /// CPU time of the load tester per right reply, in microseconds.
    pub load_per_reply: Option<f64>,
    /// Median latency in microseconds.
    pub p50: Option<f64>,
    /// 99th percentile of latency in microseconds.
    pub p99: Option<f64>,
    /// Peers per announce reply.
    pub peers_per_reply: Option<f64>,
    /// Warnings of the load tester.
    pub warnings: Vec<String>,
}

/// An open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Its rate in percent of the closed loop's.
    pub percent: u32,
    /// Requests per second that were due.
    pub asked: f64,
    /// The result.
    pub point: Point,
}

/// The file with the raw results.
#[derive(Debug)]
pub struct Raw {
    path: PathBuf,
    file: File,
}

impl Raw {
    /// The name of the file in a result directory.
    pub const NAME: &'static str = "raw.jsonl";

    /// Creates the file in `directory`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(Self::NAME);
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Appends a result, and hands it to the kernel.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(record)? + "\n";
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The results of `directory`.
///
/// # Errors
/// When there are none, or a line is invalid.
pub fn read(directory: &Path) -> anyhow::Result<Vec<Record>> {
    read_lines(directory)
}

/// The results of `directory`, of any kind.
pub(crate) fn read_lines<R: DeserializeOwned>(directory: &Path) -> anyhow::Result<Vec<R>> {
    let path = directory.join(Raw::NAME);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let record = |(number, line)| {
        let context = || format!("{}: line {} is no result", path.display(), number + 1);
        serde_json::from_str(line).with_context(context)
    };
    text.lines().enumerate().map(record).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Figures with rates around `rate`.
    pub(crate) fn figures(rate: f64) -> Measured {
        let point = |rate: f64, p99| Point {
            rate,
            right: (rate * 2.0) as u64,
            loss_percent: Some(0.0),
            cpu_percent: 98.0,
            cpu_per_reply: 980_000.0 / rate,
            load_percent: Some(80.0),
            load_cpu_percent: Some(82.0),
            load_per_reply: Some(800_000.0 / rate),
            p50: Some(100.0),
            p99: Some(p99),
            peers_per_reply: Some(12.5),
            ..Point::default()
        };
        let shares = [(50, 200.0), (80, 400.0)].map(|(percent, p99)| {
            let asked = rate * f64::from(percent) / 100.0;
            Share { percent, asked, point: point(asked, p99) }
        });
        Measured {
            most: point(rate, 900.0),
            shares: shares.into(),
            peak_rss: Some(200 << 20),
            ..Measured::default()
        }
    }

    /// A result in round `round`, with rates around `rate`.
    pub(crate) fn measured(variant: Variant, round: u32, rate: f64) -> Record {
        let seats = Assignment::new(&[0, 1], 1, 1).unwrap();
        let case = Case { variant, seats, mix: Mix::Spread };
        let outcome = RoundOutcome::Measured(Box::new(figures(rate)));
        Record { round, started: 1_790_000_000, case, outcome }
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let variant = || Variant::new("onrush", Some("colocated"), &[("workers", 1)]);
        let first = measured(variant(), 1, 1e5);
        let mut second = measured(variant(), 2, 1e5);
        second.outcome = RoundOutcome::Failed("it died".into());
        let mut raw = Raw::create(directory.path()).unwrap();
        raw.append(&first).unwrap();
        raw.append(&second).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [first, second]);
    }

    #[test]
    fn an_invalid_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(Raw::NAME), "{}\n").unwrap();
        let error = format!("{:#}", read(directory.path()).unwrap_err());
        assert!(error.contains("line 1") && error.contains(Raw::NAME), "{error}");
    }
}
