//! Every sample of `/metrics` against what it stands for. All counters hold another number, so that one that is shown
//! in the place of another, or not at all, is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use super::prometheus::{Format, as_text, write};
use super::snapshot::{StatsSnapshot, WorkerState};
use super::testing::{settings, workers};
use crate::api::stats::{HttpStats, Stats};
use crate::files::{FileWrites, Files};
use crate::view::Pressure;
use onrush_tracker::access::blocks::{AddressBlock, BlockList};
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, Lists};
use onrush_tracker::clients;
use onrush_tracker::limits::Placement;
use onrush_tracker::metrics::{
    ByFamily, ClientCounts, Counter, Incoming, ShardGauges, WorkerMetrics,
};

/// Families of samples by a number for each worker with sockets and family, from [`V4`] or [`V6`] on.
const OF_DOORS: [(&str, u64); 21] = [
    ("onrush_received_datagrams_total{", 1),
    ("onrush_received_bytes_total{", 2),
    ("onrush_requests_total{kind=\"connect\",", 3),
    ("onrush_requests_total{kind=\"announce\",", 4),
    ("onrush_requests_total{kind=\"scrape\",", 5),
    ("onrush_refused_requests_total{reason=\"short\",", 100),
    ("onrush_refused_requests_total{reason=\"magic\",", 101),
    ("onrush_refused_requests_total{reason=\"action\",", 102),
    ("onrush_refused_requests_total{reason=\"source_port\",", 103),
    ("onrush_refused_requests_total{reason=\"bogon\",", 105),
    ("onrush_refused_requests_total{reason=\"blocked\",", 106),
    ("onrush_refused_requests_total{reason=\"connection_id\",", 104),
    ("onrush_refused_requests_total{reason=\"port\",", 107),
    ("onrush_refused_requests_total{reason=\"forbidden\",", 108),
    ("onrush_refused_requests_total{reason=\"no_hash\",", 109),
    ("onrush_refused_requests_total{reason=\"shed\",", 110),
    ("onrush_refused_requests_total{reason=\"busy\",", 111),
    ("onrush_replies_total{kind=\"connect\",", 300),
    ("onrush_replies_total{kind=\"announce\",", 301),
    ("onrush_replies_total{kind=\"scrape\",", 302),
    ("onrush_replies_total{kind=\"error\",", 303),
];

/// The same for each family, of all workers together.
const OF_FAMILIES: [(&str, u64); 6] = [
    ("onrush_unconnectable_announces_total{", 6),
    ("onrush_announces_total{event=\"none\",", 200),
    ("onrush_announces_total{event=\"completed\",", 201),
    ("onrush_announces_total{event=\"started\",", 202),
    ("onrush_announces_total{event=\"stopped\",", 203),
    ("onrush_announces_total{event=\"paused\",", 204),
];

/// The same for each worker, from [`BOTH`] on.
const OF_WORKERS: [(&str, u64); 30] = [
    ("onrush_sent_datagrams_total{", 1),
    ("onrush_sent_bytes_total{", 2),
    ("onrush_unsent_replies_total{cause=\"full_buffer\",", 3),
    ("onrush_unsent_replies_total{cause=\"error\",", 4),
    ("onrush_send_calls_total{", 5),
    ("onrush_kernel_dropped_datagrams_total{", 6),
    ("onrush_receive_buffer_bytes{", 7),
    ("onrush_send_buffer_bytes{", 8),
    ("onrush_shard_requests_total{way=\"foreign\",", 9),
    ("onrush_shard_requests_total{way=\"local\",", 10),
    ("onrush_lane_full_batches_total{", 11),
    ("onrush_turns_total{", 12),
    ("onrush_orphaned_requests_total{", 13),
    ("onrush_swarms{state=\"active\",", 101),
    ("onrush_family_swarms{family=\"ipv4\",", 102),
    ("onrush_family_swarms{family=\"ipv6\",", 103),
    ("onrush_swarms{state=\"idle\",", 104),
    ("onrush_peers{family=\"ipv4\",role=\"seeder\",", 105),
    ("onrush_peers{family=\"ipv6\",role=\"seeder\",", 106),
    ("onrush_completed_peers_total{", 107),
    ("onrush_not_stored_peers_total{", 108),
    ("onrush_expired_peers_total{", 109),
    ("onrush_evicted_idle_swarms_total{", 110),
    ("onrush_swept_entries_total{", 111),
    ("onrush_sweep_passes_total{", 112),
    ("onrush_sweep_debt_entries{", 113),
    ("onrush_peers{family=\"ipv4\",role=\"leecher\",", 201),
    ("onrush_peers{family=\"ipv6\",role=\"leecher\",", 202),
    ("onrush_lane_waiting_batches{", 301),
    ("onrush_lane_room_batches{", 302),
];

/// Samples of the tracker as a whole.
const OF_ALL: [(&str, f64); 46] = [
    ("onrush_announce_sample_ratio", 64.0),
    ("onrush_worker_stuck{worker=\"worker-0\"}", 0.0),
    ("onrush_worker_stuck{worker=\"worker-1\"}", 1.0),
    ("onrush_uptime_seconds", 12.5),
    ("process_start_time_seconds", 1_780_000_000.5),
    ("process_cpu_seconds_total", 13.25),
    ("process_resident_memory_bytes", 14.0),
    ("onrush_memory_limit_bytes", 15.0),
    ("process_virtual_memory_bytes", 16.0),
    ("process_open_fds", 17.0),
    ("process_threads", 18.0),
    ("onrush_stage{stage=\"starting\"}", 0.0),
    ("onrush_stage{stage=\"serving\"}", 1.0),
    ("onrush_stage{stage=\"stopping\"}", 0.0),
    ("onrush_overload_step", 5.0),
    ("onrush_announce_interval_seconds", 2345.0),
    ("onrush_peers_limit", 21.0),
    ("onrush_idle_swarms_limit", 22.0),
    ("onrush_list_entries_limit", 23.0),
    ("onrush_http_connections_limit", 24.0),
    ("onrush_list_entries{mode=\"deny\"}", 25.0),
    ("onrush_blocked_source_ranges", 26.0),
    ("onrush_file_writes_total{file=\"snapshot\",outcome=\"written\"}", 31.0),
    ("onrush_file_writes_total{file=\"snapshot\",outcome=\"failed\"}", 32.0),
    ("onrush_file_last_written_timestamp_seconds{file=\"snapshot\"}", 33.0),
    ("onrush_file_bytes{file=\"snapshot\"}", 34.0),
    ("onrush_file_write_duration_seconds{file=\"snapshot\"}", 0.035),
    ("onrush_file_writes_total{file=\"export\",outcome=\"written\"}", 41.0),
    ("onrush_file_writes_total{file=\"export\",outcome=\"failed\"}", 42.0),
    ("onrush_file_last_written_timestamp_seconds{file=\"export\"}", 43.0),
    ("onrush_file_bytes{file=\"export\"}", 44.0),
    ("onrush_file_write_duration_seconds{file=\"export\"}", 0.045),
    ("onrush_http_requests_total", 51.0),
    ("onrush_http_connections", 52.0),
    ("onrush_http_turned_away_connections_total", 53.0),
    ("onrush_batch_datagrams_count{worker=\"worker-0\"}", 2.0),
    ("onrush_batch_datagrams_count{worker=\"worker-1\"}", 3.0),
    ("onrush_batch_datagrams_sum{worker=\"worker-0\"}", 128.0),
    ("onrush_batch_datagrams_sum{worker=\"worker-1\"}", 192.0),
    ("onrush_batch_datagrams_bucket{le=\"32.0\",worker=\"worker-0\"}", 0.0),
    ("onrush_batch_datagrams_bucket{le=\"64.0\",worker=\"worker-0\"}", 2.0),
    ("onrush_batch_datagrams_bucket{le=\"+Inf\",worker=\"worker-1\"}", 3.0),
    ("onrush_turn_duration_seconds_count{worker=\"worker-0\"}", 4.0),
    ("onrush_turn_duration_seconds_count{worker=\"worker-1\"}", 5.0),
    ("onrush_turn_duration_seconds_sum{worker=\"worker-0\"}", 0.008),
    ("onrush_turn_duration_seconds_sum{worker=\"worker-1\"}", 0.01),
];

/// Where the numbers of a worker begin.
const EACH: [u64; 2] = [10_000, 20_000];
/// From there on: those of IPv4, of IPv6, of both.
const V4: u64 = 1_000;
const V6: u64 = 2_000;
const BOTH: u64 = 3_000;

/// Sets counters to the numbers from `first` on, in this order.
fn count<'a>(counters: impl IntoIterator<Item = &'a Counter>, first: u64) {
    counters.into_iter().zip(first..).for_each(|(counter, number)| counter.set(number));
}

// The patterns are without `..`: whoever adds a counter comes by here.

fn fill(metrics: &WorkerMetrics, from: u64) {
    let WorkerMetrics {
        incoming: ByFamily { v4, v6 },
        sent,
        sent_bytes,
        send_blocked,
        send_failed,
        send_calls,
        kernel_drops,
        receives,
        receive_buffer,
        send_buffer,
        foreign,
        local,
        lane_full,
        orphaned,
        turns,
        turn_times,
        shard,
    } = metrics;
    fill_incoming(v4, from + V4);
    fill_incoming(v6, from + V6);
    count([sent, sent_bytes, send_blocked, send_failed, send_calls, kernel_drops], from + BOTH + 1);
    count([receive_buffer, send_buffer, foreign, local, lane_full, turns], from + BOTH + 7);
    orphaned.set(from + BOTH + 13);
    let number = from / EACH[0];
    (0..number + 1).for_each(|_| receives.observe(64));
    (0..number + 3).for_each(|_| turn_times.observe(2_000_000));
    fill_shard(shard, from + BOTH + 100);
}

fn fill_incoming(incoming: &Incoming, from: u64) {
    let Incoming {
        datagrams,
        bytes,
        connects,
        announces,
        scrapes,
        refused,
        refused_by_udp,
        events,
        unconnectable,
        replies,
        clients: ClientCounts(clients),
    } = incoming;
    count([datagrams, bytes, connects, announces, scrapes, unconnectable], from + 1);
    count(refused_by_udp, from + 100);
    count(refused, from + 105);
    count(events, from + 200);
    count(replies, from + 300);
    count(clients, from + 400);
}

fn fill_shard(shard: &ShardGauges, from: u64) {
    let ShardGauges {
        swarms,
        swarms_v4,
        swarms_v6,
        idle_swarms,
        peers_v4,
        peers_v6,
        seeders_v4,
        seeders_v6,
        completed,
        refused_full,
        expired,
        idle_evicted,
        swept,
        sweep_passes,
        sweep_debt,
    } = shard;
    count([swarms, swarms_v4, swarms_v6, idle_swarms, seeders_v4, seeders_v6], from + 1);
    count([completed, refused_full, expired, idle_evicted, swept, sweep_passes], from + 7);
    sweep_debt.set(from + 13);
    // Leechers are what is left of peers without seeders.
    peers_v4.set(seeders_v4.get() + from + 101);
    peers_v6.set(seeders_v6.get() + from + 102);
}

fn written(from: u64) -> FileWrites {
    let writes = FileWrites::default();
    let FileWrites { written, failed, last, bytes, took } = &writes;
    count([written, failed, last, bytes, took], from);
    writes
}

/// A deny list of 25 info hashes and 26 blocked ranges.
fn lists() -> Lists {
    let listed = InfoHashSet::new((0..25).map(|n| [n; 20]).collect());
    let blocked = (0..26).map(|n| format!("192.0.2.{}", 2 * n).parse::<AddressBlock>().unwrap());
    Lists {
        access: Arc::new(AccessList::Deny(OverlaySet::new(listed))),
        blocked: Arc::new(BlockList::new(blocked)),
    }
}

fn full_snapshot() -> StatsSnapshot {
    let mut settings = settings("[workers]\ntotal = 2\nplacement = \"colocated\"\n");
    (settings.limits.peers, settings.limits.idle_swarms) = (21, 22);
    (settings.limits.list_entries, settings.admin.connections) = (23, 24);
    let workers = workers(&settings);
    workers.iter().zip(EACH).for_each(|((_, metrics), from)| fill(metrics, from));
    let state = |from: u64, stalled_for| {
        let at = (from + BOTH) as usize;
        WorkerState { lane_waiting: at + 301, lane_capacity: at + 302, stalled_for }
    };
    StatsSnapshot {
        states: vec![
            state(EACH[0], Duration::from_secs(4)),
            state(EACH[1], Duration::from_secs(5)),
        ],
        lists: lists(),
        pressure: Pressure { step: 5, interval: 2345 },
        uptime: Duration::from_millis(12_500),
        files: Files { snapshot: Arc::new(written(31)), export: Arc::new(written(41)) },
        process: Process {
            cpu_seconds: 13.25,
            resident: 14,
            memory_limit: Some(15),
            virtual_size: 16,
            open_files: 17,
            threads: 18,
        },
        http: HttpStats { requests: 51, connections: 52, turned_away: 53 },
        ..StatsSnapshot::of_workers(workers, settings)
    }
}

/// What has to be shown of [`full_snapshot`].
fn expected() -> BTreeMap<String, f64> {
    let mut samples: BTreeMap<String, f64> =
        OF_ALL.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let version = env!("CARGO_PKG_VERSION");
    let build = crate::version::version();
    let info = format!(
        "onrush_build_info{{version=\"{version}\",build=\"{build}\",placement=\"colocated\"}}"
    );
    let mut shows = |name: String, value: u64| {
        assert!(samples.insert(name.clone(), value as f64).is_none(), "{name} is here twice");
    };
    shows(info, 1);
    for (family, offset) in [("ipv4", V4), ("ipv6", V6)] {
        let of_all = |number: u64| EACH.iter().map(|from| from + offset + number).sum();
        for (start, number) in OF_FAMILIES {
            shows(format!("{start}family=\"{family}\"}}"), of_all(number));
        }
        for (client, number) in clients::NAMES.iter().zip(400..) {
            let start = format!("onrush_sampled_announces_total{{client=\"{client}\",");
            shows(format!("{start}family=\"{family}\"}}"), of_all(number));
        }
        for (worker, from) in EACH.iter().enumerate() {
            for (start, number) in OF_DOORS {
                let name = format!("{start}family=\"{family}\",worker=\"worker-{worker}\"}}");
                shows(name, from + offset + number);
            }
        }
    }
    for (worker, from) in EACH.iter().enumerate() {
        for (start, number) in OF_WORKERS {
            shows(format!("{start}worker=\"worker-{worker}\"}}"), from + BOTH + number);
        }
    }
    samples
}

/// The samples of a page.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let of = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    lines.map(of).collect()
}

#[test]
fn every_sample_has_the_number_of_its_counter() {
    let mut shown = samples(&write(full_snapshot(), Format::Text));
    let expected = expected();
    let buckets = shown.keys().filter(|name| name.contains("_bucket{")).count();
    assert_eq!(buckets, 2 * (12 + 22), "of two workers");
    shown.retain(|name, _| !name.contains("_bucket{") || expected.contains_key(name));
    for (name, value) in &expected {
        let is = shown.remove(name);
        let right = is.is_some_and(|is| (is - value).abs() < 1e-9);
        assert!(right, "{name} is {is:?}, not {value}");
    }
    assert!(shown.is_empty(), "nobody has said what these are to be: {shown:#?}");
}

#[test]
fn both_formats_have_the_same_samples() {
    let newer = samples(&write(full_snapshot(), Format::OpenMetrics));
    assert_eq!(newer, samples(&write(full_snapshot(), Format::Text)));
}

#[test]
fn swarms_by_family_are_not_shown_before_a_pass_has_met_them() {
    let reading = full_snapshot();
    reading.workers[0].1.shard.sweep_passes.set(0);
    let stats = Stats::of(&reading);
    assert_eq!(
        (stats.families.ipv4.family_swarms, stats.totals.traffic.family_swarms),
        (None, None)
    );
    let page = write(reading, Format::Text);
    let shown = page.lines().filter(|line| line.starts_with("onrush_family_swarms{"));
    let shown: Vec<_> = shown.collect();
    assert!(shown.len() == 2 && shown.iter().all(|line| line.contains("worker-1")), "{shown:?}");
    let stats = Stats::of(&full_snapshot());
    let ipv4 = EACH.iter().map(|from| from + BOTH + 102).sum();
    let ipv6 = EACH.iter().map(|from| from + BOTH + 103).sum();
    assert_eq!(stats.families.ipv4.family_swarms, Some(ipv4));
    assert_eq!(stats.families.ipv6.family_swarms, Some(ipv6));
    assert_eq!(stats.totals.traffic.family_swarms, Some(ipv4 + ipv6));
}

/// Who has sockets shows what comes in and goes out; who owns swarms, what is stored.
#[test]
fn split_workers_show_their_own_part() {
    let settings = settings("[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 2\n");
    assert_eq!(settings.placement, Placement::Split { socket_workers: 1, swarm_workers: 2 });
    let workers = workers(&settings);
    workers.iter().for_each(|(_, metrics)| metrics.shard.sweep_passes.set(1));
    let shown = samples(&write(StatsSnapshot::of_workers(workers, settings), Format::Text));
    let who = |name: &str| -> BTreeSet<&str> {
        let of = shown.keys().filter(|full| full.split('{').next() == Some(name));
        of.filter_map(|full| full.split("worker=\"").nth(1)?.split('"').next()).collect()
    };
    let (socket, swarm) = (BTreeSet::from(["socket-0"]), BTreeSet::from(["swarm-0", "swarm-1"]));
    for name in ["onrush_received_datagrams_total", "onrush_refused_requests_total"] {
        assert_eq!(who(name), socket, "{name}");
    }
    for name in ["onrush_replies_total", "onrush_kernel_dropped_datagrams_total"] {
        assert_eq!(who(name), socket, "{name}");
    }
    for name in ["onrush_peers", "onrush_family_swarms", "onrush_lane_room_batches"] {
        assert_eq!(who(name), swarm, "{name}");
    }
    assert_eq!(who("onrush_turns_total"), &socket | &swarm);
}

#[test]
fn counters_have_their_suffix_in_the_older_format() {
    let newer = "# HELP a Of a.\n# TYPE a counter\na_total{x=\"# TYPE b\"} 1\n# HELP b Of b.\n\
                 # TYPE b gauge\nb 2\n# EOF\n";
    let older = "# HELP a_total Of a.\n# TYPE a_total counter\na_total{x=\"# TYPE b\"} 1\n\
                 # HELP b Of b.\n# TYPE b gauge\nb 2\n";
    assert_eq!(as_text(newer), older);
}

#[test]
fn who_names_open_metrics_gets_it() {
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    assert_eq!(Format::accepted("*/*"), Format::Text);
    assert_eq!(Format::accepted(""), Format::Text);
}
