//! Latencies by percentile: for pictures, and as .hgrm text, the format of HdrHistogram's
//! `outputPercentileDistribution` and its plotters.

use std::io;
use std::path::Path;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Report;
use crate::latency::{Latencies, Latency};

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
pub(super) fn curve(histogram: &Histogram<u64>) -> Vec<CurvePoint> {
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

/// A distribution as .hgrm text, in microseconds.
pub(super) fn hgrm(latency: &Latency, curve: &[CurvePoint]) -> String {
    let mut out = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for CurvePoint { share, latency, count } in curve {
        out += &format!("{latency:>12.3} {share:>14.12} {count:>10}");
        let above = 1.0 / (1.0 - share);
        if above.is_finite() {
            out += &format!(" {above:>14.2}");
        }
        out.push('\n');
    }
    let count = curve.last().map_or(0, |point| point.count);
    let buckets = Latencies::<3>::default().0.buckets();
    let Latency { mean, stddev, max, .. } = latency;
    out += &format!("#[Mean    = {mean:>12.3}, StdDeviation   = {stddev:>12.3}]\n");
    out += &format!("#[Max     = {max:>12.3}, Total count    = {count:>12}]\n");
    out += &format!("#[Buckets = {buckets:>12}, SubBuckets     = {:>12}]\n", 2048);
    out + "#[Unit    = microseconds]\n"
}

impl Report {
    /// Writes distributions as .hgrm: to a directory `all.hgrm` and one file per kind of request
    /// that was answered, else the one of all requests to the file.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write_hgrm(&self, path: &Path) -> io::Result<()> {
        if !path.is_dir() {
            return std::fs::write(path, hgrm(&self.latency, &self.curve));
        }
        std::fs::write(path.join("all.hgrm"), hgrm(&self.latency, &self.curve))?;
        for kind in self.kinds.iter().filter(|kind| !kind.curve.is_empty()) {
            let name = format!("{}.hgrm", kind.kind.as_ref());
            std::fs::write(path.join(name), hgrm(&kind.latency, &kind.curve))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_figures_of_the_histogram() {
        let mut histogram = Latencies::<3>::default().0;
        (1..=10_000u64).for_each(|n| histogram.saturating_record(n * 1000));
        let text = hgrm(&Latency::of(&histogram), &curve(&histogram));
        let mut lines = text.lines();
        let heading: Vec<_> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(heading, ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        let mut rows = 0;
        for line in text.lines().skip(2).filter(|line| !line.starts_with('#')) {
            let fields: Vec<f64> =
                line.split_whitespace().map(|field| field.parse().unwrap()).collect();
            let (value, share, count) = (fields[0], fields[1], fields[2]);
            let expected = histogram.value_at_quantile(share) as f64 / 1e3;
            // At share 0 a histogram returns the lower end of its finest bucket, 512 ns wide.
            assert!((value - expected).abs() <= expected * 2e-3 + 0.6, "{line} {expected}");
            let below = histogram.count_between(0, (value * 1e3) as u64) as f64;
            assert!((count - below).abs() <= 10.0, "{line} {below}");
            match fields.get(3) {
                Some(above) => assert!((above - 1.0 / (1.0 - share)).abs() < 0.01 * above),
                None => assert_eq!((share, count), (1.0, 10_000.0)),
            }
            rows += 1;
        }
        assert!(rows > 40, "{text}");
        assert!(text.contains("Total count    =        10000]"), "{text}");
        assert!(text.contains("microseconds"));
    }

    #[test]
    fn an_empty_histogram_gives_an_empty_distribution() {
        let text = hgrm(&Latency::default(), &curve(&Latencies::<3>::default().0));
        assert!(text.contains("Total count    =            0]"), "{text}");
        assert!(!text.contains("NaN"));
    }
}
