//! A line while it runs: redrawn in place on a terminal, one after the other elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::series::Sample;

/// What has come since the last line.
fn line(samples: &[Sample]) -> String {
    let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
    let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    let (right, wrong, lost) = (sum(|s| s.right), sum(|s| s.wrong), sum(|s| s.lost));
    let all = right + wrong + lost;
    let loss = if all == 0 { 0.0 } else { lost as f64 * 100.0 / all as f64 };
    let latency = samples.last().map(|sample| sample.latency).unwrap_or_default();
    let mut line = format!(
        "{:>9.0} replies/s  loss {loss:.2} %  p50 {:.0} us  p99 {:.0} us",
        right as f64 / seconds,
        latency.p50,
        latency.p99,
    );
    if wrong > 0 {
        line += &format!("  WRONG {wrong}");
    }
    line
}

/// The line.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// Whether anything is shown.
    quiet: bool,
    whole: Duration,
    every: Duration,
    shown: Duration,
    /// Not shown yet.
    samples: Vec<Sample>,
}

impl Progress {
    /// A line for a run of `whole`; none when `quiet`.
    pub fn new(whole: Duration, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:24} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(whole.as_millis() as u64).with_style(style)
        });
        let every = match bar {
            Some(_) => Duration::from_millis(500),
            None => Duration::from_secs(1).max(whole / 30),
        };
        Self { bar, quiet, whole, every, shown: Duration::ZERO, samples: Vec::new() }
    }

    /// Shows a sample that was made at `now`, counted from the run's beginning, when it is time.
    pub fn show(&mut self, now: Duration, sample: &Sample) {
        if self.quiet {
            return;
        }
        self.samples.push(sample.clone());
        if now.saturating_sub(self.shown) < self.every {
            return;
        }
        self.shown = now;
        let left = self.whole.saturating_sub(now).as_secs_f64().ceil();
        let line = format!("{:<8} {}  {left:.0} s left", sample.phase, line(&self.samples));
        self.samples.clear();
        match &self.bar {
            Some(bar) => {
                bar.set_position(now.as_millis() as u64);
                bar.set_message(line);
            }
            // A closed stderr is no reason to stop measuring.
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// Removes the line.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latency;

    #[test]
    fn a_line_shows_what_came_since_the_last_one() {
        let latency = Latency { p50: 2000.0, ..Latency::default() };
        let sample = Sample { seconds: 1.0, right: 200, lost: 50, latency, ..Sample::default() };
        let shown = line(&[sample.clone(), sample.clone()]);
        assert!(shown.contains(" 200 replies/s"), "{shown}");
        assert!(shown.contains("loss 20.00 %"), "{shown}");
        assert!(shown.contains("p50 2000 us"), "{shown}");
        assert!(!shown.contains("WRONG"), "{shown}");
        assert!(line(&[Sample { wrong: 7, ..sample }]).contains("WRONG 7"));
    }
}
