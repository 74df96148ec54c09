//! Announce: the length and the selection of peer lists.

use std::collections::BTreeMap;

use super::LOOPBACK;
use super::support::client::Client;
use super::support::packets::{Announce, AnnounceReply, hash};
use super::support::tracker::both;

/// Payload bytes that need no fragmentation: RFC 8200, section 5, less the headers of IPv6 and UDP.
const MAX_REPLY: usize = 1232;

/// Announce: `num_want` 0 gives no peers, a negative one the default (50), any other exactly
/// min(num_want, cap, available), including odd numbers and 1 (BEP 15, "Announce").
#[test]
fn lists_have_exactly_the_requested_length() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            crowd(&client, 1, 30, 45);
            // All 75 peers of this family, or the 67 that fit a reply over IPv6.
            let most = if source == "::1" { 67 } else { 75 };
            let listed =
                |n| client.announce(&Announce::leecher(hash(1), 4999).want(n)).assert_distinct();
            for n in (0..=78).chain([199, 200, 201, 65_535, 65_536, 65_537, i32::MAX]) {
                assert_eq!(listed(n), most.min(n as usize), "num_want {n}");
            }
            for negative in [-1, -2, -50, -65_536, i32::MIN] {
                assert_eq!(listed(negative), 50, "num_want {negative}");
            }
        }
    });
}

/// Announce: small swarms, which are stored in another form, are handed out in full.
#[test]
fn small_swarms_are_handed_out_in_full() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for others in 0..=6u16 {
                let name = 100 * number + u32::from(others);
                crowd(&client, name, 0, others);
                for want in 0..=8 {
                    let reply = client.announce(&Announce::leecher(hash(name), 4999).want(want));
                    let expected = usize::from(others).min(want as usize);
                    assert_eq!(
                        reply.assert_distinct(),
                        expected,
                        "num_want {want}, {others} others"
                    );
                }
            }
        }
    });
}

/// Announce: the cap keeps a reply within 1232 bytes of payload: 200 IPv4 peers, 67 IPv6 peers.
#[test]
fn no_reply_exceeds_the_minimum_mtu() {
    both("", |tracker| {
        for (source, cap, width) in [("127.0.0.1", 200, 6), ("::1", 67, 18)] {
            let client = tracker.client(source);
            crowd(&client, 1, 150, 150);
            for (want, peers) in [(cap - 1, cap - 1), (cap, cap), (cap + 1, cap), (i32::MAX, cap)] {
                let reply = client.announce(&Announce::leecher(hash(1), 4999).want(want));
                assert_eq!(reply.assert_distinct(), peers as usize, "num_want {want}");
                assert_eq!(reply.len, 20 + peers as usize * width);
                assert!(reply.len <= MAX_REPLY);
            }
        }
    });
}

/// Announce: lower caps, and the default, are configurable.
#[test]
fn the_cap_and_the_default_are_configurable() {
    let table = "[announce]\nmax_peers_v4 = 31\nmax_peers_v6 = 7\ndefault_peers = 9";
    both(table, |tracker| {
        for (source, cap, default) in [("127.0.0.1", 31, 9), ("::1", 7, 7)] {
            let client = tracker.client(source);
            crowd(&client, 1, 20, 20);
            let listed =
                |want| client.announce(&Announce::leecher(hash(1), 4999).want(want)).peers.len();
            assert_eq!(
                [listed(-1), listed(5), listed(cap), listed(cap + 1)],
                [default, 5, cap as usize, cap as usize]
            );
        }
    });
}

/// Announce: the announcing peer is not in its own list, as a leecher or a seeder, in swarms of
/// every size; a peer with another port at the same address is.
#[test]
fn no_peer_receives_its_own_address() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for (size, others) in (0..).zip([1, 2, 3, 20, 60, 250]) {
                let name = 10 * number + size;
                crowd(&client, name, 0, others);
                for request in
                    [Announce::leecher(hash(name), 5003), Announce::seeder(hash(name), 4999)]
                {
                    client.announce(&request);
                    for want in [1, 2, 10, 50, 200] {
                        for _ in 0..20 {
                            let list = client.announce(&request.clone().want(want)).ports();
                            assert!(!list.contains(&request.port), "{} in {list:?}", request.port);
                            assert!(!list.is_empty() || others == 1, "{others} others");
                        }
                    }
                }
            }
        }
    });
}

/// Announce: a seeder gets no seeders, a leecher gets both.
#[test]
fn seeders_get_leechers_and_leechers_get_both() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for (size, (seeders, leechers)) in
                (0..).zip([(1, 1), (2, 5), (30, 1), (1, 30), (40, 40), (200, 3), (3, 200)])
            {
                let name = 10 * number + size;
                crowd(&client, name, seeders, leechers);
                for want in [1, 2, 3, 7, 50] {
                    let seeder = client.announce(&Announce::seeder(hash(name), 4999).want(want));
                    let expected = usize::from(leechers).min(want as usize);
                    assert_eq!(seeder.assert_distinct(), expected, "of {leechers} leechers");
                    assert!(seeder.ports().iter().all(|port| *port < SEEDERS), "{seeder:?}");
                    let leecher = client.announce(&Announce::leecher(hash(name), 4999).want(want));
                    let seeds = leecher.ports().iter().filter(|port| **port >= SEEDERS).count();
                    let peers = leecher.peers.len();
                    assert_eq!(peers, usize::from(seeders + leechers).min(want as usize));
                    assert!(want < 2 || (seeds > 0 && seeds < peers), "{want}: {leecher:?}");
                }
            }
        }
    });
}

/// Announce: over many announces all peers of a swarm are handed out, about equally often within
/// seeders and within leechers. With one peer of each kind in a reply the draws are independent, so
/// that the sum of squares follows the chi-square distribution.
#[test]
fn every_peer_is_handed_out_about_equally_often() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            // One size for each form of storage.
            for (size, (seeders, leechers)) in (0..).zip([(3, 4), (12, 20), (20, 150), (150, 20)]) {
                let name = 10 * number + size;
                crowd(&client, name, seeders, leechers);
                let request = Announce::leecher(hash(name), 4999);
                let draws = 20 * seeders.max(leechers);
                let mut handed_out = BTreeMap::new();
                for _ in 0..draws {
                    for port in client.announce(&request.clone().want(2)).ports() {
                        *handed_out.entry(port).or_insert(0u32) += 1;
                    }
                }
                for (first, peers) in [(5000, leechers), (SEEDERS, seeders)] {
                    let each = (first..first + peers)
                        .map(|port| handed_out.get(&port).copied().unwrap_or(0));
                    assert_uniform(&each.collect::<Vec<_>>(), draws.into());
                }
            }
        }
    });
}

/// Announce: long lists, whose peers are not drawn one by one, cover the swarm too: a hundred
/// announces for a third of the swarm hand out every peer.
#[test]
fn long_lists_contain_every_peer() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            crowd(&client, 1, 90, 90);
            let mut handed_out = BTreeMap::new();
            for _ in 0..100 {
                for port in client.announce(&Announce::leecher(hash(1), 4999).want(60)).ports() {
                    *handed_out.entry(port).or_insert(0u32) += 1;
                }
            }
            assert_eq!(handed_out.len(), 180, "all 180 peers");
        }
    });
}

/// The first port of seeders; leechers start at 5000.
const SEEDERS: u16 = 10_000;

/// Fills a swarm with peers at one address.
fn crowd(client: &Client, name: u32, seeders: u16, leechers: u16) {
    for n in 0..leechers {
        client.announce(&Announce::leecher(hash(name), 5000 + n).want(0));
    }
    for n in 0..seeders {
        client.announce(&Announce::seeder(hash(name), SEEDERS + n).want(0));
    }
}

impl AnnounceReply {
    /// Asserts that all peers differ, and returns their number.
    fn assert_distinct(&self) -> usize {
        let mut ports = self.ports();
        ports.dedup();
        assert_eq!(ports.len(), self.peers.len(), "a peer is listed twice: {self:?}");
        ports.len()
    }
}

/// Asserts that `draws` independent draws are uniform: the chi-square statistic, approximated by
/// Wilson and Hilferty (1931), exceeds 6 standard deviations once in 10^9 runs. Asserts the sum of
/// the draws too.
fn assert_uniform(counts: &[u32], draws: u32) {
    assert_eq!(counts.iter().sum::<u32>(), draws, "one peer per reply: {counts:?}");
    let expected = f64::from(draws) / counts.len() as f64;
    let sum: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let deviations = ((sum / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    assert!(deviations < 6.0, "chi-square {sum:.1} of {freedom}: {counts:?}");
}
