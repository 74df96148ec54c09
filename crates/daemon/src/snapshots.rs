//! When a snapshot is written: every so often while workers run, and once they have stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::process::service;
use crossbeam_channel::Receiver;
use onrush_swarm::Shard;

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
    every: Duration,
    last: Instant,
    under_way: Option<JoinHandle<io::Result<SnapshotSummary>>>,
    writes: Arc<FileWrites>,
}

impl Snapshots {
    /// To `path`, if there is one, `every` so often; zero for only at the end.
    pub fn new(path: Option<PathBuf>, every: Duration) -> Self {
        Self { path, every, last: Instant::now(), under_way: None, writes: Arc::default() }
    }

    /// None at all.
    pub fn none() -> Self {
        Self::new(None, Duration::ZERO)
    }

    /// How they went.
    pub fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Goes by another distance from now on.
    pub fn follow(&mut self, every: Duration) {
        self.every = every;
    }

    /// To be called every second: begins a snapshot when it is time, and reports one that has ended.
    pub fn second(&mut self, orders: &Orders, clock: Clock, now: Instant) {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) {
            self.report();
        }
        let due = !self.every.is_zero() && now.duration_since(self.last) >= self.every;
        if due && self.under_way.is_none() {
            self.last = now;
            self.begin(orders, clock);
        }
    }

    /// Begins a snapshot of shards that are being served from, if none is under way.
    pub fn begin(&mut self, orders: &Orders, clock: Clock) {
        let Some(path) = self.path.clone().filter(|_| self.under_way.is_none()) else { return };
        let (shards, parts) = match DumpTask::of_all(orders, false) {
            Ok(parts) => (orders.shards(), parts),
            Err(deaf) => return self.failed(format_args!("{deaf}")),
        };
        let write = move || write_parts(&path, &parts, shards, clock);
        match thread::Builder::new().name("snapshot".into()).spawn(write) {
            Ok(thread) => self.under_way = Some(thread),
            Err(error) => self.failed(format_args!("no thread: {error}")),
        }
    }

    /// Waits for the one that is under way. While workers run it may take as long as their walk.
    pub fn report(&mut self) {
        let Some(thread) = self.under_way.take() else { return };
        match thread.join() {
            Ok(Ok(written)) => self.wrote(&written),
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                log::debug!("a snapshot was given up: {error}");
            }
            Ok(Err(error)) => self.failed(format_args!("{error}")),
            Err(_) => self.failed(format_args!("its thread panicked")),
        }
    }

    fn wrote(&self, written: &SnapshotSummary) {
        self.writes.wrote(written.bytes, written.took);
        log::info!("snapshot: {written}");
    }

    fn failed(&self, why: std::fmt::Arguments<'_>) {
        self.writes.failed.add(1);
        log::warn!("no snapshot, the former one stays: {why}");
    }

    /// Writes the last one, from the shards of workers that have stopped.
    pub fn finish(&mut self, shards: Vec<Shard>, clock: Clock) {
        self.report();
        let Some(path) = &self.path else { return };
        match write_all(path, shards, clock.now(), &mut service::progress()) {
            Ok(written) => self.wrote(&written),
            Err(error) => log::error!(
                "the peers are lost, but for what the former snapshot has: {}: {error}",
                path.display()
            ),
        }
    }
}

/// Writes what dumps send.
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
    let (file, tally) = writer.end(clock.now().unix)?;
    Ok(SnapshotSummary { tally, bytes: file.finish()?, took: began.elapsed() })
}
