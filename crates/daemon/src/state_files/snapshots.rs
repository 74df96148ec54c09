//! When a snapshot is written: at an interval while workers run, after an upgrade, and once the
//! workers have stopped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use onrush_swarm::Shard;

use super::periodic_file::PeriodicFile;
use crate::process::service_notify;
use onrush_control::api::admin::SnapshotReport;
use onrush_control::request::Responder;
use onrush_store::snapshot::encode::{Block, Encoder};
use onrush_store::snapshot::load::Unread;
use onrush_store::snapshot::write::{SnapshotSummary, write_all, write_file};
use onrush_tracker::clock::Clock;
use onrush_tracker::gather::ResultMissing;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::ShardStream;

/// The time after which a failed snapshot after an upgrade is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// The snapshots of a running tracker.
#[derive(Debug)]
pub struct Snapshots {
    path: Option<PathBuf>,
    /// A file at the path that could not be read at start, and is not overwritten.
    unread: Option<Unread>,
    pub(super) interval: Duration,
    /// Set until the snapshot after an upgrade is written, which is due as soon as this is cleared:
    /// whether peers are still being merged.
    pub merging: Option<Arc<AtomicBool>>,
    /// When a snapshot of all merged peers was last begun.
    begun_merged: Option<Instant>,
    pub(super) writer: PeriodicFile<SnapshotSummary>,
    /// Responders of the snapshot being written.
    waiting: Vec<SnapshotResponder>,
}

/// Replies to the request for a snapshot.
pub type SnapshotResponder = Responder<Result<SnapshotReport, String>>;

impl Snapshots {
    /// To `path`, every `interval`; with zero only after an upgrade and when the tracker stops,
    /// without a path never.
    pub fn new(path: Option<PathBuf>, interval: Duration, now: Instant) -> Self {
        Self {
            path,
            unread: None,
            interval,
            merging: None,
            begun_merged: None,
            writer: PeriodicFile::new("snapshot", now),
            waiting: Vec::new(),
        }
    }

    /// The path of the file, unless snapshots are off.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Writes nothing as long as the `unread` file is there. Returns a warning of it.
    #[must_use]
    pub fn keep_unread(&mut self, unread: Unread) -> String {
        let warning = format!("snapshot not loaded: {unread}");
        self.unread = Some(unread);
        warning
    }

    /// The file that is not overwritten, if it is still there: the reason to write none.
    pub fn unread(&mut self) -> Option<&Unread> {
        self.unread.take_if(|unread| !unread.is_there());
        self.unread.as_ref()
    }

    /// Call every second: starts a snapshot when it is due, and reports a finished one.
    pub fn tick(&mut self, orders: &Orders, clock: Clock, now: Instant) {
        self.report(Duration::ZERO);
        if self.path.is_none() {
            return;
        }
        let merged = |merging: &Arc<AtomicBool>| !merging.load(Ordering::Acquire);
        let is_merged = self.merging.as_ref().is_some_and(merged);
        let after_upgrade = is_merged
            && !self.writer.is_writing()
            && self.begun_merged.is_none_or(|begun| now.duration_since(begun) >= RETRY);
        if after_upgrade || self.writer.is_due(self.interval, now) {
            self.begun_merged = is_merged.then_some(now);
            self.start(orders, clock, now);
        }
    }

    /// Writes a snapshot regardless of the interval. `responder` gets the result; if a snapshot is
    /// being written, that of this one.
    pub fn write_now(&mut self, orders: &Orders, clock: Clock, responder: SnapshotResponder) {
        self.waiting.push(responder);
        if !self.writer.is_writing() {
            self.start(orders, clock, Instant::now());
        }
    }

    fn start(&mut self, orders: &Orders, clock: Clock, now: Instant) {
        let Some(path) = self.path.clone() else {
            let why = "there is no state directory, or snapshot.enabled is false";
            return self.respond(&Err(why.to_owned()));
        };
        if let Some(why) = self.unread().map(Unread::to_string) {
            self.writer.begin(now);
            return self.failed(&why);
        }
        let write = move |stream| write_stream(&path, stream, clock);
        if let Err(why) = self.writer.start(now, orders, Encoder::default, write) {
            self.failed(&why);
        }
    }

    fn failed(&mut self, why: &str) {
        self.writer.failed(why);
        self.respond(&Err(why.to_owned()));
    }

    fn respond(&mut self, result: &Result<SnapshotReport, String>) {
        self.waiting.drain(..).for_each(|responder| responder.respond(result.clone()));
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
                self.respond(&Err(error.to_string()));
            }
            Some(Err(error)) => self.failed(&error.to_string()),
        }
    }

    /// Writes the final snapshot, from the shards of stopped workers.
    ///
    /// # Errors
    /// When it cannot be written: the peers since the previous one are lost.
    pub fn write_final(&mut self, shards: Vec<Shard>, clock: Clock) -> Result<(), String> {
        self.join();
        let Some(path) = self.path.clone() else { return Ok(()) };
        let written = match self.unread().map(Unread::to_string) {
            Some(why) => {
                // The process is about to exit, which frees the memory faster than dropping them.
                std::mem::forget(shards);
                Err(why)
            }
            None => write_all(&path, shards, clock.now(), &mut service_notify::progress())
                .map_err(|error| error.to_string()),
        };
        let summary = written.map_err(|why| {
            format!("the final snapshot failed; peers since the previous one are lost: {why}")
        })?;
        self.succeeded(&summary);
        Ok(())
    }

    fn succeeded(&mut self, summary: &SnapshotSummary) {
        if self.begun_merged.is_some() {
            self.merging = None;
        }
        self.writer.succeeded(summary, summary.bytes, summary.seconds);
        let SnapshotSummary { counts, bytes, seconds } = *summary;
        let path = self.path.iter().map(|path| path.display().to_string()).collect();
        self.respond(&Ok(SnapshotReport { path, peers: counts.v4 + counts.v6, bytes, seconds }));
    }
}

/// Writes the blocks of all shards.
fn write_stream(
    path: &Path,
    mut blocks: ShardStream<Block>,
    clock: Clock,
) -> io::Result<SnapshotSummary> {
    let interrupted = |_| io::Error::new(io::ErrorKind::Interrupted, ResultMissing);
    write_file(path, clock.now().unix, |writer| {
        while let Some(block) = blocks.next_by(Receiver::recv).map_err(interrupted)? {
            writer.block(&block)?;
        }
        Ok(())
    })
}
