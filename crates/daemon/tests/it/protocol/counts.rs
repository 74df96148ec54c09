//! Announce: seeders, leechers, completed, and peers that stop. Any sequence of announces is
//! compared with a model in crates/daemon/tests/simulation and crates/swarm/tests (`model`).

use onrush_proto::ScrapeCounts;

use crate::harness::packets::{
    Announce, COMPLETED, PAUSED, STARTED, STOPPED, hash, leecher, seeder,
};
use crate::harness::tracker::{both, each};

/// Announce: a peer with `left == 0` is a seeder, any other a leecher.
#[test]
fn a_peer_with_nothing_left_is_a_seeder() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        for (number, left, seeders) in [(1, 0, 1), (2, 1, 0), (3, u64::MAX, 0), (4, 1 << 32, 0)] {
            let reply = client.announce(&Announce { left, ..leecher(hash(number), 5000) });
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
        assert_eq!(v4.announce(&leecher(hash(1), 5000)).counts(), (0, 1));
        assert_eq!(v6.announce(&leecher(hash(1), 6000)).counts(), (0, 2));
        assert_eq!(v4.announce(&seeder(hash(1), 5001)).counts(), (1, 2));
        assert_eq!(v6.announce(&seeder(hash(1), 6001)).counts(), (2, 2));
        let (four, six) =
            (v4.announce(&leecher(hash(1), 5002)), v6.announce(&leecher(hash(1), 6002)));
        assert_eq!((four.counts(), six.counts()), ((2, 3), (2, 4)));
        assert_eq!((four.ports(), six.ports()), (vec![5000, 5001], vec![6000, 6001]));
        assert!(four.peers.iter().all(|peer| peer.ip() == v4.address().ip()), "{four:?}");
        assert!(six.peers.iter().all(|peer| peer.ip() == v6.address().ip()), "{six:?}");
        let all = ScrapeCounts { seeders: 2, completed: 0, leechers: 4 };
        assert_eq!((v4.counts(hash(1)), v6.counts(hash(1))), (all, all));
        let peers = || (tracker.summary().peers_v4, tracker.summary().peers_v6);
        tracker.until("both are in the totals", || peers() == (3, 3));
    });
}

/// Announce: a seeder that announces `left > 0` becomes a leecher and is counted once. Repeated
/// announces are one peer.
#[test]
fn a_peer_counts_once_in_any_role() {
    each("", |_, client| {
        let announces = [leecher(hash(1), 5000), seeder(hash(1), 5000)];
        for turn in [0, 0, 1, 1, 0, 1, 0, 0] {
            for event in [0, STARTED] {
                let reply = client.announce(&announces[turn].clone().event(event));
                let seeders = u32::try_from(turn).unwrap();
                assert_eq!(reply.counts(), (seeders, 1 - seeders));
                assert_eq!(reply.peers, [], "no other peer");
            }
        }
    });
}

/// Announce: `completed` counts each peer that becomes a seeder by event completed with `left ==
/// 0`, from a leecher or an unknown peer. Scrape reports this count.
#[test]
fn completed_counts_peers_that_become_seeders_by_the_event() {
    each("", |tracker, client| {
        let leecher = |port| leecher(hash(1), port);
        let seeder = |port| seeder(hash(1), port);
        for (request, completed, why) in [
            (leecher(5000), 0, "a leecher joins"),
            (leecher(5000).event(COMPLETED), 0, "the event with something left"),
            (seeder(5000).event(COMPLETED), 1, "a leecher completes"),
            (seeder(5000).event(COMPLETED), 1, "a seeder completes again"),
            (seeder(5000), 1, "a seeder stays"),
            (seeder(5001).event(STARTED), 1, "a seeder joins"),
            (seeder(5001).event(COMPLETED), 1, "a seeder completes"),
            (seeder(5002).event(COMPLETED), 2, "an unknown peer completes"),
            (leecher(5003), 2, "a leecher joins"),
            (seeder(5003), 2, "a leecher becomes a seeder without the event"),
            (seeder(5003).event(COMPLETED), 2, "the event of a seeder"),
            (leecher(5003).event(PAUSED), 2, "a seeder becomes a leecher"),
            (seeder(5003).event(COMPLETED), 3, "the leecher completes"),
            (seeder(5003).event(STOPPED), 3, "a seeder leaves"),
            (leecher(1), 3, "a leecher with port 1 joins"),
            (seeder(1).event(COMPLETED), 4, "the leecher completes"),
        ] {
            client.announce(&request);
            assert_eq!(client.counts(hash(1)).completed, completed, "{why}");
        }
        tracker.until("the totals agree", || tracker.summary().completed == 4);
    });
}

/// Announce: `completed` of a swarm without peers ends with the configured retention.
#[test]
fn completed_ends_with_its_retention() {
    both("[announce]\ncompleted_retention = 1", |tracker| {
        let client = tracker.client("127.0.0.1");
        client.announce(&seeder(hash(1), 5000).event(COMPLETED));
        client.announce(&seeder(hash(1), 5000).event(STOPPED));
        tracker.until("the swarm is removed", || client.counts(hash(1)) == ScrapeCounts::default());
    });
}

/// Announce: `stopped` removes the peer; the reply has counts and no peers, for any `num_want`.
#[test]
fn a_stopped_peer_is_removed_and_gets_no_peers() {
    each("", |_, client| {
        let info_hash = hash(1);
        for port in 5000..5005 {
            client.announce(&leecher(info_hash, port));
            client.announce(&seeder(info_hash, port + 100));
        }
        let stop = |request: Announce| client.announce(&request.event(STOPPED).want(50));
        let left = stop(leecher(info_hash, 5000));
        assert_eq!((left.counts(), left.len), ((5, 4), 20));
        assert_eq!(stop(leecher(info_hash, 5000)).counts(), (5, 4), "removed before");
        assert_eq!(stop(leecher(info_hash, 5100)).counts(), (4, 4), "a seeder stops");
        assert_eq!(stop(seeder(info_hash, 4999)).counts(), (4, 4), "an unknown peer");
        let list = client.announce(&leecher(info_hash, 5001)).ports();
        assert_eq!(list, [5002, 5003, 5004, 5101, 5102, 5103, 5104]);
    });
}
