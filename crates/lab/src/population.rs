//! Populations to measure with: random swarms of peers, and a shard filled with them.

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Announces per batch, as for a worker under load.
pub const BATCH: usize = 64;
/// Peers asked for per announce.
pub const WANT: u16 = 50;
/// The lifetime of peers, seconds.
pub const LIFETIME: u32 = 2_400;

/// The ceiling on peers, which determines the number of tables in the index.
const MAX_PEERS: u64 = 16_000_000;

/// A batch with room for [`BATCH`] announces over IPv6.
pub fn batch() -> ShardBatch<(), ()> {
    ShardBatch::new(BATCH, BATCH, BATCH * (HEAD_LEN + usize::from(WANT) * 18))
}

/// An empty shard that is never full.
pub fn shard() -> Shard {
    let settings = ShardSettings {
        peer_lifetime: LIFETIME,
        max_peers: MAX_PEERS,
        max_idle_swarms: 0,
        ..ShardSettings::default()
    };
    Shard::new(settings, *b"a key for tests.", 1)
}

/// Sizes of swarms, the largest first.
#[derive(Clone, Copy)]
pub enum Sizes {
    /// Swarms of equal size: the number of swarms, and of peers in each.
    Even(u32, u32),
    /// A number of swarms, of which every k^1.73th has at least k peers: two on average.
    Pareto(u32),
    /// A number of swarms as on public trackers: every k^2.6th has at least k peers, 1.3 on
    /// average.
    Real(u32),
    /// A number of swarms and of peers, as in published comparisons: each peer picks a swarm with a
    /// uniform weight of half a peer per swarm, plus an exponentially falling head over a
    /// five-hundredth of the swarms.
    Classic(u32, u32),
}

impl Sizes {
    /// A hundredth of the peers.
    pub fn hundredth(self) -> Self {
        match self {
            Self::Even(swarms @ ..=100, peers) => Self::Even(swarms, peers.div_ceil(100)),
            Self::Even(swarms, peers) => Self::Even(swarms / 100, peers),
            Self::Pareto(swarms) => Self::Pareto(swarms / 100),
            Self::Real(swarms) => Self::Real(swarms / 100),
            Self::Classic(swarms, peers) => Self::Classic(swarms / 100, peers / 100),
        }
    }

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

/// Sizes of which every k^`steepness`th is at least k.
fn tail(swarms: u32, steepness: f64, rng: &mut SmallRng) -> Vec<u32> {
    let size = |random: f64| random.max(1e-12).powf(-1.0 / steepness) as u32;
    (0..swarms).map(|_| size(rng.random()).min(1_000_000)).collect()
}

/// The info hash of swarm `number`.
pub fn info_hash(number: u32) -> InfoHash {
    InfoHash(SmallRng::seed_from_u64(number.into()).random())
}

/// The peers of swarms of these sizes, as numbers of swarm and peer, in random order.
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

/// The announce of a peer. Every third peer is a seeder.
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

/// Replaces the announces of a batch by those of at most [`BATCH`] peers.
pub fn refill<'a>(batch: &mut ShardBatch<(), ()>, peers: impl IntoIterator<Item = &'a (u32, u32)>) {
    batch.clear();
    for &(swarm, peer) in peers {
        batch.push_announce(announce(swarm, peer), ()).expect("a batch with free space");
    }
}

/// Serves an announce of each peer.
pub fn fill(shard: &mut Shard, peers: &[(u32, u32)], now: Moment) {
    let mut batch = batch();
    for group in peers.chunks(BATCH) {
        refill(&mut batch, group);
        shard.serve(&mut batch, now);
    }
}
