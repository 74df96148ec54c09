//! The binary as people call it, against a small right tracker and against wrong ones, over real
//! sockets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use onrush_load::check::Finding;
use onrush_load::plan::Kind;
use onrush_load::report::Report;
use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Socket};
use onrush_proto::announce::AnnounceHead;
use onrush_proto::connect::ConnectResponse;
use onrush_proto::{
    Announce, ConnectionId, Endpoint, Event, InfoHash, Request, Scrape, ScrapeCounts, scrape,
};

/// A tracker on a thread, on free ports of 127.0.0.1 and, where the host has it, ::1.
struct Tracker {
    addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Peers of each swarm, and whether each is a seeder.
type Swarms = HashMap<InfoHash, Vec<(Endpoint, bool)>>;

impl Tracker {
    /// Starts one which lists each asker as its own peer when `lists_asker`.
    fn start(lists_asker: bool) -> Self {
        let listen: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        let buffers = Buffers { receive: 4 << 20, send: 0 };
        let (four, _) = bind_client(listen[0], buffers).unwrap();
        let mut sockets = vec![four];
        match bind_client(listen[1], buffers) {
            Ok((six, _)) => sockets.push(six),
            Err(error) => println!("IPv4 only: {error}"),
        }
        let addresses = sockets.iter().map(|socket| socket.address()).collect();
        let backend = Backend::new(sockets, Options::default()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || serve(backend, &stopped, lists_asker));
        Self { addresses, stop, thread: Some(thread) }
    }

    fn targets(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("--target={address}")).collect()
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(mut backend: Backend, stop: &AtomicBool, lists_asker: bool) {
    let mut swarms = Swarms::new();
    while !stop.load(Ordering::Relaxed) {
        let batch = backend.receive(128).unwrap();
        let answers: Vec<_> = batch
            .iter()
            .filter_map(|(bytes, slot)| {
                Some((answer(&mut swarms, bytes, slot.source.ip(), lists_asker)?, slot.reply_to))
            })
            .collect();
        if batch.is_empty() {
            backend.wait(Duration::from_millis(20)).unwrap();
        }
        backend.send(answers.iter().map(|(bytes, to)| Reply { bytes, to }));
    }
}

fn id_of(ip: IpAddr) -> ConnectionId {
    let bytes = Endpoint::new(ip, 1);
    let sum = bytes.as_bytes().iter().fold(7u64, |sum, b| sum.wrapping_mul(257) + u64::from(*b));
    ConnectionId(sum | 1)
}

fn answer(swarms: &mut Swarms, bytes: &[u8], ip: IpAddr, lists_asker: bool) -> Option<Vec<u8>> {
    match Request::parse(bytes).ok()? {
        Request::Connect(connect) => {
            let mut reply = [0; 16];
            let transaction_id = connect.transaction_id;
            ConnectResponse { transaction_id, connection_id: id_of(ip) }.write(&mut reply);
            Some(reply.to_vec())
        }
        Request::Announce(announce) if announce.connection_id == id_of(ip) => {
            Some(announced(swarms, &announce, ip, lists_asker))
        }
        Request::Scrape(scrape) if scrape.connection_id == id_of(ip) => {
            Some(scraped(swarms, &scrape))
        }
        _ => None,
    }
}

fn announced(
    swarms: &mut Swarms,
    announce: &Announce<'_>,
    ip: IpAddr,
    lists_asker: bool,
) -> Vec<u8> {
    let own = Endpoint::new(ip, announce.port);
    let swarm = swarms.entry(announce.info_hash).or_default();
    swarm.retain(|(peer, _)| *peer != own);
    let stopped = announce.event == Event::Stopped;
    let seeder = announce.left == 0;
    if lists_asker {
        swarm.push((own, seeder));
    }
    let limit = match announce.num_want {
        _ if stopped => 0,
        want if want < 0 => 50,
        want => (want as usize).min(if own.family().peer_len() == 6 { 200 } else { 67 }),
    };
    let useful = swarm.iter().rev().filter(|(_, is_seeder)| !(seeder && *is_seeder));
    let of_family = useful.filter(|(peer, _)| peer.family() == own.family());
    let peers: Vec<Endpoint> = of_family.map(|(peer, _)| *peer).take(limit).collect();
    if !stopped && !lists_asker {
        swarm.push((own, seeder));
    }
    let seeders = swarm.iter().filter(|(_, seeder)| *seeder).count() as u32;
    let leechers = swarm.len() as u32 - seeders;
    let mut head = [0; 20];
    let transaction_id = announce.transaction_id;
    AnnounceHead { transaction_id, interval: 1800, leechers, seeders }.write(&mut head);
    let mut reply = head.to_vec();
    peers.iter().for_each(|peer| reply.extend_from_slice(peer.as_bytes()));
    reply
}

fn scraped(swarms: &Swarms, request: &Scrape<'_>) -> Vec<u8> {
    let mut head = [0; 8];
    scrape::write_head(request.transaction_id, &mut head);
    let mut reply = head.to_vec();
    for hash in request.info_hashes() {
        let swarm = swarms.get(&hash).map_or(&[][..], Vec::as_slice);
        let seeders = swarm.iter().filter(|(_, seeder)| *seeder).count() as u32;
        let mut counts = [0; 12];
        let leechers = swarm.len() as u32 - seeders;
        ScrapeCounts { seeders, completed: 0, leechers }.write(&mut counts);
        reply.extend_from_slice(&counts);
    }
    reply
}

/// Calls the binary for a short run.
fn load(targets: &[String], more: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrush-load"))
        .args(targets)
        .args("--duration 1 --warmup 0.3 --sources 16 --swarms 500 --in-flight 64".split(' '))
        .args(more.split_whitespace())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report on standard output.
#[track_caller]
fn report(output: &Output) -> Report {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}\n{}\n{}", text(&output.stdout), text(&output.stderr))
    })
}

fn of(report: &Report, kind: Kind) -> &onrush_load::report::KindReport {
    report.kinds.iter().find(|of_kind| of_kind.kind == kind).unwrap()
}

#[test]
fn a_right_tracker_is_found_right_in_a_closed_loop() {
    let tracker = Tracker::start(false);
    let own = std::process::id();
    let output =
        load(&tracker.targets(), &format!("--strict --sample 1 --json - --tracker-pid {own}"));
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(report.wrong, [], "{}", text(&output.stderr));
    assert!(of(&report, Kind::Announce).right > 500 && of(&report, Kind::Scrape).right > 10);
    assert!(of(&report, Kind::Unusable).requests > 20 && of(&report, Kind::Junk).requests > 10);
    assert!(report.peers_per_reply > 0.5, "{}", report.peers_per_reply);
    assert_eq!(report.setup.sources, [16, u32::from(tracker.addresses.len() == 2)]);
    let (tracker_cpu, own_cpu) = (report.tracker_cpu.unwrap(), report.own_cpu.unwrap());
    assert!(tracker_cpu.per_reply > 0.0 && own_cpu.per_reply > 0.0);
    let shown = text(&output.stderr);
    assert!(shown.contains("replies/s") && shown.contains("s left"), "progress lines: {shown}");
    assert!(shown.contains("us per right reply"), "the table: {shown}");
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let tracker = Tracker::start(false);
    let more = "--rate 2000 --workers 2 --profile classic --no-bursts --json - --seed 7";
    let output = load(&tracker.targets(), more);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!((report.sent_rate - 2000.0).abs() < 30.0, "{}", report.sent_rate);
    assert_eq!((report.setup.seed, report.setup.workers), (7, 2));
    assert_eq!(of(&report, Kind::Unusable).requests, 0);
    assert!(report.latency.p50 > 0.0 && report.latency.p50 <= report.latency.p99);
}

/// Few sources in bursts: the tracker's replies leave in pieces, and are each looked at.
#[test]
fn replies_that_come_in_one_piece_are_checked_one_by_one() {
    for more in ["", "--no-coalescing"] {
        let tracker = Tracker::start(false);
        let output = load(&tracker.targets(), &format!("--json - --quiet {more}"));
        let report = report(&output);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(report.setup.coalescing, more.is_empty());
        let announces = of(&report, Kind::Announce);
        assert_eq!((announces.right + announces.lost, announces.wrong), (announces.requests, 0));
        assert!(announces.right > 100 && report.peers_per_reply > 0.0, "{}", announces.right);
        drop(tracker);
        let tracker = Tracker::start(true);
        let output = load(&tracker.targets(), &format!("--quiet {more}"));
        assert_eq!(output.status.code(), Some(1), "wrong replies are found in pieces too");
        drop(tracker);
    }
}

#[test]
fn wrong_replies_are_shown_and_end_in_1() {
    let tracker = Tracker::start(true);
    let output = load(&tracker.targets(), "--json - --quiet");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report.wrong.len(), 1, "{:?}", report.wrong);
    assert_eq!(report.wrong[0].finding, Finding::OwnPeer);
    assert!(report.wrong[0].examples[0].asked.starts_with("announce from"));
    assert!(!text(&output.stderr).contains("s left"), "quiet");
}

#[test]
fn json_goes_to_a_file_and_the_table_to_standard_output() {
    let tracker = Tracker::start(false);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let output = load(&tracker.targets(), &format!("--json {}", path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let table = text(&output.stdout);
    assert!(table.contains(&of(&report, Kind::Announce).right.to_string()), "{table}");
}

#[test]
fn where_nobody_answers_it_ends_in_3() {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = format!("127.0.0.1:{port}");
    let output = load(&[format!("--target={target}")], "");
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains(&target) && said.contains("nobody listens"), "{said}");
    assert!(output.stdout.is_empty());
}

/// What is wrong on this side is told first, whether anybody answers or not.
#[test]
fn what_this_host_has_not_is_told_before_nobody_answers() {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = [format!("--target=127.0.0.1:{port}")];
    for (more, named) in [
        ("--pin 9999", "--pin: vCPU 9999 cannot be used"),
        ("--source 192.0.2.77", "--source: cannot send from 192.0.2.77"),
    ] {
        let output = load(&target, more);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(named), "{more}: {said}");
    }
}

#[test]
fn what_cannot_be_done_ends_in_2() {
    let tracker = Tracker::start(false);
    for (more, named) in [
        ("--rate fast", "--rate"),
        ("--pin 0,1", "--pin"),
        ("--source 192.0.2.77", "192.0.2.77"),
        ("--pin 9999", "9999"),
        ("--tracker-pid 4294967294", "4294967294"),
        ("--json /nowhere/at/all", "/nowhere/at/all"),
    ] {
        let output = load(&tracker.targets(), more);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more}: {said}");
        assert!(said.contains(named), "{more}: {said}");
    }
}

/// What happened in each interval adds up to what happened in all.
#[test]
fn the_run_over_time_is_in_the_report() {
    let tracker = Tracker::start(false);
    let own = std::process::id();
    let output = load(&tracker.targets(), &format!("--quiet --json - --tracker-pid {own}"));
    let report = report(&output);
    let measured: Vec<_> = report.series.iter().filter(|s| s.phase == "measure").collect();
    assert_eq!(measured.len(), 5, "{:#?}", report.series);
    assert_eq!(report.series[0].phase, "warm-up");
    let seconds: f64 = measured.iter().map(|sample| sample.seconds).sum();
    assert!((seconds - report.seconds).abs() < 0.1, "{seconds}");
    let right = measured.iter().map(|sample| sample.right).sum::<u64>() as f64;
    assert!((right / report.seconds / report.rate - 1.0).abs() < 0.05, "{right} {}", report.rate);
    assert!(measured.iter().all(|s| s.latency.p50 > 0.0 && s.latency.p50 <= s.latency.max));
    let watched: Vec<_> = measured.iter().filter_map(|sample| sample.tracker).collect();
    assert_eq!(watched.len(), 5);
    assert!(watched.iter().all(|tracker| tracker.rss > 1 << 20));
    assert!(watched.iter().any(|tracker| tracker.cpu_percent > 0.0));
    assert!(watched.iter().any(|tracker| tracker.drops.is_some()));
}
