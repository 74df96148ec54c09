//! The rules of announce and scrape one by one, as short tests. The model test checks their
//! combinations.

use std::time::Duration;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint, Event, InfoHash, ScrapeCounts, TransactionId};
use onrush_swarm::shard::MAX_PEER_LIFETIME;
use onrush_swarm::{
    Announce, Moment, Shard, ShardBatch, ShardSettings, SourceLimits, SwarmsByFamily,
};

const SETTINGS: ShardSettings = ShardSettings {
    interval: 1_800,
    interval_jitter_percent: 0,
    peer_lifetime: 2_400,
    completed_retention: 86_400,
    max_peers: 1_000,
    max_idle_swarms: 10,
    sources: SourceLimits { peers_per_swarm: 0, peers: 0, new_swarms: 0 },
};

/// A shard with one clock and one batch.
struct Tracker {
    shard: Shard,
    now: Moment,
}

struct Reply {
    head: AnnounceHead,
    peers: Vec<Vec<u8>>,
}

impl Reply {
    fn counts(&self) -> (u32, u32) {
        (self.head.seeders, self.head.leechers)
    }
}

impl Tracker {
    fn new(settings: ShardSettings) -> Self {
        Self { shard: Shard::new(settings, [1; 16], 2), now: Moment(1_000) }
    }

    fn announce(&mut self, swarm: u8, peer: Endpoint, event: Event, seeder: bool) -> Reply {
        let mut batch = ShardBatch::<(), ()>::new(1, 0, HEAD_LEN + 50 * 18);
        let announce = Announce {
            info_hash: InfoHash([swarm; 20]),
            endpoint: peer,
            event,
            seeder,
            want: 50,
            transaction_id: TransactionId(77),
        };
        batch.push_announce(announce, ()).unwrap();
        self.shard.serve(&mut batch, self.now);
        let (bytes, ()) = batch.replies().next().unwrap();
        let (head, peers) = bytes.split_first_chunk().unwrap();
        let peers = peers.chunks(peer.family().peer_len()).map(<[u8]>::to_vec).collect();
        Reply { head: AnnounceHead::parse(head), peers }
    }

    fn leecher(&mut self, swarm: u8, peer: Endpoint) -> Reply {
        self.announce(swarm, peer, Event::None, false)
    }

    fn seeder(&mut self, swarm: u8, peer: Endpoint) -> Reply {
        self.announce(swarm, peer, Event::None, true)
    }

    fn completed(&mut self, swarm: u8, peer: Endpoint) -> Reply {
        self.announce(swarm, peer, Event::Completed, true)
    }

    fn stopped(&mut self, swarm: u8, peer: Endpoint) -> Reply {
        self.announce(swarm, peer, Event::Stopped, false)
    }

    fn scrape(&mut self, swarm: u8) -> ScrapeCounts {
        let mut batch = ShardBatch::<(), ()>::new(0, 1, 0);
        batch.push_scrape(&[[swarm; 20]], ()).unwrap();
        self.shard.serve(&mut batch, self.now);
        ScrapeCounts::parse(&batch.scrapes().next().unwrap().counts[0])
    }

    fn later(&mut self, seconds: u32) {
        self.now = self.now.after(seconds);
        self.shard.sweep(self.now, usize::MAX);
        self.shard.check();
    }
}

fn v4(number: u16, port: u16) -> Endpoint {
    let [a, b] = number.to_be_bytes();
    Endpoint::new(std::net::IpAddr::from([192, 0, a, b]), port)
}

fn v6(number: u16) -> Endpoint {
    Endpoint::new(std::net::IpAddr::from([0x2001, 0xDB8, 0, 0, 0, 0, 0, number]), 6_881)
}

#[test]
fn counts_cover_both_families_and_lists_only_the_announcers() {
    let mut tracker = Tracker::new(SETTINGS);
    assert_eq!(tracker.leecher(1, v4(1, 80)).counts(), (0, 1));
    assert_eq!(tracker.seeder(1, v6(1)).counts(), (1, 1));
    let reply = tracker.leecher(1, v4(2, 80));
    assert_eq!(reply.counts(), (1, 2));
    assert_eq!(reply.peers, [v4(1, 80).as_bytes()]);
    assert_eq!(reply.head.transaction_id, TransactionId(77));
    assert_eq!(tracker.leecher(1, v6(2)).peers, [v6(1).as_bytes()]);
}

#[test]
fn a_peer_is_identified_by_its_endpoint() {
    let mut tracker = Tracker::new(SETTINGS);
    tracker.leecher(1, v4(1, 80));
    assert_eq!(tracker.leecher(1, v4(1, 80)).counts(), (0, 1));
    assert_eq!(tracker.leecher(1, v4(1, 81)).counts(), (0, 2));
}

#[test]
fn a_seeder_with_bytes_left_becomes_a_leecher() {
    let mut tracker = Tracker::new(SETTINGS);
    assert_eq!(tracker.seeder(1, v4(1, 80)).counts(), (1, 0));
    assert_eq!(tracker.leecher(1, v4(1, 80)).counts(), (0, 1));
    assert_eq!(tracker.shard.totals().seeders_v4, 0);
}

#[test]
fn partial_seeds_count_as_leechers() {
    let mut tracker = Tracker::new(SETTINGS);
    assert_eq!(tracker.announce(1, v4(1, 80), Event::Paused, false).counts(), (0, 1));
    assert_eq!(tracker.announce(1, v4(2, 80), Event::Started, false).peers.len(), 1);
}

#[test]
fn port_1_is_counted_and_never_handed_out() {
    for others in [0, 1, 5, 200] {
        let mut tracker = Tracker::new(SETTINGS);
        tracker.leecher(1, v4(500, 1));
        tracker.seeder(1, v4(501, 1));
        (0..others).for_each(|number| drop(tracker.leecher(1, v4(number, 80))));
        let reply = tracker.leecher(1, v4(502, 80));
        assert_eq!(reply.counts(), (1, 2 + u32::from(others)));
        assert_eq!(reply.peers.len(), usize::from(others.min(50)));
        assert!(reply.peers.iter().all(|peer| peer[4..] == [0, 80]));
        assert_eq!(tracker.leecher(1, v4(501, 1)).counts(), (0, 3 + u32::from(others)));
    }
}

#[test]
fn a_stop_gets_counts_and_creates_nothing() {
    let mut tracker = Tracker::new(SETTINGS);
    assert_eq!(tracker.stopped(1, v4(1, 80)).counts(), (0, 0));
    assert_eq!(tracker.shard.totals().swarms, 0);
    tracker.leecher(1, v4(1, 80));
    tracker.leecher(1, v4(2, 80));
    let reply = tracker.stopped(1, v4(2, 80));
    assert_eq!((reply.counts(), reply.peers.len()), ((0, 1), 0));
    tracker.stopped(1, v4(1, 80));
    assert_eq!(tracker.shard.totals().swarms, 0);
}

#[test]
fn completed_counts_once_per_peer_that_becomes_a_seeder() {
    let mut tracker = Tracker::new(SETTINGS);
    tracker.leecher(1, v4(1, 80));
    tracker.completed(1, v4(1, 80));
    tracker.completed(1, v4(1, 80)); // a seeder already
    assert_eq!(tracker.scrape(1).completed, 1);
    tracker.completed(1, v4(2, 80)); // not known before
    tracker.completed(2, v4(1, 80)); // nor its swarm
    tracker.announce(1, v4(3, 80), Event::Completed, false); // something is left
    tracker.seeder(1, v4(3, 80)); // no event
    assert_eq!(tracker.scrape(1), ScrapeCounts { seeders: 3, completed: 2, leechers: 0 });
    assert_eq!(tracker.scrape(2).completed, 1);
    assert_eq!(tracker.shard.totals().completed, 3);
}

#[test]
fn completed_is_retained_after_the_last_peer() {
    let mut tracker = Tracker::new(SETTINGS);
    tracker.completed(1, v4(1, 80));
    tracker.stopped(1, v4(1, 80));
    tracker.later(86_399);
    assert_eq!(tracker.scrape(1), ScrapeCounts { seeders: 0, completed: 1, leechers: 0 });
    assert_eq!(tracker.leecher(1, v4(2, 80)).counts(), (0, 1));
    tracker.later(2_416); // its lifetime
    assert_eq!((tracker.shard.totals().peers(), tracker.scrape(1).completed), (0, 1));
    tracker.later(86_400);
    assert_eq!(tracker.scrape(1), ScrapeCounts::default());
    assert_eq!(tracker.shard.totals().idle_swarms, 0);
}

#[test]
fn the_oldest_idle_swarm_is_evicted_first() {
    let mut tracker = Tracker::new(ShardSettings { max_idle_swarms: 2, ..SETTINGS });
    for swarm in 1..=4 {
        tracker.completed(swarm, v4(1, 80));
    }
    for swarm in [3, 1, 4] {
        tracker.now = tracker.now.after(1);
        tracker.stopped(swarm, v4(1, 80));
        tracker.shard.check();
    }
    let completed = [1, 2, 3, 4].map(|swarm| tracker.scrape(swarm).completed);
    assert_eq!(completed, [1, 1, 0, 1]);
    assert_eq!(tracker.shard.totals().idle_evicted, 1);
}

/// The attack: one address announces `completed` again and again, with other ports, after a stop,
/// and as a leecher first.
#[test]
fn completed_counts_once_per_source_and_period() {
    let mut tracker = Tracker::new(SETTINGS);
    tracker.now = Moment(86_400 * 10);
    for port in 1_000..1_050 {
        tracker.leecher(1, v4(1, port));
        tracker.completed(1, v4(1, port));
        tracker.stopped(1, v4(1, port));
        tracker.completed(1, v4(1, port));
        tracker.completed(2, v6(port));
    }
    assert_eq!((tracker.scrape(1).completed, tracker.scrape(2).completed), (1, 1));
    tracker.completed(1, v4(2, 80));
    tracker.completed(2, v4(1, 80));
    assert_eq!((tracker.scrape(1).completed, tracker.scrape(2).completed), (2, 2));
    assert_eq!(tracker.shard.totals().completed, 4);
    // The next period.
    tracker.later(86_400);
    tracker.completed(1, v4(1, 3_000));
    assert_eq!(tracker.scrape(1).completed, 3);
}

/// The attack: an address makes a count of 1 with two datagrams, and with a few more addresses of
/// its network a count of 3.
#[test]
fn idle_swarms_of_the_least_magnitude_are_evicted_first() {
    let mut tracker = Tracker::new(ShardSettings { max_idle_swarms: 5, ..SETTINGS });
    let mut complete = |swarm: u8, peers: u16| {
        for peer in 1..=peers {
            tracker.completed(swarm, v4(peer, 80));
        }
        for peer in 1..=peers {
            tracker.stopped(swarm, v4(peer, 80));
        }
        tracker.now = tracker.now.after(1);
        tracker.shard.check();
        [1, 2, 3, 4].map(|swarm| tracker.scrape(swarm).completed)
    };
    for (swarm, peers) in [(1, 4), (2, 1), (3, 17), (4, 3)] {
        complete(swarm, peers);
    }
    complete(5, 1);
    for swarm in 10..100 {
        let kept = complete(swarm, 1);
        assert_eq!((kept[0], kept[2], kept[3]), (4, 17, 3), "swarm {swarm}");
    }
    for swarm in 100..150 {
        let kept = complete(swarm, 3);
        assert_eq!((kept[0], kept[1], kept[2]), (4, 0, 17), "swarm {swarm}");
    }
    // Counts of one magnitude displace each other by age.
    for swarm in 150..155 {
        complete(swarm, 15);
    }
    assert_eq!(complete(155, 1), [0, 0, 17, 0]);
}

#[test]
fn link_local_peers_are_counted_and_not_handed_out() {
    let mut tracker = Tracker::new(SETTINGS);
    let peers = ["fe80::1", "febf::2", "2001:db8::3", "fec0::4", "169.254.1.1", "192.0.2.1"];
    for peer in peers {
        tracker.leecher(1, Endpoint::new(peer.parse().unwrap(), 80));
    }
    let reply = tracker.leecher(1, Endpoint::new("2001:db8::9".parse().unwrap(), 80));
    assert_eq!((reply.counts(), reply.peers.len()), ((0, 7), 2));
    assert!(reply.peers.iter().all(|peer| peer[..2] != [0xfe, 0x80] && peer[..2] != [0xfe, 0xbf]));
    let reply = tracker.leecher(1, v4(9, 80));
    assert_eq!((reply.counts(), reply.peers), ((0, 8), vec![vec![192, 0, 2, 1, 0, 80]]));
}

#[test]
fn a_full_shard_serves_new_peers_without_storing_them() {
    let mut tracker = Tracker::new(ShardSettings { max_peers: 2, ..SETTINGS });
    tracker.leecher(1, v4(1, 80));
    tracker.leecher(1, v4(2, 80));
    let reply = tracker.completed(1, v4(3, 80));
    assert_eq!((reply.counts(), reply.peers.len()), ((0, 2), 2));
    assert_eq!(tracker.leecher(2, v4(3, 80)).counts(), (0, 0));
    let totals = tracker.shard.totals();
    assert_eq!((totals.peers(), totals.swarms, totals.refused_full), (2, 1, 2));
    assert_eq!(totals.completed, 0, "a peer that is not stored could complete repeatedly");
    // Known peers are served and updated.
    assert_eq!(tracker.completed(1, v4(1, 80)).counts(), (1, 1));
    tracker.stopped(1, v4(1, 80));
    assert_eq!(tracker.leecher(2, v4(3, 80)).counts(), (0, 1));
}

#[test]
fn scrapes_create_nothing() {
    let mut tracker = Tracker::new(SETTINGS);
    assert_eq!(tracker.scrape(1), ScrapeCounts::default());
    assert_eq!(tracker.shard.swarms(tracker.now).count(), 0);
}

#[test]
fn intervals_vary_around_the_configured_one() {
    let mut tracker = Tracker::new(ShardSettings { interval_jitter_percent: 10, ..SETTINGS });
    let intervals: Vec<u32> =
        (0..2_000).map(|_| tracker.leecher(1, v4(1, 80)).head.interval).collect();
    let (low, high) = (intervals.iter().min().unwrap(), intervals.iter().max().unwrap());
    assert!((1_620..1_630).contains(low) && (1_971..=1_980).contains(high), "{low} to {high}");
    let mean = intervals.iter().sum::<u32>() / 2_000;
    assert!((1_790..1_810).contains(&mean), "{mean}");
}

#[test]
fn a_peer_that_announces_in_time_does_not_expire() {
    let mut tracker = Tracker::new(SETTINGS);
    tracker.leecher(1, v4(1, 80));
    tracker.leecher(1, v4(2, 80));
    tracker.later(1_500);
    tracker.leecher(1, v4(2, 80));
    tracker.later(1_500);
    assert_eq!(tracker.leecher(1, v4(3, 80)).peers, [v4(2, 80).as_bytes()]);
    assert_eq!(tracker.shard.totals().expired, 1);
}

/// Stored ages wrap around after 36 hours; the longest lifetime leaves enough time for daily
/// passes.
#[test]
fn peers_of_the_longest_lifetime_expire() {
    for start in [0, 65_535, 131_071, 4_000_000_000] {
        let settings = ShardSettings { peer_lifetime: MAX_PEER_LIFETIME, ..SETTINGS };
        let mut tracker = Tracker::new(settings);
        tracker.now = Moment(start);
        tracker.leecher(1, v4(1, 80));
        tracker.later(MAX_PEER_LIFETIME);
        assert_eq!(tracker.shard.totals().peers(), 1);
        tracker.later(16);
        assert_eq!(tracker.shard.totals().peers(), 0);
    }
}

#[test]
#[should_panic(expected = "peer_lifetime")]
fn a_longer_lifetime_is_refused() {
    Shard::new(ShardSettings { peer_lifetime: MAX_PEER_LIFETIME + 1, ..SETTINGS }, [0; 16], 0);
}

#[test]
fn removing_a_swarm_removes_all_of_it() {
    let mut tracker = Tracker::new(SETTINGS);
    for number in 0..300 {
        tracker.completed(1, v4(number, 80));
        tracker.leecher(2, v6(number));
    }
    assert!(tracker.shard.remove(&InfoHash([1; 20]), tracker.now));
    assert!(!tracker.shard.remove(&InfoHash([1; 20]), tracker.now));
    tracker.shard.check();
    assert_eq!(tracker.scrape(1), ScrapeCounts::default());
    assert_eq!(tracker.scrape(2).leechers, 300);
    assert!(!tracker.shard.release(usize::MAX));
    assert_eq!(tracker.shard.totals().peers(), 300);
}

/// A large swarm is removed in bounded time. Its peers count, also against `max_peers`, until their
/// memory is released; an announce meanwhile creates a new swarm.
#[test]
fn the_peers_of_a_removed_large_swarm_are_released_in_steps() {
    for by_sweeps in [false, true] {
        let mut tracker = Tracker::new(ShardSettings { max_peers: 30_000, ..SETTINGS });
        for number in 0..10_000 {
            tracker.leecher(1, v4(number, 80));
            tracker.completed(1, v6(number));
            tracker.seeder(1, v4(number, 1));
        }
        assert!(tracker.shard.remove(&InfoHash([1; 20]), tracker.now));
        tracker.shard.check();
        let totals = tracker.shard.totals();
        let seeders = totals.seeders_v4 + totals.seeders_v6;
        assert_eq!((totals.swarms, totals.peers(), seeders), (0, 30_000, 20_000));
        assert_eq!(tracker.leecher(1, v4(1, 81)).counts(), (0, 0), "the shard is still full");
        let mut steps = 0;
        while tracker.shard.release(0) {
            if steps == 1 {
                // The swarm is created again while its former peers are being released.
                assert_eq!(tracker.seeder(1, v4(2, 82)).counts(), (1, 0));
            }
            let before = tracker.shard.totals().peers();
            match by_sweeps {
                true => _ = tracker.shard.sweep(tracker.now, 500),
                false => _ = tracker.shard.release(500),
            }
            let released = before - tracker.shard.totals().peers();
            assert!(released < 500 + 165, "{released} at once");
            tracker.shard.check();
            steps += 1;
        }
        assert!(steps > 30_000 / 665, "{steps} steps");
        let totals = tracker.shard.totals();
        let seeders = totals.seeders_v4 + totals.seeders_v6;
        assert_eq!((totals.swarms, totals.peers(), seeders, totals.expired), (1, 1, 1, 0));
        assert_eq!(tracker.leecher(1, v4(1, 81)).counts(), (1, 1));
    }
}

/// Small steps of `sweep_budget` complete a pass in time for any population: here many small swarms
/// beside a large one.
#[test]
fn small_sweeps_complete_a_pass_in_time() {
    let mut tracker = Tracker::new(ShardSettings { max_peers: 100_000, ..SETTINGS });
    for number in 0..20_000 {
        tracker.leecher(0, v4(number, 80));
        tracker.leecher((number % 199) as u8 + 1, v4(number, 81));
    }
    let budget = tracker.shard.sweep_budget(Duration::from_millis(100), Duration::from_secs(10));
    let mut pass = |now| {
        let mut turns = 1;
        loop {
            let swept = tracker.shard.sweep(now, budget);
            assert!(swept.visited <= budget + 255, "{swept:?} of {budget}");
            if swept.pass_finished {
                return (turns, tracker.shard.totals());
            }
            turns += 1;
        }
    };
    let start = Moment(1_000);
    let (turns, totals) = pass(start);
    assert!((80..=100).contains(&turns), "{turns} turns of 100 ms");
    assert_eq!(totals.expired, 0);
    // The first of these passes may have begun before any peer expired.
    pass(start.after(2_416));
    let (_, totals) = pass(start.after(2_416));
    assert_eq!((totals.expired, totals.peers()), (40_000, 0));
    tracker.shard.check();
}

/// A pass that began in an empty shard visits swarms created meanwhile: otherwise it would end with
/// a count of zero.
#[test]
fn a_pass_visits_swarms_created_meanwhile() {
    let mut tracker = Tracker::new(ShardSettings { max_peers: 1_000_000, ..SETTINGS });
    assert!(!tracker.shard.sweep(tracker.now, 1).pass_finished, "the index is visited first");
    for number in 0..200 {
        tracker.leecher(number, v4(1, 80));
    }
    while !tracker.shard.sweep(tracker.now, 100).pass_finished {}
    assert_eq!(tracker.shard.swarms_by_family(), SwarmsByFamily { v4: 200, v6: 0 });
}

/// For every form of a swarm, while peers are removed.
#[test]
fn a_pass_counts_the_swarms_of_each_family() {
    let mut tracker = Tracker::new(ShardSettings { max_peers: 100_000, ..SETTINGS });
    let other = |n: u16| {
        let mut endpoint = [0x20; 18];
        endpoint[14..16].copy_from_slice(&n.to_be_bytes());
        Endpoint::V6(endpoint)
    };
    // One peer, two, a block of them, and many: of IPv4, of IPv6 and of both.
    for (number, peers) in [1, 2, 30, 600].into_iter().enumerate() {
        let first = 1 + 3 * number as u8;
        for peer in 0..peers {
            tracker.leecher(first, v4(peer, 80));
            tracker.leecher(first + 1, other(peer));
            tracker.leecher(first + 2, v4(peer, 80));
            tracker.leecher(first + 2, other(peer));
        }
    }
    assert_eq!(tracker.shard.swarms_by_family(), SwarmsByFamily::default());
    for budget in [usize::MAX, 7] {
        while !tracker.shard.sweep(Moment(1_000), budget).pass_finished {}
        assert_eq!(tracker.shard.swarms_by_family(), SwarmsByFamily { v4: 8, v6: 8 });
    }
    while !tracker.shard.sweep(Moment(100_000), 7).pass_finished {}
    while !tracker.shard.sweep(Moment(100_000), 7).pass_finished {}
    assert_eq!(tracker.shard.swarms_by_family(), SwarmsByFamily::default());
}

/// A pass whose position is within a large swarm continues correctly when that swarm is removed.
#[test]
fn a_pass_misses_no_peer_when_the_swarm_at_its_position_is_removed() {
    let mut tracker = Tracker::new(SETTINGS);
    let many = || (0..200u8).map(|n| Endpoint::V4([192, 0, 2, n, 0, 80]));
    many().for_each(|peer| drop(tracker.seeder(1, peer)));
    tracker.now = tracker.now.after(SETTINGS.peer_lifetime + 16);
    many().for_each(|peer| drop(tracker.leecher(2, peer)));
    // Into the middle of the second swarm, behind its seeders, of which it has none.
    assert!(!tracker.shard.sweep(tracker.now, 10).pass_finished);
    many().for_each(|peer| drop(tracker.stopped(2, peer)));
    assert_eq!(tracker.shard.totals().peers(), 200);
    let passes = (0..1_000).take_while(|_| !tracker.shard.sweep(tracker.now, 10).pass_finished);
    assert!(passes.count() < 1_000);
    assert_eq!(tracker.shard.totals().peers(), 0, "all of the first swarm had expired");
    tracker.shard.check();
}
