//! A snapshot of all state for `/metrics` and `/stats.json`. Workers continue to count while their
//! counters are read one by one, so sums within one snapshot may differ slightly.

use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use crate::api::stats::{CertificateStats, Files, LastReload, Overload};
pub use crate::connections::AdminCounters;
use crate::readiness::Readiness;
use onrush_config::Settings;
use onrush_tracker::access::Lists;
use onrush_tracker::member::Member;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::running::Addresses;

/// A snapshot of the tracker.
#[derive(Debug)]
pub struct StatsSnapshot {
    /// All members by number.
    pub members: Arc<[Member]>,
    /// Other state of each member, in the same order.
    pub states: Vec<WorkerState>,
    /// The served addresses.
    pub addresses: Addresses,
    /// The settings in force.
    pub settings: Arc<Settings>,
    /// The access lists in force.
    pub lists: Lists,
    /// Entries of the list's files that changes override.
    pub list_overrides: u64,
    /// The overload level.
    pub overload: Overload,
    /// The last reload.
    pub last_reload: LastReload,
    /// The certificates of HTTPS.
    pub certificates: Arc<[CertificateStats]>,
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
    pub admin: Arc<AdminCounters>,
}

/// A member in a [`StatsSnapshot`].
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    /// Its role, name and counters.
    pub member: &'a Member,
    /// Its other state.
    pub state: &'a WorkerState,
}

/// State of a member that is not a counter.
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
    /// A snapshot with these members and fixed values for everything else: for tests and for
    /// measuring the cost of `/metrics`.
    pub fn of_members(members: Arc<[Member]>, settings: Settings) -> Self {
        Self {
            states: vec![WorkerState::default(); members.len()],
            members,
            addresses: Addresses::default(),
            lists: Lists::open(),
            list_overrides: 0,
            overload: Overload { step: 0, interval: settings.announce.interval },
            last_reload: LastReload { successful: true, time: 1_780_000_000 },
            certificates: Arc::default(),
            settings: Arc::new(settings),
            readiness: Readiness::Serving,
            time: 1_790_000_000.25,
            started: 1_780_000_000.5,
            uptime: Duration::from_secs(10_000_000),
            files: Files::default(),
            lost_log_lines: 0,
            process: Process::default(),
            admin: Arc::default(),
        }
    }

    /// All members.
    pub fn workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.members.iter().zip(&self.states).map(|(member, state)| Worker { member, state })
    }

    /// Members that take requests of clients.
    pub fn socket_workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.member.role.takes_requests())
    }

    /// Members with connections of HTTP.
    pub fn web_workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.member.role.has_connections())
    }

    /// XDP programs.
    pub fn programs(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.member.interface().is_some())
    }

    /// Members with a shard.
    pub fn swarm_workers(&self) -> impl Iterator<Item = Worker<'_>> + Clone {
        self.workers().filter(|worker| worker.member.role.has_shard())
    }

    /// The counters of all members.
    pub fn metrics(&self) -> impl Iterator<Item = &WorkerMetrics> + Clone {
        self.members.iter().map(|member| &*member.metrics)
    }
}
