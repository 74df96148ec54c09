//! The picture of a report: a panel for each load.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use onrush_load::chart::{Axis, Bar, Bars, HEIGHT, Line, Lines, Point, WIDTH, bars, lines};
use onrush_load::stats::Spread;
use onrush_text::numbers::Unit;

use crate::contender::unique;
use crate::mix::Mix;
use crate::summary::{Row, Summary};

/// The panels of all loads below each other.
pub(super) fn picture(summary: &Summary) -> String {
    let mixes = unique(summary.rows.iter().map(|row| row.case.mix));
    stacked(mixes.into_iter().map(|mix| panel(summary, mix)))
}

/// Pictures below each other.
pub(crate) fn stacked(panels: impl ExactSizeIterator<Item = String>) -> String {
    let height = HEIGHT as usize * panels.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\">\n"
    );
    for (number, panel) in panels.enumerate() {
        let y = format!("<svg y=\"{}\" ", HEIGHT as usize * number);
        let _ = writeln!(svg, "{}", panel.replacen("<svg ", &y, 1));
    }
    svg + "</svg>\n"
}

/// Rates by cores, the best of each tracker. On one number of cores: CPU time per reply, as a rate
/// is often the load tester's there.
fn panel(summary: &Summary, mix: Mix) -> String {
    let rows: Vec<_> = summary.rows.iter().filter(|row| row.case.mix == mix).collect();
    let names = unique(rows.iter().map(|row| row.case.variant.name()));
    let cores: BTreeSet<_> = rows.iter().map(|row| row.case.seats.tracker.len()).collect();
    let best = |name: &str, cores: usize| summary.best(mix, name, cores);
    if let [only] = cores.iter().copied().collect::<Vec<_>>()[..] {
        let base = &summary.plan.settings.baseline;
        let has_base = rows.iter().any(|row| row.case.variant.is_called(base));
        let bar = |name: &String| {
            let Row { case, cpu_per_reply: cpu, .. } = best(name, only)?;
            let pale = has_base && !case.variant.is_called(base);
            Some(Bar { name: name.clone(), value: cpu.median, spread: range(cpu), pale })
        };
        return bars(&Bars {
            title: format!("CPU time of the tracker per reply, load: {mix}"),
            y: Axis::linear("CPU time per reply").unit(Unit::Micros),
            legend: format!("tracker cores: {only}"),
            bars: names.iter().filter_map(bar).collect(),
        });
    }
    let line = |name: &String| {
        let points = cores.iter().filter_map(|&cores| {
            let rate = best(name, cores)?.rate;
            Some(Point { x: cores as f64, y: rate.median, spread: range(&rate) })
        });
        Line { name: name.clone(), points: points.collect() }
    };
    lines(&Lines {
        title: format!("Replies per second, load: {mix}"),
        x: Axis::linear("tracker cores"),
        y: Axis::linear("replies per second"),
        lines: names.iter().map(line).collect(),
        spans: Vec::new(),
    })
}

/// Minimum and maximum, where there is more than one round.
pub(crate) fn range(spread: &Spread) -> Option<(f64, f64)> {
    (spread.count > 1).then_some((spread.min, spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::example;

    #[test]
    fn every_load_has_a_panel_with_every_tracker() {
        let mut summary = example();
        let mut other = summary.rows[0].clone();
        other.case.mix = Mix::Real;
        summary.rows.push(other);
        let svg = picture(&summary);
        assert_eq!(svg.matches("<svg ").count(), 3, "{svg}");
        assert_eq!(svg.matches("CPU time per reply").count(), 2, "{svg}");
        for tracker in ["onrush (colocated)", "onrush (split)"] {
            assert!(svg.contains(tracker), "{tracker}");
        }
    }

    #[test]
    fn several_cores_are_lines() {
        let mut summary = example();
        let mut wide = summary.rows[0].clone();
        wide.case.seats.tracker.push(1);
        summary.rows.push(wide);
        let svg = picture(&summary);
        assert!(svg.contains("Replies per second") && svg.contains("tracker cores"), "{svg}");
    }
}
