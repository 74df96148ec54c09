//! The results of each step of a schedule: its samples together. A request is lost a timeout after
//! it was sent, so the losses of a step are in later samples.

use super::Report;
use crate::series::Sample;
use onrush_text::numbers::{Unit, grouped};

/// A row per step in order; none where the load has only one.
pub(super) fn rows(report: &Report) -> Vec<Vec<String>> {
    let measured = || report.series.iter().filter(|sample| sample.phase.starts_with("step "));
    let mut names: Vec<&str> = measured().map(|sample| sample.phase.as_str()).collect();
    names.dedup();
    let row = |name: &str| {
        let samples: Vec<&Sample> = measured().filter(|sample| sample.phase == name).collect();
        let total = Sample::total(samples.iter().copied());
        let start = samples.first().map_or(0.0, |sample| sample.time - sample.seconds);
        let end = samples.last().map_or(0.0, |sample| sample.time);
        let sent_then = |sample: &&Sample| {
            let middle = sample.time - sample.seconds / 2.0 - report.setup.load.timeout;
            start <= middle && middle < end
        };
        let lost = report.series.iter().filter(sent_then).map(|sample| sample.lost).sum::<u64>();
        vec![
            name.trim_start_matches("step ").replace(" per second", "/s"),
            format!("{:.1} s", total.seconds),
            grouped(total.sent_rate()),
            grouped(total.rate()),
            format!("{:.3} %", lost as f64 * 100.0 / total.sent.max(1) as f64),
            Unit::Micros.label(total.latency.p99),
        ]
    };
    names.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    fn sample(time: f64, phase: &str, right: u64, lost: u64, p99: f64) -> Sample {
        let latency = Latency { p99, ..Latency::default() };
        let phase = phase.into();
        let sent = right + 100;
        Sample { time, phase, seconds: 0.5, sent, right, lost, latency, ..Sample::default() }
    }

    /// Requests of the first step are lost in the second one, as the timeout is a second.
    #[test]
    fn a_step_has_its_samples_and_its_losses() {
        let mut report = super::super::tests::example();
        assert_eq!(report.setup.load.timeout, 1.0);
        let (one, two) = ("step 1: 1,000 per second", "step 2: 2,000 per second");
        report.series = vec![
            sample(0.5, "warm-up", 900, 0, 9e9),
            sample(1.0, one, 500, 7, 100.0),
            sample(1.5, one, 300, 7, 300.0),
            sample(2.0, two, 900, 60, 200.0),
            sample(2.5, two, 900, 40, 200.0),
            sample(3.0, "drain", 0, 30, 9e9),
            sample(3.5, "drain", 0, 10, 9e9),
        ];
        let wanted = [
            ["1: 1,000/s", "1.0 s", "1,000", "800", "10.000 %", "300 us"],
            ["2: 2,000/s", "1.0 s", "2,000", "1,800", "2.000 %", "200 us"],
        ];
        assert_eq!(rows(&report), wanted);
        let shown = report.to_table();
        assert!(shown.contains("2: 2,000/s"), "{shown}");
        assert!(report.to_html().contains("1: 1,000/s"));
    }

    #[test]
    fn a_load_of_one_rate_has_no_steps() {
        let mut report = super::super::tests::example();
        report.series = vec![sample(0.5, "measure", 10, 0, 1.0)];
        assert!(rows(&report).is_empty());
        assert!(!report.to_table().contains("1: "));
    }
}
