//! The results of each step of a schedule: its samples together. A request is lost a timeout after
//! it was sent, so the losses of a step are in later samples.

use super::Report;
use crate::series::Sample;

/// One step of an open loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Its name in the samples.
    pub(super) name: String,
    /// Measured seconds.
    pub(super) seconds: f64,
    /// Requests sent per second.
    pub(super) sent_rate: f64,
    /// Right replies per second.
    pub(super) rate: f64,
    /// Lost requests, in percent of the sent ones.
    pub(super) loss_percent: f64,
    /// The highest 99th percentile of its samples in microseconds, as percentiles do not add up.
    pub(super) p99: f64,
}

/// The steps in order; empty where the load has only one.
pub(super) fn steps(report: &Report) -> Vec<Step> {
    let measured = || report.series.iter().filter(|sample| sample.phase.starts_with("step "));
    let mut names: Vec<&str> = measured().map(|sample| sample.phase.as_str()).collect();
    names.dedup();
    let step = |name: &str| {
        let samples: Vec<&Sample> = measured().filter(|sample| sample.phase == name).collect();
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(|s| of(s)).sum::<u64>() as f64;
        let seconds = samples.iter().map(|sample| sample.seconds).sum::<f64>();
        let start = samples.first().map_or(0.0, |sample| sample.time - sample.seconds);
        let end = samples.last().map_or(0.0, |sample| sample.time);
        let sent_then = |sample: &&Sample| {
            let middle = sample.time - sample.seconds / 2.0 - report.setup.timeout;
            start <= middle && middle < end
        };
        let lost = report.series.iter().filter(sent_then).map(|sample| sample.lost).sum::<u64>();
        Step {
            name: name.to_owned(),
            seconds,
            sent_rate: sum(|s| s.sent) / seconds.max(1e-9),
            rate: sum(|s| s.right) / seconds.max(1e-9),
            loss_percent: lost as f64 * 100.0 / sum(|s| s.sent).max(1.0),
            p99: samples.iter().map(|sample| sample.latency.p99).fold(0.0, f64::max),
        }
    };
    names.into_iter().map(step).collect()
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
        assert_eq!(report.setup.timeout, 1.0);
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
        let steps = steps(&report);
        assert_eq!(steps.len(), 2);
        let Step { seconds, sent_rate, rate, loss_percent, p99, .. } = &steps[0];
        assert_eq!((*seconds, *sent_rate, *rate), (1.0, 1000.0, 800.0));
        assert_eq!((*loss_percent, *p99), (10.0, 300.0));
        assert_eq!((steps[1].rate, steps[1].loss_percent), (1800.0, 2.0));
        let shown = report.to_table();
        assert!(shown.contains("step 2: 2,000 per second"), "{shown}");
        assert!(report.to_html().contains("step 1: 1,000 per second"));
    }

    #[test]
    fn a_load_of_one_rate_has_no_steps() {
        let mut report = super::super::tests::example();
        report.series = vec![sample(0.5, "measure", 10, 0, 1.0)];
        assert_eq!(steps(&report), []);
        assert!(!report.to_table().contains("step 1"));
    }
}
