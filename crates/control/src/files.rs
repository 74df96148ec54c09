//! Counters of the files that the daemon writes: snapshots and exports.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onrush_tracker::metrics::Counter;

/// How the writing of one kind of file went. The main thread counts, at the end of each.
#[derive(Debug, Default)]
pub struct FileWrites {
    /// Written whole.
    pub written: Counter,
    /// Not written, so that the former one stays.
    pub failed: Counter,
    /// When the last one was written, in seconds since 1970; 0 before the first.
    pub last: Counter,
    /// Its bytes.
    pub bytes: Counter,
    /// Milliseconds that it took.
    pub took: Counter,
}

impl FileWrites {
    /// One was written.
    pub fn wrote(&self, bytes: u64, took: Duration) {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.written.add(1);
        self.last.set(unix.as_secs());
        self.bytes.set(bytes);
        self.took.set(took.as_millis() as u64);
    }

    /// Seconds that the last one took.
    pub fn seconds(&self) -> f64 {
        self.took.get() as f64 / 1e3
    }
}

/// The files that a tracker writes now and then. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The peers.
    pub snapshot: Arc<FileWrites>,
    /// The full scrape.
    pub export: Arc<FileWrites>,
}
