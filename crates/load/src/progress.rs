//! A line while it runs: redrawn in place on a terminal, one after the other elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::generator::Recent;

/// What the workers tell while they run.
#[derive(Debug, Default)]
pub struct Live {
    right: AtomicU64,
    wrong: AtomicU64,
    lost: AtomicU64,
    latency: Mutex<Option<Histogram<u64>>>,
}

impl Live {
    /// Adds what a worker has counted since it told last, and empties it.
    pub fn take(&self, recent: &mut Recent) {
        self.right.fetch_add(std::mem::take(&mut recent.right), Ordering::Relaxed);
        self.wrong.fetch_add(std::mem::take(&mut recent.wrong), Ordering::Relaxed);
        self.lost.fetch_add(std::mem::take(&mut recent.lost), Ordering::Relaxed);
        if let Ok(mut latency) = self.latency.lock() {
            let all = latency.get_or_insert_with(|| recent.latency.clone());
            if all.is_empty() || all.add(&recent.latency).is_err() {
                *all = recent.latency.clone();
            }
        }
        recent.latency.reset();
    }

    /// What has come since the last call, over `seconds`.
    fn line(&self, seconds: f64) -> String {
        let [right, wrong, lost] =
            [&self.right, &self.wrong, &self.lost].map(|count| count.swap(0, Ordering::Relaxed));
        let all = right + wrong + lost;
        let loss = if all == 0 { 0.0 } else { lost as f64 * 100.0 / all as f64 };
        let latency = self.latency.lock().ok().and_then(|mut latency| latency.take());
        let at = |quantile| {
            latency.as_ref().map_or(0.0, |latency| latency.value_at_quantile(quantile) as f64 / 1e3)
        };
        let mut line = format!(
            "{:>9.0} replies/s  loss {loss:.2} %  p50 {:.0} us  p99 {:.0} us",
            right as f64 / seconds,
            at(0.5),
            at(0.99),
        );
        if wrong > 0 {
            line += &format!("  WRONG {wrong}");
        }
        line
    }
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
        Self { bar, quiet, whole, every, shown: Duration::ZERO }
    }

    /// Shows where the run is at `now`, counted from its beginning, when it is time.
    pub fn show(&mut self, now: Duration, phase: &str, live: &Live) {
        let passed = now.saturating_sub(self.shown);
        if self.quiet || passed < self.every {
            return;
        }
        self.shown = now;
        let left = self.whole.saturating_sub(now).as_secs_f64().ceil();
        let line = format!("{phase:<8} {}  {left:.0} s left", live.line(passed.as_secs_f64()));
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

    #[test]
    fn a_line_shows_what_came_since_the_last_one() {
        let live = Live::default();
        for right in [300, 100] {
            let mut recent = Recent { right, lost: 50, ..Recent::default() };
            recent.latency.saturating_record(2_000_000);
            live.take(&mut recent);
            assert_eq!((recent.right, recent.lost, recent.latency.len()), (0, 0, 0));
        }
        let line = live.line(2.0);
        assert!(line.contains("200 replies/s"), "{line}");
        assert!(line.contains("loss 20.00 %"), "{line}");
        assert!(line.contains("p50 20"), "{line}");
        assert!(!line.contains("WRONG"), "{line}");
        assert!(live.line(1.0).contains(" 0 replies/s"));
        live.take(&mut Recent { wrong: 7, ..Recent::default() });
        assert!(live.line(1.0).contains("WRONG 7"));
    }
}
