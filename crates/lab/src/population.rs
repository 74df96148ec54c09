//! Populations to measure with: who is in which swarm, from a seed, and a shard filled with them.

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Announces per batch, as a worker under load has them.
pub const BATCH: usize = 64;
/// Peers asked for per announce.
pub const WANT: u16 = 50;
/// The lifetime of peers, seconds.
pub const LIFETIME: u32 = 2_400;

/// A batch with room for [`BATCH`] announces over IPv6.
pub fn batch() -> ShardBatch<(), ()> {
    ShardBatch::new(BATCH, BATCH, BATCH * (HEAD_LEN + usize::from(WANT) * 18))
}

/// An empty shard that is never full.
pub fn shard(max_peers: u64) -> Shard {
    let settings = ShardSettings {
        interval: 1_800,
        interval_jitter_percent: 5,
        peer_lifetime: LIFETIME,
        completed_retention: 86_400,
        max_peers,
        max_idle_swarms: 0,
    };
    Shard::new(settings, *b"a key for tests.", 1)
}

/// Sizes of swarms, the largest first.
pub enum Sizes {
    /// This many swarms of this many peers.
    Even(u32, u32),
    /// This many swarms, at least k peers in every k^1.73th: two on average.
    Pareto(u32),
    /// As public trackers see them: this many swarms, at least k peers in every k^2.6th, 1.3 on average.
    Real(u32),
    /// As published comparisons draw them: this many swarms and peers, half of a peer for each swarm per
    /// peer's choice, and a head that falls off exponentially over a five hundredth of them.
    Classic(u32, u32),
}

impl Sizes {
    /// The size of each swarm.
    pub fn draw(&self, rng: &mut SmallRng) -> Vec<u32> {
        match *self {
            Self::Even(swarms, peers) => vec![peers; swarms as usize],
            Self::Pareto(swarms) => tail(swarms, 1.73, rng),
            Self::Real(swarms) => tail(swarms, 2.6, rng),
            Self::Classic(swarms, peers) => {
                let floor = f64::from(swarms) / f64::from(peers);
                let mut sum = 0.0;
                let sums: Vec<f64> = (0..swarms)
                    .map(|at| {
                        sum += floor + (6.5 - 500.0 * f64::from(at) / f64::from(swarms)).exp();
                        sum
                    })
                    .collect();
                let mut sizes = vec![0; swarms as usize];
                for _ in 0..peers {
                    let at = rng.random::<f64>() * sum;
                    let swarm = sums.partition_point(|&sum| sum < at).min(sums.len() - 1);
                    sizes[swarm] += 1;
                }
                sizes
            }
        }
    }
}

/// Sizes with at least k peers in every k^`steepness`th swarm.
fn tail(swarms: u32, steepness: f64, rng: &mut SmallRng) -> Vec<u32> {
    let size = |random: f64| random.max(1e-12).powf(-1.0 / steepness) as u32;
    (0..swarms).map(|_| size(rng.random()).min(1_000_000)).collect()
}

/// The info hash of a swarm by number.
pub fn info_hash(number: u32) -> InfoHash {
    InfoHash(SmallRng::seed_from_u64(number.into()).random())
}

/// Peers over all of the sizes, swarm by number and peer by number, in random order.
pub fn peers(sizes: &[u32], rng: &mut SmallRng) -> Vec<(u32, u32)> {
    let mut peers: Vec<(u32, u32)> = (0u32..)
        .zip(sizes)
        .flat_map(|(swarm, &size)| (0..size).map(move |peer| (swarm, peer)))
        .collect();
    for at in (1..peers.len()).rev() {
        peers.swap(at, rng.random_range(0..=at));
    }
    peers
}

/// The announce of a peer. Every third is a seeder.
pub fn announce(swarm: u32, peer: u32) -> Announce {
    let [a, b, c, d] = peer.wrapping_mul(0x9E37_79B1).to_be_bytes();
    Announce {
        info_hash: info_hash(swarm),
        endpoint: Endpoint::V4([a, b, c, d, 0x1A, 0xE1]),
        event: Event::None,
        seeder: peer.is_multiple_of(3),
        want: WANT,
        transaction_id: TransactionId(peer),
    }
}

/// Lets everybody announce.
pub fn fill(shard: &mut Shard, peers: &[(u32, u32)], now: Moment) {
    let mut batch = batch();
    for group in peers.chunks(BATCH) {
        batch.clear();
        for &(swarm, peer) in group {
            batch.push_announce(announce(swarm, peer), ()).expect("there is room");
        }
        shard.serve(&mut batch, now);
    }
}
