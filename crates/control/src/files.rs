//! Counters of the files that the daemon writes: snapshots and exports.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onrush_tracker::metrics::Counter;

/// Counters of one kind of file. The main thread updates them after each attempt to write.
#[derive(Debug, Default)]
pub struct FileWrites {
    /// Files written completely.
    pub written: Counter,
    /// Failed writes; the previous file stays in place.
    pub failed: Counter,
    /// Time of the last successful write, in seconds since 1970; 0 before the first.
    pub last: Counter,
    /// Size of the last written file, in bytes.
    pub bytes: Counter,
    /// Duration of the last successful write, in milliseconds.
    pub took: Counter,
}

impl FileWrites {
    /// Counts a successful write.
    pub fn wrote(&self, bytes: u64, took: Duration) {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.written.add(1);
        self.last.set(unix.as_secs());
        self.bytes.set(bytes);
        self.took.set(took.as_millis() as u64);
    }

    /// Duration of the last successful write, in seconds.
    pub fn seconds(&self) -> f64 {
        self.took.get() as f64 / 1e3
    }
}

/// Counters of all kinds of files. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Snapshots of the peers.
    pub snapshot: Arc<FileWrites>,
    /// Full scrapes.
    pub export: Arc<FileWrites>,
}
