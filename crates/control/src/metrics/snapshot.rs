//! A snapshot of all state for `/metrics` and `/stats.json`. Workers continue to count while their
//! counters are read one by one, so sums within one snapshot may differ slightly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use crate::api::stats::{AdminStats, Files, Overload};
use crate::readiness::Readiness;
use onrush_config::Settings;
use onrush_tracker::access::Lists;
use onrush_tracker::metrics::WorkerMetrics;

/// A snapshot of the tracker.
#[derive(Debug)]
pub struct StatsSnapshot {
    /// All workers by thread name, in order, each with its counters.
    pub workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    /// Other state of each worker, in the same order.
    pub states: Vec<WorkerState>,
    /// The served UDP addresses.
    pub addresses: Vec<SocketAddr>,
    /// The settings in force.
    pub settings: Arc<Settings>,
    /// The access lists in force.
    pub lists: Lists,
    /// The overload level.
    pub overload: Overload,
    /// Readiness of the tracker.
    pub readiness: Readiness,
    /// Time of the snapshot: seconds since 1970.
    pub time: f64,
    /// Start of the tracker: seconds since 1970.
    pub started: f64,
    /// Time since the start.
    pub uptime: Duration,
    /// State of the files that the daemon writes.
    pub files: Files,
    /// Log lines lost since the start.
    pub lost_log_lines: u64,
    /// Memory and CPU time of the process.
    pub process: Process,
    /// Counters of the admin side.
    pub admin: AdminStats,
}

/// A worker in a [`StatsSnapshot`].
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    /// Whether it has sockets.
    pub sockets: bool,
    /// Whether it has a shard.
    pub shard: bool,
    /// The name of its thread.
    pub name: &'a str,
    /// Its counters.
    pub metrics: &'a WorkerMetrics,
    /// Its other state.
    pub state: WorkerState,
}

/// State of a worker that is not a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// Batches that wait in the lane to this worker.
    pub lane_waiting: usize,
    /// Batches that fit in the lane.
    pub lane_capacity: usize,
    /// How long the turn counter has not changed.
    pub stalled_for: Duration,
}

impl StatsSnapshot {
    /// A snapshot with these workers and fixed values for everything else: for tests and for
    /// measuring the cost of `/metrics`.
    pub fn of_workers(workers: Arc<[(String, Arc<WorkerMetrics>)]>, settings: Settings) -> Self {
        Self {
            states: vec![WorkerState::default(); workers.len()],
            workers,
            addresses: Vec::new(),
            lists: Lists::open(),
            overload: Overload { step: 0, interval: settings.announce.interval },
            settings: Arc::new(settings),
            readiness: Readiness::Serving,
            time: 1_790_000_000.25,
            started: 1_780_000_000.5,
            uptime: Duration::from_secs(10_000_000),
            files: Files::default(),
            lost_log_lines: 0,
            process: Process::default(),
            admin: AdminStats::default(),
        }
    }

    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        let placement = self.settings.placement;
        let workers = self.workers.iter().zip(&self.states).enumerate();
        workers.map(move |(index, ((name, metrics), state))| Worker {
            sockets: index < placement.socket_sides(),
            shard: index >= placement.owner(0),
            name,
            metrics,
            state: *state,
        })
    }

    /// Workers with sockets.
    pub fn socket_workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.sockets)
    }

    /// Workers with a shard.
    pub fn swarm_workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.shard)
    }

    /// The counters of all workers.
    pub fn metrics(&self) -> impl Iterator<Item = &WorkerMetrics> + Clone {
        self.workers.iter().map(|(_, metrics)| metrics.as_ref())
    }
}
