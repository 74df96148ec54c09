//! An axis: the position of values, and the marks.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::bounds;
use onrush_text::numbers::Unit;

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit where [`Unit`] does not put it on the marks.
    pub title: String,
    /// The scale of values.
    pub scale: Scale,
    /// The unit of the marks.
    pub unit: Unit,
    /// The values to mark; empty for automatic marks.
    pub marks: Vec<f64>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear. The vertical axis starts at 0.
    Linear,
    /// Logarithmic; values of 0 and below are left out.
    Log,
    /// Shares from 0 to 1 by the logarithm of the rest: 90 %, 99 % and 99.9 % at equal distances.
    /// The share 1 is left out.
    Nines,
}

impl Axis {
    /// A linear axis of plain numbers.
    pub fn linear(title: impl Into<String>) -> Self {
        Self { title: title.into(), scale: Scale::Linear, unit: Unit::Plain, marks: Vec::new() }
    }

    /// A logarithmic axis of plain numbers.
    pub fn log(title: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(title) }
    }

    /// An axis of shares, see [`Scale::Nines`].
    pub fn nines(title: impl Into<String>) -> Self {
        Self { scale: Scale::Nines, ..Self::linear(title) }
    }

    /// The same axis with marks in `unit`.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// The same axis with these marks.
    #[must_use]
    pub fn marks(self, marks: impl IntoIterator<Item = f64>) -> Self {
        Self { marks: marks.into_iter().collect(), ..self }
    }

    /// The position of `value` in the axis' scale; `None` where it has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Nines => -(1.0 - value).log10(),
        };
        place.is_finite().then_some(place)
    }

    /// The ends and marks of the axis for these values. With `zero` a linear axis starts at 0 and
    /// ends above the largest value.
    pub(super) fn fit(&self, values: impl IntoIterator<Item = f64>, zero: bool) -> Fitted {
        let marked = self.marks.iter().copied();
        let all = values.into_iter().chain(marked).filter_map(|value| self.place(value));
        let (low, high) = bounds(all).unwrap_or((0.0, 1.0));
        let mut fitted = match self.scale {
            Scale::Linear => self.fit_linear(low, high, zero),
            Scale::Log => fit_log(low, high),
            Scale::Nines => fit_nines(high),
        };
        if !self.marks.is_empty() {
            fitted.marks = self.marks.iter().filter_map(|mark| self.place(*mark)).collect();
        }
        fitted
    }

    fn fit_linear(&self, low: f64, high: f64, zero: bool) -> Fitted {
        let (low, high) = if zero { (low.min(0.0), high * 1.06) } else { (low, high) };
        let high = if high > low { high } else { low + 1.0 };
        let base = if self.unit == Unit::Bytes { 2.0f64 } else { 10.0 };
        let raw = (high - low) / 6.0;
        let power = base.powf(raw.log(base).floor());
        let steps: &[f64] = if base == 2.0 { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
        let step = steps.iter().map(|n| n * power).find(|step| *step >= raw).unwrap_or(raw);
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        Fitted { low, high, marks: (first..=last).map(|n| n as f64 * step).collect() }
    }

    /// The label of the mark at `place`.
    pub(super) fn label(&self, place: f64) -> String {
        match (self.scale, self.unit) {
            (Scale::Nines, _) => {
                let percent = 100.0 - 100.0 * 10f64.powf(-place);
                let decimals = (place.round() as usize).saturating_sub(2);
                format!("{percent:.decimals$} %")
            }
            (Scale::Log, unit) => unit.label(10f64.powf(place)),
            (Scale::Linear, unit) => unit.label(place),
        }
    }
}

/// The ends and marks of an axis in its scale.
#[derive(Debug, PartialEq)]
pub(super) struct Fitted {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) marks: Vec<f64>,
}

impl Ranged for Fitted {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// Ends at the next 1, 2 or 5 on both sides; marks at these, or at decades where there are several.
fn fit_log(low: f64, high: f64) -> Fitted {
    let of = |decade: i32| [1.0f64, 2.0, 5.0].map(|n| n.log10() + f64::from(decade));
    let (first, last) = (low.floor() as i32 - 1, high.ceil() as i32 + 1);
    let all: Vec<f64> = (first..=last).flat_map(of).collect();
    let from = all.iter().copied().rfind(|mark| *mark <= low + 1e-9).unwrap_or(low);
    let to = all.iter().copied().find(|mark| *mark >= high - 1e-9 && *mark > from);
    let to = to.unwrap_or(from + 1.0);
    let every = to - from > 3.01;
    let inside = |mark: &f64| (from - 1e-9..=to + 1e-9).contains(mark);
    let wanted = |mark: &f64| !every || (mark - mark.round()).abs() < 1e-9;
    Fitted { low: from, high: to, marks: all.into_iter().filter(inside).filter(wanted).collect() }
}

fn fit_nines(high: f64) -> Fitted {
    let high = high.max(1.0);
    let nines = (1..=high.floor() as i32).map(f64::from);
    Fitted { low: 0.0, high, marks: [0.0, 2f64.log10()].into_iter().chain(nines).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        axis.fit(values.iter().copied(), true).marks.iter().map(|m| axis.label(*m)).collect()
    }

    #[test]
    fn marks_are_round_numbers() {
        let linear = Axis::linear("");
        assert_eq!(labels(&linear, &[0.0, 10.0]), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&linear, &[1.2, 2.9]), ["0", "1", "2", "3"]);
        let rates = ["0", "100 k", "200 k", "300 k", "400 k", "500 k"];
        assert_eq!(labels(&linear, &[480_000.0]), rates);
        let bytes = Axis::linear("").unit(Unit::Bytes);
        assert_eq!(labels(&bytes, &[100e6]), ["0 B", "32 MiB", "64 MiB", "96 MiB"]);
        assert_eq!(labels(&linear, &[]), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&linear.marks([1.0, 2.0, 4.0]), &[1.0]), ["1", "2", "4"]);
    }

    #[test]
    fn logarithmic_marks_are_decades() {
        let axis = Axis::log("").unit(Unit::Micros);
        let found = labels(&axis, &[0.0, 60.0, 900.0]);
        assert_eq!(found, ["50 us", "100 us", "200 us", "500 us", "1 ms"]);
        let found = labels(&axis, &[60.0, 2e6]);
        assert_eq!(found, ["100 us", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(axis.place(0.0), None);
        assert_eq!(labels(&axis, &[100.0]), ["100 us", "200 us"]);
    }

    #[test]
    fn nines_are_at_even_distances() {
        let axis = Axis::nines("");
        let found = labels(&axis, &[0.1, 0.99995]);
        assert_eq!(found, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        assert!((axis.place(0.999).unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(axis.place(1.0), None);
    }
}
