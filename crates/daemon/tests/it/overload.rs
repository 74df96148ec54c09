//! Overload: packet loss lengthens the announce interval and sheds connects of new sources, while
//! proven sources are served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::harness::client::Client;
use crate::harness::messages::{OVERLOAD, SHED};
use crate::harness::packets::{connect, leecher, random_hash};
use crate::harness::process::{Daemon, Launch, TIMEOUT, eventually};

/// Sources that flood the tracker.
const SOURCES: u8 = 64;
/// Sources of each kind, which send one connect each. From the second overload step on at most
/// three of four new sources get a reply: the probability that all of them do, or more than nine in
/// ten, is below one in a million.
const ONCE: u8 = 200;

#[test]
fn a_flood_lengthens_the_interval_and_sheds_new_sources() {
    let config = "listen = [\"127.0.0.1:0\"]\n\
                  [socket]\nreceive_buffer = 4096\n\
                  [announce]\ninterval_jitter_percent = 0\n\
                  [overload]\ndrop_share = 1\nlongest_interval = 3600\n\
                  [log]\ntotals_every = 1\n";
    let mut daemon = Launch::new(&["--workers", "1"]).admin().config(config).serve();
    let tracker = daemon.address();
    let client = daemon.client();
    let peer = leecher(random_hash(), 4_001);
    assert_eq!(client.announce(&peer).interval, 1800);
    // Both kinds got a connection id before; only proven sources use it during the overload.
    let (new, proven) = (sources(3, tracker), sources(4, tracker));

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for part in 0..2 {
            let over = &over;
            scope.spawn(move || flood(tracker, part, over));
        }
        daemon.line(OVERLOAD);
        daemon.line(OVERLOAD);
        daemon.line(SHED);
        over.store(true, Ordering::Relaxed);
    });
    // The steps last for half a minute after the last drop.
    let interval = client.announce(&peer).interval;
    assert!(interval > 1800);
    assert_reported(&daemon, interval);
    for source in &proven {
        source.announce(&peer);
    }
    // One datagram each, without repetition. The announce after each connect is always served, so
    // its reply proves that the connect was received.
    for source in new.iter().zip(&proven).flat_map(|(new, proven)| [new, proven]) {
        source.send(&connect(1));
        client.announce(&peer);
    }
    let answered =
        |sources: &[Client]| sources.iter().filter(|source| source.has_datagram()).count();
    let (new, proven) = (answered(&new), answered(&proven));
    let said = format!("of {ONCE} each: {new} new and {proven} proven sources got a reply");
    assert_eq!(proven, usize::from(ONCE), "{said}");
    assert!((1..=usize::from(ONCE) * 9 / 10).contains(&new), "{said}");
    daemon.stop();
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
    assert!((2.0..=8.0).contains(&step), "overload step {step}");
    assert!(shown.sum("onrush_refused_requests_total", &["reason=\"shed\"", "ipv4"]) > 0.0);
    assert!(shown.sum("onrush_kernel_dropped_datagrams_total", &[]) > 0.0);
}

/// Sources in an address block, each with a connection id.
fn sources(block: u8, tracker: SocketAddr) -> Vec<Client> {
    let source = |number| {
        let mut client = Client::at(IpAddr::V4(Ipv4Addr::new(127, 0, block, number)), tracker);
        client.connect();
        client
    };
    (1..=ONCE).map(source).collect()
}

/// Sends connects from many sources, faster than the worker can reply.
fn flood(tracker: SocketAddr, part: u8, over: &AtomicBool) {
    let source = |number: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 1 + part, 1 + number));
    let clients: Vec<Client> = (0..SOURCES).map(|n| Client::at(source(n), tracker)).collect();
    let bytes = connect(1);
    // The flood ends when the test has failed, too.
    let deadline = Instant::now() + 2 * TIMEOUT;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        clients.iter().for_each(|client| client.send(&bytes));
    }
}
