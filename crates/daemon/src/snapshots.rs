//! When a snapshot is written: at an interval while workers run, and once they have stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use onrush_swarm::Shard;

use crate::process::notify;
use onrush_control::files::FileWrites;
use onrush_store::atomic_file::AtomicFile;
use onrush_store::snapshot::dump::{DumpMessage, DumpTask};
use onrush_store::snapshot::write::{SnapshotSummary, SnapshotWriter, write_all};
use onrush_tracker::clock::Clock;
use onrush_tracker::orders::Orders;

/// The snapshots of a running tracker.
#[derive(Debug)]
pub struct Snapshots {
    path: Option<PathBuf>,
    interval: Duration,
    last: Instant,
    writer: Option<JoinHandle<io::Result<SnapshotSummary>>>,
    writes: Arc<FileWrites>,
}

impl Snapshots {
    /// To `path`, every `interval`; with zero only when the tracker stops, without a path never.
    pub fn new(path: Option<PathBuf>, interval: Duration) -> Self {
        Self { path, interval, last: Instant::now(), writer: None, writes: Arc::default() }
    }

    /// Writes no snapshots.
    pub fn disabled() -> Self {
        Self::new(None, Duration::ZERO)
    }

    /// Counters of snapshots written and failed.
    pub fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Changes the interval.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Call every second: starts a snapshot when it is due, and reports a finished one.
    pub fn tick(&mut self, orders: &Orders, clock: Clock, now: Instant) {
        if self.writer.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join();
        }
        let due = !self.interval.is_zero() && now.duration_since(self.last) >= self.interval;
        if due && self.writer.is_none() {
            self.last = now;
            self.start(orders, clock);
        }
    }

    /// Starts a snapshot while workers serve, unless one is being written.
    fn start(&mut self, orders: &Orders, clock: Clock) {
        let Some(path) = self.path.clone().filter(|_| self.writer.is_none()) else { return };
        let (shards, parts) = match DumpTask::of_all(orders) {
            Ok(parts) => (orders.shards(), parts),
            Err(error) => return self.failed(format_args!("{error}")),
        };
        let write = move || write_parts(&path, &parts, shards, clock);
        match thread::Builder::new().name("snapshot".into()).spawn(write) {
            Ok(thread) => self.writer = Some(thread),
            Err(error) => self.failed(format_args!("cannot start a thread: {error}")),
        }
    }

    /// Waits for the snapshot being written, if any, and reports it. While workers run this may
    /// take as long as their dump.
    pub fn join(&mut self) {
        let Some(thread) = self.writer.take() else { return };
        match thread.join() {
            Ok(Ok(summary)) => self.succeeded(&summary),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                log::debug!("a snapshot was abandoned: {error}");
            }
            Ok(Err(error)) => self.failed(format_args!("{error}")),
            Err(_) => self.failed(format_args!("its thread panicked")),
        }
    }

    /// Writes the final snapshot, from the shards of stopped workers.
    pub fn write_final(&mut self, shards: Vec<Shard>, clock: Clock) {
        self.join();
        let Some(path) = &self.path else { return };
        match write_all(path, shards, clock.now(), &mut notify::progress()) {
            Ok(summary) => self.succeeded(&summary),
            Err(error) => log::error!(
                "the final snapshot failed; peers since the previous one are lost: {}: {error}",
                path.display()
            ),
        }
    }

    fn succeeded(&self, summary: &SnapshotSummary) {
        self.writes.wrote(summary.bytes, summary.took);
        log::info!("snapshot: {summary}");
    }

    fn failed(&self, why: std::fmt::Arguments<'_>) {
        self.writes.failed.add(1);
        log::warn!("snapshot failed; the previous one stays: {why}");
    }
}

/// Writes the blocks of all shards' dumps.
fn write_parts(
    path: &Path,
    parts: &Receiver<DumpMessage>,
    shards: usize,
    clock: Clock,
) -> io::Result<SnapshotSummary> {
    let began = Instant::now();
    let mut writer = SnapshotWriter::begin(AtomicFile::create(path, 0o600)?, clock.now().unix)?;
    let mut done = 0;
    while done < shards {
        match parts.recv() {
            Ok(DumpMessage::Block(block)) => writer.block(&block)?,
            Ok(DumpMessage::Done) => done += 1,
            Err(_) => return Err(io::Error::new(io::ErrorKind::Interrupted, "a worker has ended")),
        }
    }
    let (file, counts) = writer.end(clock.now().unix)?;
    Ok(SnapshotSummary { counts, bytes: file.finish()?, took: began.elapsed() })
}
