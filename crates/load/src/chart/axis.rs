//! An axis: the position of values, and the marks.

use onrush_text::numbers::Unit;

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its title, with the unit where [`Unit`] does not put it on the marks.
    pub title: String,
    /// The scale of values.
    scale: Scale,
    /// The unit of the marks.
    pub unit: Unit,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
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
        Self { title: title.into(), scale: Scale::Linear, unit: Unit::Plain }
    }

    /// A logarithmic axis of plain numbers.
    pub fn log(title: impl Into<String>) -> Self {
        Self { scale: Scale::Log, ..Self::linear(title) }
    }

    /// An axis of shares from 0 to 1, with 90 %, 99 % and 99.9 % at equal distances.
    pub fn nines(title: impl Into<String>) -> Self {
        Self { scale: Scale::Nines, ..Self::linear(title) }
    }

    /// The same axis with marks in `unit`.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// The position of `value` in the axis' scale; `None` where it has none.
    fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Nines => -(1.0 - value).log10(),
        };
        place.is_finite().then_some(place)
    }

    /// The axis for these values, between two positions. With `zero` a linear axis starts at 0 and
    /// ends above the largest value.
    pub(super) fn fit(
        &self,
        values: impl IntoIterator<Item = f64>,
        zero: bool,
        ends: [f64; 2],
    ) -> Fitted<'_> {
        let places = values.into_iter().filter_map(|value| self.place(value));
        let bounds = places.map(|place| (place, place));
        let bounds = bounds.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        let (low, high) = bounds.unwrap_or((0.0, 1.0));
        let scale = match self.scale {
            Scale::Linear => self.fit_linear(low, high, zero),
            Scale::Log => fit_log(low, high),
            Scale::Nines => fit_nines(high),
        };
        Fitted { axis: self, scale, ends }
    }

    fn fit_linear(&self, low: f64, high: f64, zero: bool) -> ScaleEnds {
        let (low, high) = if zero { (low.min(0.0), high * 1.06) } else { (low, high) };
        let high = if high > low { high } else { low + 1.0 };
        let base = if self.unit == Unit::Bytes { 2.0f64 } else { 10.0 };
        let raw = (high - low) / 6.0;
        let power = base.powf(raw.log(base).floor());
        let steps: &[f64] = if base == 2.0 { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
        let step = steps.iter().map(|n| n * power).find(|step| *step >= raw).unwrap_or(raw);
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (low, high, (first..=last).map(|n| n as f64 * step).collect())
    }

    /// The label of the mark at `place`.
    fn label(&self, place: f64) -> String {
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

/// An axis with its ends, and with marks, in a picture.
#[derive(Debug)]
pub(super) struct Fitted<'a> {
    axis: &'a Axis,
    /// Ends and marks in the axis' scale.
    scale: ScaleEnds,
    /// The positions of the ends.
    ends: [f64; 2],
}

/// The lowest place, the highest one, and the marks.
type ScaleEnds = (f64, f64, Vec<f64>);

impl Fitted<'_> {
    /// The position of a value; `None` where it has none.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        self.axis.place(value).map(|place| self.position(place))
    }

    /// The marks: positions and labels.
    pub(super) fn marks(&self) -> Vec<(f64, String)> {
        let (_, _, marks) = &self.scale;
        marks.iter().map(|place| (self.position(*place), self.axis.label(*place))).collect()
    }

    /// The position of a place, to a tenth.
    fn position(&self, place: f64) -> f64 {
        let ((low, high, _), [from, to]) = (&self.scale, self.ends);
        ((from + (place - low) / (high - low) * (to - from)) * 10.0).round() / 10.0
    }
}

/// Ends at the next 1, 2 or 5 on both sides; marks at these, or at decades where there are several.
fn fit_log(low: f64, high: f64) -> ScaleEnds {
    let of = |decade: i32| [1.0f64, 2.0, 5.0].map(|n| n.log10() + f64::from(decade));
    let (first, last) = (low.floor() as i32 - 1, high.ceil() as i32 + 1);
    let all: Vec<f64> = (first..=last).flat_map(of).collect();
    let from = all.iter().copied().rfind(|mark| *mark <= low + 1e-9).unwrap_or(low);
    let to = all.iter().copied().find(|mark| *mark >= high - 1e-9 && *mark > from);
    let to = to.unwrap_or(from + 1.0);
    let every = to - from > 3.01;
    let inside = |mark: &f64| (from - 1e-9..=to + 1e-9).contains(mark);
    let wanted = |mark: &f64| !every || (mark - mark.round()).abs() < 1e-9;
    (from, to, all.into_iter().filter(inside).filter(wanted).collect())
}

fn fit_nines(high: f64) -> ScaleEnds {
    let high = high.max(1.0);
    let nines = (1..=high.floor() as i32).map(f64::from);
    (0.0, high, [0.0, 2f64.log10()].into_iter().chain(nines).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        let marks = axis.fit(values.iter().copied(), true, [0.0, 1.0]).marks();
        marks.into_iter().map(|(_, label)| label).collect()
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
        let positions = linear.fit([0.0, 100.0], false, [84.0, 738.0]).marks();
        assert_eq!((positions[0].0, positions[5].0), (84.0, 738.0));
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
