//! Response of `/stats.json`: all counters and gauges under stable names. To compute a rate, take two
//! responses and divide by the difference of their `time`; counters never decrease.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
