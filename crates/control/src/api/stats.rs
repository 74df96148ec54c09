//! Response of `/stats.json`: all counters and gauges under stable names. To compute a rate, take
//! two responses and divide by the difference of their `time`; counters never decrease.
//!
//! The counters come from the tables: [`IncomingStats`], [`WorkerCounts`], [`ShardStats`] and
//! [`WebStats`] have a field for each counter of the workers ([`onrush_tracker::metrics`]),
//! [`AdminStats`] for those of the admin side.

use std::collections::BTreeMap;

use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::counter_table;
use onrush_tracker::metrics::{
    Incoming, LOSSES, Loss, ShardGauges, UNSERVED, WebCounters, WorkerMetrics, is_loss,
};
use serde::{Deserialize, Serialize};

use crate::connections::{AdminCounters, admin_table};
use crate::stall::STALL_REPORTED;

/// Declares the JSON type of each struct in a table, with a conversion that adds counters to it.
macro_rules! declare_stats {
    ($(
        $(#[$doc:meta])*
        $Struct:ident ($Json:ident) {
            counters { $(
                $kind:ident $shown:ident $series:literal [$($label:ident),*] $help:tt
                $( lost($($lost:tt)*) )?
                { $( $field:ident $(as $key:tt)? $(= $value:tt)? ),* }
            )* }
            named { $($named:tt)* }
            hidden { $($hidden:tt)* }
            also { $($also:tt)* }
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(utoipa::ToSchema))]
        pub struct $Json {
            $($(
                #[doc = $help]
                $(#[doc = $value])?
                $(#[serde(rename = $key)])?
                pub $field: u64,
            )*)*
        }

        impl $Json {
            pub(crate) fn add(&mut self, counters: &$Struct) {
                $($( self.$field += counters.$field.get(); )*)*
            }
        }
    )* };
}
counter_table!(declare_stats);
admin_table!(declare_stats);

/// All counters and gauges of the tracker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Stats {
    /// Version and build.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Time of the response: seconds since 1970, with a fraction.
    pub time: f64,
    /// Start of the tracker: seconds since 1970.
    pub started: f64,
    /// Seconds since the start, on the monotonic clock.
    pub uptime: f64,
    /// `starting`, `serving` or `stopping`.
    pub stage: String,
    /// The served addresses, like `udp://192.0.2.1:6969`.
    pub addresses: Vec<String>,
    /// `colocated` or `split`.
    pub placement: String,
    /// Sums over all workers and both address families.
    pub totals: Totals,
    /// Sums over all workers by address family.
    pub families: Families,
    /// One entry per worker.
    pub workers: Vec<WorkerStats>,
    /// Client software.
    pub clients: Clients,
    /// Memory of the process.
    pub memory: Memory,
    /// CPU time of the process.
    pub cpu: Cpu,
    /// Configured limits.
    pub limits: Limits,
    /// The access lists in force.
    pub list: ListState,
    /// The overload level.
    pub overload: Overload,
    /// The last reload of the configuration.
    pub last_reload: LastReload,
    /// The certificates of HTTPS; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateStats>,
    /// Files written by the daemon.
    pub files: Files,
    /// The lowest level that is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: String,
    /// Counter: log lines lost because the log was not read in time.
    pub lost_log_lines: u64,
    /// The admin side itself.
    pub admin: AdminStats,
}

/// A certificate of HTTPS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct CertificateStats {
    /// Its file.
    pub file: String,
    /// The names for which it is valid.
    pub names: Vec<String>,
    /// Its expiry: seconds since 1970.
    pub expires: u64,
}

/// Sums over all workers and both address families.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Totals {
    /// Traffic and peers of both families.
    #[serde(flatten)]
    pub traffic: FamilyStats,
    /// Counters of all workers.
    #[serde(flatten)]
    pub worker: WorkerCounts,
    /// Counter: replies that the kernel did not accept, by cause.
    pub unsent: BTreeMap<String, u64>,
    /// Counter: datagrams, requests and replies lost, by cause. Requests refused as `busy` are in
    /// `refused` too.
    pub lost: BTreeMap<String, u64>,
    /// State of all shards.
    #[serde(flatten)]
    pub shard: ShardStats,
    /// Announces and scrapes over HTTP; absent where the tracker does not serve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpStats>,
}

/// Connections and requests over HTTP and WebSocket, and WebRTC peers, which are in no other field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HttpStats {
    /// Connections, requests and bytes; WebRTC peers with their swarms, offers and answers.
    #[serde(flatten)]
    pub counts: WebStats,
    /// Counter: connections closed, by cause.
    pub closed: BTreeMap<String, u64>,
    /// Counter: requests refused, by reason. They are in `totals.refused` too.
    pub refused: BTreeMap<String, u64>,
}

/// Both address families.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Families {
    /// IPv4.
    pub ipv4: FamilyStats,
    /// IPv6.
    pub ipv6: FamilyStats,
}

/// Traffic and peers of one address family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct FamilyStats {
    /// Traffic.
    #[serde(flatten)]
    pub incoming: IncomingStats,
    /// Counter: requests refused, by reason. `totals` has the reasons of HTTP too, if the tracker
    /// serves it; families have of these only what UDP has too.
    pub refused: BTreeMap<String, u64>,
    /// Counter: announces by event; `paused` is the event of partial seeds (BEP 21).
    pub events: BTreeMap<String, u64>,
    /// Counter: replies passed to the kernel, by kind: `connect`, `announce`, `scrape` or `error`.
    pub answered: BTreeMap<String, u64>,
    /// Gauge: swarms with peers of this family, as of the last expiry pass. Absent until the first
    /// pass has ended, within two minutes of the start. A swarm with peers of both families counts
    /// in both, and twice in `totals`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_swarms: Option<u64>,
    /// Gauge: peers.
    pub peers: u64,
    /// Gauge: seeders.
    pub seeders: u64,
    /// Gauge: the other peers.
    pub leechers: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WorkerStats {
    /// The name of its thread.
    pub name: String,
    /// Whether it has sockets.
    pub socket_side: bool,
    /// Whether it has a shard.
    pub swarm_side: bool,
    /// Whether it is the XDP program at an interface, which is no thread.
    #[serde(default)]
    pub program: bool,
    /// Counter: datagrams received.
    pub datagrams: u64,
    /// Counter: requests refused.
    pub refused: u64,
    /// Counter: replies that the kernel did not accept.
    pub replies_dropped: u64,
    /// Counter: datagrams, requests and replies lost, for any cause.
    pub lost: u64,
    /// Gauge: batches that wait in the lane to it.
    pub lane_waiting: u64,
    /// Batches that fit in the lane to it.
    pub lane_capacity: u64,
    /// Counter: turns that had work.
    pub busy_turns: u64,
    /// Counter: duration of these turns in seconds. Its rate is the load of the worker, 0 to 1.
    pub busy_seconds: f64,
    /// Gauge: peers in its shard.
    pub peers: u64,
    /// Gauge: seconds since it was last seen to take a turn; it is stalled from 5 on.
    pub stalled_seconds: f64,
    /// Its counters.
    #[serde(flatten)]
    pub counts: WorkerCounts,
    /// State of its shard.
    #[serde(flatten)]
    pub shard: ShardStats,
    /// Its connections of HTTP; absent for a worker that has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpStats>,
}

/// Client software by peer id prefix, from a sample of the announces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Clients {
    /// One announce out of this many is sampled.
    pub sample: u64,
    /// The software found, the most frequent first.
    pub software: Vec<Software>,
}

/// One software.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Software {
    /// Its name; `other` stands for all unknown software.
    pub name: String,
    /// Counter: sampled announces over IPv4.
    pub ipv4: u64,
    /// Counter: sampled announces over IPv6.
    pub ipv6: u64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Memory {
    /// Gauge: resident set size in bytes.
    pub resident: u64,
    /// Gauge: memory limit in bytes, of the host or of the cgroup; absent where it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// CPU time of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Cpu {
    /// Counter: seconds of all threads, in user space and in the kernel.
    pub seconds: f64,
}

/// Configured limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Limits {
    /// Peers.
    pub peers: u64,
    /// Swarms without peers.
    pub idle_swarms: u64,
    /// Info hashes in the file of a list.
    pub list_entries: u64,
    /// HTTP connections.
    pub admin_connections: u64,
    /// Connections of HTTP clients of the tracker; absent where it does not serve HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_connections: Option<u64>,
    /// Bytes of incomplete requests and unsent replies over HTTP; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_buffer_memory: Option<u64>,
}

/// The access lists in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ListState {
    /// `open` (no list), `allow` (only listed info hashes are served) or `deny` (all others are).
    pub mode: String,
    /// Number of listed info hashes.
    pub entries: u64,
    /// Number of entries of its files that a change removes.
    #[serde(default)]
    pub overrides: u64,
    /// Gauge: blocked ranges of source addresses.
    pub blocked_sources: u64,
    /// Whether `/lists` publishes the list.
    pub published: bool,
}

/// The overload level and its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Overload {
    /// Gauge: 0 (none) to 8.
    pub step: u32,
    /// Gauge: the announce interval sent to clients, in seconds, before jitter.
    pub interval: u32,
}

/// The last reload of the configuration; until the first one, the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct LastReload {
    /// Gauge: whether it put the configuration into force, and was not rejected.
    pub successful: bool,
    /// Gauge: its time, in seconds since 1970.
    pub time: u64,
}

/// Files written by the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Files {
    /// Snapshots of the peers.
    pub snapshot: FileStats,
    /// Full scrapes.
    pub export: FileStats,
}

/// One kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct FileStats {
    /// Counter: files written completely.
    pub written: u64,
    /// Counter: failed writes; the previous file stays in place.
    pub failed: u64,
    /// Time of the last successful write, in seconds since 1970; absent where this process has
    /// written none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Size of the last written file, in bytes.
    pub bytes: u64,
    /// Duration of the last successful write, in seconds.
    pub seconds: f64,
}

impl Totals {
    /// The name and the count of each of [`LOSSES`].
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |loss: &Loss| self.lost.get(loss.key).copied().unwrap_or(0);
        LOSSES.iter().map(move |loss| (loss.label, count(loss)))
    }

    /// Counts of HTTP; zeros where the tracker does not serve it.
    pub fn over_http(&self) -> WebStats {
        counts(self.http.as_ref())
    }

    /// Datagrams, and requests over HTTP.
    pub fn received(&self) -> u64 {
        self.traffic.incoming.datagrams + self.over_http().all_requests()
    }

    /// Replies sent, except to refused requests over HTTP.
    pub fn replied(&self) -> u64 {
        self.worker.sent + self.over_http().answered
    }
}

fn counts(http: Option<&HttpStats>) -> WebStats {
    http.map_or_else(WebStats::default, |http| http.counts)
}

impl WebStats {
    /// Requests over HTTP and WebSocket, with TLS or without.
    pub fn all_requests(&self) -> u64 {
        self.requests + self.https_requests + self.ws_requests + self.wss_requests
    }

    /// Open connections of HTTP and WebSocket, with TLS or without.
    pub fn all_open(&self) -> u64 {
        self.open + self.https_open + self.open_websockets()
    }

    /// Open connections of WebSocket, with TLS or without.
    pub fn open_websockets(&self) -> u64 {
        self.ws_open + self.wss_open
    }

    /// Whether WebRTC peers have come: views show them from then on.
    pub fn has_webrtc(&self) -> bool {
        self.open_websockets() + self.ws_requests + self.wss_requests > 0
    }
}

impl HttpStats {
    /// The name and the count of each of [`UNSERVED`].
    pub fn unserved(&self) -> [(&'static str, u64); 3] {
        let closed = |cause: CloseCause| self.closed.get(cause.name()).copied().unwrap_or(0);
        UNSERVED.map(|(name, cause)| (name, cause.map_or(self.counts.accept_errors, closed)))
    }
}

impl FamilyStats {
    /// Requests that passed every check.
    pub fn requests(&self) -> u64 {
        self.incoming.connects + self.incoming.announces + self.incoming.scrapes
    }

    /// Requests that were refused and do not count as lost.
    pub fn refused_in_all(&self) -> u64 {
        self.only_refused().map(|(_, count)| count).sum()
    }

    /// The reasons to refuse, with their counts, without those that count as lost.
    pub fn only_refused(&self) -> impl Iterator<Item = (&str, u64)> {
        let refused = self.refused.iter().filter(|(reason, _)| !is_loss(reason));
        refused.map(|(reason, count)| (reason.as_str(), *count))
    }
}

impl WorkerStats {
    /// Whether it has taken no turn for [`STALL_REPORTED`].
    pub fn is_stalled(&self) -> bool {
        self.stalled_seconds >= STALL_REPORTED.as_secs_f64()
    }

    /// Whether it receives requests of clients.
    pub fn takes_requests(&self) -> bool {
        self.socket_side || self.program || self.http.is_some()
    }

    /// Datagrams, and requests over HTTP.
    pub fn received(&self) -> u64 {
        self.datagrams + counts(self.http.as_ref()).all_requests()
    }

    /// Replies sent, except to refused requests over HTTP.
    pub fn replied(&self) -> u64 {
        self.counts.sent + counts(self.http.as_ref()).answered
    }
}

impl Clients {
    /// The name of each software found, and its share of the sampled announces, 0 to 1.
    pub fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let count = |found: &Software| (found.ipv4 + found.ipv6) as f64;
        let all: f64 = self.software.iter().map(count).sum();
        let found = self.software.iter().filter(move |found| count(found) > 0.0);
        found.map(move |found| (found.name.as_str(), count(found) / all))
    }
}

impl ShardStats {
    /// New peers that were answered and not stored, or stored in place of a neighbour's, because of
    /// any limit.
    pub fn not_stored(&self) -> u64 {
        self.refused_full
            + self.refused_per_swarm
            + self.refused_of_source
            + self.refused_new_swarms
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;

    use super::*;

    /// The keys of a value, and the properties of its schema.
    fn keys<T: Default + Serialize + PartialSchema>() -> [BTreeSet<String>; 2] {
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect();
        let value = serde_json::to_value(T::default()).unwrap();
        let schema = serde_json::to_value(T::schema()).unwrap();
        [keys(&value), keys(&schema["properties"])]
    }

    /// The macro that declares the structs has to show utoipa the names that serde writes.
    #[test]
    fn schemas_have_the_keys_of_the_json() {
        for [json, schema] in [
            keys::<IncomingStats>(),
            keys::<WorkerCounts>(),
            keys::<ShardStats>(),
            keys::<WebStats>(),
        ] {
            assert_eq!(json, schema);
        }
        assert!(keys::<IncomingStats>()[1].contains("bytes_in"));
    }
}
