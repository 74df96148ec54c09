//! `/stats.json`: everything that is counted, as stable names. Whoever wants rates takes two readings: `time`
//! is that of the reading, and what is called a count only rises.

use std::collections::BTreeMap;

use onrush_proto::{Event, Family};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::reading::{Reading, Worker};
use crate::files::FileWrites;
use onrush_tracker::clients;
use onrush_tracker::intake::Refusal;
use onrush_tracker::limits::Placement;
use onrush_tracker::metrics::{EVENTS, Histogram, Incoming, REPLIES, WorkerMetrics};

/// A reading of the whole tracker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Which build this is.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When this was read: seconds since 1970, with a fraction.
    pub time: f64,
    /// When the tracker was started: seconds since 1970.
    pub started: f64,
    /// Seconds since then, on a clock that nobody sets.
    pub uptime: f64,
    /// `starting`, `serving` or `stopping`.
    pub stage: String,
    /// UDP addresses that are served.
    pub addresses: Vec<String>,
    /// `colocated` or `split`.
    pub placement: String,
    /// Everything together.
    pub totals: Totals,
    /// The same by address family.
    pub families: Families,
    /// The same by worker.
    pub workers: Vec<WorkerStats>,
    /// Datagrams in a batch received.
    pub batches: Distribution,
    /// Seconds that turns took which had something to do.
    pub turns: Distribution,
    /// Software of the clients.
    pub clients: Clients,
    /// Memory of the process.
    pub memory: Memory,
    /// CPU time of the process.
    pub cpu: Cpu,
    /// What there may be at most.
    pub limits: Limits,
    /// The list of info hashes in force.
    pub list: ListState,
    /// Whether there is too much to do.
    pub overload: Overload,
    /// What is written to files now and then.
    pub files: Files,
    /// The HTTP side itself.
    pub http: HttpStats,
}

/// What is written to files now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// The peers.
    pub snapshot: FileStats,
    /// The full scrape.
    pub export: FileStats,
}

/// One kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileStats {
    /// Count: written whole.
    pub written: u64,
    /// Count: not written, so that the former one stays.
    pub failed: u64,
    /// When the last one was written, seconds since 1970; absent where this process has written none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Its bytes.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
}

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

/// Whether there is too much to do, and what is done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Overload {
    /// Level: 0 is not at all, 8 is the most.
    pub step: u32,
    /// Level: seconds that clients are told to wait, before jitter.
    pub interval: u32,
}

/// Counts and levels of the whole tracker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// What came in, and who is stored, both families together.
    #[serde(flatten)]
    pub traffic: FamilyStats,
    /// Count: replies that the kernel took.
    pub replies: u64,
    /// Count: their payload bytes.
    pub bytes_out: u64,
    /// Count: replies dropped because a send buffer was full.
    pub replies_blocked: u64,
    /// Count: replies that the kernel refused for another reason.
    pub replies_failed: u64,
    /// Count: datagrams dropped by the kernel, as receive buffers were full.
    pub kernel_drops: u64,
    /// Count: requests that met their shard on the worker that received them.
    pub local: u64,
    /// Count: requests that met it over a lane although their worker has a shard.
    pub foreign: u64,
    /// Count: batches that a full lane did not take.
    pub lane_full: u64,
    /// Level: swarms with peers.
    pub swarms: u64,
    /// Level: swarms without peers, kept for their count of completed downloads.
    pub idle_swarms: u64,
    /// Count: peers that completed.
    pub completed: u64,
    /// Count: peers forgotten because they did not announce again.
    pub expired: u64,
    /// Count: newcomers that were not stored, for want of room.
    pub not_stored: u64,
    /// Count: swarms without peers forgotten before their time, for want of room.
    pub idle_evicted: u64,
}

/// Both families.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Families {
    /// Over IPv4.
    pub ipv4: FamilyStats,
    /// Over IPv6.
    pub ipv6: FamilyStats,
}

/// Counts and levels of one family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FamilyStats {
    /// Count: datagrams received.
    pub datagrams: u64,
    /// Count: their payload bytes.
    pub bytes_in: u64,
    /// Count: connects answered.
    pub connects: u64,
    /// Count: announces that passed every check.
    pub announces: u64,
    /// Count: scrapes that passed every check.
    pub scrapes: u64,
    /// Count: announces of peers that cannot accept connections.
    pub unconnectable: u64,
    /// Count: requests refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Count: announces by event; `paused` is of partial seeds (BEP 21).
    pub events: BTreeMap<String, u64>,
    /// Count: replies handed to the kernel, by kind: `connect`, `announce`, `scrape` or `error`.
    pub answered: BTreeMap<String, u64>,
    /// Level: swarms with peers of this family, as the last pass of expiry met them; absent until one has ended, in
    /// two minutes after the start. A swarm with peers of both is in both, and twice in `totals`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_swarms: Option<u64>,
    /// Level: peers.
    pub peers: u64,
    /// Level: seeders among them.
    pub seeders: u64,
    /// Level: the others.
    pub leechers: u64,
}

/// Counts and levels of one worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStats {
    /// The name of its thread.
    pub name: String,
    /// Whether it has sockets.
    pub socket_side: bool,
    /// Whether it owns swarms.
    pub swarm_side: bool,
    /// Count: datagrams received.
    pub datagrams: u64,
    /// Count: requests refused.
    pub refused: u64,
    /// Count: replies that the kernel took.
    pub replies: u64,
    /// Count: replies that it did not take.
    pub replies_dropped: u64,
    /// Count: datagrams dropped by the kernel.
    pub kernel_drops: u64,
    /// Count: requests served by its own shard without a lane.
    pub local: u64,
    /// Count: requests sent to another although it has a shard.
    pub foreign: u64,
    /// Count: batches that a full lane did not take.
    pub lane_full: u64,
    /// Level: batches that wait to be served by it.
    pub lane_waiting: u64,
    /// How many may wait.
    pub lane_room: u64,
    /// Count: turns taken, with or without something to do.
    pub turns: u64,
    /// Count: turns that had something to do.
    pub busy_turns: u64,
    /// Count: seconds that these took: of a second that has passed, the part it was busy.
    pub busy_seconds: f64,
    /// Level: peers of its shard.
    pub peers: u64,
    /// Level: swarms of its shard.
    pub swarms: u64,
    /// Count: passes of looking for expired peers.
    pub sweep_passes: u64,
    /// Level: entries that should have been looked at by now and were not yet.
    pub sweep_debt: u64,
    /// Bytes of its receive buffers, as the kernel counts them.
    pub receive_buffer: u64,
    /// Bytes of its send buffers.
    pub send_buffer: u64,
    /// Seconds since it was last seen to take a turn; 5 and more are too long.
    pub still_for: f64,
}

/// Values by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// Count: values.
    pub count: u64,
    /// Count: all of them together.
    pub sum: f64,
    /// Counts by class, in rising order; not cumulative.
    pub classes: Vec<Class>,
}

/// A class of a [`Distribution`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Class {
    /// The greatest value in it; absent for the last, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// Count: values in it.
    pub count: u64,
}

/// Software by the prefix of peer ids, by looking at a few announces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Clients {
    /// One announce in so many is looked at.
    pub sample: u64,
    /// What was found, the most frequent first.
    pub software: Vec<Software>,
}

/// One software.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Software {
    /// Its name; `other` is everything that is not known.
    pub name: String,
    /// Count: announces looked at that were its own, over IPv4.
    pub ipv4: u64,
    /// The same over IPv6.
    pub ipv6: u64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Memory {
    /// Level: bytes in use (RSS).
    pub resident: u64,
    /// Level: bytes that it may take, of the host or by its cgroup; absent where that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// CPU time of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cpu {
    /// Count: seconds of all threads, in user space and in the kernel.
    pub seconds: f64,
}

/// What there may be at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Peers.
    pub peers: u64,
    /// Swarms without peers.
    pub idle_swarms: u64,
    /// Info hashes in the file of a list.
    pub list_entries: u64,
    /// HTTP connections.
    pub http_connections: u64,
}

/// The list of info hashes in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListState {
    /// `open` (none), `allow` (only those listed are served) or `deny` (all but those).
    pub mode: String,
    /// How many are listed.
    pub entries: u64,
    /// Level: ranges of addresses whose requests are refused.
    pub blocked_sources: u64,
    /// Whether `/lists` shows them to everybody.
    pub published: bool,
}

/// The HTTP side itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HttpStats {
    /// Count: requests answered.
    pub requests: u64,
    /// Level: connections.
    pub connections: u64,
    /// Count: connections turned away, as there were too many.
    pub turned_away: u64,
}

impl Stats {
    /// As the reading has it.
    pub fn of(reading: &Reading) -> Self {
        let settings = &reading.settings;
        Self {
            version: crate::version::version().to_owned(),
            pid: std::process::id(),
            time: reading.time,
            started: reading.started,
            uptime: reading.uptime.as_secs_f64(),
            stage: reading.stage.name().to_owned(),
            addresses: reading.addresses.iter().map(ToString::to_string).collect(),
            placement: placement_name(settings.placement).to_owned(),
            totals: Totals::of(reading),
            families: Families {
                ipv4: FamilyStats::of(reading, Family::V4),
                ipv6: FamilyStats::of(reading, Family::V6),
            },
            workers: reading
                .workers()
                .map(|worker| WorkerStats::of(worker, settings.placement))
                .collect(),
            batches: Distribution::of(reading.metrics().map(|worker| &worker.receives), 1.0),
            turns: Distribution::of(reading.metrics().map(|worker| &worker.turn_times), 1e-9),
            clients: Clients::of(reading),
            memory: Memory {
                resident: reading.process.resident,
                limit: reading.process.memory_limit,
            },
            cpu: Cpu { seconds: reading.process.cpu_seconds },
            limits: Limits {
                peers: settings.limits.peers,
                idle_swarms: settings.limits.idle_swarms,
                list_entries: settings.limits.list_entries as u64,
                http_connections: settings.admin.connections as u64,
            },
            list: ListState {
                mode: reading.list_mode.to_owned(),
                entries: reading.list_entries as u64,
                blocked_sources: reading.blocked_sources as u64,
                published: settings.admin.publish_lists,
            },
            overload: Overload { step: reading.pressure.step, interval: reading.pressure.interval },
            files: Files {
                snapshot: FileStats::of(&reading.files.snapshot),
                export: FileStats::of(&reading.files.export),
            },
            http: reading.http,
        }
    }
}

/// The word of the configuration for it.
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
    fn of(reading: &Reading) -> Self {
        let sum = |of: fn(&WorkerMetrics) -> u64| reading.metrics().map(of).sum();
        let mut traffic = FamilyStats::of(reading, Family::V4);
        traffic.add(FamilyStats::of(reading, Family::V6));
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
    fn of(reading: &Reading, family: Family) -> Self {
        let mut stats = Self::default();
        for worker in reading.metrics() {
            stats.add(Self::of_worker(worker, family));
        }
        stats.family_swarms = family_swarms(reading, family);
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
        let refused = Refusal::ALL.iter().zip(&incoming.refused);
        let events = EVENT_NAMES.iter().zip(&incoming.events);
        Self {
            datagrams: incoming.datagrams.get(),
            bytes_in: incoming.bytes.get(),
            connects: incoming.connects.get(),
            announces: incoming.announces.get(),
            scrapes: incoming.scrapes.get(),
            unconnectable: incoming.unconnectable.get(),
            refused: refused.map(|(reason, n)| (reason.name().to_owned(), n.get())).collect(),
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
fn family_swarms(reading: &Reading, family: Family) -> Option<u64> {
    let of = |worker: Worker<'_>| {
        let swarms = worker.metrics.shard.by_family()?;
        Some(match family {
            Family::V4 => swarms.v4,
            Family::V6 => swarms.v6,
        })
    };
    reading.swarm_sides().map(of).sum()
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
            refused: both.iter().flat_map(|incoming| &incoming.refused).map(|n| n.get()).sum(),
            replies: metrics.sent.get(),
            replies_dropped: metrics.send_blocked.get() + metrics.send_failed.get(),
            kernel_drops: metrics.kernel_drops.get(),
            local: metrics.local.get(),
            foreign: metrics.foreign.get(),
            lane_full: metrics.lane_full.get(),
            lane_waiting: worker.state.lane.waiting as u64,
            lane_room: worker.state.lane.room as u64,
            turns: metrics.turns.get(),
            busy_turns: busy,
            busy_seconds: metrics.turn_times.sum() as f64 * 1e-9,
            peers: metrics.shard.peers_v4.get() + metrics.shard.peers_v6.get(),
            swarms: metrics.shard.swarms.get(),
            sweep_passes: metrics.shard.sweep_passes.get(),
            sweep_debt: metrics.shard.sweep_debt.get(),
            receive_buffer: metrics.receive_buffer.get(),
            send_buffer: metrics.send_buffer.get(),
            still_for: worker.state.still_for.as_secs_f64(),
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
    fn of(reading: &Reading) -> Self {
        let mut software: Vec<Software> = clients::NAMES
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let of = |family| {
                    let counts =
                        reading.metrics().map(|worker| &worker.incoming.of(family).clients.0[at]);
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
