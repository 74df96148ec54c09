//! Announce: how many peers are handed out, and which.

use std::collections::BTreeMap;

use super::LOOPBACK;
use super::support::client::Client;
use super::support::packets::{Announced, Ask, hash};
use super::support::served::both;

/// Bytes that pass everywhere in one piece (RFC 8200, section 5, less the heads of IPv6 and UDP).
const MAX_REPLY: usize = 1232;

/// Announce: `num_want` 0 gives none; negative gives the default (50); otherwise exactly
/// min(num_want, cap, available), odd numbers and 1 included (BEP 15, "Announce").
#[test]
fn exactly_as_many_peers_as_asked_for() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            crowd(&client, 1, 30, 45);
            // The 75 of this family, or the 67 that fit a reply over IPv6.
            let most = if source == "::1" { 67 } else { 75 };
            let ask = |n| client.announce(&Ask::leecher(hash(1), 4999).want(n)).assert_distinct();
            for n in (0..=78).chain([199, 200, 201, 65_535, 65_536, 65_537, i32::MAX]) {
                assert_eq!(ask(n), most.min(n as usize), "num_want {n}");
            }
            for negative in [-1, -2, -50, -65_536, i32::MIN] {
                assert_eq!(ask(negative), 50, "num_want {negative}");
            }
        }
    });
}

/// The same in small swarms, which are stored in another form: as many as there are.
#[test]
fn small_swarms_are_handed_out_whole() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for others in 0..=6u16 {
                let name = 100 * number + u32::from(others);
                crowd(&client, name, 0, others);
                for want in 0..=8 {
                    let reply = client.announce(&Ask::leecher(hash(name), 4999).want(want));
                    let expected = usize::from(others).min(want as usize);
                    assert_eq!(reply.assert_distinct(), expected, "{want} of {others}");
                }
            }
        }
    });
}

/// Announce: the cap keeps the datagram within 1232 bytes of payload: 200 IPv4 peers, 67 IPv6
/// peers.
#[test]
fn no_reply_exceeds_the_smallest_mtu() {
    both("", |tracker| {
        for (source, cap, width) in [("127.0.0.1", 200, 6), ("::1", 67, 18)] {
            let client = tracker.client(source);
            crowd(&client, 1, 150, 150);
            for (want, peers) in [(cap - 1, cap - 1), (cap, cap), (cap + 1, cap), (i32::MAX, cap)] {
                let reply = client.announce(&Ask::leecher(hash(1), 4999).want(want));
                assert_eq!(reply.assert_distinct(), peers as usize, "num_want {want}");
                assert_eq!(reply.len, 20 + peers as usize * width);
                assert!(reply.len <= MAX_REPLY);
            }
        }
    });
}

/// Announce: the cap is configurable below that, and so is the default.
#[test]
fn the_cap_and_the_default_are_configurable() {
    let table = "[announce]\nmax_peers_v4 = 31\nmax_peers_v6 = 7\ndefault_peers = 9";
    both(table, |tracker| {
        for (source, cap, default) in [("127.0.0.1", 31, 9), ("::1", 7, 7)] {
            let client = tracker.client(source);
            crowd(&client, 1, 20, 20);
            let ask = |want| client.announce(&Ask::leecher(hash(1), 4999).want(want)).peers.len();
            assert_eq!(
                [ask(-1), ask(5), ask(cap), ask(cap + 1)],
                [default, 5, cap as usize, cap as usize]
            );
        }
    });
}

/// Announce: the announcing peer is not in its own list, leecher or seeder, in swarms of every
/// size; another port at its address is.
#[test]
fn no_peer_receives_its_own_address() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for (size, others) in (0..).zip([1, 2, 3, 20, 60, 250]) {
                let name = 10 * number + size;
                crowd(&client, name, 0, others);
                for ask in [Ask::leecher(hash(name), 5003), Ask::seeder(hash(name), 4999)] {
                    client.announce(&ask);
                    for want in [1, 2, 10, 50, 200] {
                        for _ in 0..20 {
                            let list = client.announce(&ask.clone().want(want)).ports();
                            assert!(!list.contains(&ask.port), "{} in {list:?}", ask.port);
                            assert!(!list.is_empty() || others == 1, "{others} others");
                        }
                    }
                }
            }
        }
    });
}

/// Announce: a seeder gets no seeders. A leecher gets a mixture of both.
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
                    let seeder = client.announce(&Ask::seeder(hash(name), 4999).want(want));
                    let expected = usize::from(leechers).min(want as usize);
                    assert_eq!(seeder.assert_distinct(), expected, "of {leechers} leechers");
                    assert!(seeder.ports().iter().all(|port| *port < SEEDERS), "{seeder:?}");
                    let leecher = client.announce(&Ask::leecher(hash(name), 4999).want(want));
                    let seeds = leecher.ports().iter().filter(|port| **port >= SEEDERS).count();
                    let peers = leecher.peers.len();
                    assert_eq!(peers, usize::from(seeders + leechers).min(want as usize));
                    assert!(want < 2 || (seeds > 0 && seeds < peers), "{want}: {leecher:?}");
                }
            }
        }
    });
}

/// Announce: over many announces every peer of a swarm gets handed out, about equally often
/// within seeders and within leechers. With one of each kind in a reply every draw is on its own,
/// so that the sum of squares follows the chi-square law.
#[test]
fn every_peer_is_handed_out_about_equally_often() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            // A form of storage for each size.
            for (size, (seeders, leechers)) in (0..).zip([(3, 4), (12, 20), (20, 150), (150, 20)]) {
                let name = 10 * number + size;
                crowd(&client, name, seeders, leechers);
                let ask = Ask::leecher(hash(name), 4999);
                let draws = 20 * seeders.max(leechers);
                let mut handed_out = BTreeMap::new();
                for _ in 0..draws {
                    for port in client.announce(&ask.clone().want(2)).ports() {
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

/// The same for long lists, whose peers are not drawn one by one: in a hundred announces of a
/// third of the swarm everybody appears.
#[test]
fn long_lists_contain_every_peer() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            crowd(&client, 1, 90, 90);
            let mut handed_out = BTreeMap::new();
            for _ in 0..100 {
                for port in client.announce(&Ask::leecher(hash(1), 4999).want(60)).ports() {
                    *handed_out.entry(port).or_insert(0u32) += 1;
                }
            }
            assert_eq!(handed_out.len(), 180, "all 180 peers");
        }
    });
}

/// Ports of seeders begin here, those of leechers at 5000.
const SEEDERS: u16 = 10_000;

/// Fills a swarm from one address.
fn crowd(client: &Client, name: u32, seeders: u16, leechers: u16) {
    for n in 0..leechers {
        client.announce(&Ask::leecher(hash(name), 5000 + n).want(0));
    }
    for n in 0..seeders {
        client.announce(&Ask::seeder(hash(name), SEEDERS + n).want(0));
    }
}

impl Announced {
    /// How many peers it has, of which no two are the same.
    fn assert_distinct(&self) -> usize {
        let mut ports = self.ports();
        ports.dedup();
        assert_eq!(ports.len(), self.peers.len(), "a peer stands twice: {self:?}");
        ports.len()
    }
}

/// Demands that `draws` independent draws look uniform: by the chi-square law, in the
/// approximation of Wilson and Hilferty (1931), 6 standard deviations are passed once in 10^9
/// runs. Also that the draws add up.
fn assert_uniform(counts: &[u32], draws: u32) {
    assert_eq!(counts.iter().sum::<u32>(), draws, "one in each reply: {counts:?}");
    let expected = f64::from(draws) / counts.len() as f64;
    let sum: f64 = counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let deviations = ((sum / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    assert!(deviations < 6.0, "chi-square {sum:.1} of {freedom}: {counts:?}");
}
