//! Announce: what the tracker refuses although the id is good, and who it does not serve at all.

use onrush_proto::Family;

use super::LOOPBACK;
use super::support::client::transaction;
use super::support::network::alone_on_a_network;
use super::support::packets::{Ask, COMPLETED, Counts, STOPPED, connect, hash, scrape};
use super::support::served::{Plan, Served, both};

/// Announce: a hash forbidden by the access list gets an error reply, is counted, not stored.
#[test]
fn an_announce_for_a_forbidden_hash_is_an_error() {
    for (mode, forbidden, permitted) in [("deny", hash(1), hash(2)), ("allow", hash(2), hash(1))] {
        let listed = hash(1).map(|byte| format!("{byte:02x}")).concat();
        let table = format!("[access]\nmode = \"{mode}\"\ninfo_hashes = [\"{listed}\"]");
        both(&table, |tracker| {
            for (source, family) in [("127.0.0.1", Family::V4), ("::1", Family::V6)] {
                let client = tracker.client(source);
                for event in [0, COMPLETED, STOPPED] {
                    let ask = Ask::seeder(forbidden, 5000).event(event);
                    let text = client.announce_refused(&ask);
                    assert_eq!(text, "info hash is not allowed on this tracker");
                }
                assert_eq!(tracker.refused(family)["forbidden"], 3);
                assert!(client.announce(&Ask::seeder(permitted, 5000)).seeders > 0);
                assert_eq!(client.counts(forbidden), Counts::default());
            }
            tracker.until("the others are stored", || tracker.summary().peers_v6 == 1);
            assert_eq!(tracker.summary().swarms, 1);
        });
    }
}

/// Announce: the tracker is full (peer ceiling): peers and counts are given, the announcer is not
/// stored, and it is counted. Who is stored already is served as ever, and makes room when it
/// leaves.
#[test]
fn a_full_tracker_replies_with_peers_and_stores_none() {
    for plan in Plan::both() {
        // Two for each of the two shards.
        let tracker = plan.change(|settings| settings.limits.peers = 4).start();
        let client = tracker.client("127.0.0.1");
        client.announce(&Ask::leecher(hash(1), 5000));
        client.announce(&Ask::seeder(hash(1), 5001));
        for port in 6000..6010 {
            for ask in [Ask::leecher(hash(1), port), Ask::seeder(hash(1), port).event(COMPLETED)] {
                let reply = client.announce(&ask);
                assert_eq!(reply.counts(), (1, 1), "without the announcer");
                let seeder = ask.left == 0;
                assert_eq!(reply.ports(), if seeder { vec![5000] } else { vec![5000, 5001] });
            }
        }
        let v6 = tracker.client("::1");
        assert_eq!(v6.announce(&Ask::leecher(hash(1), 5000)).counts(), (1, 1), "both families");
        let counts = Counts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(client.counts(hash(1)), counts, "nobody completed who is not there");
        tracker.until("they are counted", || tracker.summary().refused_full == 21);

        let stored = client.announce(&Ask::seeder(hash(1), 5000).event(COMPLETED));
        assert_eq!((stored.counts(), stored.ports()), ((2, 0), vec![]), "it is known");
        client.announce(&Ask::seeder(hash(1), 5001).event(STOPPED));
        let room = client.announce(&Ask::leecher(hash(1), 6000));
        assert_eq!((room.counts(), room.ports()), ((1, 1), vec![5000]));
    }
}

/// Announce: without configuration, sources that cannot be peers on the internet are served, so
/// that a laptop or a LAN just works.
#[test]
fn private_sources_are_served_by_default() {
    let addresses = ["10.1.2.3", "192.168.1.1", "169.254.1.1", "fd00::1", "2001:db8::1"];
    alone_on_a_network(&addresses.map(alone), || {
        both("", |tracker| {
            for (port, source) in (5000..).zip(LOOPBACK.into_iter().chain(addresses)) {
                let reply = tracker.client(source).announce(&Ask::leecher(hash(1), port));
                assert_eq!(reply.leechers, u32::from(port) - 5000 + 1, "{source}");
            }
        });
    });
}

/// Announce: sources that cannot be peers on the internet (private, loopback, multicast,
/// reserved) can be refused by configuration: with silence, counted; all others are served.
#[test]
fn private_sources_can_be_refused() {
    let public = ["9.9.9.9", "2a01:4f8::1"];
    let private = ["127.0.0.1", "10.1.2.3", "100.64.0.1", "192.168.1.1", "::1", "fd00::1"];
    let addresses: Vec<String> = public
        .iter()
        .chain(&private)
        .filter(|ip| !LOOPBACK.contains(ip))
        .map(|ip| alone(ip))
        .collect();
    alone_on_a_network(&addresses, || {
        for plan in Plan::both() {
            let plan = plan.listen("\"9.9.9.9:0\", \"[2a01:4f8::1]:0\"");
            // With the ids that it got from a tracker that serves it.
            let lenient = plan.start();
            let state = lenient.state_dir().join("connection.key");
            let key = std::fs::read_to_string(state).unwrap();
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("connection.key"), key).unwrap();
            let strict = plan.tables("[access]\nrefuse_bogons = true").start_in(directory);
            for source in private {
                assert_is_refused(&strict, source, lenient.client(source).id);
            }
            for source in public {
                let reply = strict.client(source).announce(&Ask::leecher(hash(1), 5000));
                assert_eq!(reply.peers, [], "{source} is served, and alone in its family");
            }
            strict.until("both are stored", || {
                let summary = strict.summary();
                (summary.peers_v4, summary.peers_v6) == (1, 1)
            });
        }
    });
}

/// A blocked source gets no reply, over either family; its neighbours are served, also over a
/// socket of the other family.
#[test]
fn blocked_sources_are_met_with_silence() {
    let blocked = ["9.9.9.1", "9.9.8.255", "2a01:4f8::5"];
    let served = ["9.9.9.0", "9.9.7.255", "2a01:4f9::1"];
    let table = "[access]\nblocked = [\"9.9.9.1\", \"9.9.8.0/24\", \"2a01:4f8::/32\"]";
    let own = ["9.9.10.1", "2a01:500::1"];
    let addresses: Vec<_> =
        blocked.iter().chain(&served).chain(&own).map(|source| alone(source)).collect();
    alone_on_a_network(&addresses, || {
        for plan in Plan::both() {
            let plan = plan.listen("\"9.9.10.1:0\", \"[2a01:500::1]:0\"");
            let tracker = plan.tables(table).start();
            for source in blocked {
                assert_is_met_with_silence(&tracker, source, 1, "blocked");
            }
            for source in served {
                let reply = tracker.client(source).announce(&Ask::leecher(hash(1), 5000));
                assert!(reply.interval > 0, "{source} is served");
            }
        }
    });
}

/// Whatever this source sends is met with silence, and counted as a bogon.
fn assert_is_refused(tracker: &Served, source: &str, id: u64) {
    assert_is_met_with_silence(tracker, source, id, "bogon");
}

/// Whatever this source sends is met with silence, and counted for this reason.
fn assert_is_met_with_silence(tracker: &Served, source: &str, id: u64, reason: &'static str) {
    let client = tracker.stranger(source);
    let before = tracker.refused(client.family());
    client.send(&connect(transaction()));
    client.send(&Ask::leecher(hash(1), 5000).bytes(id, transaction()));
    client.send(&scrape(id, transaction(), &[hash(1)]));
    let mut expected = before;
    *expected.entry(reason).or_default() += 3;
    tracker.until("all three are counted", || tracker.refused(client.family()) == expected);
    tracker.until_all_have_turned();
    assert!(client.has_heard_nothing(), "{source}");
}

/// An address alone in its network.
fn alone(ip: &str) -> String {
    format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 })
}
