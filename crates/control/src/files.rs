//! State of the files that the daemon writes: snapshots and exports.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::api::stats::FileStats;
use crate::mutex::lock;

/// State of one kind of file. The main thread changes it after each attempt to write.
#[derive(Debug, Default)]
pub struct FileWrites(Mutex<FileStats>);

impl FileWrites {
    /// Counts a successful write.
    pub fn wrote(&self, bytes: u64, seconds: f64) {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut stats = lock(&self.0);
        stats.written += 1;
        stats.last = Some(unix.as_secs());
        stats.bytes = bytes;
        stats.seconds = seconds;
    }

    /// Counts a failed write.
    pub fn failed(&self) {
        lock(&self.0).failed += 1;
    }

    /// The state at the moment.
    pub fn stats(&self) -> FileStats {
        *lock(&self.0)
    }
}

/// State of all kinds of files.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Snapshots of the peers.
    pub snapshot: Arc<FileWrites>,
    /// Full scrapes.
    pub export: Arc<FileWrites>,
}
