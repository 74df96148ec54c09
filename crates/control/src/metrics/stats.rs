//! Builds the response of `/stats.json` from a snapshot.

use std::collections::BTreeMap;

use onrush_proto::{Event, Family};

use super::snapshot::{StatsSnapshot, Worker};
use crate::api::stats::*;
use crate::files::FileWrites;
use onrush_config::settings::Settings;
use onrush_tracker::access::{AccessList, ListKind, Lists};
use onrush_tracker::clients;
use onrush_tracker::limits::Placement;
use onrush_tracker::metrics::{EVENTS, Histogram, Incoming, REPLIES, WorkerMetrics};

impl FileStats {
    fn of(writes: &FileWrites) -> Self {
        let last = writes.last.get();
        Self {
            written: writes.written.get(),
            failed: writes.failed.get(),
            last: (last > 0).then_some(last),
            bytes: writes.bytes.get(),
            seconds: writes.seconds(),
        }
    }
}

impl Stats {
    /// As the snapshot has it.
    pub fn of(snapshot: &StatsSnapshot) -> Self {
        let settings = &snapshot.settings;
        Self {
            version: crate::version::version().to_owned(),
            pid: std::process::id(),
            time: snapshot.time,
            started: snapshot.started,
            uptime: snapshot.uptime.as_secs_f64(),
            stage: snapshot.readiness.name().to_owned(),
            addresses: snapshot.addresses.iter().map(ToString::to_string).collect(),
            placement: placement_name(settings.placement).to_owned(),
            totals: Totals::of(snapshot),
            families: Families {
                ipv4: FamilyStats::of(snapshot, Family::V4),
                ipv6: FamilyStats::of(snapshot, Family::V6),
            },
            workers: snapshot
                .workers()
                .map(|worker| WorkerStats::of(worker, settings.placement))
                .collect(),
            batches: Distribution::of(snapshot.metrics().map(|worker| &worker.receives), 1.0),
            turns: Distribution::of(snapshot.metrics().map(|worker| &worker.turn_times), 1e-9),
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
                http_connections: settings.admin.connections as u64,
            },
            list: ListState::of(&snapshot.lists, settings),
            overload: Overload {
                step: snapshot.pressure.step,
                interval: snapshot.pressure.interval,
            },
            files: Files {
                snapshot: FileStats::of(&snapshot.files.snapshot),
                export: FileStats::of(&snapshot.files.export),
            },
            http: snapshot.http,
        }
    }
}

impl ListState {
    /// The state of these lists.
    pub(crate) fn of(lists: &Lists, settings: &Settings) -> Self {
        Self {
            mode: mode_name(&lists.access).to_owned(),
            entries: lists.access.len() as u64,
            blocked_sources: lists.blocked.len() as u64,
            published: settings.admin.publish_lists,
        }
    }
}

/// The value of `access.mode` for a list.
pub(super) fn mode_name(list: &AccessList) -> &'static str {
    list.kind().map_or("open", ListKind::name)
}

/// The value of `workers.placement`.
pub(super) fn placement_name(placement: Placement) -> &'static str {
    match placement {
        Placement::Colocated { .. } => "colocated",
        Placement::Split { .. } => "split",
    }
}

/// The names of [`EVENTS`], in their order.
pub(super) const EVENT_NAMES: [&str; EVENTS.len()] = {
    let mut names = [""; EVENTS.len()];
    let mut at = 0;
    while at < EVENTS.len() {
        names[at] = match EVENTS[at] {
            Event::None => "none",
            Event::Completed => "completed",
            Event::Started => "started",
            Event::Stopped => "stopped",
            Event::Paused => "paused",
        };
        at += 1;
    }
    names
};

impl Totals {
    fn of(snapshot: &StatsSnapshot) -> Self {
        let sum = |of: fn(&WorkerMetrics) -> u64| snapshot.metrics().map(of).sum();
        let mut traffic = FamilyStats::of(snapshot, Family::V4);
        traffic.add(FamilyStats::of(snapshot, Family::V6));
        Self {
            traffic,
            replies: sum(|worker| worker.sent.get()),
            bytes_out: sum(|worker| worker.sent_bytes.get()),
            replies_blocked: sum(|worker| worker.send_blocked.get()),
            replies_failed: sum(|worker| worker.send_failed.get()),
            kernel_drops: sum(|worker| worker.kernel_drops.get()),
            local: sum(|worker| worker.local.get()),
            foreign: sum(|worker| worker.foreign.get()),
            lane_full: sum(|worker| worker.lane_full.get()),
            swarms: sum(|worker| worker.shard.swarms.get()),
            idle_swarms: sum(|worker| worker.shard.idle_swarms.get()),
            completed: sum(|worker| worker.shard.completed.get()),
            expired: sum(|worker| worker.shard.expired.get()),
            not_stored: sum(|worker| worker.shard.refused_full.get()),
            idle_evicted: sum(|worker| worker.shard.idle_evicted.get()),
        }
    }
}

impl FamilyStats {
    fn of(snapshot: &StatsSnapshot, family: Family) -> Self {
        let mut stats = Self::default();
        for worker in snapshot.metrics() {
            stats.add(Self::of_worker(worker, family));
        }
        stats.family_swarms = family_swarms(snapshot, family);
        stats
    }

    fn of_worker(worker: &WorkerMetrics, family: Family) -> Self {
        let incoming: &Incoming = worker.incoming.of(family);
        let shard = &worker.shard;
        let (peers, seeders) = match family {
            Family::V4 => (shard.peers_v4.get(), shard.seeders_v4.get()),
            Family::V6 => (shard.peers_v6.get(), shard.seeders_v6.get()),
        };
        let answered = REPLIES.iter().zip(&incoming.replies);
        let events = EVENT_NAMES.iter().zip(&incoming.events);
        Self {
            datagrams: incoming.datagrams.get(),
            bytes_in: incoming.bytes.get(),
            connects: incoming.connects.get(),
            announces: incoming.announces.get(),
            scrapes: incoming.scrapes.get(),
            unconnectable: incoming.unconnectable.get(),
            refused: incoming.refusals().map(|(reason, n)| (reason.to_owned(), n)).collect(),
            events: events.map(|(name, n)| ((*name).to_owned(), n.get())).collect(),
            answered: answered.map(|(kind, n)| ((*kind).to_owned(), n.get())).collect(),
            family_swarms: None,
            peers,
            seeders,
            // The two are not set in one go: for a moment there may be a seeder too many.
            leechers: peers.saturating_sub(seeders),
        }
    }

    fn add(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes_in += other.bytes_in;
        self.connects += other.connects;
        self.announces += other.announces;
        self.scrapes += other.scrapes;
        self.unconnectable += other.unconnectable;
        add_each(&mut self.refused, other.refused);
        add_each(&mut self.events, other.events);
        add_each(&mut self.answered, other.answered);
        self.family_swarms = self.family_swarms.zip(other.family_swarms).map(|(a, b)| a + b);
        self.peers += other.peers;
        self.seeders += other.seeders;
        self.leechers += other.leechers;
    }
}

/// Of all shards together, once each of them knows.
fn family_swarms(snapshot: &StatsSnapshot, family: Family) -> Option<u64> {
    let of = |worker: Worker<'_>| {
        let swarms = worker.metrics.shard.by_family()?;
        Some(match family {
            Family::V4 => swarms.v4,
            Family::V6 => swarms.v6,
        })
    };
    snapshot.swarm_workers().map(of).sum()
}

fn add_each(sums: &mut BTreeMap<String, u64>, counts: BTreeMap<String, u64>) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
}

impl WorkerStats {
    fn of(worker: Worker<'_>, placement: Placement) -> Self {
        let metrics = worker.metrics;
        let both = [&metrics.incoming.v4, &metrics.incoming.v6];
        let busy: u64 = metrics.turn_times.classes().map(|(_, count)| count).sum();
        Self {
            name: worker.name.to_owned(),
            socket_side: worker.index < placement.socket_sides(),
            swarm_side: (0..placement.shards()).any(|shard| placement.owner(shard) == worker.index),
            datagrams: both.iter().map(|incoming| incoming.datagrams.get()).sum(),
            refused: both.iter().flat_map(|incoming| incoming.refusals()).map(|(_, n)| n).sum(),
            replies: metrics.sent.get(),
            replies_dropped: metrics.send_blocked.get() + metrics.send_failed.get(),
            kernel_drops: metrics.kernel_drops.get(),
            local: metrics.local.get(),
            foreign: metrics.foreign.get(),
            lane_full: metrics.lane_full.get(),
            lane_waiting: worker.state.lane_waiting as u64,
            lane_room: worker.state.lane_capacity as u64,
            turns: metrics.turns.get(),
            busy_turns: busy,
            busy_seconds: metrics.turn_times.sum() as f64 * 1e-9,
            peers: metrics.shard.peers_v4.get() + metrics.shard.peers_v6.get(),
            swarms: metrics.shard.swarms.get(),
            sweep_passes: metrics.shard.sweep_passes.get(),
            sweep_debt: metrics.shard.sweep_debt.get(),
            receive_buffer: metrics.receive_buffer.get(),
            send_buffer: metrics.send_buffer.get(),
            still_for: worker.state.stalled_for.as_secs_f64(),
        }
    }
}

impl Distribution {
    fn of<'a, const SHIFT: u32, const CLASSES: usize>(
        histograms: impl Iterator<Item = &'a Histogram<SHIFT, CLASSES>>,
        unit: f64,
    ) -> Self {
        let mut sum = Self::default();
        for histogram in histograms {
            sum.sum += histogram.sum() as f64 * unit;
            for (at, (most, count)) in histogram.classes().enumerate() {
                if sum.classes.len() == at {
                    let most = most.map(|most| most as f64 * unit);
                    sum.classes.push(Class { most, count: 0 });
                }
                sum.classes[at].count += count;
                sum.count += count;
            }
        }
        sum
    }
}

impl Clients {
    fn of(snapshot: &StatsSnapshot) -> Self {
        let mut software: Vec<Software> = clients::NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let of = |family| {
                    let counts =
                        snapshot.metrics().map(|worker| &worker.incoming.of(family).clients.0[at]);
                    counts.map(|count| count.get()).sum()
                };
                Software { name: (*name).to_owned(), ipv4: of(Family::V4), ipv6: of(Family::V6) }
            })
            .filter(|software| software.ipv4 + software.ipv6 > 0)
            .collect();
        software.sort_by_key(|software| std::cmp::Reverse(software.ipv4 + software.ipv6));
        Self { sample: clients::SAMPLE, software }
    }
}
