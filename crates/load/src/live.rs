//! Progress of a run on standard error, where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::series::Sample;

/// The bar: time and phase, and the figures of the last sample below.
const BAR: &str = "{pos}/{len} s {wide_bar} {prefix}\n{wide_msg}";

/// The progress of a run.
#[derive(Debug)]
pub struct Live {
    /// Hidden where standard error is no terminal. Removes itself when it is dropped.
    bar: ProgressBar,
    /// Wrong replies so far.
    wrong: u64,
}

impl Live {
    /// Progress of a run of `whole`; none when `quiet`.
    pub fn new(whole: Duration, quiet: bool) -> Self {
        let bar = match quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(whole.as_secs_f64().ceil() as u64),
        };
        bar.set_style(ProgressStyle::with_template(BAR).expect("its keys exist"));
        Self { bar, wrong: 0 }
    }

    /// Shows a sample that was made at `now`, since the start of the run.
    pub fn show(&mut self, now: Duration, sample: &Sample) {
        self.wrong += sample.wrong;
        self.bar.set_prefix(sample.phase.clone());
        self.bar.set_message(line(sample, self.wrong));
        self.bar.set_position(now.as_secs().min(self.bar.length().unwrap_or(0)));
    }
}

/// The figures of a sample, and a number of wrong replies.
fn line(sample: &Sample, wrong: u64) -> String {
    let mut line = format!(
        "{:>9.0} replies/s  loss {:.2} %  p50 {:.0} us  p99 {:.0} us",
        sample.rate(),
        sample.loss_percent(),
        sample.latency.p50,
        sample.latency.p99,
    );
    if wrong > 0 {
        line += &format!("  WRONG {wrong}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    fn sample() -> Sample {
        let latency = Latency { p50: 2000.0, ..Latency::default() };
        let phase = "measure".into();
        Sample { seconds: 1.0, right: 200, lost: 50, latency, phase, ..Sample::default() }
    }

    /// The lines about wrong replies are not overwritten by later ones.
    #[test]
    fn the_bar_fits_its_terminal_and_removes_itself() {
        for columns in [10, 80] {
            let terminal = InMemoryTerm::new(5, columns);
            let mut live = Live::new(Duration::from_secs(12), true);
            live.bar.set_length(12);
            let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
            live.bar.set_draw_target(target);
            live.show(Duration::from_secs(3), &Sample { wrong: 7, ..sample() });
            live.show(Duration::from_secs(4), &sample());
            let shown = terminal.contents();
            if columns == 80 {
                assert_eq!(shown.lines().count(), 2, "{shown}");
                for part in ["4/12 s", "measure", "200 replies/s", "loss 20.00 %", "WRONG 7"] {
                    assert!(shown.contains(part), "{part}: {shown}");
                }
            }
            drop(live);
            assert_eq!(terminal.contents(), "");
        }
    }
}
