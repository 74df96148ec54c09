//! The report as text.

use super::figures::{Fact, by_step, figures, kinds, latencies, setup};
use super::search::Round;
use super::verdict::verdict;
use super::{Findings, Report};
use crate::text::{fact, wrapped};
use onrush_text::numbers::grouped;

impl Report {
    /// The report as a table; ends with a line feed.
    pub fn to_table(&self) -> String {
        let (_, sentences) = verdict(self);
        let mut kinds = kinds(self).lines();
        let of_kinds: u64 = self.kinds.iter().map(|kind| kind.wrong).sum();
        let others = self.wrong_replies().saturating_sub(of_kinds);
        if others > 0 {
            kinds.push(format!("and {} wrong replies to no request in flight", grouped(others)));
        }
        let mut sections = vec![
            sentences.iter().flat_map(|text| wrapped("", text)).collect(),
            named(setup(self)),
            kinds,
            latencies(self).lines(),
            named(figures(self)),
        ];
        sections.extend(by_step(self).map(|steps| steps.lines()));
        let mut lines = sections.join(&String::new());
        lines.extend(findings("wrong replies", &self.wrong));
        lines.extend(findings("different within what the BEPs leave open", &self.differs));
        if let Some(search) = &self.search {
            lines.push(String::new());
            lines.extend(wrapped("", &search.headline()));
            lines.extend(search.rounds.iter().map(Round::line));
        }
        lines.extend(self.warnings.iter().flat_map(|text| wrapped("warning: ", text)));
        lines.join("\n") + "\n"
    }
}

fn named(facts: Vec<Fact>) -> Vec<String> {
    facts.iter().flat_map(|(name, text)| fact(name, text)).collect()
}

fn findings(title: &str, all: &[Findings]) -> Vec<String> {
    let mut lines = Vec::new();
    for findings in all {
        lines.push(format!("{:>12}  {}", findings.count, findings.text));
        for example in &findings.examples {
            let more = if example.reply.len() < example.len * 2 { "..." } else { "" };
            lines.push(format!("{:>14}asked: {}", "", example.asked));
            let (reply, len) = (&example.reply, example.len);
            lines.push(format!("{:>14}reply: {reply}{more} ({len} bytes)", ""));
        }
    }
    if !lines.is_empty() {
        lines.insert(0, format!("\n{title}:"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::latency::Latency;
    use crate::series::Sample;
    use crate::text::WIDTH;

    #[test]
    fn the_table_has_the_main_figures() {
        let table = super::super::tests::example().to_table();
        for part in [
            "announce     1,010    1,000      0    10        0",
            "junk            90  silence",
            "500 per second",
            "1500.000 us per right reply",
            "and 1 wrong replies to no request",
            "peer listed twice",
            "reply: dead (2 bytes)",
            "what the BEPs leave open",
            "warning: a notice",
        ] {
            assert!(table.contains(part), "{part:?} is not in:\n{table}");
        }
        assert!(table.starts_with("500 right replies per second."), "the verdict: {table}");
    }

    /// Only examples of replies are longer, each a word of hexadecimal digits.
    #[test]
    fn the_table_fits_80_columns() {
        let mut report = super::super::tests::example();
        let target = report.setup.targets[0].clone();
        report.setup.targets = vec![target; 9];
        let large = 9_999_999_999;
        for kind in &mut report.kinds {
            (kind.requests, kind.right) = (large, large);
            (kind.wrong, kind.lost, kind.repeats) = (123_456, 1_234_567, 1_234_567);
            kind.latency = Latency { p50: 9.99e3, max: 9.99e5, ..kind.latency };
        }
        report.search = Some(super::super::search::tests::example());
        report.warnings.push("a long warning ".repeat(20));
        let step = |number: u32| Sample {
            time: f64::from(number),
            seconds: 1.0,
            phase: format!("step {number}: 5,000 to 12,000,000 per second"),
            right: 9_999_999,
            sent: 9_999_999,
            ..Sample::default()
        };
        report.series = vec![step(1), step(2)];
        let table = report.to_table();
        let long = |line: &&str| line.chars().count() > WIDTH && !line.contains("reply: ");
        assert_eq!(table.lines().filter(long).collect::<Vec<_>>(), [""; 0], "{table}");
    }
}
