//! The unit of time, distributions of latencies, and their six figures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Nanoseconds since the start of the run.
pub type Nanos = u64;

/// Lowest latency in nanoseconds that a distribution distinguishes.
const MIN_LATENCY: Nanos = 1_000;
/// Highest latency in nanoseconds that a distribution distinguishes: a minute.
const MAX_LATENCY: Nanos = 60_000_000_000;

/// A distribution of latencies in nanoseconds, to this number of digits.
#[derive(Clone, Debug)]
pub struct Latencies<const DIGITS: u8 = 3>(pub Histogram<u64>);

impl<const DIGITS: u8> Default for Latencies<DIGITS> {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(MIN_LATENCY, MAX_LATENCY, DIGITS);
        Self(histogram.expect("these bounds are valid"))
    }
}

impl<const DIGITS: u8> Latencies<DIGITS> {
    /// Adds those of another distribution.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }
}

/// Latencies in microseconds; all 0 without replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

impl Latency {
    /// The figures of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}
