//! Under more load than there is room for: what is dropped leads to longer intervals and to connects of new sources
//! that are not answered, and whoever has proven himself goes on being served.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use onrush_proto::{Connect, TransactionId, connect};

use crate::admin::{eventually, get, samples, sum};
use crate::harness::client::{Client, fresh_hash, leecher};
use crate::harness::messages::{OVERLOAD, SHED};
use crate::harness::process::{Launch, PATIENCE};

/// Sources that a flood comes from.
const SOURCES: u8 = 64;
/// Sources of either kind that ask once. From the second step on three of four new ones are answered, or fewer: chance
/// leaves less than one in a million that all of them are, or more than nine in ten.
const ONCE: u8 = 200;

#[test]
fn a_flood_lengthens_the_interval_and_sheds_new_sources() {
    let config = "listen = [\"127.0.0.1:0\"]\n\
                  [socket]\nreceive_buffer = 4096\n\
                  [announce]\ninterval_jitter_percent = 0\n\
                  [overload]\ndrop_share = 1\nlongest_interval = 3600\n\
                  [log]\ntotals_every = 1\n";
    let mut daemon = Launch::new(&["--workers", "1"]).http().config(config).start();
    let tracker = daemon.serving()[0];
    let mut client = Client::new(tracker);
    client.connect();
    let hash = fresh_hash();
    assert_eq!(client.interval(hash, leecher(4_001)), 1800);
    // Both kinds have an id from before; one of them will have used it since the pressure began.
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
    // Half a minute passes until anything becomes easier again.
    let interval = client.interval(hash, leecher(4_001));
    assert!(interval > 1800);
    is_shown(daemon.http(), tracker, interval);
    for source in &proven {
        source.announce(hash, leecher(4_001));
    }
    // A datagram each, never a second one, and no more under way than there is room for: an announce, which is
    // answered always, says that the one before it was read.
    let connect = request();
    for source in new.iter().zip(&proven).flat_map(|(new, proven)| [new, proven]) {
        source.send(&connect);
        client.interval(hash, leecher(4_001));
    }
    let answered = |sources: &[Client]| sources.iter().filter(|source| source.has_answer()).count();
    let (new, proven) = (answered(&new), answered(&proven));
    let said = format!("of {ONCE} each: {new} new sources and {proven} proven ones were answered");
    assert_eq!(proven, usize::from(ONCE), "{said}");
    assert!((1..=usize::from(ONCE) * 9 / 10).contains(&new), "{said}");
    daemon.stop();
}

/// What has been done about the flood, for who does not read the log.
fn is_shown(http: SocketAddr, tracker: SocketAddr, interval: u32) {
    let mut shown = BTreeMap::new();
    // Workers may know of a step a moment before others do.
    eventually("what clients are told is shown", || {
        shown = samples(&get(http, "/metrics").body);
        let of_clients = sum(&shown, "onrush_announce_interval_seconds", &[]);
        (f64::from(interval)..=3600.0).contains(&of_clients)
    });
    let step = sum(&shown, "onrush_overload_step", &[]);
    assert!((2.0..=8.0).contains(&step), "two steps were told: {step}");
    let shed = sum(&shown, "onrush_refused_requests_total", &["reason=\"shed\"", "ipv4"]);
    assert!(tracker.is_ipv4() && shed > 0.0, "{shed}");
    assert!(sum(&shown, "onrush_kernel_dropped_datagrams_total", &[]) > 0.0);
}

/// Sources of a block of their own, each with a connection id.
fn sources(block: u8, tracker: SocketAddr) -> Vec<Client> {
    let source = |number| {
        let mut client = Client::at(IpAddr::V4(Ipv4Addr::new(127, 0, block, number)), tracker);
        client.connect();
        client
    };
    (1..=ONCE).map(source).collect()
}

fn request() -> [u8; connect::REQUEST_LEN] {
    let mut bytes = [0; connect::REQUEST_LEN];
    Connect { transaction_id: TransactionId(1) }.write(&mut bytes);
    bytes
}

/// Connects of many sources, faster than they can be answered.
fn flood(tracker: SocketAddr, part: u8, over: &AtomicBool) {
    let source = |number: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 1 + part, 1 + number));
    let clients: Vec<Client> = (0..SOURCES).map(|n| Client::at(source(n), tracker)).collect();
    let bytes = request();
    // It ends by itself where the test has failed.
    let deadline = Instant::now() + 2 * PATIENCE;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        clients.iter().for_each(|client| client.send(&bytes));
    }
}
