//! Steering by info hash: announces and scrapes arrive at the worker that owns their shard.
//! Requests that arrive elsewhere travel over lanes, with the same replies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use clap::Parser;
use onrush::Tracker;
use onrush::cli::Cli;
use onrush_config::{Host, Settings};
use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_tracker::metrics::Summary;

use crate::harness::client::{AnnounceReply, Client, leecher, random_hash, seeder};

/// Clients of each family.
const CLIENTS: u8 = 100;
/// Swarms of each pair of clients.
const SWARMS: usize = 10;

#[test]
fn over_95_percent_reach_their_shard_without_a_lane() {
    let tracker = started(true);
    for address in tracker.running.addresses().to_vec() {
        let clients = clients(address);
        let (announces, scrapes) = traffic(&tracker, &clients);
        assert!(announces.foreign < 0.05, "{address}: {announces:?}");
        assert!(scrapes.foreign < 0.05, "{address}: {scrapes:?}");
    }
    assert_eq!(tracker.stop().refused_in_all(), 0);
}

/// The control of the test above: without steering one in four is local by chance.
#[test]
fn without_steering_three_in_four_use_a_lane() {
    let tracker = started(false);
    assert!(tracker.steering.is_none());
    for address in tracker.running.addresses().to_vec() {
        let clients = clients(address);
        let (announces, scrapes) = traffic(&tracker, &clients);
        assert!((0.65..0.85).contains(&announces.foreign), "{address}: {announces:?}");
        assert!((0.6..0.9).contains(&scrapes.foreign), "{address}: {scrapes:?}");
    }
    assert_eq!(tracker.stop().refused_in_all(), 0);
}

/// A scrape of many swarms is steered by its first hash; the parts of other shards are joined into
/// one reply, in order.
#[test]
fn a_long_scrape_is_joined_from_all_shards() {
    for steering in [true, false] {
        let tracker = started(steering);
        for address in tracker.running.addresses().to_vec() {
            let mut client = Client::new(address);
            client.connect();
            let hashes: Vec<_> = (0..74).map(|_| random_hash()).collect();
            let mut expected = Vec::new();
            for (number, hash) in hashes.iter().enumerate() {
                let leechers = number as u32 % 3;
                (0..leechers).for_each(|n| drop(client.announce(*hash, leecher(2_000 + n as u16))));
                expected.push(ScrapeCounts { leechers, ..ScrapeCounts::default() });
            }
            let before = tracker.running.summary();
            assert_eq!(client.scrape(&hashes), expected);
            let scrape = Hops::since(&before, &tracker.running.summary());
            assert!(scrape.requests >= 74, "{scrape:?}");
            assert!((0.4..1.0).contains(&scrape.foreign), "{scrape:?}");
        }
        tracker.stop();
    }
}

#[test]
fn with_steering_backed_off_requests_travel_over_lanes() {
    let mut tracker = started(true);
    for address in tracker.running.addresses().to_vec() {
        let clients = clients(address);
        tracker.steering.as_mut().unwrap().withdraw(1).unwrap();
        let (announces, scrapes) = traffic(&tracker, &clients);
        // Of the worker's own quarter of the requests the kernel's hash gives it a quarter, so
        // 0.1875 of all requests are foreign, with a deviation of 0.019.
        assert!((0.09..0.30).contains(&announces.foreign), "{address}: {announces:?}");
        assert!((0.08..0.32).contains(&scrapes.foreign), "{address}: {scrapes:?}");

        tracker.steering.as_mut().unwrap().restore(1).unwrap();
        let (announces, scrapes) = traffic(&tracker, &clients);
        assert!(announces.foreign < 0.05, "{address}: {announces:?}");
        assert!(scrapes.foreign < 0.05, "{address}: {scrapes:?}");
    }
    assert_eq!(tracker.stop().refused_in_all(), 0);
}

/// Numbers of requests, by whether they used a lane.
#[derive(Debug)]
struct Hops {
    requests: u64,
    /// The share of requests that used a lane.
    foreign: f64,
}

impl Hops {
    fn since(before: &Summary, after: &Summary) -> Self {
        let foreign = after.foreign - before.foreign;
        let requests = foreign + after.local - before.local;
        Self { requests, foreign: foreign as f64 / requests as f64 }
    }
}

/// A tracker of four colocated workers on both loopback addresses, with its state in memory.
fn started(steering: bool) -> Tracker {
    let text = format!("[socket]\nsteering = {steering}\n");
    let flags = "onrush --listen 127.0.0.1:0 --listen [::1]:0 --workers 4 --placement colocated \
                 --admin off";
    let args = Cli::try_parse_from(flags.split(' ')).unwrap();
    let (settings, _) =
        Settings::parse("onrush.toml", &text, &args.flags, &Host::default()).unwrap();
    let tracker = Tracker::start(&settings).unwrap();
    assert_eq!(tracker.running.addresses().len(), 2);
    tracker
}

/// Clients of the tracker's family, each at its own address where the family has several.
fn clients(tracker: SocketAddr) -> Vec<Client> {
    let source = |number: u8| -> IpAddr {
        match tracker {
            SocketAddr::V4(_) => Ipv4Addr::new(127, 7, number, 1).into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        }
    };
    let connected = |number| {
        let mut client = Client::at(source(number), tracker);
        client.connect();
        client
    };
    (0..CLIENTS).map(connected).collect()
}

/// Pairs of clients announce to swarms of their own, then scrape them; all replies are checked.
fn traffic(tracker: &Tracker, clients: &[Client]) -> (Hops, Hops) {
    let before = tracker.running.summary();
    let mut swarms: Vec<(usize, InfoHash)> = Vec::new();
    for (number, [first, second]) in clients.as_chunks().0.iter().enumerate() {
        for _ in 0..SWARMS {
            let hash = random_hash();
            let first_reply = first.announce(hash, seeder(3_001));
            assert_eq!(first_reply, AnnounceReply { seeders: 1, leechers: 0, peers: vec![] });
            let both = second.announce(hash, leecher(3_002));
            let peers = vec![SocketAddr::new(first.address().ip(), 3_001)];
            assert_eq!(both, AnnounceReply { seeders: 1, leechers: 1, peers });
            swarms.push((number, hash));
        }
    }
    let between = tracker.running.summary();
    for (number, hash) in &swarms {
        let counts = ScrapeCounts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(clients[*number].scrape(&[*hash]), [counts]);
    }
    let after = tracker.running.summary();
    let announces = Hops::since(&before, &between);
    let scrapes = Hops::since(&between, &after);
    assert!(announces.requests >= 2 * swarms.len() as u64, "{announces:?}");
    assert!(scrapes.requests >= swarms.len() as u64, "{scrapes:?}");
    (announces, scrapes)
}
