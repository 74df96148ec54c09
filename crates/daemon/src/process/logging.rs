//! Log output, and a limit for warnings that repeat.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};
use simple_logger::SimpleLogger;

/// Starts logging to standard error; colours only for a terminal. A second call changes nothing.
pub fn start(level: LevelFilter) {
    let logger = SimpleLogger::new()
        // What is shown is up to the `log` crate's own level, which may change.
        .with_level(LevelFilter::Trace)
        .with_utc_timestamps()
        .with_colors(std::io::stderr().is_terminal());
    log::set_max_level(level);
    // Fails only when a logger is there already (tests start several trackers).
    let _ = log::set_boxed_logger(Box::new(Lossy(logger)));
}

/// Loses what cannot be written, because the disk is full or the reader gone, where the logger
/// inside panics: a tracker does not end because nobody can hear it.
struct Lossy(SimpleLogger);

impl Log for Lossy {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        // The logger holds nothing that a line cut short could leave half done.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.log(record)));
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Lets warnings of one kind through a few times per minute, and says how many it held back.
#[derive(Debug)]
pub struct WarningLimit {
    per_minute: u32,
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    shown: u32,
    held_back: u64,
}

/// What to do with a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Show it; so many of its kind were held back since the last one shown.
    Show {
        /// How many.
        held_back: u64,
    },
    /// Count it, show nothing.
    HoldBack,
}

impl WarningLimit {
    /// At most `per_minute` warnings of each kind.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, kinds: HashMap::new() }
    }

    /// Shows up to so many of each kind from now on.
    pub fn follow(&mut self, per_minute: u32) {
        self.per_minute = per_minute;
    }

    /// Whether a warning of this kind may be shown at `now`.
    pub fn ask(&mut self, kind: &'static str, now: Instant) -> Permit {
        let entry = self.kinds.entry(kind).or_insert(Kind { since: now, shown: 0, held_back: 0 });
        if now.duration_since(entry.since) >= Duration::from_secs(60) {
            (entry.since, entry.shown) = (now, 0);
        }
        if entry.shown >= self.per_minute {
            entry.held_back += 1;
            return Permit::HoldBack;
        }
        entry.shown += 1;
        Permit::Show { held_back: std::mem::take(&mut entry.held_back) }
    }

    /// The text of a warning if it may be shown at `now`, with how many of its kind were not.
    pub fn pass(
        &mut self,
        kind: &'static str,
        now: Instant,
        text: impl FnOnce() -> String,
    ) -> Option<String> {
        match self.ask(kind, now) {
            Permit::Show { held_back: 0 } => Some(text()),
            Permit::Show { held_back } => {
                Some(format!("{} ({held_back} more of these were not shown)", text()))
            }
            Permit::HoldBack => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_warnings_are_held_back_and_counted() {
        let start = Instant::now();
        let mut limit = WarningLimit::new(2);
        let mut ask = |kind, second| limit.ask(kind, start + Duration::from_secs(second));
        assert_eq!(ask("drops", 0), Permit::Show { held_back: 0 });
        assert_eq!(ask("drops", 1), Permit::Show { held_back: 0 });
        assert_eq!(ask("drops", 2), Permit::HoldBack);
        assert_eq!(ask("stuck", 2), Permit::Show { held_back: 0 }, "kinds do not mix");
        assert_eq!(ask("drops", 59), Permit::HoldBack);
        assert_eq!(ask("drops", 60), Permit::Show { held_back: 2 });
    }
}
