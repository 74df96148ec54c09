//! The pictures of a report: throughput by cores, CPU time per reply.

use std::collections::BTreeSet;

use onrush_load::chart::{Axis, Bar, Bars, Line, Lines, Point, Row as Colour, bars, lines};
use onrush_load::number::Unit;

use crate::contender::unique;
use crate::mix::Mix;
use crate::stats::Spread;
use crate::summary::{Row, Summary};

/// Name and text of each picture.
pub(super) fn pictures(summary: &Summary) -> Vec<(String, String)> {
    let mixes: BTreeSet<Mix> = summary.rows.iter().map(|row| row.case.mix).collect();
    let of = |mix: Mix| {
        let best = Best::new(summary.of_mix(mix), &summary.plan.settings.baseline);
        [
            (format!("throughput-{mix}.svg"), throughput(mix, &best)),
            (format!("cpu-{mix}.svg"), cpu(mix, &best)),
        ]
    };
    mixes.into_iter().flat_map(of).collect()
}

/// The best row of each tracker on each number of cores.
struct Best<'a> {
    names: Vec<&'a str>,
    cores: Vec<usize>,
    rows: Vec<&'a Row>,
    base: &'a str,
}

impl<'a> Best<'a> {
    fn new(rows: impl Iterator<Item = &'a Row>, base: &'a str) -> Self {
        let rows: Vec<_> = rows.collect();
        let names = unique(rows.iter().map(|row| row.name.as_str()));
        let cores: BTreeSet<_> = rows.iter().map(|row| row.case.seats.tracker_cores).collect();
        Self { names, cores: cores.into_iter().collect(), rows, base }
    }

    fn of(&self, name: &str, cores: usize) -> Option<&'a Row> {
        let rows = self.rows.iter().copied();
        let rows = rows.filter(|row| row.name == name && row.case.seats.tracker_cores == cores);
        rows.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median))
    }

    /// A group of bars for each tracker, a colour for each number of cores.
    fn bars(&self, title: String, y: Axis, pick: impl Fn(&Row) -> Spread) -> String {
        let colour = |&cores: &usize| Colour {
            name: format!("{cores} tracker core{}", if cores == 1 { "" } else { "s" }),
            bars: self
                .names
                .iter()
                .map(|name| self.of(name, cores).map(|row| bar(&pick(row))))
                .collect(),
        };
        let groups = self.names.iter().map(ToString::to_string).collect();
        let rows = self.cores.iter().map(colour).collect();
        bars(&Bars { title, y, groups, rows, marked: self.baseline() })
    }

    /// The positions of the baseline's variants in `names`.
    fn baseline(&self) -> Vec<usize> {
        let called = |name: &str| {
            let row = self.rows.iter().find(|row| row.name == name);
            row.is_some_and(|row| row.case.variant.is_called(self.base))
        };
        (0..self.names.len()).filter(|&at| called(self.names[at])).collect()
    }
}

/// Minimum and maximum, where there is more than one round.
fn range(spread: &Spread) -> Option<(f64, f64)> {
    (spread.count > 1).then_some((spread.min, spread.max))
}

fn bar(spread: &Spread) -> Bar {
    Bar { value: spread.median, spread: range(spread) }
}

/// A line for each tracker over its cores; bars where there is only one number of cores.
fn throughput(mix: Mix, best: &Best) -> String {
    let title = match mix {
        Mix::Published => format!("Replies per second, load: {mix}"),
        _ => format!("Right replies per second, load: {mix}"),
    };
    let y = Axis::linear("replies per second");
    if best.cores.len() < 2 {
        return best.bars(title, y, |row| row.rate);
    }
    let line = |name: &&str| {
        let points = best.cores.iter().filter_map(|&cores| {
            let rate = best.of(name, cores)?.rate;
            Some(Point { x: cores as f64, y: rate.median, spread: range(&rate) })
        });
        Line { name: (*name).into(), points: points.collect() }
    };
    let x = Axis::linear("tracker cores").marks(best.cores.iter().map(|cores| *cores as f64));
    let drawn = best.names.iter().map(line).collect();
    lines(&Lines { title, x, y, lines: drawn, spans: Vec::new() })
}

fn cpu(mix: Mix, best: &Best) -> String {
    let reply = match mix {
        Mix::Published => "reply",
        _ => "right reply",
    };
    let title = format!("CPU time of the tracker per {reply}, load: {mix}");
    let y = Axis::linear("CPU time per reply").unit(Unit::Micros);
    best.bars(title, y, |row| row.cpu_per_reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::example;

    #[test]
    fn every_load_has_two_pictures_with_every_tracker() {
        let pictures = pictures(&example());
        let names: Vec<_> = pictures.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["throughput-spread.svg", "cpu-spread.svg"]);
        for (name, svg) in &pictures {
            assert!(svg.starts_with("<svg"), "{name}");
            for tracker in ["onrush (colocated)", "onrush (split)"] {
                assert!(svg.contains(tracker), "{name}: {tracker}");
            }
        }
    }

    #[test]
    fn several_cores_are_lines() {
        let mut summary = example();
        let mut wide = summary.rows[0].clone();
        wide.case.seats.tracker_cores = 2;
        summary.rows.push(wide);
        let (_, svg) = &pictures(&summary)[0];
        assert!(svg.contains("tracker cores"), "{svg}");
    }
}
