//! A file that a thread writes at an interval, mostly from the contents of running shards: one
//! write at a time, counted and logged.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use onrush_control::files::FileWrites;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::{ShardReader, ShardStream};

/// A file of one kind. `T` describes it in the log.
#[derive(Debug)]
pub(super) struct PeriodicFile<T> {
    /// The kind, in the log and as name of the thread.
    name: &'static str,
    /// When the last file was begun.
    last: Instant,
    /// Sends the result of the file being written.
    result: Option<Receiver<io::Result<T>>>,
    writes: Arc<FileWrites>,
}

impl<T: Display + Send + 'static> PeriodicFile<T> {
    /// The first write is due an interval from `now`.
    pub(super) fn new(name: &'static str, now: Instant) -> Self {
        Self { name, last: now, result: None, writes: Arc::default() }
    }

    /// The next write is due an interval from `now`.
    pub(super) fn begin(&mut self, now: Instant) {
        self.last = now;
    }

    /// State of these files.
    pub(super) fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Whether a file is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.result.is_some()
    }

    /// Whether the next file is due if one is written every `interval`; with zero none is.
    pub(super) fn is_due(&self, interval: Duration, now: Instant) -> bool {
        !self.is_writing() && !interval.is_zero() && now.duration_since(self.last) >= interval
    }

    /// Starts a reader of each shard, and a thread that writes what they read. The error is a text.
    pub(super) fn start<R: ShardReader>(
        &mut self,
        now: Instant,
        orders: &Orders,
        reader: impl Fn() -> R,
        write: impl FnOnce(ShardStream<R::Message>) -> io::Result<T> + Send + 'static,
    ) -> Result<(), String> {
        self.last = now;
        let stream = ShardStream::start(orders, reader).map_err(|error| error.to_string())?;
        self.spawn(now, move || write(stream))
    }

    /// Starts a thread that writes a file. The error is a text.
    pub(super) fn spawn(
        &mut self,
        now: Instant,
        write: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<(), String> {
        self.last = now;
        let (sender, result) = bounded(1);
        // The main thread may have exited.
        let run = move || drop(sender.send(write()));
        let spawned = thread::Builder::new().name(self.name.into()).spawn(run);
        spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
        self.result = Some(result);
        Ok(())
    }

    /// The result of the file being written, if there is one within `limit`.
    pub(super) fn finished(&mut self, limit: Duration) -> Option<io::Result<T>> {
        let result = match self.result.as_ref()?.recv_timeout(limit) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread panicked")),
            Err(RecvTimeoutError::Timeout) => return None,
        };
        self.result = None;
        Some(result)
    }

    /// Counts and logs a file that was written.
    pub(super) fn succeeded(&self, file: &T, bytes: u64, seconds: f64) {
        self.writes.wrote(bytes, seconds);
        log::info!("{}: {file}", self.name);
    }

    /// Counts and logs a file that was not written.
    pub(super) fn failed(&self, why: &str) {
        self.writes.failed();
        log::warn!("{} failed; the previous one stays: {why}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_the_beginning_of_service() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut file = PeriodicFile::<u64>::new("test", start);
        // Loading has taken longer than the interval.
        file.begin(at(60));
        let due = |second| file.is_due(Duration::from_secs(10), at(second));
        assert_eq!([69, 70].map(due), [false, true]);
        assert!(!file.is_due(Duration::ZERO, at(1_000)), "with zero none is written");
    }
}
