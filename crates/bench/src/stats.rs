//! Medians and how far values lie from them.

use serde::{Deserialize, Serialize};

/// Several measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Median absolute deviation: half of the values are no further from the median.
    pub mad: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// Of these values, in any order; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = median(&values);
        let mut distances: Vec<_> = values.iter().map(|value| (value - middle).abs()).collect();
        distances.sort_by(f64::total_cmp);
        Some(Self { median: middle, min, max, mad: median(&distances), count: values.len() })
    }

    /// From the least to the greatest, in percent of the median; 0 for a median of 0.
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median * 100.0 }
    }
}

/// Of values in order, at least one.
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
