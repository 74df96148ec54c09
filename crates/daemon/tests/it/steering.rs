//! Steering by info hash: announces and scrapes arrive at the worker that owns their shard.
//! Requests that arrive elsewhere travel over lanes, with the same replies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_tracker::metrics::Summary;

use crate::harness::client::Client;
use crate::harness::packets::{leecher, random_hash, seeder};
use crate::harness::tracker::{RunningTracker, TrackerConfig};

/// Clients of each family.
const CLIENTS: u8 = 100;
/// Swarms of each pair of clients.
const SWARMS: usize = 10;

/// Without steering one request in four is local by chance.
#[test]
fn over_95_percent_reach_their_shard_without_a_lane() {
    for (steering, announces, scrapes) in
        [(true, 0.0..0.05, 0.0..0.05), (false, 0.65..0.85, 0.6..0.9)]
    {
        let config = TrackerConfig::with_workers("placement = \"colocated\"\ntotal = 4");
        let tracker = config.tables(&format!("[socket]\nsteering = {steering}")).start();
        assert_eq!(tracker.tracker.steering.is_some(), steering);
        for address in tracker.addresses() {
            let (announced, scraped) = traffic(&tracker, &clients(*address));
            assert!(announces.contains(&announced.foreign), "{address}: {announced:?}");
            assert!(scrapes.contains(&scraped.foreign), "{address}: {scraped:?}");
        }
        assert_eq!(tracker.summary().refused_in_all(), 0);
    }
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
