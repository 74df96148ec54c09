//! Files that a thread writes, mostly from the contents of running shards: one at a time, counted
//! and logged.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use onrush_control::files::FileWrites;
use onrush_store::stream::{ShardReader, ShardStream};
use onrush_tracker::orders::Orders;

/// Writes files of one kind. `T` describes a file in the log.
#[derive(Debug)]
pub(crate) struct FileWriter<T> {
    /// The kind, in the log and as name of the thread.
    name: &'static str,
    /// When the last file was begun.
    last: Instant,
    /// Sends the result of the file being written.
    result: Option<Receiver<io::Result<T>>>,
    writes: Arc<FileWrites>,
}

impl<T: Display + Send + 'static> FileWriter<T> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, last: Instant::now(), result: None, writes: Arc::default() }
    }

    /// State of these files.
    pub(crate) fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Whether a file is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.result.is_some()
    }

    /// Whether the next file is due if one is written every `interval`; with zero none is.
    pub(crate) fn is_due(&self, interval: Duration, now: Instant) -> bool {
        !self.is_writing() && !interval.is_zero() && now.duration_since(self.last) >= interval
    }

    /// Starts a reader of each shard, and a thread that writes what they read. The error is a text.
    pub(crate) fn start<R: ShardReader>(
        &mut self,
        orders: &Orders,
        reader: impl Fn() -> R,
        write: impl FnOnce(ShardStream<R::Message>) -> io::Result<T> + Send + 'static,
    ) -> Result<(), String> {
        self.last = Instant::now();
        let stream = ShardStream::start(orders, reader).map_err(|error| error.to_string())?;
        self.spawn(move || write(stream))
    }

    /// Starts a thread that writes a file. The error is a text.
    pub(crate) fn spawn(
        &mut self,
        write: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<(), String> {
        let (sender, result) = bounded(1);
        // The main thread may have exited.
        let run = move || drop(sender.send(write()));
        let spawned = thread::Builder::new().name(self.name.into()).spawn(run);
        spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
        self.result = Some(result);
        Ok(())
    }

    /// The result of the file being written, if there is one within `limit`.
    pub(crate) fn finished(&mut self, limit: Duration) -> Option<io::Result<T>> {
        let result = match self.result.as_ref()?.recv_timeout(limit) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread panicked")),
            Err(RecvTimeoutError::Timeout) => return None,
        };
        self.result = None;
        Some(result)
    }

    /// Counts and logs a file that was written.
    pub(crate) fn succeeded(&self, file: &T, bytes: u64, seconds: f64) {
        self.writes.wrote(bytes, seconds);
        log::info!("{}: {file}", self.name);
    }

    /// Counts and logs a file that is due and cannot be written.
    pub(crate) fn skip(&mut self, why: &str) {
        self.last = Instant::now();
        self.failed(why);
    }

    /// Counts and logs a file that was not written.
    pub(crate) fn failed(&self, why: &str) {
        self.writes.failed();
        log::warn!("{} failed; the previous one stays: {why}", self.name);
    }
}
