//! Progress of a run: a picture on a terminal, lines elsewhere, or nothing.

mod picture;

use std::io::{IsTerminal, Stderr, Write};
use std::time::Duration;

use crate::series::Sample;
use picture::{Picture, Screen};

/// Columns of a terminal of unknown width.
const COLUMNS: u16 = 80;

/// The progress of a run.
#[derive(Debug)]
pub struct Live(Shown);

#[derive(Debug)]
enum Shown {
    Nothing,
    Lines(Lines),
    Picture(Picture, Screen<Stderr>),
}

impl Live {
    /// Progress of a run of `whole`, on standard error; none when `quiet`.
    pub fn new(whole: Duration, quiet: bool) -> Self {
        let stderr = std::io::stderr();
        Self(match quiet {
            true => Shown::Nothing,
            false if stderr.is_terminal() => {
                let colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
                Shown::Picture(Picture::new(whole), Screen::new(stderr, colors))
            }
            false => Shown::Lines(Lines::new(whole)),
        })
    }

    /// Shows a sample that was made at `now`, since the start of the run.
    pub fn show(&mut self, now: Duration, sample: &Sample) {
        match &mut self.0 {
            Shown::Nothing => {}
            Shown::Lines(lines) => {
                if let Some(line) = lines.add(now, sample) {
                    // A closed standard error does not end the run.
                    drop(writeln!(std::io::stderr(), "{line}"));
                }
            }
            Shown::Picture(picture, screen) => {
                picture.add(now, sample);
                let size = ratatui::crossterm::terminal::size();
                screen.draw(picture, size.map_or(COLUMNS, |(columns, _)| columns));
            }
        }
    }

    /// Clears the picture.
    pub fn finish(self) {
        if let Shown::Picture(_, mut screen) = self.0 {
            screen.clear();
        }
    }
}

/// A progress line every few seconds.
#[derive(Debug)]
struct Lines {
    whole: Duration,
    every: Duration,
    shown: Duration,
    /// Not shown yet.
    samples: Vec<Sample>,
}

impl Lines {
    fn new(whole: Duration) -> Self {
        let every = Duration::from_secs(1).max(whole / 30);
        Self { whole, every, shown: Duration::ZERO, samples: Vec::new() }
    }

    /// The next line, when it is time for it.
    fn add(&mut self, now: Duration, sample: &Sample) -> Option<String> {
        self.samples.push(sample.clone());
        if now.saturating_sub(self.shown) < self.every {
            return None;
        }
        self.shown = now;
        let left = self.whole.saturating_sub(now).as_secs_f64().ceil();
        let line = format!("{:<8} {}  {left:.0} s left", sample.phase, line(&self.samples));
        self.samples.clear();
        Some(line)
    }
}

/// What has come since the last line.
fn line(samples: &[Sample]) -> String {
    let total = Sample::total(samples);
    let mut line = format!(
        "{:>9.0} replies/s  loss {:.2} %  p50 up to {:.0} us  p99 up to {:.0} us",
        total.rate(),
        total.loss_percent(),
        total.latency.p50,
        total.latency.p99,
    );
    if total.wrong > 0 {
        line += &format!("  WRONG {}", total.wrong);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    #[test]
    fn a_line_shows_what_came_since_the_last_one() {
        let latency = Latency { p50: 2000.0, ..Latency::default() };
        let sample = Sample { seconds: 1.0, right: 200, lost: 50, latency, ..Sample::default() };
        let shown = line(&[sample.clone(), sample.clone()]);
        assert!(shown.contains(" 200 replies/s"), "{shown}");
        assert!(shown.contains("loss 20.00 %"), "{shown}");
        assert!(shown.contains("p50 up to 2000 us"), "{shown}");
        assert!(!shown.contains("WRONG"), "{shown}");
        assert!(line(&[Sample { wrong: 7, ..sample }]).contains("WRONG 7"));
    }
}
