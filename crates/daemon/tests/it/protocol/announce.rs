//! Announce: the exchange, peer identity, options, events, the interval.

use std::collections::BTreeSet;

use onrush_proto::Family;

use super::LOOPBACK;
use super::support::client::transaction;
use super::support::packets::{Announce, COMPLETED, PAUSED, STARTED, STOPPED, hash};
use super::support::tracker::both;

/// Packets: announce request and response byte by byte over IPv4: 0: 1, 4: transaction id,
/// 8: interval, 12: leechers, 16: seeders, 20: peers of 6 bytes (BEP 15, "Announce").
#[test]
fn an_announce_over_ipv4_byte_by_byte() {
    both("[announce]\ninterval = 1800\ninterval_jitter_percent = 0", |tracker| {
        let other = tracker.client("127.7.8.9");
        other.announce(&Announce::seeder(hash(1), 0x1AE1));
        let client = tracker.client("127.0.0.1");
        client.announce(&Announce::leecher(hash(1), 2000));
        client.announce(&Announce::leecher(hash(1), 2001).event(STOPPED));

        let mut request = client.id.to_be_bytes().to_vec(); // 0: connection id
        request.extend([0, 0, 0, 1]); // 8: action
        request.extend([0xCA, 0xFE, 0xBA, 0xBE]); // 12: transaction id
        request.extend(hash(1)); // 16: info hash
        request.extend(*b"-qB4500-abcdefghijkl"); // 36: peer id
        request.extend([0xFF; 8]); // 56: downloaded
        request.extend([0, 0, 0, 0, 0, 0, 0, 1]); // 64: left
        request.extend([0xFF; 8]); // 72: uploaded
        request.extend([0, 0, 0, 2]); // 80: event
        request.extend([0; 4]); // 84: ip
        request.extend([1, 2, 3, 4]); // 88: key
        request.extend([0xFF; 4]); // 92: num_want
        request.extend([0x07, 0xD0]); // 96: port
        assert_eq!(request.len(), 98);
        assert_eq!(
            client.exchange(&request),
            [
                0, 0, 0, 1, 0xCA, 0xFE, 0xBA, 0xBE, 0, 0, 0x07, 0x08, // interval 1800
                0, 0, 0, 1, // leechers
                0, 0, 0, 1, // seeders
                127, 7, 8, 9, 0x1A, 0xE1,
            ]
        );
    });
}

/// Packets: peers of 18 bytes each over IPv6 (BEP 7; BEP 15, "IPv6").
#[test]
fn an_announce_over_ipv6_byte_by_byte() {
    both("[announce]\ninterval = 1800\ninterval_jitter_percent = 0", |tracker| {
        let client = tracker.client("::1");
        client.announce(&Announce::leecher(hash(1), 0x1AE1));
        let request = Announce::seeder(hash(1), 7).bytes(client.id, 0x0102_0304);
        let mut expected = vec![0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0x07, 0x08];
        expected.extend([0, 0, 0, 1, 0, 0, 0, 1]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x1A, 0xE1]);
        assert_eq!(client.exchange(&request), expected);
    });
}

/// Announce: an announce has at least 98 bytes; shorter datagrams get no reply and are counted.
#[test]
fn a_datagram_below_98_bytes_is_not_an_announce() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let whole = Announce::leecher(hash(1), 7).bytes(client.id, transaction());
            for len in 16..98 {
                client.assert_ignored(tracker, &whole[..len], "short");
            }
            assert_eq!(client.scrape(&[hash(1)])[0], Default::default(), "no peer is stored");
        }
    });
}

/// Announce: more than 98 bytes are normal: libtorrent's URL path (109), aria2's two bytes (100).
/// Options: 0 ends the list, 1 is a no-op, unknown types are skipped, a malformed list is ignored
/// (BEP 41).
#[test]
fn options_never_cause_a_refusal() {
    let long = [&[2, 255][..], &[b'x'; 255], &[2, 255], &[b'y'; 255], &[1, 0]].concat();
    let tails: &[&[u8]] = &[
        &[0, 0],               // aria2
        b"\x02\x09/announce",  // libtorrent
        b"\x02\x00",           // an empty path
        &[0],                  // end of options
        &[1, 1, 1, 1],         // no-ops
        &[1, 1, 0, 2, 255],    // bytes after the end
        &[77, 3, 1, 2, 3, 0],  // an unknown type
        &[255, 255],           // malformed: no data
        &[2],                  // malformed: no length
        &[2, 200, b'/', b'a'], // malformed: shorter than its length
        &[77, 1],              // malformed, of an unknown type
        &[1; 500],             // many options
        &long,                 // several URL data options
        &[0xFF; 1_400],        // the length of a frame
        &[0xFF; 4_000],        // longer than a frame
    ];
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for (number, tail) in tails.iter().enumerate() {
                let info_hash = hash(u32::try_from(number).unwrap());
                let first = client.announce(&Announce::leecher(info_hash, 5000).tail(tail));
                let second = client.announce(&Announce::seeder(info_hash, 5001).tail(tail));
                let own = first.counts();
                assert_eq!((second.seeders, second.leechers), (own.0 + 1, own.1), "{tail:x?}");
                assert_eq!(second.ports(), [5000], "{tail:x?}");
            }
        }
        assert_eq!(tracker.summary().refused_in_all(), 0);
    });
}

/// Announce: event 1 is completed, 2 started, 3 stopped, 4 paused (libtorrent's partial seeds,
/// BEP 21); every other value is treated as none. Each gets a reply, and each has a counter.
#[test]
fn every_event_is_served() {
    both("", |tracker| {
        let events = [0, COMPLETED, STARTED, STOPPED, PAUSED, 5, 6, 255, 1 << 24, u32::MAX];
        for (source, family) in [("127.0.0.1", Family::V4), ("::1", Family::V6)] {
            let client = tracker.client(source);
            for (number, event) in events.into_iter().enumerate() {
                let info_hash = hash(u32::try_from(number).unwrap());
                let request = Announce::leecher(info_hash, 5000).event(event);
                let other = Announce::leecher(info_hash, 5001);
                let before = client.announce(&other).counts();
                let with_event = client.announce(&request);
                let joins = u32::from(event != STOPPED);
                assert_eq!(with_event.counts(), (0, before.1 + joins), "event {event}");
                let listed = if event == STOPPED { vec![] } else { vec![5001] };
                assert_eq!(with_event.ports(), listed, "event {event}");
            }
            let counted =
                |event: usize| tracker.incoming(family, |incoming| incoming.events[event].get());
            // Ten of the other announces and six of these values have no event.
            assert_eq!([0, 1, 2, 3, 4].map(counted), [16, 1, 1, 1, 1]);
        }
    });
}

/// Announce: a partial seed (event 4, BEP 21) is handed out as a leecher, as it lacks pieces.
#[test]
fn a_partial_seed_is_a_leecher() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        let partial = client.announce(&Announce::leecher(hash(1), 5000).event(PAUSED));
        assert_eq!(partial.counts(), (0, 1));
        assert_eq!(client.announce(&Announce::seeder(hash(1), 5001)).ports(), [5000]);
        tracker.until("the event is counted", || tracker.summary().events[PAUSED as usize] == 1);
    });
}

/// Announce: a peer is its source IP and announced port; the source port is irrelevant.
#[test]
fn a_peer_is_its_address_and_the_port_it_announces() {
    both("", |tracker| {
        for source in LOOPBACK {
            let (first, second) = (tracker.client(source), tracker.client(source));
            first.announce(&Announce::leecher(hash(1), 5000));
            let same = second.announce(&Announce::leecher(hash(1), 5000));
            assert_eq!((same.leechers, same.peers), (same.leechers, vec![]), "{source}");
            let other = second.announce(&Announce::leecher(hash(1), 5001));
            let ip = first.address().ip();
            assert_eq!(other.leechers, same.leechers + 1);
            assert_eq!(other.peers, [(ip, 5000).into()]);
        }
        let far = tracker.client("127.200.0.1").announce(&Announce::leecher(hash(1), 5000));
        assert_eq!(far.leechers, 5, "the same port at another address is another peer");
    });
}

/// Announce: the `ip` field is ignored (BEP 15, "Announce", leaves that open): honouring it would
/// direct other clients' traffic to any host that a request names.
#[test]
fn the_ip_field_is_ignored() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let named = Announce { ip: 0x0808_0808, ..Announce::leecher(hash(1), 5000) };
            client.announce(&named);
            client.announce(&Announce { ip: u32::MAX, ..named });
            let list = client.announce(&Announce::leecher(hash(1), 5001)).peers;
            assert_eq!(list, [(client.address().ip(), 5000).into()]);
        }
    });
}

/// Announce: neither another peer id nor another key makes a second peer.
#[test]
fn a_peer_id_does_not_identify_a_peer() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        for n in 0..20 {
            let request =
                Announce { peer_id: [n; 20], key: n.into(), ..Announce::leecher(hash(1), 5000) };
            let reply = client.announce(&request);
            assert_eq!((reply.counts(), reply.peers), ((0, 1), vec![]));
        }
    });
}

/// Announce: port 0 gets the error "port cannot be 0", is counted, and is not stored.
#[test]
fn port_0_is_refused() {
    both("", |tracker| {
        for (source, family) in [("127.0.0.1", Family::V4), ("::1", Family::V6)] {
            let client = tracker.client(source);
            for event in [0, COMPLETED, STARTED, STOPPED] {
                let request = Announce::seeder(hash(1), 0).event(event);
                let reply = client.exchange(&request.bytes(client.id, 0x0102_0304 + event));
                let head = [0, 0, 0, 3, 1, 2, 3, 4 + u8::try_from(event).unwrap()];
                assert_eq!(reply, [&head[..], b"port cannot be 0"].concat());
            }
            assert_eq!(client.counts(hash(1)), Default::default());
            assert_eq!(tracker.refused(family)["port"], 4);
        }
    });
}

/// Announce: port 1 (clients that cannot accept connections) is counted as a peer and in a counter
/// of its own, and never handed out.
#[test]
fn port_1_is_counted_and_never_handed_out() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            // One swarm for each form of storage.
            for (swarm, others) in (0..).zip([0, 1, 2, 5, 30, 300]) {
                let info_hash = hash(10 * number + swarm);
                let client = tracker.client(source);
                for port in 0..others {
                    client.announce(&Announce::leecher(info_hash, 5000 + port).want(0));
                }
                let others = u32::from(others);
                let hidden = client.announce(&Announce::leecher(info_hash, 1));
                assert_eq!(hidden.counts(), (0, others + 1));
                let hidden = client.announce(&Announce::seeder(info_hash, 1));
                assert_eq!(hidden.counts(), (1, others));
                assert_eq!(
                    hidden.peers.len(),
                    others.min(50) as usize,
                    "a peer with port 1 gets a full list"
                );
                for _ in 0..50 {
                    let list =
                        client.announce(&Announce::leecher(info_hash, 4999).want(200)).ports();
                    assert!(!list.contains(&1), "{list:?}");
                }
                assert_eq!(client.counts(info_hash).leechers, others + 1);
            }
        }
        assert_eq!(tracker.summary().unconnectable, 2 * 2 * 6);
    });
}

/// Announce: each reply's `interval` has a jitter of a few percent, so that the announces of a
/// swarm do not synchronise. The jitter is as configured: within the bounds, on both sides, spread
/// widely.
#[test]
fn the_jitter_of_the_interval_is_bounded() {
    both("[announce]\ninterval = 1000\ninterval_jitter_percent = 5", |tracker| {
        let client = tracker.client("127.0.0.1");
        let intervals: Vec<u32> = (0..400)
            .map(|n| client.announce(&Announce::leecher(hash(n % 50), 5000)).interval)
            .collect();
        assert!(intervals.iter().all(|n| (950..=1050).contains(n)), "{intervals:?}");
        // 400 draws of 101 values: each assertion fails in at most one of 10^8 runs.
        let different: BTreeSet<_> = intervals.iter().collect();
        assert!(different.len() > 60, "{different:?}");
        assert!(**different.first().unwrap() < 965 && **different.last().unwrap() > 1035);
    });
    both("[announce]\ninterval = 900\ninterval_jitter_percent = 0", |tracker| {
        let client = tracker.client("::1");
        assert!(
            (0..50).all(|n| client.announce(&Announce::leecher(hash(n), 5000)).interval == 900)
        );
    });
}

/// Announce: without configuration the jitter is a few percent.
#[test]
fn the_interval_has_jitter_by_default() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        let intervals: BTreeSet<u32> =
            (0..100).map(|_| client.announce(&Announce::leecher(hash(1), 5000)).interval).collect();
        assert!(intervals.len() > 20, "{intervals:?}");
        assert!(intervals.iter().all(|n| (1710..=1890).contains(n)), "{intervals:?}");
    });
}
