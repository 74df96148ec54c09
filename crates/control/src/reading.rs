//! One look at everything that is shown, for `/metrics` and `/stats.json` alike. Counters are read one after
//! another while workers go on counting: sums of one reading may differ by what came meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use super::stage::Stage;
use super::stats::HttpStats;
use crate::files::Files;
use crate::view::Pressure;
use onrush_config::Settings;
use onrush_tracker::access::AccessList;
use onrush_tracker::metrics::WorkerMetrics;

/// A look at the tracker.
#[derive(Debug)]
pub struct Reading {
    /// All workers by name, in order, each with its counters.
    pub workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    /// What else is known of each.
    pub states: Vec<State>,
    /// UDP addresses that are served.
    pub addresses: Vec<SocketAddr>,
    /// Settings in force.
    pub settings: Arc<Settings>,
    /// What the list of info hashes does.
    pub list_mode: &'static str,
    /// How many are listed.
    pub list_entries: usize,
    /// How many blocks of sources are refused.
    pub blocked_sources: usize,
    /// How hard it is pressed.
    pub pressure: Pressure,
    /// How far the tracker is.
    pub stage: Stage,
    /// Now: seconds since 1970.
    pub time: f64,
    /// When it was started: seconds since 1970.
    pub started: f64,
    /// Since then.
    pub uptime: Duration,
    /// What is written to files.
    pub files: Files,
    /// Memory and CPU time.
    pub process: Process,
    /// The HTTP side itself.
    pub http: HttpStats,
}

/// A worker in a [`Reading`].
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    /// Its number.
    pub index: usize,
    /// The name of its thread.
    pub name: &'a str,
    /// Its counters.
    pub metrics: &'a WorkerMetrics,
    /// What else is known of it.
    pub state: State,
}

/// What is known of a worker beside its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What waits for it.
    pub lane: Depth,
    /// For how long it was not seen to take a turn.
    pub still_for: Duration,
}

/// How full a lane is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Batches in it.
    pub waiting: usize,
    /// Batches that fit.
    pub room: usize,
}

impl Reading {
    /// Of these workers alone, without anything around them: for measuring what it costs to show them.
    pub fn of(workers: Arc<[(String, Arc<WorkerMetrics>)]>, settings: Settings) -> Self {
        Self {
            states: vec![State::default(); workers.len()],
            workers,
            addresses: Vec::new(),
            list_mode: mode_of(&AccessList::Open),
            list_entries: 0,
            blocked_sources: 0,
            pressure: Pressure { step: 0, interval: settings.announce.interval },
            settings: Arc::new(settings),
            stage: Stage::Serving,
            time: 1_790_000_000.25,
            started: 1_780_000_000.5,
            uptime: Duration::from_secs(10_000_000),
            files: Files::default(),
            process: Process::default(),
            http: HttpStats::default(),
        }
    }

    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = Worker<'_>> {
        let workers = self.workers.iter().zip(&self.states).enumerate();
        workers.map(|(index, ((name, metrics), state))| Worker {
            index,
            name,
            metrics,
            state: *state,
        })
    }

    /// Workers that have sockets.
    pub fn socket_sides(&self) -> impl Iterator<Item = Worker<'_>> {
        self.workers().take(self.settings.placement.socket_sides())
    }

    /// Workers that own swarms.
    pub fn swarm_sides(&self) -> impl Iterator<Item = Worker<'_>> {
        self.workers().skip(self.settings.placement.owner(0))
    }

    /// The counters of all workers.
    pub fn metrics(&self) -> impl Iterator<Item = &WorkerMetrics> {
        self.workers.iter().map(|(_, metrics)| metrics.as_ref())
    }
}

/// What a list does, in the words of `access.mode`.
pub(super) fn mode_of(list: &AccessList) -> &'static str {
    match list {
        AccessList::Open => "open",
        AccessList::Allow(_) => "allow",
        AccessList::Deny(_) => "deny",
    }
}
