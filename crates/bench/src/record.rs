//! Raw results, a line of JSON each, appended at once. A truncated last line (the bench was killed
//! while it wrote) is dropped, and its round is repeated.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
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
    pub outcome: Outcome,
}

/// The outcome of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Figures.
    Measured(Box<Measured>),
    /// A failure and its reason.
    Failed(String),
}

/// The figures of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The closed loop: the maximum.
    pub most: Point,
    /// Open loops at shares of that.
    pub shares: Vec<Share>,
    /// Peak resident memory over the round, in bytes.
    pub peak_rss: Option<u64>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Right replies per second; under `published` all replies that are no errors.
    pub rate: f64,
    /// Number of right replies.
    pub right: u64,
    /// Wrong replies.
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

    /// Opens the file in `directory` for appending, after removing a truncated last line.
    ///
    /// # Errors
    /// When it cannot be written, or a complete line is invalid.
    pub fn open(directory: &Path) -> anyhow::Result<(Self, Vec<Record>)> {
        let path = directory.join(Self::NAME);
        let (records, whole) = if path.exists() { stored(&path)? } else { (Vec::new(), 0) };
        let cannot = || format!("cannot write {}", path.display());
        let file = OpenOptions::new().create(true).append(true).open(&path).with_context(cannot)?;
        file.set_len(whole).with_context(cannot)?;
        Ok((Self { path, file }, records))
    }

    /// Appends a result, and hands it to the kernel.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, record: &Record) -> anyhow::Result<()> {
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
    stored(&directory.join(Raw::NAME)).map(|(records, _)| records)
}

/// The results of a file and the bytes that they take, without a truncated last line.
fn stored(path: &Path) -> anyhow::Result<(Vec<Record>, u64)> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let whole = text.rfind('\n').map_or(0, |last| last + 1);
    let record = |(number, line)| {
        let context = || format!("{}: line {} is no result", path.display(), number + 1);
        serde_json::from_str(line).with_context(context)
    };
    let records: anyhow::Result<_> = text[..whole].lines().enumerate().map(record).collect();
    Ok((records?, whole as u64))
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
            p50: Some(100.0),
            p99: Some(p99),
            peers_per_reply: Some(12.5),
            ..Point::default()
        };
        let shares = [(50, 200.0), (80, 400.0)].map(|(percent, p99)| {
            let asked = rate * f64::from(percent) / 100.0;
            Share { percent, asked, point: point(asked, p99) }
        });
        Measured { most: point(rate, 900.0), shares: shares.into(), peak_rss: Some(200 << 20) }
    }

    /// A result in round `round`, with rates around `rate`.
    pub(crate) fn measured(variant: Variant, round: u32, rate: f64) -> Record {
        let seats = Assignment::new(&[vec![0], vec![1]], 1, 1).unwrap();
        let case = Case { variant, seats, mix: Mix::Spread };
        let outcome = Outcome::Measured(Box::new(figures(rate)));
        Record { round, started: 1_790_000_000, case, outcome }
    }

    #[test]
    fn results_are_read_without_a_truncated_line() {
        let directory = tempfile::tempdir().unwrap();
        let variant = || Variant::new("onrush", Some("colocated"), &[("workers", 1)]);
        let first = measured(variant(), 1, 1e5);
        let mut second = measured(variant(), 2, 1e5);
        second.outcome = Outcome::Failed("it died".into());
        let (mut raw, before) = Raw::open(directory.path()).unwrap();
        assert!(before.is_empty());
        raw.append(&first).unwrap();
        raw.append(&second).unwrap();
        drop(raw);
        let path = directory.path().join(Raw::NAME);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{}", &text[..40])).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [first.clone(), second.clone()]);
        let (mut raw, before) = Raw::open(directory.path()).unwrap();
        assert_eq!(before, [first.clone(), second.clone()]);
        raw.append(&first).unwrap();
        assert_eq!(read(directory.path()).unwrap(), [first.clone(), second, first]);
    }

    #[test]
    fn an_invalid_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(Raw::NAME), "{}\n").unwrap();
        let error = format!("{:#}", Raw::open(directory.path()).unwrap_err());
        assert!(error.contains("line 1") && error.contains(Raw::NAME), "{error}");
    }
}
