//! The protocol over real sockets: the checks of crates/verify, and what they cannot see. Refusals,
//! counters and settings: crates/tracker/tests.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use onrush_proto::ScrapeCounts;
use onrush_verify::reachability::REACH_TIMEOUT;
use onrush_verify::report::{CheckOutcome, Conformance};
use onrush_verify::{TcpSettings, VerifySettings, verify, verify_tcp};

use crate::harness::{Client, Launch, hash, in_own_network, leecher, packets, scrape, transaction};
use crate::websocket::Tracker;

const PLACEMENTS: [&str; 2] = [
    "[workers]\nplacement = \"split\"\nsocket = 2\nswarm = 2\n",
    "[workers]\nplacement = \"colocated\"\ntotal = 2\n",
];

/// In both placements, over both families.
#[test]
fn every_check_of_verify_passes() {
    let trackers = PLACEMENTS.map(|workers| Launch::on_loopback().config(workers).serve());
    thread::scope(|scope| {
        for tracker in &trackers {
            let (v4, v6) = (tracker.addresses()[0], tracker.addresses()[1]);
            scope.spawn(move || verify_all(v4, v6, &[]));
            // ::1 is the only address of its network.
            scope.spawn(move || verify_all(v6, v4, &["connect-id-from-another-address"]));
        }
    });
}

/// Runs all checks; only `skipped` may be skipped.
fn verify_all(target: SocketAddr, also: SocketAddr, skipped: &[&str]) {
    let settings = VerifySettings {
        target,
        also: Some(also),
        sources: Vec::new(),
        hashes: Vec::new(),
        timeout: Duration::from_secs(1),
        only: None,
        reach_timeout: REACH_TIMEOUT,
    };
    assert_passed(&verify(&settings).unwrap(), &target.to_string(), skipped);
}

/// Over HTTP(S) on both families, and over WebSocket with TLS or without.
#[test]
fn every_check_of_verify_passes_over_tcp() {
    let tracker = Tracker::with("connections_per_source = 1000\n");
    let (http, https) = (tracker.http, tracker.https);
    thread::scope(|scope| {
        for (scheme, [address, also], skipped) in [
            ("http", http, &["peers6"][..]),
            ("http", [http[1], http[0]], &[]),
            ("https", https, &["peers6"]),
            ("https", [https[1], https[0]], &[]),
            ("ws", http, &[]),
            ("wss", https, &[]),
        ] {
            scope.spawn(move || {
                let url = format!("{scheme}://{address}/announce");
                let settings = TcpSettings {
                    url: url.parse().unwrap(),
                    also: Some(also),
                    ca: None,
                    hashes: Vec::new(),
                    timeout: Duration::from_secs(1),
                    only: None,
                };
                assert_passed(&verify_tcp(&settings).unwrap(), &url, skipped);
            });
        }
    });
}

/// Asserts that all checks have passed; only `skipped` may be skipped.
fn assert_passed(report: &Conformance, target: &str, skipped: &[&str]) {
    let passes = |id: &str, outcome| match outcome {
        CheckOutcome::Skipped => skipped.contains(&id),
        outcome => outcome == CheckOutcome::Pass,
    };
    let failed = report.checks.iter().filter(|row| !passes(&row.id, row.outcome));
    let failed: Vec<_> = failed.map(|row| (&row.id, row.outcome, &row.seen)).collect();
    assert!(failed.is_empty() && report.checks.len() > 40, "{target}: {failed:?}");
}

/// Every kind of reply on a host with several addresses, between every pair of client and tracker
/// address, through wildcard sockets and through one socket per address. [`Client::receive`]
/// checks the sender of each reply.
#[test]
fn replies_leave_from_the_address_and_port_of_the_request() {
    let added = ["198.51.100.7", "203.0.113.7", "2001:db8::7", "2001:db8::8"];
    let local = ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"];
    in_own_network(&added, || {
        let addresses: Vec<IpAddr> =
            local.iter().chain(&added).map(|ip| ip.parse().unwrap()).collect();
        let single = addresses.iter().map(|ip| SocketAddr::new(*ip, 0).to_string()).collect();
        let both = vec!["0.0.0.0:0".to_owned(), "[::]:0".to_owned()];
        let listens = [(vec![":0".to_owned()], 2), (both, 2), (single, addresses.len())];
        for ((listen, sockets), workers) in
            listens.iter().flat_map(|listen| PLACEMENTS.map(|workers| (listen, workers)))
        {
            let config = format!("listen = {listen:?}\n{workers}");
            let tracker = Launch::new(&[]).config(&config).serve();
            assert_eq!(tracker.addresses().len(), *sockets);
            for to in &addresses {
                let is_of_family = |it: &IpAddr| it.is_ipv4() == to.is_ipv4();
                let mut listeners = tracker.addresses().iter().filter(|at| is_of_family(&at.ip()));
                let at = listeners.find(|at| at.ip() == *to || at.ip().is_unspecified()).unwrap();
                for from in addresses.iter().filter(|from| is_of_family(from)) {
                    check_every_reply(*from, SocketAddr::new(*to, at.port()));
                }
            }
        }
    });
}

/// Checks a connect, an announce, a scrape over many shards, and errors.
fn check_every_reply(from: IpAddr, to: SocketAddr) {
    // Several clients: the kernel picks the worker by the ports of both sides.
    for _ in 0..4 {
        let client = Client::at(from, to).strict().connected();
        assert!(client.announce(&leecher(hash(1), 5000)).leechers > 0);
        assert_eq!(client.announce_refused(&leecher(hash(1), 0)), "port cannot be 0");
        let hashes: Vec<_> = (0..20).map(hash).collect();
        assert_eq!(client.scrape(&hashes).len(), 20);
        packets::error_text(&client.exchange(&scrape(client.id, transaction(), &[])));
    }
}

/// Connect: nothing is stored for a client before its address is proven, so a flood of connects
/// allocates no memory. Runs in a process of its own, so that only the tracker's memory is
/// measured.
#[test]
fn a_flood_of_connects_allocates_no_memory() {
    const CLIENTS: u32 = 60_000;
    // A table with four bytes per client, the smallest possible, would take 240 kB.
    const GROWTH_KB: u64 = 128;
    for placement in ["split", "colocated"] {
        let flags = ["--placement", placement, "--workers", "2"];
        let daemon = Launch::on_loopback().flags(&flags).serve();
        // The first connects allocate the workers' buffers.
        connect_each(daemon.address(), 0..10_000);
        let before = daemon.memory_kb("RssAnon");
        connect_each(daemon.address(), 10_000..10_000 + CLIENTS);
        let grown = daemon.memory_kb("RssAnon").saturating_sub(before);
        assert!(grown < GROWTH_KB, "{placement}: {CLIENTS} connects allocated {grown} kB");
    }
}

/// Connects once from each of many addresses in 127/8.
fn connect_each(tracker: SocketAddr, clients: std::ops::Range<u32>) {
    for client in clients {
        let ip = Ipv4Addr::from(0x7F10_0000 + client);
        assert_ne!(Client::at(ip.into(), tracker).connect(), 0);
    }
}

/// Hosts with the same key file accept each other's connection ids.
#[test]
fn hosts_with_one_key_file_accept_each_others_ids() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shared.key");
    for placement in PLACEMENTS {
        let config = format!("{placement}[connection]\nkey_file = {file:?}\n");
        let trackers = [(); 2].map(|()| Launch::on_loopback().config(&config).serve());
        for family in [0, 1] {
            for [issuer, other] in [[0, 1], [1, 0]] {
                let id = Client::new(trackers[issuer].addresses()[family]).connect();
                let client = Client::new(trackers[other].addresses()[family]).with_id(id);
                assert_eq!(client.counts(hash(1)), ScrapeCounts::default());
            }
        }
    }
}
