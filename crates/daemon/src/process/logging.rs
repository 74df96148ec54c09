//! Log output, and a rate limit for repeated warnings.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use log::{LevelFilter, Log, Metadata, Record};
use simple_logger::SimpleLogger;

/// Starts logging to standard error, with colours on a terminal. A second call changes nothing.
pub fn start(level: LevelFilter) {
    let logger = SimpleLogger::new()
        // The `log` crate's own level, which a reload changes, decides what is shown.
        .with_level(LevelFilter::Trace)
        .with_utc_timestamps()
        .with_colors(std::io::stderr().is_terminal());
    log::set_max_level(level);
    // Fails only if a logger is set already: tests start several trackers.
    let _ = log::set_boxed_logger(Box::new(Lossy(logger)));
}

/// Discards lines that cannot be written, because the disk is full or the reader has exited. The
/// inner logger panics then, and the tracker keeps serving.
struct Lossy(SimpleLogger);

impl Log for Lossy {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        // The inner logger has no state that a panic could leave inconsistent.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.log(record)));
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Limits the warnings of each kind per minute, and counts those held back.
#[derive(Debug)]
pub struct WarningLimit {
    /// Warnings of each kind per minute.
    pub per_minute: u32,
    kinds: HashMap<&'static str, Kind>,
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    shown: u32,
    held_back: u64,
}

impl WarningLimit {
    /// At most `per_minute` warnings of each kind.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute, kinds: HashMap::new() }
    }

    /// The text of a warning, with the number of its kind held back since the last one. `None`
    /// where the limit is reached at `now`.
    pub fn check(
        &mut self,
        kind: &'static str,
        now: Instant,
        text: impl FnOnce() -> String,
    ) -> Option<String> {
        let entry = self.kinds.entry(kind).or_insert(Kind { since: now, shown: 0, held_back: 0 });
        if now.duration_since(entry.since) >= Duration::from_secs(60) {
            (entry.since, entry.shown) = (now, 0);
        }
        if entry.shown >= self.per_minute {
            entry.held_back += 1;
            return None;
        }
        entry.shown += 1;
        match std::mem::take(&mut entry.held_back) {
            0 => Some(text()),
            held_back => Some(format!("{} ({held_back} more of these were not shown)", text())),
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
        let mut check = |kind, second| {
            limit.check(kind, start + Duration::from_secs(second), || "dropped".to_owned())
        };
        let shown = Some("dropped".to_owned());
        assert_eq!(check("drops", 0), shown);
        assert_eq!(check("drops", 1), shown);
        assert_eq!(check("drops", 2), None);
        assert_eq!(check("stall", 2), shown, "each kind has its own limit");
        assert_eq!(check("drops", 59), None);
        assert!(check("drops", 60).unwrap().contains("(2 more"));
    }
}
