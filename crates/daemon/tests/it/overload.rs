//! Overload: losses and refusals by busy workers lengthen the announce interval, and the kernel
//! drops connects of a part of all sources, while requests with a connection id are served. What is
//! no such loss has no effect.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::client::Client;
use crate::harness::messages::{KERNEL_DROPPED, OVERLOAD, REFUSED_BUSY, SHED, SHEDDING, SUSPENDED};
use crate::harness::network::in_own_network;
use crate::harness::packets::{connect, leecher, random_hash};
use crate::harness::process::{Daemon, Launch, TIMEOUT, eventually};

/// Sources that flood the tracker.
const SOURCES: u8 = 64;
/// New sources, which send one connect each. At most three of four are answered: the probability
/// that more than nine in ten are is below one in a million.
const ONCE: u8 = 200;

#[test]
fn a_flood_lengthens_the_interval_and_sheds_connects() {
    let config = "listen = [\"127.0.0.1:0\"]\n\
                  [announce]\ninterval_jitter_percent = 0\n\
                  [overload]\ndrop_share = 1\nlongest_interval = 3600\n\
                  [log]\ntotals_every = 1\n";
    // Losses of other tests are not in the counts of this network.
    in_own_network(&[], || {
        let mut daemon = Launch::new(&["--workers", "1"]).admin().config(config).serve();
        let tracker = daemon.address();
        let client = daemon.client();
        let peer = leecher(random_hash(), 4_001);
        assert_eq!(client.announce(&peer).interval, 1800);
        let over = AtomicBool::new(false);
        let interval = thread::scope(|scope| {
            for part in 0..3 {
                let over = &over;
                scope.spawn(move || flood(tracker, part, over));
            }
            daemon.line(SHEDDING);
            daemon.line(SHED);
            eventually("few connects are answered", || share(&daemon) < 0.75);
            // Requests with a connection id are served, and new sources only in part.
            let interval = client.announce(&peer).interval;
            let new: Vec<Client> = (1..=ONCE).map(|n| source(9, n, tracker)).collect();
            new.iter().for_each(|source| source.send(&connect(1)));
            client.announce(&peer);
            let answered = new.iter().filter(|source| source.has_datagram()).count();
            assert!(answered <= usize::from(ONCE) * 9 / 10, "{answered} of {ONCE} new sources");
            over.store(true, Ordering::Relaxed);
            interval
        });
        assert!(interval > 1800);
        assert!(daemon.log().iter().any(|line| line.contains(OVERLOAD)));
        assert_reported(&daemon, interval);
        // Without the flood all of them are answered again, and the filter is removed.
        eventually("every connect is answered", || share(&daemon) == 1.0);
        for number in 1..=ONCE {
            source(10, number, tracker).connect();
        }
        daemon.stop();
    });
}

/// The share of sources whose connects are answered.
fn share(daemon: &Daemon) -> f64 {
    daemon.metrics().sum("onrush_connect_share", &[])
}

/// Asserts that the metrics show the interval, the overload step and the losses.
fn assert_reported(daemon: &Daemon, interval: u32) {
    // A step reaches the workers at slightly different times.
    eventually("the advertised interval is reported", || {
        let advertised = daemon.metrics().sum("onrush_announce_interval_seconds", &[]);
        (f64::from(interval)..=3600.0).contains(&advertised)
    });
    let shown = daemon.metrics();
    let step = shown.sum("onrush_overload_step", &[]);
    assert!((1.0..=8.0).contains(&step), "overload step {step}");
    assert!(shown.sum("onrush_kernel_shed_datagrams_total", &[]) > 0.0);
    assert!(shown.sum("onrush_kernel_dropped_datagrams_total", &[]) > 0.0);
    assert_eq!(shown.sum("onrush_checksum_errors_total", &[]), 0.0);
}

/// A source in an address block.
fn source(block: u8, number: u8, tracker: SocketAddr) -> Client {
    Client::at(IpAddr::V4(Ipv4Addr::new(127, 0, block, number)), tracker)
}

/// Sends connects from many sources, faster than the worker can reply. The sockets accept no
/// replies: what full buffers of other sockets lose counts as losses, as far as drops at the
/// tracker's may be.
fn flood(tracker: SocketAddr, part: u8, over: &AtomicBool) {
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let connected = |n| {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 1 + part, n), 0)).unwrap();
        socket.connect(elsewhere).unwrap();
        socket
    };
    let sockets: Vec<UdpSocket> = (1..=SOURCES).map(connected).collect();
    let bytes = connect(1);
    // The flood ends when the test has failed, too.
    let deadline = Instant::now() + 2 * TIMEOUT;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        for socket in &sockets {
            // What a full buffer of the device refuses is sent in the next round.
            let _ = socket.send_to(&bytes, tracker);
        }
    }
}

/// A worker with a shard that gets nearly no CPU time: only when the flood leaves some.
#[test]
fn requests_refused_as_busy_lengthen_the_interval() {
    let config = "[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n\
                  [limits]\nbatches_in_flight = 2\nbatch_requests = 8\n\
                  [overload]\ndrop_share = 1\n";
    let launch = Launch::new(&["--listen", "127.0.0.1:0"]).admin().config(config);
    let mut daemon = launch.serve();
    let client = daemon.client();
    let cpu = first_cpu();
    let swarm_worker = thread_id(&daemon, "swarm-0");
    sched_setaffinity(swarm_worker, &cpu).unwrap();
    let mut chrt = Command::new("chrt");
    chrt.args(["--idle", "--pid", "0"]).arg(swarm_worker.to_string());
    assert!(chrt.status().expect("`chrt` is installed (package util-linux)").success());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            sched_setaffinity(Pid::from_raw(0), &cpu).unwrap();
            let announce = leecher(random_hash(), 4_001).bytes(client.id, 1);
            // The flood ends when the test has failed, too.
            let deadline = Instant::now() + 2 * TIMEOUT;
            while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
                client.send(&announce);
            }
        });
        daemon.wait_for_line(OVERLOAD);
        over.store(true, Ordering::Relaxed);
    });
    let log = daemon.log();
    let has =
        |parts: [&str; 2]| log.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has([REFUSED_BUSY, "workers.swarm"]), "cause and remedy: {log:#?}");
    assert!(has([OVERLOAD, "refused as busy"]), "{log:#?}");
    assert!(!has([OVERLOAD, " 0 % are refused"]), "{log:#?}");
    let shown = daemon.metrics();
    assert!(shown.sum("onrush_overload_step", &[]) >= 1.0);
    assert!(shown.sum("onrush_refused_requests_total", &["reason=\"busy\""]) > 1_000.0);
}

/// The first CPU on which the test may run.
fn first_cpu() -> CpuSet {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
    let mut cpu = CpuSet::new();
    cpu.set(first).unwrap();
    cpu
}

/// The number of a thread of the daemon.
fn thread_id(daemon: &Daemon, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let is_named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let task = tasks.map(Result::unwrap).find(is_named).unwrap();
    Pid::from_raw(task.file_name().to_str().unwrap().parse().unwrap())
}

/// Anybody can send datagrams with a wrong checksum from any address. The kernel counts those above
/// 76 bytes at the socket as it counts those that no buffer has room for.
#[test]
fn wrong_checksums_are_neither_losses_nor_overload() {
    in_own_network(&[], || {
        let mut daemon = Launch::new(&["--listen", "127.0.0.1:0", "--workers", "2"])
            .config("[overload]\ndrop_share = 1\n")
            .admin()
            .serve();
        let client = daemon.client();
        let peer = leecher(random_hash(), 4_001);
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
        let began = Instant::now();
        let mut sent = 0;
        // A step takes three seconds, a withdrawn worker two.
        while sent < 500 || began.elapsed() < Duration::from_secs(8) {
            let (bytes, to) = (wrong_checksum(daemon.address()), daemon.address().into());
            assert_eq!(raw.send_to(&bytes, &to).unwrap(), bytes.len());
            sent += 1;
            client.announce(&peer);
            daemon.metrics();
            assert!(began.elapsed() < 2 * TIMEOUT, "{sent} sent");
        }
        let counted = || daemon.metrics().sum("onrush_checksum_errors_total", &[]);
        eventually("all of them are counted", || counted() >= f64::from(sent));
        assert_eq!(counted(), f64::from(sent));
        let shown = daemon.metrics();
        for (name, expected) in [
            ("onrush_kernel_dropped_datagrams_total", 0.0),
            ("onrush_kernel_shed_datagrams_total", 0.0),
            ("onrush_overload_step", 0.0),
            ("onrush_connect_share", 1.0),
        ] {
            assert_eq!(shown.sum(name, &[]), expected, "{name}");
        }
        daemon.skip();
        for message in [KERNEL_DROPPED, OVERLOAD, SHEDDING, SUSPENDED] {
            assert!(!daemon.log().iter().any(|line| line.contains(message)), "{message}");
        }
        daemon.stop();
    });
}

/// An IPv4 packet with an announce whose UDP checksum is wrong.
fn wrong_checksum(to: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else { panic!("{to} is IPv4") };
    let payload = [0; 98];
    let len = 28 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 9]);
    packet.extend(ip.octets());
    for word in [40_000, to.port(), len - 20, 0xDEAD] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    packet
}
