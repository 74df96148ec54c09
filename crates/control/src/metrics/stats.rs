//! Builds the response of `/stats.json` from a snapshot.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use onrush_proto::Family;

use super::snapshot::{StatsSnapshot, Worker};
use crate::api::stats::{
    AdminStats, Clients, Cpu, Families, FamilyStats, HttpStats, Limits, ListState, Memory,
    Software, Stats, Totals, WorkerStats,
};
use onrush_config::Settings;
use onrush_config::keys::level_word;
use onrush_tracker::access::{AccessList, ListKind, Lists};
use onrush_tracker::clients;
use onrush_tracker::limits::Placement;
use onrush_tracker::member::{Member, Role};
use onrush_tracker::metrics::{
    CLOSE_CAUSES, Counter, EVENT_NAMES, HTTP_REFUSALS, LOSSES, REPLIES, Summary, UNSENT,
    WorkerMetrics,
};
use onrush_tracker::refusal::HttpRefusal;

impl Stats {
    /// The statistics in a snapshot.
    pub fn of(snapshot: &StatsSnapshot) -> Self {
        let settings = &snapshot.settings;
        let web_workers = snapshot.web_workers().count();
        let of_each = |share: usize| (web_workers > 0).then_some((share * web_workers) as u64);
        let mut admin = AdminStats::default();
        admin.add(&snapshot.admin);
        Self {
            version: onrush_text::version::version().to_owned(),
            pid: std::process::id(),
            time: snapshot.time,
            started: snapshot.started,
            uptime: snapshot.uptime.as_secs_f64(),
            stage: snapshot.readiness.name().to_owned(),
            addresses: snapshot.addresses.urls(),
            placement: placement_name(settings.placement).to_owned(),
            totals: Totals::of(snapshot),
            families: Families {
                ipv4: FamilyStats::of(snapshot, &[Family::V4]),
                ipv6: FamilyStats::of(snapshot, &[Family::V6]),
            },
            workers: snapshot.workers().map(WorkerStats::of).collect(),
            clients: Clients::of(snapshot),
            memory: Memory {
                resident: snapshot.process.resident,
                limit: snapshot.process.memory_limit,
            },
            cpu: Cpu { seconds: snapshot.process.cpu_seconds },
            limits: Limits {
                peers: settings.limits.peers,
                idle_swarms: settings.limits.idle_swarms,
                list_entries: settings.limits.list_entries as u64,
                admin_connections: settings.admin.connections as u64,
                http_connections: of_each(settings.http.limits.connections),
                http_buffer_memory: of_each(settings.http.limits.buffer_memory),
            },
            list: ListState::of(&snapshot.lists, snapshot.list_overrides, settings),
            overload: snapshot.overload,
            last_reload: snapshot.last_reload,
            certificates: snapshot.certificates.to_vec(),
            files: snapshot.files,
            log_level: level_word(settings.log.level).to_owned(),
            lost_log_lines: snapshot.lost_log_lines,
            admin,
        }
    }
}

/// The value of `workers.placement`.
pub(super) fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Colocated { .. } => "colocated",
        Placement::Split { .. } => "split",
    }
}

/// The value of `access.mode` for a list.
pub(super) fn mode_name(list: &AccessList) -> &'static str {
    list.kind().map_or("open", ListKind::name)
}

impl Totals {
    fn of(snapshot: &StatsSnapshot) -> Self {
        let traffic = FamilyStats::of(snapshot, &[Family::V4, Family::V6]);
        let mut totals = Self { traffic, ..Self::default() };
        for worker in snapshot.metrics() {
            totals.worker.add(worker);
            add_named(&mut totals.unsent, &UNSENT, &worker.unsent);
            totals.shard.add(&worker.shard);
        }
        totals.http = HttpStats::of(snapshot.web_workers());
        // Those that UDP has too are counted by family.
        for web in snapshot.web_workers().map(|worker| &worker.member.metrics.web) {
            for refused in web.refused() {
                add_named(&mut totals.traffic.refused, &HttpRefusal::NAMES, refused);
            }
        }
        let summary = Summary::of(snapshot.metrics());
        let lost = LOSSES.iter().zip(summary.losses());
        totals.lost = lost.map(|(loss, count)| (loss.key.to_owned(), count)).collect();
        totals
    }
}

impl FamilyStats {
    /// Sums over all workers and these families.
    fn of(snapshot: &StatsSnapshot, families: &[Family]) -> Self {
        let swarms = families.iter().map(|family| family_swarms(snapshot, *family));
        let mut stats = Self { family_swarms: swarms.sum(), ..Self::default() };
        for (worker, family) in snapshot
            .metrics()
            .flat_map(|worker| families.iter().map(move |family| (worker, family)))
        {
            stats.add(worker, *family);
        }
        stats
    }

    fn add(&mut self, worker: &WorkerMetrics, family: Family) {
        let incoming = worker.incoming.of(family);
        self.incoming.add(incoming);
        for (reason, count) in incoming.refusals() {
            *self.refused.entry(reason.to_owned()).or_default() += count;
        }
        add_named(&mut self.events, &EVENT_NAMES, &incoming.events);
        add_named(&mut self.answered, &REPLIES, &incoming.replies);
        let (peers, seeders) = worker.shard.peers(family);
        self.peers += peers;
        self.seeders += seeders;
        // A worker updates the two gauges one after the other, so seeders may briefly exceed peers.
        self.leechers += peers.saturating_sub(seeders);
    }
}

impl HttpStats {
    /// Sums over these workers; `None` without any.
    fn of<'a>(workers: impl IntoIterator<Item = Worker<'a>>) -> Option<Self> {
        let mut sums: Option<Self> = None;
        for web in workers.into_iter().map(|worker| &worker.member.metrics.web) {
            let sums = sums.get_or_insert_default();
            sums.counts.add(web);
            add_named(&mut sums.closed, &CLOSE_CAUSES, &web.closed);
            for refused in web.refused() {
                add_named(&mut sums.refused, &HTTP_REFUSALS, refused);
            }
        }
        sums
    }
}

/// Adds counters to sums by name.
fn add_named(sums: &mut BTreeMap<String, u64>, names: &[&str], counters: &[Counter]) {
    for (name, counter) in names.iter().zip(counters) {
        *sums.entry((*name).to_owned()).or_default() += counter.get();
    }
}

/// Swarms of a family in all shards; `None` until each shard has counted them.
fn family_swarms(snapshot: &StatsSnapshot, family: Family) -> Option<u64> {
    let swarms = |worker: Worker<'_>| {
        let swarms = worker.member.metrics.shard.by_family()?;
        Some(match family {
            Family::V4 => swarms.v4,
            Family::V6 => swarms.v6,
        })
    };
    snapshot.swarm_workers().map(swarms).sum()
}

impl WorkerStats {
    fn of(worker: Worker<'_>) -> Self {
        let Worker { member: Member { role, name, metrics, .. }, state } = worker;
        let sum = Summary::of([&**metrics]);
        let mut stats = Self {
            name: name.clone(),
            socket_side: role.has_sockets(),
            swarm_side: role.has_shard(),
            program: *role == Role::Program,
            datagrams: sum.datagrams,
            refused: sum.refused_in_all(),
            replies_dropped: sum.unsent_in_all(),
            lost: sum.losses().sum(),
            lane_waiting: state.lane_waiting as u64,
            lane_capacity: state.lane_capacity as u64,
            busy_turns: metrics.turn_times.classes().map(|(_, count)| count).sum(),
            busy_seconds: metrics.turn_times.sum() as f64 * 1e-9,
            peers: metrics.shard.peers_v4.get() + metrics.shard.peers_v6.get(),
            stalled_seconds: state.stalled_for.as_secs_f64(),
            http: role.has_connections().then(|| HttpStats::of([worker])).flatten(),
            ..Self::default()
        };
        stats.counts.add(metrics);
        stats.shard.add(&metrics.shard);
        stats
    }
}

impl Clients {
    fn of(snapshot: &StatsSnapshot) -> Self {
        let count = |client: usize, family| {
            let counters = snapshot.metrics().map(|worker| worker.incoming.of(family));
            counters.map(|incoming| incoming.clients[client].get()).sum()
        };
        let all = clients::NAMES.iter().enumerate().map(|(client, name)| Software {
            name: (*name).to_owned(),
            ipv4: count(client, Family::V4),
            ipv6: count(client, Family::V6),
        });
        let mut software: Vec<_> = all.filter(|found| found.ipv4 + found.ipv6 > 0).collect();
        software.sort_by_key(|found| Reverse(found.ipv4 + found.ipv6));
        Self { sample: clients::SAMPLE, software }
    }
}

impl ListState {
    /// The state of these lists, with this number of overridden entries.
    pub(crate) fn of(lists: &Lists, overrides: u64, settings: &Settings) -> Self {
        Self {
            mode: mode_name(&lists.access).to_owned(),
            entries: lists.access.len() as u64,
            overrides,
            blocked_sources: lists.blocked.len() as u64,
            published: settings.admin.publish_lists,
        }
    }
}
