//! Medians and the spread around them.

/// A summary of several measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// The summary of these values in any order; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (upper, lower) = (values.len() / 2, (values.len() - 1) / 2);
        let median = f64::midpoint(values[upper], values[lower]);
        Some(Self { median, min, max, count: values.len() })
    }

    /// The median of these values; `None` without values.
    pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
        Self::of(values).map(|spread| spread.median)
    }

    /// Distance from minimum to maximum in percent of the median; 0 for a median of 0.
    pub fn percent(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median * 100.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let spread = Spread::of([5.0, 1.0, 3.0, 100.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.count), (4.0, 1.0, 100.0, 4));
        assert_eq!(spread.percent(), 2475.0);
        let one = Spread::of([7.0]).unwrap();
        assert_eq!((one.median, one.percent()), (7.0, 0.0));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([0.0, 0.0]).unwrap().percent(), 0.0);
    }
}
