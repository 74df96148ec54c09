//! Announce: refusals of requests with a valid connection id, and refused sources.

use onrush_proto::{Family, ScrapeCounts};

use crate::harness::client::transaction;
use crate::harness::network::in_own_network;
use crate::harness::packets::{COMPLETED, STOPPED, connect, hash, leecher, scrape, seeder};
use crate::harness::tracker::{LOOPBACK, RunningTracker, TrackerConfig, both};

/// Announce: a hash that the access list forbids gets an error reply, is counted and not stored.
#[test]
fn an_announce_for_a_forbidden_hash_is_an_error() {
    for (mode, forbidden, permitted) in [("deny", hash(1), hash(2)), ("allow", hash(2), hash(1))] {
        let table = format!("[access]\nmode = \"{mode}\"\ninfo_hashes = [\"{}\"]", hash(1));
        both(&table, |tracker| {
            for (source, family) in [("127.0.0.1", Family::V4), ("::1", Family::V6)] {
                let client = tracker.client(source);
                for event in [0, COMPLETED, STOPPED] {
                    let request = seeder(forbidden, 5000).event(event);
                    let text = client.announce_refused(&request);
                    assert_eq!(text, "info hash is not allowed on this tracker");
                }
                assert_eq!(tracker.refused(family)["forbidden"], 3);
                assert!(client.announce(&seeder(permitted, 5000)).seeders > 0);
                assert_eq!(client.counts(forbidden), ScrapeCounts::default());
            }
            tracker.until("permitted peers are stored", || tracker.summary().peers_v6 == 1);
            assert_eq!(tracker.summary().swarms, 1);
        });
    }
}

/// Announce: a full tracker (peer ceiling) replies with peers and counts; the announcer is counted
/// as refused and not stored. Stored peers are served as before, and free their place when they
/// leave.
#[test]
fn a_full_tracker_replies_with_peers_and_stores_none() {
    for config in TrackerConfig::both() {
        // Two peers in each of the two shards.
        let tracker = config.change(|settings| {
            settings.limits.peers = 4;
            // Otherwise the peer of the other swarm could be replaced.
            settings.limits.source_peers = Some(0);
        });
        let tracker = tracker.start();
        let client = tracker.client("127.0.0.1");
        client.announce(&leecher(hash(1), 5000));
        client.announce(&seeder(hash(1), 5001));
        for port in 6000..6010 {
            for request in [leecher(hash(1), port), seeder(hash(1), port).event(COMPLETED)] {
                let reply = client.announce(&request);
                assert_eq!(reply.counts(), (1, 1), "the announcer is not counted");
                let seeder = request.left == 0;
                assert_eq!(reply.ports(), if seeder { vec![5000] } else { vec![5000, 5001] });
            }
        }
        let v6 = tracker.client("::1");
        assert_eq!(v6.announce(&leecher(hash(1), 5000)).counts(), (1, 1), "both families");
        let counts = ScrapeCounts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(client.counts(hash(1)), counts, "refused peers do not count as completed");
        tracker.until("all refusals are counted", || tracker.summary().refused_full == 21);

        let stored = client.announce(&seeder(hash(1), 5000).event(COMPLETED));
        assert_eq!((stored.counts(), stored.ports()), ((2, 0), vec![]), "a stored peer is served");
        client.announce(&seeder(hash(1), 5001).event(STOPPED));
        let admitted = client.announce(&leecher(hash(1), 6000));
        assert_eq!((admitted.counts(), admitted.ports()), ((1, 1), vec![5000]));
    }
}

/// Announce: without configuration, sources that cannot be peers on the internet are served, so
/// that a tracker on a laptop or a LAN works.
#[test]
fn private_sources_are_served_by_default() {
    let addresses = ["10.1.2.3", "192.168.1.1", "169.254.1.1", "fd00::1", "2001:db8::1"];
    in_own_network(&addresses, || {
        both("", |tracker| {
            for (port, source) in (5000..).zip(LOOPBACK.into_iter().chain(addresses)) {
                let reply = tracker.client(source).announce(&leecher(hash(1), port));
                assert_eq!(reply.leechers, u32::from(port) - 5000 + 1, "{source}");
            }
        });
    });
}

/// Announce: sources that cannot be peers on the internet (private, loopback, multicast, reserved)
/// can be refused by configuration, without a reply and counted; all others are served.
#[test]
fn private_sources_can_be_refused() {
    let public = ["9.9.9.9", "2a01:4f8::1"];
    let private = ["10.1.2.3", "100.64.0.1", "192.168.1.1", "fd00::1"];
    in_own_network(&[&public[..], &private].concat(), || {
        for config in TrackerConfig::both() {
            let config = config.listen("\"9.9.9.9:0\", \"[2a01:4f8::1]:0\"");
            // With an id from a tracker that serves this source.
            let lenient = config.start();
            let key = lenient.state_dir().join("connection.key");
            let table = format!("[access]\nrefuse_bogons = true\n[connection]\nkey_file = {key:?}");
            let strict = config.tables(&table).start();
            for source in private.into_iter().chain(LOOPBACK) {
                assert_unanswered(&strict, source, lenient.client(source).id, "bogon");
            }
            for source in public {
                let reply = strict.client(source).announce(&leecher(hash(1), 5000));
                assert_eq!(reply.peers, [], "{source} is served, the only peer of its family");
            }
            strict.until("both are stored", || {
                let summary = strict.summary();
                (summary.peers_v4, summary.peers_v6) == (1, 1)
            });
        }
    });
}

/// A blocked source gets no reply over either family; neighbouring addresses are served, also over
/// a socket of the other family.
#[test]
fn blocked_sources_get_no_reply() {
    let blocked = ["9.9.9.1", "9.9.8.255", "2a01:4f8::5"];
    let served = ["9.9.9.0", "9.9.7.255", "2a01:4f9::1"];
    let table = "[access]\nblocked = [\"9.9.9.1\", \"9.9.8.0/24\", \"2a01:4f8::/32\"]";
    let own = ["9.9.10.1", "2a01:500::1"];
    in_own_network(&[&blocked[..], &served, &own].concat(), || {
        for config in TrackerConfig::both() {
            let config = config.listen("\"9.9.10.1:0\", \"[2a01:500::1]:0\"");
            let tracker = config.tables(table).start();
            for source in blocked {
                assert_unanswered(&tracker, source, 1, "blocked");
            }
            for source in served {
                let reply = tracker.client(source).announce(&leecher(hash(1), 5000));
                assert!(reply.interval > 0, "{source} is served");
            }
        }
    });
}

/// Asserts that every request of this source gets no reply and is counted for this reason.
fn assert_unanswered(tracker: &RunningTracker, source: &str, id: u64, reason: &'static str) {
    let client = tracker.unconnected_client(source);
    let before = tracker.refused(client.family());
    client.send(&connect(transaction()));
    client.send(&leecher(hash(1), 5000).bytes(id, transaction()));
    client.send(&scrape(id, transaction(), &[hash(1)]));
    let mut expected = before;
    *expected.entry(reason).or_default() += 3;
    tracker
        .until("all three requests are counted", || tracker.refused(client.family()) == expected);
    tracker.until_all_have_turned();
    assert!(!client.has_datagram(), "{source}");
}
