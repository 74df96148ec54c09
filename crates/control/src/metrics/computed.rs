//! The table of the series that are not in a table of counters: state of the process, computed
//! values, histograms and limits.

use onrush_proto::Family;
use onrush_tracker::clients;
use onrush_tracker::metrics::Kind;

use super::snapshot::{StatsSnapshot, Worker};
use super::stats::{mode_name, placement_name};
use super::text::Samples;
use crate::api::stats::FileStats;
use crate::readiness::Readiness;
use crate::stall::STALL_REPORTED;

/// A series that is computed from a snapshot.
#[derive(Debug)]
pub(super) struct ComputedSeries {
    pub(super) kind: Kind,
    /// Its name; a counter's without `_total`.
    pub(super) name: &'static str,
    /// The label names, in the order of output.
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// Writes the samples.
    pub(super) write: fn(&StatsSnapshot, &mut Samples<'_>),
}

/// Declares [`COMPUTED`]. A row reads `kind "name" [labels] "help" => |snapshot, to| write;`.
macro_rules! declare_computed {
    ($(
        $kind:ident $name:literal [$($label:ident),*] $help:literal
        => |$all:ident, $to:ident| $write:expr;
    )*) => {
        /// The table.
        pub(super) const COMPUTED: &[ComputedSeries] = &[$( ComputedSeries {
            kind: Kind::$kind,
            name: $name,
            labels: &[$( stringify!($label) ),*],
            help: $help,
            write: |$all, $to| $write,
        } ),*];
    };
}

declare_computed! {
    Gauge "onrush_build_info" [version, build, placement] "Version and build; always 1"
        => |all, to| {
            let placement = placement_name(all.settings.placement);
            to.put(&[env!("CARGO_PKG_VERSION"), onrush_text::version::version(), placement], 1.0)
        };
    Gauge "onrush_uptime_seconds" [] "Time since the start of the tracker"
        => |all, to| to.put(&[], all.uptime.as_secs_f64());
    Gauge "onrush_readiness" [stage] "1 for the current readiness, else 0"
        => |all, to| Readiness::ALL.into_iter().for_each(|stage| {
            to.put(&[stage.name()], flag(stage == all.readiness))
        });
    Gauge "process_start_time_seconds" [] "Start of the process, in seconds since 1970"
        => |all, to| to.put(&[], all.started);
    Counter "process_cpu_seconds" [] "CPU time of all threads, in user space and in the kernel"
        => |all, to| to.put(&[], all.process.cpu_seconds);
    Gauge "process_resident_memory_bytes" [] "Resident set size"
        => |all, to| to.put(&[], all.process.resident as f64);
    Gauge "onrush_memory_limit_bytes" []
        "Memory limit of the process, of the host or of its cgroup; absent where it cannot be read"
        => |all, to| if let Some(limit) = all.process.memory_limit {
            to.put(&[], limit as f64);
        };
    Gauge "process_virtual_memory_bytes" [] "Size of the address space"
        => |all, to| to.put(&[], all.process.virtual_size as f64);
    Gauge "process_open_fds" [] "Open file descriptors"
        => |all, to| to.put(&[], all.process.open_files as f64);
    Gauge "process_threads" [] "Number of threads of the process"
        => |all, to| to.put(&[], all.process.threads as f64);
    Histogram "onrush_batch_datagrams" [worker]
        "Datagrams per receive call; empty calls are not counted"
        => |all, to| all.socket_workers().for_each(|worker| {
            to.put_histogram(&worker.member.name, &worker.member.metrics.receives, 1.0)
        });
    Histogram "onrush_turn_duration_seconds" [worker]
        "Duration of turns that had work; the rate of its sum is the load of a worker, 0 to 1"
        => |all, to| all.workers().for_each(|worker| {
            to.put_histogram(&worker.member.name, &worker.member.metrics.turn_times, 1e-9)
        });
    Gauge "onrush_worker_stalled" [worker] "1 for a worker that took no turn for 5 s, else 0"
        => |all, to| each(all.workers(), to, |w| flag(w.state.stalled_for >= STALL_REPORTED));
    Gauge "onrush_lane_waiting_batches" [worker] "Batches that wait to be served by a worker"
        => |all, to| each(all.swarm_workers(), to, |worker| worker.state.lane_waiting as f64);
    Gauge "onrush_lane_capacity_batches" [worker] "Batches that fit in the lane to a worker"
        => |all, to| each(all.swarm_workers(), to, |worker| worker.state.lane_capacity as f64);
    Gauge "onrush_announces_per_sample" []
        "Announces of which one is sampled for its client software"
        => |_all, to| to.put(&[], clients::SAMPLE as f64);
    Gauge "onrush_peers" [family, role, worker] "Peers stored" => |all, to| peers(all, to);
    Gauge "onrush_family_swarms" [family, worker]
        "Swarms with peers of a family, as of the last expiry pass; absent until the first pass \
         has ended. A swarm with peers of both families counts in both"
        => |all, to| all.swarm_workers().for_each(|worker| {
            let Some(swarms) = worker.member.metrics.shard.by_family() else { return };
            to.put(&["ipv4", &worker.member.name], swarms.v4 as f64);
            to.put(&["ipv6", &worker.member.name], swarms.v6 as f64);
        });
    Gauge "onrush_overload_step" [] "Overload level, 0 (none) to 8"
        => |all, to| to.put(&[], f64::from(all.overload.step));
    Gauge "onrush_announce_interval_seconds" [] "Announce interval sent to clients, before jitter"
        => |all, to| to.put(&[], f64::from(all.overload.interval));
    Gauge "onrush_peers_limit" [] "Most peers that the tracker stores, as limits.peers sets"
        => |all, to| to.put(&[], all.settings.limits.peers as f64);
    Gauge "onrush_idle_swarms_limit" []
        "Most swarms without peers that the tracker keeps, as limits.idle_swarms sets"
        => |all, to| to.put(&[], all.settings.limits.idle_swarms as f64);
    Gauge "onrush_list_entries_limit" []
        "Most info hashes of the access list, as limits.list_entries sets"
        => |all, to| to.put(&[], all.settings.limits.list_entries as f64);
    Gauge "onrush_list_entries" [mode] "Info hashes on the access list in force"
        => |all, to| to.put(&[mode_name(&all.lists.access)], all.lists.access.len() as f64);
    Gauge "onrush_list_overrides" []
        "Entries of the access list's files that changes on request remove"
        => |all, to| to.put(&[], all.list_overrides as f64);
    Counter "onrush_list_refused_announces" [list]
        "Announces that a file of the access list has refused"
        => |all, to| all.lists.refused_by_part().for_each(|(name, refused)| {
            to.put(&[name], refused as f64)
        });
    Gauge "onrush_blocked_source_ranges" [] "Blocked ranges of source addresses"
        => |all, to| to.put(&[], all.lists.blocked.len() as f64);
    Gauge "onrush_source_blocks" [] "Blocks of sources made by `onrush ctl block`"
        => |all, to| to.put(&[], all.lists.blocks.len() as f64);
    Gauge "onrush_last_reload_successful" []
        "1 if the last reload put the configuration into force, 0 if it was rejected; the start is \
         a successful one"
        => |all, to| to.put(&[], flag(all.last_reload.successful));
    Gauge "onrush_last_reload_timestamp_seconds" []
        "Time of the last reload, successful or not, or of the start, in seconds since 1970"
        => |all, to| to.put(&[], all.last_reload.time as f64);
    Gauge "onrush_http_certificate_expiry_timestamp_seconds" [certificate]
        "Expiry of a certificate of HTTPS, by its file, in seconds since 1970"
        => |all, to| all.certificates.iter().for_each(|certificate| {
            to.put(&[&certificate.file], certificate.expires as f64)
        });
    Counter "onrush_file_writes" [file, outcome]
        "Writes of a file; after a failed write the previous file stays in place"
        => |all, to| files(all).into_iter().for_each(|(file, writes)| {
            to.put(&[file, "written"], writes.written as f64);
            to.put(&[file, "failed"], writes.failed as f64);
        });
    Gauge "onrush_file_last_written_timestamp_seconds" [file]
        "Time of the last successful write, in seconds since 1970"
        => |all, to| each_written(all, to, |_, last| last as f64);
    Gauge "onrush_file_bytes" [file] "Size of the last written file"
        => |all, to| each_written(all, to, |writes, _| writes.bytes as f64);
    Gauge "onrush_file_write_duration_seconds" [file] "Duration of the last successful write"
        => |all, to| each_written(all, to, |writes, _| writes.seconds);
    Gauge "onrush_log_level" []
        "The lowest level that is logged: 0 off, 1 error, 2 warn, 3 info, 4 debug, 5 trace"
        => |all, to| to.put(&[], f64::from(all.settings.log.level as u8));
    Counter "onrush_lost_log_lines" []
        "Log lines lost because the log was not read in time"
        => |all, to| to.put(&[], all.lost_log_lines as f64);
    Gauge "onrush_admin_connections_limit" []
        "Most open HTTP connections, as admin.connections sets"
        => |all, to| to.put(&[], all.settings.admin.connections as f64);
}

fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// One sample per worker.
fn each<'a>(
    workers: impl Iterator<Item = Worker<'a>>,
    to: &mut Samples<'_>,
    value: fn(&Worker<'a>) -> f64,
) {
    workers.for_each(|worker| to.put(&[&worker.member.name], value(&worker)));
}

fn peers(all: &StatsSnapshot, to: &mut Samples<'_>) {
    for worker in all.swarm_workers() {
        for (family, name) in [(Family::V4, "ipv4"), (Family::V6, "ipv6")] {
            let (peers, seeders) = worker.member.metrics.shard.peers(family);
            to.put(&[name, "seeder", &worker.member.name], seeders as f64);
            // A worker updates the two gauges one after the other, so seeders may exceed peers.
            to.put(&[name, "leecher", &worker.member.name], peers.saturating_sub(seeders) as f64);
        }
    }
}

fn files(all: &StatsSnapshot) -> [(&'static str, FileStats); 2] {
    [("snapshot", all.files.snapshot), ("export", all.files.export)]
}

/// One sample per kind of file that this process has written, from its state and the time of the
/// last write.
fn each_written(all: &StatsSnapshot, to: &mut Samples<'_>, value: fn(FileStats, u64) -> f64) {
    for (file, writes) in files(all) {
        writes.last.into_iter().for_each(|last| to.put(&[file], value(writes, last)));
    }
}
