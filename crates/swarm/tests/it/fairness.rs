//! Over many announces every peer is given out about equally often within its kind, in each form of
//! a swarm.
//!
//! One peer per reply makes draws independent, so Pearson's statistic has a chi-square
//! distribution: its mean is the degrees of freedom, its variance twice that. Replies of several
//! peers are runs of neighbours, whose counts correlate: that multiplies the variance by the length
//! of a run at most. Seeds are fixed, so a test passes always or never.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{Endpoint, Event, Family, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};

const SWARM: InfoHash = InfoHash([7; 20]);
/// The deviation from the mean that is accepted as chance, in standard deviations.
const DEVIATIONS: f64 = 5.0;

/// How often each peer, in wire form, was given out.
type Counts = BTreeMap<Vec<u8>, f64>;

/// Every 50th peer has port 1. Few peers are of the same network.
fn endpoint(family: Family, number: u32) -> Endpoint {
    let [a, b, c, d] = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
    let port = if number % 50 == 49 { [0, 1] } else { [0x1A, 0xE1] };
    match family {
        Family::V4 => Endpoint::V4([a, b, c, d, port[0], port[1]]),
        Family::V6 => {
            let mut row = [0x20; 18];
            row[2..6].copy_from_slice(&[a, b, c, d]);
            row[16..].copy_from_slice(&port);
            Endpoint::V6(row)
        }
    }
}

struct Crowd {
    shard: Shard,
    family: Family,
    seeders: u32,
    leechers: u32,
}

impl Crowd {
    fn new(family: Family, seeders: u32, leechers: u32) -> Self {
        let mut crowd = Self {
            shard: Shard::new(ShardSettings::default(), [9; 16], 11),
            family,
            seeders,
            leechers,
        };
        for number in 0..seeders + leechers {
            crowd.announce(number, Event::None, 0);
        }
        crowd
    }

    /// Serves an announce; the peers of the reply, in wire form.
    fn announce(&mut self, number: u32, event: Event, want: u16) -> Vec<Vec<u8>> {
        let mut batch = ShardBatch::<(), ()>::new(1, 0, HEAD_LEN + 200 * 18);
        let announce = Announce {
            info_hash: SWARM,
            endpoint: endpoint(self.family, number),
            event,
            seeder: number < self.seeders,
            want,
            transaction_id: TransactionId(number),
        };
        batch.push_announce(announce, ()).unwrap();
        self.shard.serve(&mut batch, Moment(1));
        let (reply, ()) = batch.replies().next().unwrap();
        reply[HEAD_LEN..].chunks(self.family.peer_len()).map(<[u8]>::to_vec).collect()
    }

    /// How often each peer is given out in replies to these announcers.
    fn given_out(&mut self, announcers: impl Iterator<Item = u32>, want: u16) -> Counts {
        let mut counts = Counts::default();
        for number in announcers {
            for row in self.announce(number, Event::None, want) {
                *counts.entry(row).or_default() += 1.0;
            }
        }
        counts
    }

    /// Serves announces until each peer should have been given out `times` times, and compares.
    /// `asking` is the number of the next announcer.
    fn check(&mut self, want: u16, times: u32, asking: impl Fn(u32) -> u32, seeders_too: bool) {
        let reachable = |range: std::ops::Range<u32>| range.filter(|n| n % 50 != 49).count() as u32;
        let (seeders, all) = (reachable(0..self.seeders), self.seeders + self.leechers);
        let leechers = reachable(self.seeders..all);
        let announces = (seeders.max(leechers) * times).div_ceil(u32::from(want)) * 2;
        let counts = self.given_out((0..announces).map(asking), want);
        let (low, high) = if seeders_too { (0, self.seeders) } else { (0, 0) };
        self.compare(low..high, want, &counts);
        self.compare(self.seeders..all, want, &counts);
        let expected = leechers as usize + if seeders_too { seeders as usize } else { 0 };
        assert_eq!(counts.len(), expected, "all eligible peers and no others");
    }

    fn compare(&self, numbers: impl Iterator<Item = u32>, want: u16, counts: &Counts) {
        let reachable: Vec<f64> = numbers
            .filter(|number| number % 50 != 49)
            .map(|number| {
                let row = endpoint(self.family, number);
                counts.get(row.as_bytes()).copied().unwrap_or_default()
            })
            .collect();
        if reachable.len() < 2 {
            return;
        }
        let mean = reachable.iter().sum::<f64>() / reachable.len() as f64;
        assert!(mean >= 20.0, "too few draws: {mean} each");
        let statistic: f64 = reachable.iter().map(|count| (count - mean).powi(2) / mean).sum();
        let freedom = reachable.len() as f64 - 1.0;
        let bound = freedom + DEVIATIONS * (2.0 * freedom * f64::from(want)).sqrt();
        assert!(statistic < bound, "{statistic} of {bound} with {freedom} degrees of freedom");
    }
}

/// Sizes within the entry and in a block, in chunks that were just split, and half-way.
const SIZES: [(u32, u32); 8] =
    [(1, 2), (3, 5), (2, 48), (60, 60), (60, 100), (3, 400), (400, 3), (1_000, 700)];

#[test]
fn one_peer_per_reply() {
    for family in [Family::V4, Family::V6] {
        for (seeders, leechers) in SIZES {
            let mut crowd = Crowd::new(family, seeders, leechers);
            // A leecher with port 1, which is never given out anyway.
            let hidden = (seeders + leechers) / 50 * 50 + 50 + 49;
            crowd.check(1, 60, |_| hidden, true);
        }
    }
}

#[test]
fn many_peers_per_reply_to_each_peer_in_turn() {
    for (seeders, leechers) in [(60, 60), (300, 500), (1_000, 700)] {
        let mut crowd = Crowd::new(Family::V4, seeders, leechers);
        crowd.check(30, 100, |number| seeders + number % leechers, true);
    }
}

#[test]
fn seeders_get_leechers_only() {
    for (seeders, leechers) in [(2, 48), (60, 100), (400, 3), (1_000, 700)] {
        let mut crowd = Crowd::new(Family::V6, seeders, leechers);
        crowd.check(1, 60, |number| number % seeders, false);
    }
}

/// The announcer is left out of the draw without increasing its neighbour's probability.
#[test]
fn one_peer_at_a_time_to_the_same_peer() {
    for (seeders, leechers) in [(1, 6), (0, 40), (30, 90), (3, 400)] {
        let mut crowd = Crowd::new(Family::V4, seeders, leechers);
        for own in [seeders, seeders + leechers / 2, seeders + leechers - 1] {
            let counts = crowd.given_out(repeat_n(own, leechers as usize * 300), 1);
            crowd.compare((seeders..own).chain(own + 1..seeders + leechers), 1, &counts);
        }
    }
}

#[test]
fn after_most_peers_have_stopped() {
    let mut crowd = Crowd::new(Family::V4, 2_000, 3_000);
    for number in (300..2_000).chain(2_400..5_000) {
        crowd.announce(number, Event::Stopped, 0);
    }
    crowd.shard.check();
    let counts = crowd.given_out(repeat_n(4_949, 60_000), 1);
    crowd.compare(0..300, 1, &counts);
    crowd.compare(2_000..2_400, 1, &counts);
}
