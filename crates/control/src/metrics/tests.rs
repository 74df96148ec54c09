//! Every sample of `/metrics` against its source. Each counter has a different value, so a series
//! that shows another counter, or none, is found.

pub(crate) mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::process::Process;
use super::prometheus::write;
use super::snapshot::{StatsSnapshot, WorkerState};
use crate::api::stats::{CertificateStats, FileStats, Files, LastReload, Overload, Stats};
use crate::connections::AdminCounters;
use onrush_config::Settings;
use onrush_tracker::access::addresses::{AddressBlock, AddressSet, network};
use onrush_tracker::access::blocks::SourceBlocks;
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, Lists};
use onrush_tracker::member::{Member, Role};
use onrush_tracker::metrics::{
    Counter, Incoming, LOSSES, Series, ShardGauges, Summary, WebCounters, WorkerMetrics, XdpFrames,
    XdpQueue,
};

/// Samples of the computed series, of two workers that [`full_snapshot`] fills. Each number of the
/// first worker begins with 1, of the second with 2.
const COMPUTED: [(&str, f64); 66] = [
    ("onrush_announces_per_sample", 256.0),
    ("onrush_worker_stalled{worker=\"worker-0\"}", 0.0),
    ("onrush_worker_stalled{worker=\"worker-1\"}", 1.0),
    ("onrush_uptime_seconds", 12.5),
    ("process_start_time_seconds", 1_780_000_000.5),
    ("process_cpu_seconds_total", 13.25),
    ("process_resident_memory_bytes", 14.0),
    ("onrush_memory_limit_bytes", 15.0),
    ("process_virtual_memory_bytes", 16.0),
    ("process_open_fds", 17.0),
    ("process_threads", 18.0),
    ("onrush_readiness{stage=\"starting\"}", 0.0),
    ("onrush_readiness{stage=\"serving\"}", 1.0),
    ("onrush_readiness{stage=\"stopping\"}", 0.0),
    ("onrush_overload_step", 5.0),
    ("onrush_announce_interval_seconds", 2345.0),
    ("onrush_last_reload_successful", 0.0),
    ("onrush_last_reload_timestamp_seconds", 1_780_000_321.0),
    ("onrush_http_certificate_expiry_timestamp_seconds{certificate=\"/a.pem\"}", 1_900_000_000.0),
    ("onrush_peers_limit", 21.0),
    ("onrush_idle_swarms_limit", 22.0),
    ("onrush_list_entries_limit", 23.0),
    ("onrush_admin_connections_limit", 24.0),
    ("onrush_list_entries{mode=\"deny\"}", 25.0),
    ("onrush_list_overrides", 28.0),
    ("onrush_blocked_source_ranges", 26.0),
    ("onrush_source_blocks", 27.0),
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
    ("onrush_log_level", 4.0),
    ("onrush_lost_log_lines_total", 46.0),
    ("onrush_admin_requests_total", 51.0),
    ("onrush_admin_connections", 52.0),
    ("onrush_admin_evicted_connections_total", 53.0),
    ("onrush_admin_rejected_connections_total", 54.0),
    ("onrush_batch_datagrams_count{worker=\"worker-0\"}", 2.0),
    ("onrush_batch_datagrams_sum{worker=\"worker-0\"}", 128.0),
    ("onrush_batch_datagrams_bucket{le=\"32.0\",worker=\"worker-0\"}", 0.0),
    ("onrush_batch_datagrams_bucket{le=\"64.0\",worker=\"worker-0\"}", 2.0),
    ("onrush_batch_datagrams_bucket{le=\"+Inf\",worker=\"worker-1\"}", 3.0),
    ("onrush_turn_duration_seconds_count{worker=\"worker-1\"}", 5.0),
    ("onrush_turn_duration_seconds_sum{worker=\"worker-1\"}", 0.01),
    ("onrush_peers{family=\"ipv4\",role=\"seeder\",worker=\"worker-0\"}", 19_005.0),
    ("onrush_peers{family=\"ipv4\",role=\"leecher\",worker=\"worker-0\"}", 101.0),
    ("onrush_peers{family=\"ipv6\",role=\"seeder\",worker=\"worker-0\"}", 19_006.0),
    ("onrush_peers{family=\"ipv6\",role=\"leecher\",worker=\"worker-0\"}", 102.0),
    ("onrush_peers{family=\"ipv4\",role=\"seeder\",worker=\"worker-1\"}", 29_005.0),
    ("onrush_peers{family=\"ipv6\",role=\"leecher\",worker=\"worker-1\"}", 102.0),
    ("onrush_family_swarms{family=\"ipv4\",worker=\"worker-0\"}", 19_001.0),
    ("onrush_family_swarms{family=\"ipv6\",worker=\"worker-0\"}", 19_002.0),
    ("onrush_family_swarms{family=\"ipv4\",worker=\"worker-1\"}", 29_001.0),
    ("onrush_family_swarms{family=\"ipv6\",worker=\"worker-1\"}", 29_002.0),
    ("onrush_lane_waiting_batches{worker=\"worker-0\"}", 10_301.0),
    ("onrush_lane_waiting_batches{worker=\"worker-1\"}", 20_301.0),
    ("onrush_lane_capacity_batches{worker=\"worker-0\"}", 10_302.0),
    ("onrush_lane_capacity_batches{worker=\"worker-1\"}", 20_302.0),
    ("onrush_turn_duration_seconds_count{worker=\"worker-0\"}", 4.0),
    ("onrush_turn_duration_seconds_sum{worker=\"worker-0\"}", 0.008),
];

type ReadCounter = fn(&WorkerMetrics) -> &Counter;

/// Samples of the workers' counters that pin the table to its fields.
const COUNTERS: [(&str, ReadCounter); 15] = [
    ("onrush_received_bytes_total{family=\"ipv4\",", |w| &w.incoming.v4.bytes),
    ("onrush_requests_total{kind=\"scrape\",family=\"ipv6\",", |w| &w.incoming.v6.scrapes),
    ("onrush_refused_requests_total{reason=\"short\",family=\"ipv4\",", |w| {
        &w.incoming.v4.refused_by_udp[0]
    }),
    ("onrush_refused_requests_total{reason=\"busy\",family=\"ipv4\",", |w| {
        &w.incoming.v4.refused[5]
    }),
    ("onrush_replies_total{kind=\"error\",family=\"ipv6\",", |w| &w.incoming.v6.replies[3]),
    ("onrush_unsent_replies_total{cause=\"full_buffer\",", |w| &w.unsent[0]),
    ("onrush_unsent_replies_total{cause=\"permission\",", |w| &w.unsent[1]),
    ("onrush_shard_requests_total{way=\"foreign\",", |w| &w.foreign),
    ("onrush_shard_requests_total{way=\"local\",", |w| &w.local),
    ("onrush_receive_buffer_bytes{", |w| &w.receive_buffer),
    ("onrush_swarms{state=\"active\",", |w| &w.shard.swarms),
    ("onrush_swarms{state=\"idle\",", |w| &w.shard.idle_swarms),
    ("onrush_not_stored_peers_total{limit=\"peers\",", |w| &w.shard.refused_full),
    ("onrush_not_stored_peers_total{limit=\"source_peers\",", |w| &w.shard.refused_of_source),
    ("onrush_expiry_backlog_entries{", |w| &w.shard.expiry_backlog),
];

/// Sets all counters of a table to consecutive numbers.
fn number<T>(counters: &T, table: &[Series<T>], next: &mut u64) {
    let fields = table.iter().flat_map(|series| series.fields);
    for counter in fields.flat_map(|field| (field.read)(counters)) {
        counter.set(*next);
        *next += 1;
    }
}

fn fill(metrics: &WorkerMetrics, from: u64) {
    let mut next = from;
    number(&metrics.incoming.v4, Incoming::SERIES, &mut next);
    number(&metrics.incoming.v6, Incoming::SERIES, &mut next);
    number(metrics, WorkerMetrics::SERIES, &mut next);
    number(&metrics.shard, ShardGauges::SERIES, &mut next);
    let worker = from / 10_000;
    (0..worker + 1).for_each(|_| metrics.receives.observe(64));
    (0..worker + 3).for_each(|_| metrics.turn_times.observe(2_000_000));
    let shard = &metrics.shard;
    shard.swarms_v4.set(from + 9_001);
    shard.swarms_v6.set(from + 9_002);
    shard.seeders_v4.set(from + 9_005);
    shard.seeders_v6.set(from + 9_006);
    shard.peers_v4.set(from + 9_005 + 101);
    shard.peers_v6.set(from + 9_006 + 102);
}

/// A deny list of 25 info hashes, 26 blocked ranges, and 27 blocks.
fn lists() -> Lists {
    let listed = InfoHashSet::new((0..25).map(|n| [n; 20]).collect());
    let blocked = (0..26).map(|n| format!("192.0.2.{}", 2 * n).parse::<AddressBlock>().unwrap());
    let blocks = (0..27).map(|n| (network(&format!("198.51.100.{n}")).unwrap(), n));
    Lists {
        forbidden: Arc::default(),
        access: Arc::new(AccessList::Deny(OverlaySet::new(listed))),
        blocked: Arc::new(AddressSet::new(blocked)),
        blocks: Arc::new(SourceBlocks::new(blocks, &AddressSet::default(), Arc::default())),
    }
}

/// Members with these roles and with counters of 0.
fn members(roles: &[Role]) -> Arc<[Member]> {
    let nth = |n: usize| roles[..n].iter().filter(|role| **role == roles[n]).count();
    (0..roles.len()).map(|n| Member::new(roles[n], nth(n), Arc::default())).collect()
}

fn full_snapshot() -> StatsSnapshot {
    let mut settings = Settings::for_test("[workers]\ntotal = 2\nplacement = \"colocated\"\n");
    (settings.limits.peers, settings.limits.idle_swarms) = (21, 22);
    (settings.limits.list_entries, settings.admin.connections) = (23, 24);
    settings.log.level = log::LevelFilter::Debug;
    let members = members(&[Role::Both; 2]);
    let numbers = members.iter().zip([10_000, 20_000]);
    numbers.for_each(|(member, from)| fill(&member.metrics, from));
    let admin = Arc::new(AdminCounters::default());
    number(&*admin, AdminCounters::SERIES, &mut 51);
    let state = |from: usize, seconds| WorkerState {
        lane_waiting: from + 301,
        lane_capacity: from + 302,
        stalled_for: Duration::from_secs(seconds),
    };
    StatsSnapshot {
        states: vec![state(10_000, 4), state(20_000, 5)],
        lists: lists(),
        list_overrides: 28,
        overload: Overload { step: 5, interval: 2345 },
        last_reload: LastReload { successful: false, time: 1_780_000_321 },
        certificates: [CertificateStats {
            file: "/a.pem".to_owned(),
            names: vec!["a.example".to_owned()],
            expires: 1_900_000_000,
        }]
        .into(),
        uptime: Duration::from_millis(12_500),
        files: Files {
            snapshot: FileStats {
                written: 31,
                failed: 32,
                last: Some(33),
                bytes: 34,
                seconds: 0.035,
            },
            export: FileStats {
                written: 41,
                failed: 42,
                last: Some(43),
                bytes: 44,
                seconds: 0.045,
            },
        },
        lost_log_lines: 46,
        process: Process {
            cpu_seconds: 13.25,
            resident: 14,
            memory_limit: Some(15),
            virtual_size: 16,
            open_files: 17,
            threads: 18,
        },
        admin,
        ..StatsSnapshot::of_members(members, settings)
    }
}

/// The samples of a page.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    lines.map(parse).collect()
}

#[test]
fn samples_have_the_values_of_their_sources() {
    let snapshot = full_snapshot();
    let members = snapshot.members.clone();
    let shown = samples(&write(&snapshot));
    for (name, value) in COMPUTED {
        assert!(shown.get(name).is_some_and(|is| (is - value).abs() < 1e-9), "{name}");
    }
    for ((name, counter), Member { name: member, metrics, .. }) in
        COUNTERS.iter().flat_map(|row| members.iter().map(move |member| (row, member)))
    {
        let name = format!("{name}worker=\"{member}\"}}");
        assert_eq!(shown.get(&name), Some(&(counter(metrics).get() as f64)), "{name}");
    }
}

/// Every counter is shown exactly once per worker, or in a sum over the workers.
#[test]
fn every_counter_of_the_table_is_shown() {
    let snapshot = full_snapshot();
    let members = snapshot.members.clone();
    let shown = samples(&write(&snapshot));
    let mut expected = Vec::new();
    let mut read = |of: &dyn Fn(&WorkerMetrics) -> Vec<u64>, by_worker: bool| {
        let values: Vec<_> = members.iter().map(|member| of(&member.metrics)).collect();
        match by_worker {
            true => expected.extend(values.concat()),
            false => expected.extend(values[0].iter().zip(&values[1]).map(|(a, b)| a + b)),
        }
    };
    fn values<T>(series: &Series<T>, counters: &T) -> Vec<u64> {
        let read = series.fields.iter().flat_map(|field| (field.read)(counters));
        read.map(Counter::get).collect()
    }
    for series in Incoming::SERIES {
        let by_worker = series.labels.contains(&"worker");
        read(&|w| values(series, &w.incoming.v4), by_worker);
        read(&|w| values(series, &w.incoming.v6), by_worker);
    }
    WorkerMetrics::SERIES.iter().for_each(|series| read(&|w| values(series, w), true));
    ShardGauges::SERIES.iter().for_each(|series| read(&|w| values(series, &w.shard), true));
    let computed = |name: &str| {
        let name = name.split('{').next().unwrap_or_default();
        COMPUTED.iter().any(|(computed, _)| computed.split('{').next() == Some(name))
            || name == "onrush_build_info"
            || name == "onrush_turn_duration_seconds_bucket"
    };
    let counted = shown.iter().filter(|(name, _)| !computed(name));
    let mut counted: Vec<u64> = counted.map(|(_, value)| *value as u64).collect();
    counted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(counted, expected);
}

#[test]
fn totals_and_families_are_sums_over_workers() {
    let snapshot = full_snapshot();
    let workers: Vec<_> = snapshot.metrics().collect();
    let sum = |of: fn(&WorkerMetrics) -> u64| workers.iter().map(|worker| of(worker)).sum::<u64>();
    let stats = Stats::of(&snapshot);
    assert_eq!(stats.families.ipv6.incoming.bytes, sum(|w| w.incoming.v6.bytes.get()));
    let both = |w: &WorkerMetrics| w.incoming.v4.announces.get() + w.incoming.v6.announces.get();
    assert_eq!(stats.totals.traffic.incoming.announces, sum(both));
    assert_eq!(stats.totals.worker.sent, sum(|w| w.sent.get()));
    assert_eq!(stats.totals.shard.expired, sum(|w| w.shard.expired.get()));
    assert_eq!(stats.families.ipv4.events["paused"], sum(|w| w.incoming.v4.events[4].get()));
    assert_eq!(stats.families.ipv4.leechers, 202);
    assert_eq!(stats.workers[1].counts.kernel_drops, workers[1].kernel_drops.get());
    assert_eq!(stats.workers[1].lane_capacity, 20_302);
    let lost: Vec<_> = LOSSES.iter().map(|loss| stats.totals.lost[loss.key]).collect();
    assert_eq!(lost, Summary::of(workers).losses().collect::<Vec<_>>());
    assert_eq!(stats.workers.iter().map(|w| w.lost).sum::<u64>(), lost.iter().sum::<u64>());
}

#[test]
fn swarms_by_family_are_absent_until_an_expiry_pass_has_ended() {
    let snapshot = full_snapshot();
    snapshot.members[0].metrics.shard.sweep_passes.set(0);
    let stats = Stats::of(&snapshot);
    let in_all = stats.totals.traffic.family_swarms;
    assert_eq!((stats.families.ipv4.family_swarms, in_all), (None, None));
    let page = write(&snapshot);
    let shown = page.lines().filter(|line| line.starts_with("onrush_family_swarms{"));
    let shown: Vec<_> = shown.collect();
    assert!(shown.len() == 2 && shown.iter().all(|line| line.contains("worker-1")), "{shown:?}");
    let stats = Stats::of(&full_snapshot());
    let (ipv4, ipv6) = (19_001 + 29_001, 19_002 + 29_002);
    assert_eq!(stats.families.ipv4.family_swarms, Some(ipv4));
    assert_eq!(stats.families.ipv6.family_swarms, Some(ipv6));
    assert_eq!(stats.totals.traffic.family_swarms, Some(ipv4 + ipv6));
}

/// Members that take requests show traffic; those with a shard show what is stored.
#[test]
fn members_show_the_series_of_their_role() {
    let members = members(&[Role::Socket, Role::Shard, Role::Shard, Role::Web]);
    members.iter().for_each(|member| member.metrics.shard.sweep_passes.set(1));
    let snapshot = StatsSnapshot::of_members(members, Settings::for_test(""));
    let shown = samples(&write(&snapshot));
    let workers_of = |name: &str| -> BTreeSet<&str> {
        let series = shown.keys().filter(|full| full.split('{').next() == Some(name));
        series.filter_map(|full| full.split("worker=\"").nth(1)?.split('"').next()).collect()
    };
    let (takes_requests, swarm) =
        (BTreeSet::from(["socket-0", "web-0"]), BTreeSet::from(["swarm-0", "swarm-1"]));
    for name in [
        "onrush_received_datagrams_total",
        "onrush_refused_requests_total",
        "onrush_replies_total",
        "onrush_kernel_dropped_datagrams_total",
    ] {
        assert_eq!(workers_of(name), takes_requests, "{name}");
    }
    for name in ["onrush_peers", "onrush_family_swarms", "onrush_lane_capacity_batches"] {
        assert_eq!(workers_of(name), swarm, "{name}");
    }
    assert_eq!(workers_of("onrush_turns_total"), &takes_requests | &swarm);
}

/// Of three members two are web workers. Without these, the series of HTTP are absent.
#[test]
fn web_workers_show_the_series_of_http() {
    let members = members(&[Role::Both, Role::Web, Role::Web]);
    let mut next = 1;
    for member in &members[1..] {
        number(&member.metrics.web, WebCounters::SERIES, &mut next);
    }
    let snapshot = StatsSnapshot::of_members(members.clone(), Settings::for_test(""));
    let shown = samples(&write(&snapshot));
    let of_web =
        |name: &str| ["onrush_http_", "onrush_webtorrent_"].iter().any(|it| name.starts_with(it));
    let http = shown.iter().filter(|(name, _)| of_web(name));
    let mut values: Vec<u64> = http.map(|(_, value)| *value as u64).collect();
    values.sort_unstable();
    assert_eq!(values, (1..next).collect::<Vec<_>>());
    let [web, other] = [1, 2].map(|n| &members[n].metrics.web);
    for (name, counter) in [
        ("http_accepted_connections_total{transport=\"http\"", &web.accepted),
        ("http_accepted_connections_total{transport=\"https\"", &web.https_accepted),
        ("http_connections{transport=\"http\"", &web.open),
        ("http_connections{transport=\"ws\"", &web.ws_open),
        ("http_connections{transport=\"wss\"", &web.wss_open),
        ("http_handshakes_total{result=\"resumed\"", &web.resumed_handshakes),
        ("http_closed_connections_total{cause=\"client\"", &web.closed[0]),
        ("http_requests_total{transport=\"http\"", &web.requests),
        ("http_requests_total{transport=\"ws\"", &web.ws_requests),
        ("http_requests_total{transport=\"wss\"", &web.wss_requests),
        (
            "http_refused_requests_total{transport=\"http\",reason=\"malformed\"",
            &web.http_refused[0],
        ),
        (
            "http_refused_requests_total{transport=\"wss\",reason=\"busy\"",
            web.wss_refused.last().unwrap(),
        ),
        ("webtorrent_peers{role=\"seeder\"", &web.webrtc_seeders),
        ("webtorrent_peers{role=\"leecher\"", &web.webrtc_leechers),
        ("webtorrent_forwarded_messages_total{kind=\"offer\"", &web.webrtc_offers),
        ("webtorrent_forwarded_messages_total{kind=\"answer\"", &web.webrtc_answers),
        ("webtorrent_dropped_messages_total{kind=\"offer\"", &web.webrtc_offers_dropped),
        ("webtorrent_dropped_messages_total{kind=\"answer\"", &web.webrtc_answers_dropped),
    ] {
        let name = format!("onrush_{name},worker=\"web-0\"}}");
        assert_eq!(shown.get(&name), Some(&(counter.get() as f64)), "{name}");
    }

    let stats = Stats::of(&snapshot);
    let totals = stats.totals.http.as_ref().unwrap();
    let of_each: Vec<_> = stats.workers.iter().map(|worker| worker.http.as_ref()).collect();
    assert_eq!(of_each[0], None);
    assert_eq!(of_each[2].unwrap().counts.http_sent_bytes, other.http_sent_bytes.get());
    assert_eq!(totals.counts.accepted, web.accepted.get() + other.accepted.get());
    assert_eq!(totals.closed["client"], web.closed[0].get() + other.closed[0].get());
    let of_each = [web, other].into_iter().flat_map(|it| it.refused().map(|of| of[0].get()));
    assert_eq!(totals.refused["malformed"], of_each.sum::<u64>());
    let summary = Summary::of(snapshot.metrics());
    assert_eq!(totals.counts.accepted, summary.accepted);
    assert_eq!(totals.unserved(), summary.unserved());
    let refused: BTreeMap<String, u64> =
        summary.refusals().map(|(name, n)| (name.into(), n)).collect();
    assert_eq!(stats.totals.traffic.refused, refused);
    assert_eq!(stats.workers.iter().map(|w| w.refused).sum::<u64>(), summary.refused_in_all());
    let limits = &snapshot.settings.http.limits;
    assert_eq!(stats.limits.http_connections, Some(2 * limits.connections as u64));

    let without = StatsSnapshot::of_members(members[..1].into(), Settings::for_test(""));
    let shown = samples(&write(&without));
    assert!(!shown.keys().any(|name| name.starts_with("onrush_http_")));
    let stats = serde_json::to_value(Stats::of(&without)).unwrap();
    assert!(stats["totals"]["refused"].get("malformed").is_none());
    assert!(stats["limits"].get("http_connections").is_none());
    assert!(stats["totals"].get("http").is_none() && stats["workers"][0].get("http").is_none());
}

/// Counters of the program are in the series of all members, and have series of their own.
#[test]
fn programs_show_what_they_decide_by_interface() {
    let program = Member::program("eth0.7", Arc::default());
    number(&program.metrics.xdp, XdpFrames::SERIES, &mut 1);
    let queue = |queue: u32| XdpQueue {
        interface: "eth0.7".into(),
        queue: queue.to_string(),
        ..XdpQueue::default()
    };
    let queues = [queue(0), queue(1)];
    number(&queues[0], XdpQueue::SERIES, &mut 1);
    number(&queues[1], XdpQueue::SERIES, &mut 21);
    let metrics = WorkerMetrics { queues: queues.into(), ..WorkerMetrics::default() };
    let worker = Member::new(Role::Both, 0, Arc::new(metrics));
    program.metrics.incoming.v4.datagrams.set(77);
    let with = StatsSnapshot::of_members([worker, program].into(), Settings::for_test(""));
    let shown = samples(&write(&with));
    let frames = |verdict| {
        shown[&format!("onrush_xdp_frames_total{{verdict=\"{verdict}\",interface=\"eth0.7\"}}")]
    };
    assert_eq!((frames("answered"), frames("stale")), (1.0, 8.0));
    let of_queue =
        |name, labels| shown[&format!("onrush_xdp_queue_{name}{{{labels},interface=\"eth0.7\"}}")];
    assert_eq!(of_queue("sent_datagrams_total", "queue=\"1\""), 22.0);
    assert_eq!(of_queue("dropped_total", "cause=\"checksum\",queue=\"0\""), 4.0);
    let received = "onrush_received_datagrams_total{family=\"ipv4\",worker=\"xdp-eth0.7\"}";
    assert_eq!(shown[received], 77.0);
    let stats = Stats::of(&with);
    assert_eq!(stats.totals.traffic.incoming.datagrams, 77);
    let rows: Vec<_> = stats.workers.iter().map(|it| (it.program, it.takes_requests())).collect();
    assert_eq!(rows, [(false, true), (true, true)]);
    let worker = Member::new(Role::Both, 0, Arc::default());
    let without = StatsSnapshot::of_members([worker].into(), Settings::for_test(""));
    assert!(!write(&without).contains("onrush_xdp"));
}

/// A counter with an integer and one with a fraction, a gauge and a histogram.
#[test]
fn a_series_has_help_type_and_samples() {
    let text = write(&full_snapshot());
    for part in [
        "# HELP process_cpu_seconds_total CPU time of all threads, in user space and in the \
         kernel\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 13.25\n",
        "# TYPE onrush_turns_total counter\nonrush_turns_total{worker=\"worker-0\"} 1",
        "# TYPE onrush_overload_step gauge\nonrush_overload_step 5.0\n",
        "# TYPE onrush_turn_duration_seconds histogram\n\
         onrush_turn_duration_seconds_sum{worker=\"worker-0\"} 0.008\n\
         onrush_turn_duration_seconds_count{worker=\"worker-0\"} 4\n\
         onrush_turn_duration_seconds_bucket{le=\"0.000001024\",worker=\"worker-0\"} 0\n",
        "onrush_turn_duration_seconds_bucket{le=\"+Inf\",worker=\"worker-0\"} 4\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn label_values_are_escaped() {
    let mut snapshot = full_snapshot();
    let named = |member: &Member| Member { name: "a\"b\\\n".to_owned(), ..member.clone() };
    snapshot.members = snapshot.members.iter().map(named).collect();
    let page = write(&snapshot);
    assert!(page.contains("onrush_turns_total{worker=\"a\\\"b\\\\\\n\"} "), "{page}");
}

#[test]
fn the_reference_has_every_series() {
    let (reference, page) = (reference::markdown(), write(&full_snapshot()));
    for help in page.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, _) = help.split_once(' ').unwrap();
        assert!(reference.contains(&format!("`{name}`")), "{name}");
    }
}
