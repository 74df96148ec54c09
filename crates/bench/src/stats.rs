//! Medians and the spread around them.

use serde::{Deserialize, Serialize};

/// A summary of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// Median absolute deviation.
    pub mad: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// The summary of these values in any order; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = median(&values);
        let mut distances: Vec<_> = values.iter().map(|value| (value - middle).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self { median: middle, min, max, mad: median(&distances), count: values.len() })
    }

    /// Distance from minimum to maximum in percent of the median; 0 for a median of 0.
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median * 100.0 }
    }
}

/// The median of sorted values, at least one.
fn median(sorted: &[f64]) -> f64 {
    let (upper, lower) = (sorted.len() / 2, (sorted.len() - 1) / 2);
    (sorted[upper] + sorted[lower]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let spread = Spread::of([5.0, 1.0, 3.0, 100.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.count), (4.0, 1.0, 100.0, 4));
        // Distances 1, 3, 1, 96.
        assert_eq!(spread.mad, 2.0);
        assert_eq!(spread.percent(), 2475.0);
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.median, one.mad, one.percent()), (7.0, 0.0, 0.0));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().percent(), 0.0);
    }
}
