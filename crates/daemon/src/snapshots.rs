//! When a snapshot is written: at an interval while workers run, and once they have stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::never;
use onrush_swarm::Shard;

use crate::file_writer::FileWriter;
use crate::process::notify;
use onrush_control::files::FileWrites;
use onrush_store::snapshot::encode::{Block, Encoder};
use onrush_store::snapshot::write::{SnapshotSummary, write_all, write_file};
use onrush_store::stream::ShardStream;
use onrush_tracker::clock::Clock;
use onrush_tracker::orders::Orders;

/// The snapshots of a running tracker.
#[derive(Debug)]
pub struct Snapshots {
    path: Option<PathBuf>,
    interval: Duration,
    writer: FileWriter<SnapshotSummary>,
}

impl Snapshots {
    /// To `path`, every `interval`; with zero only when the tracker stops, without a path never.
    pub fn new(path: Option<PathBuf>, interval: Duration) -> Self {
        Self { path, interval, writer: FileWriter::new("snapshot") }
    }

    /// State of the snapshots.
    pub fn writes(&self) -> &Arc<FileWrites> {
        self.writer.writes()
    }

    /// Changes the interval.
    pub fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Call every second: starts a snapshot when it is due, and reports a finished one.
    pub fn tick(&mut self, orders: &Orders, clock: Clock, now: Instant) {
        self.report(Duration::ZERO);
        let Some(path) = self.path.clone() else { return };
        if self.writer.is_due(self.interval, now) {
            let write = move |stream| write_stream(&path, stream, clock);
            if let Err(why) = self.writer.start(orders, Encoder::default, write) {
                self.writer.failed(&why);
            }
        }
    }

    /// Waits for the snapshot being written, if any, and reports it. While workers run this may
    /// take as long as their dump.
    pub fn join(&mut self) {
        self.report(Duration::MAX);
    }

    /// Reports the snapshot being written, if it is finished within `limit`.
    fn report(&mut self, limit: Duration) {
        match self.writer.finished(limit) {
            None => {}
            Some(Ok(summary)) => self.succeeded(&summary),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {
                log::debug!("a snapshot was abandoned: {error}");
            }
            Some(Err(error)) => self.writer.failed(&error.to_string()),
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
        self.writer.succeeded(summary, summary.bytes, summary.seconds);
    }
}

/// Writes the blocks of all shards.
fn write_stream(
    path: &Path,
    mut blocks: ShardStream<Block>,
    clock: Clock,
) -> io::Result<SnapshotSummary> {
    let interrupted = |error| io::Error::new(io::ErrorKind::Interrupted, error);
    write_file(path, clock.now().unix, |writer| {
        while let Some(block) = blocks.next::<()>(&never()).map_err(interrupted)? {
            writer.block(&block)?;
        }
        Ok(())
    })
}
