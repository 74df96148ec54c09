//! Announce: seeders, leechers, completed, and peers that stop.

use std::collections::BTreeMap;

use onrush_proto::Family;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::LOOPBACK;
use super::support::packets::{Announce, COMPLETED, Counts, PAUSED, STARTED, STOPPED, hash};
use super::support::tracker::{RunningTracker, both};

/// Announce: a peer with `left == 0` is a seeder, any other a leecher.
#[test]
fn a_peer_with_nothing_left_is_a_seeder() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        for (number, left, seeders) in [(1, 0, 1), (2, 1, 0), (3, u64::MAX, 0), (4, 1 << 32, 0)] {
            let reply =
                client.announce(&Announce { left, ..Announce::leecher(hash(number), 5000) });
            assert_eq!(reply.counts(), (seeders, 1 - seeders), "{left} left");
        }
    });
}

/// Announce: counts cover both families and include the announcing peer at once; peer lists contain
/// only the family of the request (BEP 7; BEP 15, "IPv6").
#[test]
fn counts_cover_both_families_and_lists_one() {
    both("", |tracker| {
        let (v4, v6) = (tracker.client("127.0.0.1"), tracker.client("::1"));
        assert_eq!(v4.announce(&Announce::leecher(hash(1), 5000)).counts(), (0, 1));
        assert_eq!(v6.announce(&Announce::leecher(hash(1), 6000)).counts(), (0, 2));
        assert_eq!(v4.announce(&Announce::seeder(hash(1), 5001)).counts(), (1, 2));
        assert_eq!(v6.announce(&Announce::seeder(hash(1), 6001)).counts(), (2, 2));
        let (four, six) = (
            v4.announce(&Announce::leecher(hash(1), 5002)),
            v6.announce(&Announce::leecher(hash(1), 6002)),
        );
        assert_eq!((four.counts(), six.counts()), ((2, 3), (2, 4)));
        assert_eq!((four.ports(), six.ports()), (vec![5000, 5001], vec![6000, 6001]));
        assert!(four.peers.iter().all(|peer| peer.ip() == v4.address().ip()), "{four:?}");
        assert!(six.peers.iter().all(|peer| peer.ip() == v6.address().ip()), "{six:?}");
        let all = Counts { seeders: 2, completed: 0, leechers: 4 };
        assert_eq!((v4.counts(hash(1)), v6.counts(hash(1))), (all, all));
        let peers = || (tracker.summary().peers_v4, tracker.summary().peers_v6);
        tracker.until("both are in the totals", || peers() == (3, 3));
    });
}

/// Announce: a seeder that announces `left > 0` becomes a leecher and is counted once. Repeated
/// announces are one peer.
#[test]
fn a_peer_counts_once_in_any_role() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            let announces =
                [Announce::leecher(hash(number), 5000), Announce::seeder(hash(number), 5000)];
            for turn in [0, 0, 1, 1, 0, 1, 0, 0] {
                for event in [0, STARTED] {
                    let reply = client.announce(&announces[turn].clone().event(event));
                    let seeders = u32::try_from(turn).unwrap();
                    assert_eq!(reply.counts(), (seeders, 1 - seeders));
                    assert_eq!(reply.peers, [], "no other peer");
                }
            }
        }
    });
}

/// Announce: `completed` counts each peer that becomes a seeder by event completed with `left ==
/// 0`, from a leecher or an unknown peer. Scrape reports this count.
#[test]
fn completed_counts_peers_that_become_seeders_by_the_event() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            let info_hash = hash(number);
            let leecher = |port| Announce::leecher(info_hash, port);
            let seeder = |port| Announce::seeder(info_hash, port);
            let expect = |request: Announce, completed, why: &str| {
                client.announce(&request);
                assert_eq!(client.counts(info_hash).completed, completed, "{why}");
            };
            expect(leecher(5000), 0, "a leecher joins");
            expect(leecher(5000).event(COMPLETED), 0, "the event with something left");
            expect(seeder(5000).event(COMPLETED), 1, "a leecher completes");
            expect(seeder(5000).event(COMPLETED), 1, "a seeder completes again");
            expect(seeder(5000), 1, "a seeder stays");
            expect(seeder(5001).event(STARTED), 1, "a seeder joins");
            expect(seeder(5001).event(COMPLETED), 1, "a seeder completes");
            expect(seeder(5002).event(COMPLETED), 2, "an unknown peer completes");
            expect(leecher(5003), 2, "a leecher joins");
            expect(seeder(5003), 2, "a leecher becomes a seeder without the event");
            expect(seeder(5003).event(COMPLETED), 2, "the event of a seeder");
            expect(leecher(5003).event(PAUSED), 2, "a seeder becomes a leecher");
            expect(seeder(5003).event(COMPLETED), 3, "the leecher completes");
            expect(seeder(5003).event(STOPPED), 3, "a seeder leaves");
            expect(leecher(1), 3, "a leecher with port 1 joins");
            expect(seeder(1).event(COMPLETED), 4, "the leecher completes");
        }
        tracker.until("the totals agree", || tracker.summary().completed == 8);
    });
}

/// Announce: `completed` stays with the swarm when the peer leaves, and is retained for a time
/// after the last peer has left.
#[test]
fn completed_outlives_the_peers() {
    both("", |tracker| {
        let (v4, v6) = (tracker.client("127.0.0.1"), tracker.client("::1"));
        v4.announce(&Announce::seeder(hash(1), 5000).event(COMPLETED));
        v6.announce(&Announce::seeder(hash(1), 5000).event(COMPLETED));
        let gone = Counts { seeders: 0, completed: 2, leechers: 0 };
        v4.announce(&Announce::seeder(hash(1), 5000).event(STOPPED));
        assert_eq!(v4.counts(hash(1)), Counts { seeders: 1, ..gone });
        v6.announce(&Announce::seeder(hash(1), 5000).event(STOPPED));
        assert_eq!(v4.counts(hash(1)), gone);
        tracker.until("the swarm is idle", || {
            (tracker.summary().swarms, tracker.summary().idle_swarms) == (0, 1)
        });
        assert_eq!(v6.counts(hash(1)), gone, "unchanged");
        v4.announce(&Announce::leecher(hash(1), 5000));
        assert_eq!(v4.counts(hash(1)), Counts { leechers: 1, ..gone }, "kept with a new peer");
    });
}

/// Announce: `completed` of a swarm without peers ends with the configured retention.
#[test]
fn completed_ends_with_its_retention() {
    both("[announce]\ncompleted_retention = 1", |tracker| {
        let client = tracker.client("127.0.0.1");
        client.announce(&Announce::seeder(hash(1), 5000).event(COMPLETED));
        client.announce(&Announce::seeder(hash(1), 5000).event(STOPPED));
        tracker.until("the swarm is removed", || client.counts(hash(1)) == Counts::default());
    });
}

/// Announce: `stopped` removes the peer; the reply has counts and no peers, whatever `num_want` is.
#[test]
fn a_stopped_peer_is_removed_and_gets_no_peers() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            let info_hash = hash(number);
            for port in 5000..5005 {
                client.announce(&Announce::leecher(info_hash, port));
                client.announce(&Announce::seeder(info_hash, port + 100));
            }
            let stop = |request: Announce| client.announce(&request.event(STOPPED).want(50));
            let left = stop(Announce::leecher(info_hash, 5000));
            assert_eq!((left.counts(), left.len), ((5, 4), 20));
            assert_eq!(stop(Announce::leecher(info_hash, 5000)).counts(), (5, 4), "removed before");
            assert_eq!(stop(Announce::leecher(info_hash, 5100)).counts(), (4, 4), "a seeder stops");
            assert_eq!(stop(Announce::seeder(info_hash, 4999)).counts(), (4, 4), "an unknown peer");
            let list = client.announce(&Announce::leecher(info_hash, 5001)).ports();
            assert_eq!(list, [5002, 5003, 5004, 5101, 5102, 5103, 5104]);
        }
    });
}

/// Announce: `stopped` never creates a swarm.
#[test]
fn a_stop_creates_no_swarm() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        for number in 0..64 {
            for request in
                [Announce::leecher(hash(number), 5000), Announce::seeder(hash(number), 5000)]
            {
                let reply = client.announce(&request.event(STOPPED));
                assert_eq!((reply.counts(), reply.len), ((0, 0), 20));
            }
        }
        assert_swarms_have_peers(tracker, 1000);
    });
}

/// Announce: any sequence of announces agrees with a naive model: counts of both families are exact
/// at every step, and peer lists have the greatest possible length.
#[test]
fn any_sequence_of_announces_agrees_with_a_model() {
    let seed = 0x0117_5EED;
    both("", |tracker| {
        let clients = LOOPBACK.map(|source| tracker.client(source));
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut swarms = vec![Model::default(); 6];
        for step in 0..6_000 {
            let number = rng.random_range(0..swarms.len());
            // Swarms of different sizes: up to 4, 16, ... 4096 different peers.
            let ports = 4u16 << (2 * number).min(10);
            let client = &clients[rng.random_range(0..2)];
            let request = Announce {
                left: rng.random_range(0..2),
                event: rng.random_range(0..7),
                num_want: rng.random_range(-1..60),
                ..Announce::leecher(hash(number as u32), rng.random_range(1..=ports))
            };
            let reply = client.announce(&request);
            let model = &mut swarms[number];
            let listed = model.announce(&request, client.family());
            assert_eq!(reply.counts(), (model.seeders(), model.leechers()), "step {step}");
            assert_eq!(reply.peers.len(), listed, "step {step}: {request:?}");
            for peer in &reply.peers {
                let seeder = model.peers.get(&(client.family(), peer.port()));
                let seeder =
                    seeder.unwrap_or_else(|| panic!("step {step}: {peer} is not in the model"));
                assert!(!(*seeder && request.left == 0), "step {step}: a seeder gets no seeders");
                assert_ne!(peer.port(), request.port, "step {step}: the announcer is listed");
                assert_ne!(peer.port(), 1, "step {step}: port 1 is listed");
            }
            let counts = client.counts(request.info_hash);
            assert_eq!(counts, model.counts(), "step {step}");
        }
    });
}

/// Announces a peer in each of 64 new swarms, waits until every shard has published its totals,
/// and asserts that no swarm is without a peer.
pub(crate) fn assert_swarms_have_peers(tracker: &RunningTracker, first: u32) {
    const SWARMS: u32 = 64;
    let client = tracker.client("127.0.0.1");
    let before = tracker.summary().peers_v4;
    for number in 0..SWARMS {
        client.announce(&Announce::leecher(hash(first + number), 5000));
    }
    // Each shard owns some of these swarms (all but once in 2^63 runs), and publishes its counts of
    // peers and swarms together.
    let expected = before + u64::from(SWARMS);
    tracker.until("all shards have published", || tracker.summary().peers_v4 == expected);
    let summary = tracker.summary();
    assert_eq!((summary.swarms, summary.idle_swarms), (expected, 0), "one swarm per peer");
}

/// A swarm: its peers, and whether each is a seeder.
#[derive(Clone, Default)]
struct Model {
    peers: BTreeMap<(Family, u16), bool>,
    completed: u32,
}

impl Model {
    fn seeders(&self) -> u32 {
        self.peers.values().filter(|seeder| **seeder).count() as u32
    }

    fn leechers(&self) -> u32 {
        self.peers.len() as u32 - self.seeders()
    }

    fn counts(&self) -> Counts {
        let (seeders, leechers) = (self.seeders(), self.leechers());
        Counts { seeders, completed: self.completed, leechers }
    }

    /// Applies an announce and returns the length of the peer list in its reply.
    fn announce(&mut self, request: &Announce, family: Family) -> usize {
        let (own, seeder) = ((family, request.port), request.left == 0);
        if request.event == STOPPED {
            self.peers.remove(&own);
            return 0;
        }
        let before = self.peers.insert(own, seeder);
        self.completed += u32::from(request.event == COMPLETED && seeder && before != Some(true));
        let fits = |(peer, seeds): &(&(Family, u16), &bool)| {
            peer.0 == family && peer.1 != 1 && **peer != own && !(seeder && **seeds)
        };
        let available = self.peers.iter().filter(fits).count();
        available.min(usize::try_from(request.num_want).unwrap_or(50))
    }
}
