//! Steering by info hash: announces and scrapes arrive at the worker that owns their shard.
//! Requests that arrive elsewhere travel over lanes, with the same replies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_tracker::metrics::Summary;

use crate::harness::client::Client;
use crate::harness::packets::{leecher, random_hash, seeder};
use crate::harness::tracker::{RunningTracker, TrackerConfig};

/// Clients of each family.
const CLIENTS: u8 = 100;
/// Swarms of each pair of clients.
const SWARMS: usize = 10;

#[test]
fn over_95_percent_reach_their_shard_without_a_lane() {
    let tracker = started(true);
    for address in tracker.addresses() {
        assert_foreign(&tracker, *address, 0.0..0.05, 0.0..0.05);
    }
    assert_eq!(tracker.summary().refused_in_all(), 0);
}

/// The control of the test above: without steering one in four is local by chance.
#[test]
fn without_steering_three_in_four_use_a_lane() {
    let tracker = started(false);
    assert!(tracker.tracker.steering.is_none());
    for address in tracker.addresses() {
        assert_foreign(&tracker, *address, 0.65..0.85, 0.6..0.9);
    }
    assert_eq!(tracker.summary().refused_in_all(), 0);
}

/// A scrape of many swarms is steered by its first hash; the parts of other shards are joined into
/// one reply, in order.
#[test]
fn a_long_scrape_is_joined_from_all_shards() {
    for steering in [true, false] {
        let tracker = started(steering);
        for address in tracker.addresses().to_vec() {
            let mut client = Client::new(address);
            client.connect();
            let hashes: Vec<_> = (0..74).map(|_| random_hash()).collect();
            let mut expected = Vec::new();
            for (number, hash) in hashes.iter().enumerate() {
                let leechers = number as u32 % 3;
                (0..leechers)
                    .for_each(|n| drop(client.announce(&leecher(*hash, 2_000 + n as u16))));
                expected.push(ScrapeCounts { leechers, ..ScrapeCounts::default() });
            }
            let before = tracker.summary();
            assert_eq!(client.scrape(&hashes), expected);
            let scrape = Hops::since(&before, &tracker.summary());
            assert!(scrape.requests >= 74, "{scrape:?}");
            assert!((0.4..1.0).contains(&scrape.foreign), "{scrape:?}");
        }
    }
}

#[test]
fn with_steering_backed_off_requests_travel_over_lanes() {
    let mut tracker = started(true);
    for address in tracker.addresses().to_vec() {
        tracker.tracker.steering.as_mut().unwrap().withdraw(1).unwrap();
        // Of the worker's own quarter of the requests the kernel's hash gives it a quarter, so
        // 0.1875 of all requests are foreign, with a deviation of 0.019.
        assert_foreign(&tracker, address, 0.09..0.30, 0.08..0.32);
        tracker.tracker.steering.as_mut().unwrap().restore(1).unwrap();
        assert_foreign(&tracker, address, 0.0..0.05, 0.0..0.05);
    }
    assert_eq!(tracker.summary().refused_in_all(), 0);
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

/// A tracker of four colocated workers on both loopback addresses.
fn started(steering: bool) -> RunningTracker {
    let config = TrackerConfig::with_workers("placement = \"colocated\"\ntotal = 4");
    config.tables(&format!("[socket]\nsteering = {steering}")).start()
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

/// Asserts the shares of announces and of scrapes that use a lane.
fn assert_foreign(
    tracker: &RunningTracker,
    address: SocketAddr,
    announces: Range<f64>,
    scrapes: Range<f64>,
) {
    let (announced, scraped) = traffic(tracker, &clients(address));
    assert!(announces.contains(&announced.foreign), "{address}: {announced:?}");
    assert!(scrapes.contains(&scraped.foreign), "{address}: {scraped:?}");
}

/// Pairs of clients announce to swarms of their own, then scrape them; all replies are checked.
fn traffic(tracker: &RunningTracker, clients: &[Client]) -> (Hops, Hops) {
    let before = tracker.summary();
    let mut swarms: Vec<(usize, InfoHash)> = Vec::new();
    for (number, [first, second]) in clients.as_chunks().0.iter().enumerate() {
        for _ in 0..SWARMS {
            let hash = random_hash();
            let alone = first.announce(&seeder(hash, 3_001));
            assert_eq!((alone.counts(), alone.peers), ((1, 0), vec![]));
            let both = second.announce(&leecher(hash, 3_002));
            let peers = vec![SocketAddr::new(first.address().ip(), 3_001)];
            assert_eq!((both.counts(), both.peers), ((1, 1), peers));
            swarms.push((number, hash));
        }
    }
    let between = tracker.summary();
    for (number, hash) in &swarms {
        let counts = ScrapeCounts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(clients[*number].counts(*hash), counts);
    }
    let after = tracker.summary();
    let announces = Hops::since(&before, &between);
    let scrapes = Hops::since(&between, &after);
    assert!(announces.requests >= 2 * swarms.len() as u64, "{announces:?}");
    assert!(scrapes.requests >= swarms.len() as u64, "{scrapes:?}");
    (announces, scrapes)
}
