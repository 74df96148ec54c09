//! Latencies by percentile.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Points per halving of the distance to 100 %, HdrHistogram's default.
const TICKS: u32 = 5;

/// A point of a latency's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Share of replies that took no longer, 0 to 1.
    pub share: f64,
    /// Microseconds.
    pub latency: f64,
    /// Replies that took no longer.
    pub count: u64,
}

/// The distribution of a histogram in nanoseconds; empty without replies.
pub(crate) fn curve(histogram: &Histogram<u64>) -> Vec<CurvePoint> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut count = 0;
    let points = histogram.iter_quantiles(TICKS).map(|step| {
        count += step.count_since_last_iteration();
        let (share, latency) = (step.quantile_iterated_to(), step.value_iterated_to());
        CurvePoint { share, latency: latency as f64 / 1e3, count }
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latencies;

    #[test]
    fn a_distribution_has_the_figures_of_the_histogram() {
        let mut histogram = Latencies::<3>::default().0;
        (1..=10_000u64).for_each(|n| histogram.saturating_record(n * 1000));
        let curve = curve(&histogram);
        for CurvePoint { share, latency, count } in &curve {
            let expected = histogram.value_at_quantile(*share) as f64 / 1e3;
            // At share 0 a histogram returns the lower end of its finest bucket, 512 ns wide.
            assert!((latency - expected).abs() <= expected * 2e-3 + 0.6, "{latency} {expected}");
            let below = histogram.count_between(0, (latency * 1e3) as u64);
            assert!(count.abs_diff(below) <= 10, "{count} {below}");
        }
        let last = curve.last().unwrap();
        assert_eq!((last.share, last.count), (1.0, 10_000));
        assert!(curve.len() > 40, "{curve:?}");
    }

    #[test]
    fn an_empty_histogram_gives_an_empty_distribution() {
        assert_eq!(curve(&Latencies::<3>::default().0), []);
    }
}
