//! The result of a run: a list for people, JSON for machines.

use std::fmt::Write as _;
use std::net::SocketAddr;

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

pub use crate::check::CheckOutcome;
use crate::check::{CheckOf, CheckResult, Finding, Group};

/// One line of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The check's name.
    pub id: String,
    /// Its part of the list.
    pub group: Group,
    /// Its result.
    pub outcome: CheckOutcome,
    /// Behaviour of a conforming tracker.
    pub expected: String,
    /// BEP and section, or the clients that rely on it.
    pub source: String,
    /// The tracker's behaviour, or the reason for which the check was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// The point that the BEPs leave open, where the outcome is [`CheckOutcome::Differs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
}

impl Row {
    pub(crate) fn new<R>(check: &CheckOf<R>, result: CheckResult) -> Self {
        let (outcome, seen, open) = match result {
            Ok(()) => (CheckOutcome::Pass, None, None),
            Err(Finding { outcome, seen, open }) => (outcome, Some(seen), open),
        };
        Self {
            id: check.id.to_owned(),
            group: check.group,
            outcome,
            expected: check.expected.to_owned(),
            source: check.source.to_owned(),
            seen,
            open: open.map(str::to_owned),
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conformance {
    /// The tracker's address, or its URL over TCP.
    pub target: String,
    /// Its address of the other family, where it answered there.
    pub also: Option<SocketAddr>,
    /// The checks, in the order of the list.
    pub checks: Vec<Row>,
    /// Checks by outcome, in the order of [`CheckOutcome::ALL`].
    pub counts: [usize; 4],
    /// Datagrams sent; 0 over TCP.
    pub datagrams: u64,
    /// Connections opened; 0 over UDP.
    pub connections: u64,
    /// Duration of the run in seconds.
    pub seconds: f64,
}

impl Conformance {
    pub(crate) fn new(target: String, also: Option<SocketAddr>, checks: Vec<Row>) -> Self {
        let count = |outcome| checks.iter().filter(|row| row.outcome == outcome).count();
        let counts = CheckOutcome::ALL.map(count);
        Self { target, also, checks, counts, datagrams: 0, connections: 0, seconds: 0.0 }
    }

    /// The number of checks with this outcome.
    pub fn count(&self, outcome: CheckOutcome) -> usize {
        self.counts[outcome as usize]
    }

    /// The check of this name.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.checks.iter().find(|row| row.id == id)
    }

    /// Whether a check fails or, with `strict`, differs.
    pub fn has_failed(&self, strict: bool) -> bool {
        self.count(CheckOutcome::Fails) > 0 || (strict && self.count(CheckOutcome::Differs) > 0)
    }

    /// The list for people.
    pub fn to_list(&self) -> String {
        let mut list = self.target.clone();
        if let Some(also) = self.also {
            let _ = write!(list, " and {also}");
        }
        list.push('\n');
        let wide = self.checks.iter().map(|row| row.id.len()).max().unwrap_or(0);
        for group in Group::value_variants() {
            let mut rows = self.checks.iter().filter(|row| row.group == *group).peekable();
            if rows.peek().is_none() {
                continue;
            }
            let _ = writeln!(list, "\n{}", group.as_ref());
            for row in rows {
                write_row(&mut list, row, wide);
            }
        }
        let [pass, differs, fails, skipped] = self.counts;
        let (sent, what) = match self.connections {
            0 => (self.datagrams, "datagrams"),
            opened => (opened, "connections"),
        };
        let _ = writeln!(
            list,
            "\n{pass} pass, {differs} differs, {fails} fails, {skipped} skipped; {sent} {what} in \
             {:.1} s",
            self.seconds
        );
        list
    }
}

fn write_row(list: &mut String, row: &Row, wide: usize) {
    let _ = writeln!(list, "  {:8} {:wide$}  {}", row.outcome.as_ref(), row.id, row.expected);
    let mut note = |label: &str, text: &str| {
        let _ = writeln!(list, "  {:8} {:wide$}  {label}: {text}", "", "");
    };
    if row.outcome != CheckOutcome::Pass && row.outcome != CheckOutcome::Skipped {
        note("by", &row.source);
    }
    if let Some(seen) = &row.seen {
        note(if row.outcome == CheckOutcome::Skipped { "because" } else { "seen" }, seen);
    }
    if let Some(open) = &row.open {
        note("open", open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{differs, fails, skipped};

    fn example() -> Conformance {
        let open = "BEP 15 leaves it open";
        let seen = || "0000 (2 bytes)".to_owned();
        let results = [Ok(()), differs(open, seen()), fails(seen()), skipped("one address")];
        let rows = crate::checks::checks().zip(results);
        let rows = rows.map(|(check, result)| Row::new(check, result));
        Conformance::new("127.0.0.1:6969".to_owned(), None, rows.collect())
    }

    #[test]
    fn the_list_has_expectations_and_observations() {
        let list = example().to_list();
        assert!(list.contains("1 pass, 1 differs, 1 fails, 1 skipped"), "{list}");
        assert!(list.contains("seen: 0000 (2 bytes)") && list.contains("because: one address"));
        assert!(list.contains("open: BEP 15 leaves it open") && list.contains("by: BEP 15"));
        assert!(list.contains("\nconnect\n") && !list.contains("\nscrape\n"), "{list}");
    }

    #[test]
    fn json_round_trips() {
        let report = example();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Conformance>(&text).unwrap(), report);
    }

    #[test]
    fn with_strict_a_difference_fails() {
        let mut report = example();
        assert!(report.has_failed(false));
        report.counts = [1, 1, 0, 0];
        assert!(!report.has_failed(false) && report.has_failed(true));
    }
}
