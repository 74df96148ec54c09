//! The report as text.

use super::figures::{Fact, by_step, figures, kinds, setup};
use super::{Findings, Report};
use crate::number::grouped;

/// The whole report; ends with a line feed.
pub(super) fn table(report: &Report) -> String {
    let kinds = kinds(report);
    let mut lines = named(setup(report));
    lines.push(String::new());
    lines.extend(kinds.lines());
    let of_kinds: u64 = report.kinds.iter().map(|kind| kind.wrong).sum();
    let others = report.wrong_replies().saturating_sub(of_kinds);
    if others > 0 {
        let others = grouped(others as f64);
        lines.push(format!("and {others} wrong replies to no request in flight"));
    }
    lines.push(String::new());
    lines.extend(named(figures(report)));
    if let Some(steps) = by_step(report) {
        lines.push(String::new());
        lines.extend(steps.lines());
    }
    lines.extend(findings("wrong replies", &report.wrong));
    lines.extend(findings("different within what BEP 15 leaves open", &report.differs));
    if let Some(search) = &report.search {
        lines.push(format!("\n{}", search.headline()));
        lines.extend(search.rounds.iter().map(|round| format!("  {}", round.line())));
    }
    lines.extend(report.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n") + "\n"
}

fn named(facts: Vec<Fact>) -> Vec<String> {
    facts.into_iter().map(|(name, text)| format!("{name:<18}{text}")).collect()
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
    #[test]
    fn the_table_has_the_main_figures() {
        let table = super::super::tests::example().to_table();
        for part in [
            "announce     1,010    1,000      0    10",
            "junk            90  silence",
            "500 per second",
            "1500.000 us per right reply",
            "and 1 wrong replies to no request",
            "peer listed twice",
            "reply: dead (2 bytes)",
            "what BEP 15 leaves open",
            "warning: a notice",
        ] {
            assert!(table.contains(part), "{part:?} is not in:\n{table}");
        }
        assert!(table.lines().all(|line| line.len() < 180));
    }
}
