//! Announce: the exchange, peer identity, options, events, the interval.

use std::collections::BTreeSet;

use crate::harness::client::transaction;
use crate::harness::packets::{
    Announce, COMPLETED, PAUSED, STARTED, STOPPED, hash, leecher, seeder,
};
use crate::harness::tracker::{both, each};

/// Packets: announce request and response byte by byte over IPv4: 0: 1, 4: transaction id,
/// 8: interval, 12: leechers, 16: seeders, 20: peers of 6 bytes (BEP 15, "Announce").
#[test]
fn an_announce_over_ipv4_byte_by_byte() {
    both("[announce]\ninterval = 1800\ninterval_jitter_percent = 0", |tracker| {
        let other = tracker.client("127.7.8.9");
        other.announce(&seeder(hash(1), 0x1AE1));
        let client = tracker.client("127.0.0.1");
        client.announce(&leecher(hash(1), 2000));
        client.announce(&leecher(hash(1), 2001).event(STOPPED));

        let mut request = client.id.to_be_bytes().to_vec(); // 0: connection id
        request.extend([0, 0, 0, 1]); // 8: action
        request.extend([0xCA, 0xFE, 0xBA, 0xBE]); // 12: transaction id
        request.extend(hash(1).0); // 16: info hash
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
        client.announce(&leecher(hash(1), 0x1AE1));
        let request = seeder(hash(1), 7).bytes(client.id, 0x0102_0304);
        let mut expected = vec![0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0x07, 0x08];
        expected.extend([0, 0, 0, 1, 0, 0, 0, 1]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x1A, 0xE1]);
        assert_eq!(client.exchange(&request), expected);
    });
}

/// Announce: an announce has at least 98 bytes; shorter datagrams get no reply and are counted.
#[test]
fn a_datagram_below_98_bytes_is_not_an_announce() {
    each("", |tracker, client| {
        let whole = leecher(hash(1), 7).bytes(client.id, transaction());
        for len in 16..98 {
            tracker.assert_ignored(client, &whole[..len], "short");
        }
        assert_eq!(client.counts(hash(1)), Default::default(), "no peer is stored");
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
    each("", |tracker, client| {
        for (number, tail) in (0..).zip(tails) {
            let first = client.announce(&leecher(hash(number), 5000).tail(tail));
            let second = client.announce(&seeder(hash(number), 5001).tail(tail));
            assert_eq!((first.counts(), second.counts()), ((0, 1), (1, 1)), "{tail:x?}");
            assert_eq!(second.ports(), [5000], "{tail:x?}");
        }
        assert_eq!(tracker.summary().refused_in_all(), 0);
    });
}

/// Announce: event 1 is completed, 2 started, 3 stopped, 4 paused (libtorrent's partial seeds,
/// BEP 21, which are leechers as they lack pieces); every other value is treated as none. Each gets
/// a reply, and each has a counter.
#[test]
fn every_event_is_served() {
    each("", |tracker, client| {
        let events = [0, COMPLETED, STARTED, STOPPED, PAUSED, 5, 6, 255, 1 << 24, u32::MAX];
        for (number, event) in (0..).zip(events) {
            client.announce(&leecher(hash(number), 5001));
            let with_event = client.announce(&leecher(hash(number), 5000).event(event));
            let (leechers, listed) = if event == STOPPED { (1, vec![]) } else { (2, vec![5001]) };
            assert_eq!(with_event.counts(), (0, leechers), "event {event}");
            assert_eq!(with_event.ports(), listed, "event {event}");
        }
        let counted = |event: usize| {
            tracker.incoming(client.family(), |incoming| incoming.events[event].get())
        };
        // Ten of the other announces and six of these values have no event.
        assert_eq!([0, 1, 2, 3, 4].map(counted), [16, 1, 1, 1, 1]);
    });
}

/// Announce: a peer is its source IP and announced port; its source port, peer id and key are
/// irrelevant. So is the `ip` field (BEP 15, "Announce", leaves that open): honouring it would
/// direct other clients' traffic to any host that a request names.
#[test]
fn a_peer_is_its_address_and_the_port_it_announces() {
    each("", |tracker, client| {
        let ip = client.address().ip();
        let peer = leecher(hash(1), 5000);
        client.announce(&peer);
        let others = [
            Announce { peer_id: [7; 20], ..peer.clone() },
            Announce { key: 7, ..peer.clone() },
            Announce { ip: 0x0808_0808, ..peer.clone() },
            Announce { ip: u32::MAX, ..peer.clone() },
        ];
        for same in others {
            let reply = client.announce(&same);
            assert_eq!((reply.counts(), reply.peers), ((0, 1), vec![]), "{same:?}");
        }
        let second = tracker.client(&ip.to_string());
        let same = second.announce(&peer);
        assert_eq!((same.leechers, same.peers), (1, vec![]), "another source port");
        let other = second.announce(&leecher(hash(1), 5001));
        assert_eq!((other.leechers, other.peers), (2, vec![(ip, 5000).into()]));
        let far = tracker.client("127.200.0.1").announce(&peer);
        assert_eq!(far.leechers, 3, "the same port at another address is another peer");
    });
}

/// Announce: port 0 gets the error "port cannot be 0", is counted, and is not stored.
#[test]
fn port_0_is_refused() {
    each("", |tracker, client| {
        for event in [0, COMPLETED, STARTED, STOPPED] {
            let request = seeder(hash(1), 0).event(event);
            let reply = client.exchange(&request.bytes(client.id, 0x0102_0304 + event));
            let head = [0, 0, 0, 3, 1, 2, 3, 4 + u8::try_from(event).unwrap()];
            assert_eq!(reply, [&head[..], b"port cannot be 0"].concat());
        }
        assert_eq!(client.counts(hash(1)), Default::default());
        assert_eq!(tracker.refused(client.family())["port"], 4);
    });
}

/// Announce: port 1 (clients that cannot accept connections) is counted as a peer and in a counter
/// of its own, and never handed out.
#[test]
fn port_1_is_counted_and_never_handed_out() {
    each("", |tracker, client| {
        // One swarm for each form of storage.
        for others in [0, 1, 2, 5, 30, 300] {
            let info_hash = hash(others);
            for port in 0..others {
                client.announce(&leecher(info_hash, 5000 + port as u16).want(0));
            }
            assert_eq!(client.announce(&leecher(info_hash, 1)).counts(), (0, others + 1));
            let hidden = client.announce(&seeder(info_hash, 1));
            assert_eq!(
                (hidden.counts(), hidden.peers.len()),
                ((1, others), others.min(50) as usize)
            );
            for _ in 0..50 {
                let list = client.announce(&leecher(info_hash, 4999).want(200)).ports();
                assert!(!list.contains(&1), "{list:?}");
            }
            assert_eq!(client.counts(info_hash).leechers, others + 1);
        }
        assert_eq!(tracker.summary().unconnectable, 2 * 6);
    });
}

/// Announce: each reply's `interval` has a jitter of a few percent, so that the announces of a
/// swarm do not synchronise. The jitter is as configured: within the bounds, on both sides, spread
/// widely.
#[test]
fn the_jitter_of_the_interval_is_bounded() {
    for (table, mean, bound, least_different) in [
        ("", 1800, 90, 80),
        ("[announce]\ninterval = 1000\ninterval_jitter_percent = 5", 1000, 50, 60),
        ("[announce]\ninterval = 900\ninterval_jitter_percent = 0", 900, 0, 1),
    ] {
        both(table, |tracker| {
            let client = tracker.client("127.0.0.1");
            let interval = |n: u32| client.announce(&leecher(hash(n % 50), 5000)).interval;
            let intervals: BTreeSet<u32> = (0..400).map(interval).collect();
            let (first, last) = (*intervals.first().unwrap(), *intervals.last().unwrap());
            assert!(first >= mean - bound && last <= mean + bound, "{intervals:?}");
            // 400 draws of 181 and of 101 values: each assertion fails in at most one of 10^8 runs.
            assert!(intervals.len() >= least_different, "{intervals:?}");
            let tail = bound * 7 / 10;
            assert!(first <= mean - tail && last >= mean + tail, "{intervals:?}");
        });
    }
}
