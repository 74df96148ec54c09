//! The worst-case populations for expiry, in a shard.

use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Lifetime of peers in seconds.
pub const LIFETIME: u32 = 240;
/// Retention of `completed` after a swarm's last peer, in seconds. Equal to the lifetime of peers,
/// so that peers and swarms expire at the same time.
pub const RETENTION: u32 = LIFETIME;

const BATCH: u32 = 64;

/// The distribution of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Population {
    /// All peers in one swarm.
    Together,
    /// Each peer in a swarm of its own.
    Alone,
    /// Swarms without peers but with a retained `completed` count.
    Idle,
}

impl Population {
    /// All distributions.
    pub const ALL: [Self; 3] = [Self::Together, Self::Alone, Self::Idle];

    /// A shard with `size` entries of age 0 at [`Moment`] 0.
    pub fn shard(self, size: u32) -> Shard {
        let settings = ShardSettings {
            interval: 1_800,
            interval_jitter_percent: 5,
            peer_lifetime: LIFETIME,
            completed_retention: RETENTION,
            max_peers: size.into(),
            max_idle_swarms: if self == Self::Idle { size.into() } else { 0 },
            ..ShardSettings::default()
        };
        let mut shard = Shard::new(settings, *b"a key for expiry", 1);
        let events = match self {
            Self::Idle => &[Event::Completed, Event::Stopped][..],
            _ => &[Event::None],
        };
        let mut batch: ShardBatch<(), ()> = ShardBatch::new(BATCH as usize, 0, 64 * 1_024);
        for first in (0..size).step_by(BATCH as usize) {
            for event in events {
                batch.clear();
                for number in first..(first + BATCH).min(size) {
                    batch
                        .push_announce(self.announce(number, *event), ())
                        .expect("a batch with free space");
                }
                shard.serve(&mut batch, Moment(0));
            }
        }
        let totals = shard.totals();
        let kept = if self == Self::Idle { totals.idle_swarms } else { totals.peers() };
        // One completion in a million or so is taken for one that has been counted.
        assert!(kept <= u64::from(size) && kept + 5 >= u64::from(size), "{self:?}: {kept}");
        shard
    }

    fn announce(self, number: u32, event: Event) -> Announce {
        let swarm = if self == Self::Together { 0 } else { number };
        let [a, b, c, d] = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
        Announce {
            info_hash: InfoHash(SmallRng::seed_from_u64(swarm.into()).random()),
            endpoint: Endpoint::V4([a, b, c, d, 0x1A, 0xE1]),
            event,
            seeder: event != Event::None || number.is_multiple_of(3),
            want: 0,
            transaction_id: TransactionId(number),
        }
    }
}

/// Whether the shard has no peers and no swarms.
pub fn is_empty(shard: &Shard) -> bool {
    let totals = shard.totals();
    (totals.peers(), totals.swarms, totals.idle_swarms) == (0, 0, 0)
}
