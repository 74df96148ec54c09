//! The files and sockets that a tracker keeps while it runs: most of them in the state directory.
//! Each is written at its interval, and a failure is logged with its remedy. Without a writable
//! state directory there are none but the export.
//!
//! | module | contents |
//! |---|---|
//! | [`snapshots`] | the peers |
//! | `exports` | the full scrape |
//! | [`history`] | rates, peers and swarms over time |
//! | [`commitment`] | the longer intervals that clients were sent |
//! | `records` | changes of the list and blocks of sources |
//! | `control_socket` | the socket of `onrush ctl` |
//! | `first_failure` | the first of successive failures |
//! | `periodic_file` | the thread that writes a snapshot, an export or the history |
//!
//! The upgrade socket belongs to [`upgrade`](crate::upgrade).

pub mod commitment;
mod control_socket;
mod exports;
mod first_failure;
pub mod history;
mod periodic_file;
mod records;
pub mod snapshots;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use commitment::CommitmentFile;
pub use control_socket::ControlSocket;
pub use exports::ExportResponder;
use exports::Exports;
use history::HistoryFile;
use onrush_config::Settings;
use onrush_control::files::Files;
use onrush_control::history::History;
use onrush_store::lock::StateLock;
use onrush_store::snapshot;
use onrush_store::state_socket::StateSocket;
use onrush_tracker::clock::Clock;
use onrush_tracker::orders::Orders;
pub use records::Records;
use snapshots::Snapshots;

/// The files of a tracker.
#[derive(Debug)]
pub struct StateFiles {
    /// Held until the end.
    pub lock: Option<StateLock>,
    /// The control socket; `None` without the lock, as another process may have it then.
    pub control: Option<ControlSocket>,
    /// When peers are written to disk.
    pub snapshots: Snapshots,
    /// The file of the interval commitment; `None` without a state directory.
    pub commitment: Option<CommitmentFile>,
    exports: Exports,
    records: Option<Records>,
    history: Option<HistoryFile>,
}

impl StateFiles {
    /// In the state directory, if the process has or shares its `lock`.
    pub fn new(settings: &Settings, lock: Option<StateLock>, now: Instant) -> Self {
        let directory = settings.state_dir.as_deref().filter(|_| lock.is_some());
        let control = settings.control_socket().filter(|_| lock.is_some());
        let control = control.map(|path| StateSocket::new(path, control_socket::MODE));
        let snapshot = directory.filter(|_| settings.snapshot.enabled);
        let snapshot = snapshot.map(|directory| directory.join(snapshot::FILE));
        Self {
            lock,
            control: control.map(|socket| Arc::new(Mutex::new(socket))),
            snapshots: Snapshots::new(snapshot, settings.snapshot.every, now),
            exports: Exports::new(settings.export.clone(), now),
            records: directory.map(Records::new),
            commitment: directory.map(CommitmentFile::new),
            history: directory.map(|directory| HistoryFile::new(directory, now)),
        }
    }

    /// The files of changes and blocks; `None` without a state directory.
    pub fn records(&self) -> Option<&Records> {
        self.records.as_ref()
    }

    /// Restores the history of the previous process. Returns a warning if it cannot be used.
    pub fn load_history(&self, history: &History, clock: Clock) -> Option<String> {
        self.history.as_ref()?.load(history, Instant::now(), clock.now().unix)
    }

    /// The tracker begins to serve: snapshots and exports are due an interval from now, also if
    /// loading the peers has taken longer.
    pub fn begin(&mut self, now: Instant) {
        self.snapshots.writer.begin(now);
        self.exports.writer.begin(now);
    }

    /// Results of snapshots and exports, for other threads.
    pub fn results(&self) -> Files {
        let snapshot = self.snapshots.writer.writes().clone();
        Files { snapshot, export: self.exports.writer.writes().clone() }
    }

    /// Puts the keys of these files into force.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.snapshots.interval = settings.snapshot.every;
        self.exports.settings = settings.export.clone();
    }

    /// Call every second: writes snapshots, exports and the history when they are due.
    pub fn tick(&mut self, orders: &Orders, history: &History, clock: Clock, now: Instant) {
        self.exports.tick(orders, now);
        self.snapshots.tick(orders, clock, now);
        let file = self.history.as_mut();
        warn(file.and_then(|file| file.tick(history, now, clock.now().unix)));
    }

    /// Starts an export, unless one is being written. `responder` gets the result.
    pub fn export(&mut self, orders: &Orders, responder: Option<ExportResponder>) {
        self.exports.start(orders, responder, Instant::now());
    }

    /// Writes the history for the next process, and waits for the disk up to `limit`.
    pub fn write_history(&mut self, history: &History, clock: Clock, limit: Duration) {
        let file = self.history.as_mut();
        warn(file.and_then(|file| file.write(history, Instant::now(), clock.now().unix, limit)));
    }
}

fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        log::warn!("{warning}");
    }
}
