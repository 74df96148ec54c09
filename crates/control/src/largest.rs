//! The largest swarms of a shard, by a measure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary, Verdict};

use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms looked at in a step: a cache miss or two for each.
const STEP: usize = 128;

/// What a swarm is large by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// All of its peers.
    #[default]
    Peers,
    /// Peers that miss nothing.
    Seeders,
    /// The other peers.
    Leechers,
    /// How often it was completed.
    Completed,
}

impl By {
    /// How large it is.
    pub fn of(self, swarm: &SwarmSummary) -> u64 {
        match self {
            Self::Peers => u64::from(swarm.seeders) + u64::from(swarm.leechers),
            Self::Seeders => swarm.seeders.into(),
            Self::Leechers => swarm.leechers.into(),
            Self::Completed => swarm.completed.into(),
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The largest, in no order. Those that are zero by the measure are not among them.
    pub swarms: Vec<SwarmSummary>,
    /// How many were looked at.
    pub looked_at: u64,
}

/// A walk over one shard that keeps the largest.
pub struct Top {
    by: By,
    limit: usize,
    given_up: Arc<AtomicBool>,
    begun: bool,
    looked_at: u64,
    largest: BinaryHeap<Reverse<Ranked>>,
    tell: Sender<Found>,
}

impl Top {
    /// Tells the largest `limit` swarms by this measure; ends without a word once it is `given_up`.
    pub fn new(by: By, limit: usize, given_up: Arc<AtomicBool>, tell: Sender<Found>) -> Self {
        // All room is made here, so that the worker makes none.
        let largest = BinaryHeap::with_capacity(limit + 1);
        Self { by, limit, given_up, begun: false, looked_at: 0, largest, tell }
    }

    fn meet(&mut self, swarm: &SwarmSummary) {
        self.looked_at += 1;
        let ranked = Ranked { size: self.by.of(swarm), info_hash: swarm.info_hash, swarm: *swarm };
        if ranked.size == 0 {
            return;
        }
        self.largest.push(Reverse(ranked));
        if self.largest.len() > self.limit {
            self.largest.pop();
        }
    }
}

impl ShardTask for Top {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.given_up.load(Ordering::Relaxed) {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let more = shard.walk(now.moment, STEP, |swarm| {
            self.meet(swarm);
            Verdict::Keep
        });
        if !more {
            let swarms = self.largest.drain().map(|Reverse(ranked)| ranked.swarm).collect();
            let _ = self.tell.try_send(Found { swarms, looked_at: self.looked_at });
        }
        more
    }
}

/// The largest of what all shards have found, in falling order.
pub fn merge(by: By, limit: usize, found: impl IntoIterator<Item = Found>) -> Found {
    let mut all = Found::default();
    for part in found {
        all.swarms.extend(part.swarms);
        all.looked_at += part.looked_at;
    }
    all.swarms.sort_by_key(|swarm| (Reverse(by.of(swarm)), swarm.info_hash));
    all.swarms.truncate(limit);
    all
}

/// A swarm and its size; of the same size, the one with the smaller info hash is the larger.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ranked {
    size: u64,
    info_hash: InfoHash,
    swarm: SwarmSummary,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.size, Reverse(self.info_hash)).cmp(&(other.size, Reverse(other.info_hash)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crossbeam_channel::bounded;
    use onrush_proto::{Endpoint, Event, TransactionId};
    use onrush_swarm::{Announce, Moment, ShardBatch, ShardSettings};

    use super::*;

    const NOW: Now = Now { moment: Moment(5), unix: 5 };

    /// A shard where swarm number n has n peers, a third of them seeders.
    fn shard(swarms: u16) -> Shard {
        let settings = ShardSettings {
            interval: 1800,
            interval_jitter_percent: 5,
            peer_lifetime: 3600,
            completed_retention: 0,
            max_peers: 1_000_000,
            max_idle_swarms: 0,
        };
        let mut shard = Shard::new(settings, [1; 16], 1);
        for (swarm, peer) in (0..swarms).flat_map(|swarm| (0..swarm).map(move |peer| (swarm, peer)))
        {
            let announce = Announce {
                info_hash: hash(swarm),
                endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 1_000 + peer),
                event: Event::Started,
                seeder: peer % 3 == 0,
                want: 0,
                transaction_id: TransactionId(0),
            };
            let mut batch = ShardBatch::<(), ()>::new(1, 1, 64);
            batch.push_announce(announce, ()).unwrap();
            shard.serve(&mut batch, NOW.moment);
        }
        shard
    }

    fn hash(number: u16) -> InfoHash {
        let mut hash = [7; 20];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    }

    fn found(shard: &mut Shard, by: By, limit: usize) -> Found {
        let (tell, told) = bounded(1);
        let mut top = Top::new(by, limit, Arc::default(), tell);
        while top.step(shard, NOW) {}
        told.try_recv().unwrap()
    }

    #[test]
    fn the_largest_of_all_shards_are_found_in_order() {
        let mut shard = shard(300);
        for by in [By::Peers, By::Seeders, By::Leechers] {
            let found = found(&mut shard, by, 10);
            assert_eq!((found.swarms.len(), found.looked_at), (10, 299));
            // As if two shards had half of what there is each.
            let halves =
                found.swarms.chunks(5).map(|half| Found { swarms: half.to_vec(), looked_at: 1 });
            let merged = merge(by, 4, halves);
            let largest: Vec<InfoHash> =
                merged.swarms.iter().map(|swarm| swarm.info_hash).collect();
            if by == By::Peers {
                assert_eq!(largest, [299, 298, 297, 296].map(hash));
            }
            let sizes: Vec<u64> = merged.swarms.iter().map(|swarm| by.of(swarm)).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        }
        assert_eq!(found(&mut shard, By::Completed, 10).swarms, [], "nobody has completed");
    }

    #[test]
    fn one_that_is_given_up_says_nothing() {
        let mut shard = shard(300);
        let (tell, told) = bounded(1);
        let given_up = Arc::new(AtomicBool::new(false));
        let mut top = Top::new(By::Peers, 10, given_up.clone(), tell);
        assert!(top.step(&mut shard, NOW));
        given_up.store(true, Ordering::Relaxed);
        assert!(!top.step(&mut shard, NOW));
        assert!(told.is_empty());
    }
}
