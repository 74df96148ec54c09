//! Announce: the length and the selection of peer lists. That every peer is handed out about
//! equally often, and none to itself, is tested in crates/swarm/tests (`fairness`, `model`) and
//! crates/daemon/tests/simulation.

use crate::harness::client::Client;
use crate::harness::packets::{AnnounceReply, hash, leecher, seeder};
use crate::harness::tracker::each;

/// Payload bytes that need no fragmentation: RFC 8200, section 5, less the headers of IPv6 and UDP.
const MAX_REPLY: usize = 1232;
/// The first port of seeders; leechers start at 5000.
const SEEDERS: u16 = 10_000;

/// Announce: `num_want` 0 gives no peers, a negative one the default (50), any other exactly
/// min(num_want, cap, available), including odd numbers and 1 (BEP 15, "Announce"). The cap keeps a
/// reply within 1232 bytes of payload: 200 IPv4 peers, 67 IPv6 peers.
#[test]
fn lists_have_exactly_the_requested_length() {
    each("", |_, client| {
        let (cap, width) = if client.address().is_ipv4() { (200, 6) } else { (67, 18) };
        for (name, others) in [(1, 75), (2, 300)] {
            crowd(client, name, others / 2, others - others / 2);
            let most = usize::from(others).min(cap);
            for want in (0..=78).chain([199, 200, 201, 65_535, 65_536, 65_537, i32::MAX]) {
                let reply = client.announce(&leecher(hash(name), 4999).want(want));
                let case = format!("num_want {want}, {others} others");
                assert_eq!(distinct(&reply), most.min(want as usize), "{case}");
                assert_eq!(reply.len, 20 + reply.peers.len() * width, "{case}");
                assert!(reply.len <= MAX_REPLY, "{case}: {} bytes", reply.len);
            }
            for negative in [-1, -2, -50, -65_536, i32::MIN] {
                let reply = client.announce(&leecher(hash(name), 4999).want(negative));
                assert_eq!(distinct(&reply), 50, "num_want {negative}, {others} others");
            }
        }
    });
}

/// Announce: lower caps, and the default, are configurable.
#[test]
fn the_cap_and_the_default_are_configurable() {
    each("[announce]\nmax_peers_v4 = 31\nmax_peers_v6 = 7\ndefault_peers = 9", |_, client| {
        let (cap, default) = if client.address().is_ipv4() { (31, 9) } else { (7, 7) };
        crowd(client, 1, 20, 20);
        for (want, peers) in [(-1, default), (5, 5), (cap, cap), (cap + 1, cap)] {
            let list = client.announce(&leecher(hash(1), 4999).want(want)).peers;
            assert_eq!(list.len(), peers as usize, "num_want {want}");
        }
    });
}

/// Announce: a seeder gets no seeders, a leecher gets both.
#[test]
fn seeders_get_leechers_and_leechers_get_both() {
    each("", |_, client| {
        let sizes = [(1, 1), (2, 5), (30, 1), (1, 30), (40, 40), (200, 3), (3, 200)];
        for (name, (seeders, leechers)) in (0..).zip(sizes) {
            crowd(client, name, seeders, leechers);
            for want in [1, 2, 3, 7, 50] {
                let to_seeder = client.announce(&seeder(hash(name), 4999).want(want));
                let expected = usize::from(leechers).min(want as usize);
                assert_eq!(distinct(&to_seeder), expected, "of {leechers} leechers");
                assert!(to_seeder.ports().iter().all(|port| *port < SEEDERS), "{to_seeder:?}");
                let to_leecher = client.announce(&leecher(hash(name), 4999).want(want));
                let seeds = to_leecher.ports().iter().filter(|port| **port >= SEEDERS).count();
                let peers = distinct(&to_leecher);
                assert_eq!(peers, usize::from(seeders + leechers).min(want as usize));
                assert!(want < 2 || (seeds > 0 && seeds < peers), "{want}: {to_leecher:?}");
            }
        }
    });
}

/// Fills a swarm with peers at one address.
fn crowd(client: &Client, name: u32, seeders: u16, leechers: u16) {
    for n in 0..leechers {
        client.announce(&leecher(hash(name), 5000 + n).want(0));
    }
    for n in 0..seeders {
        client.announce(&seeder(hash(name), SEEDERS + n).want(0));
    }
}

/// Asserts that all peers of a list differ, and returns their number.
fn distinct(reply: &AnnounceReply) -> usize {
    let mut ports = reply.ports();
    ports.dedup();
    assert_eq!(ports.len(), reply.peers.len(), "a peer is listed twice: {reply:?}");
    ports.len()
}
