//! Search for the largest swarms of a shard.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary, Verdict};

use crate::api::admin::Measure;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms per step: one or two cache misses each.
const STEP: usize = 128;

impl Measure {
    /// Size of a swarm by this measure.
    pub fn of(self, swarm: &SwarmSummary) -> u64 {
        match self {
            Self::Peers => u64::from(swarm.seeders) + u64::from(swarm.leechers),
            Self::Seeders => swarm.seeders.into(),
            Self::Leechers => swarm.leechers.into(),
            Self::Completed => swarm.completed.into(),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The largest swarms, in no order. Swarms of size 0 are left out.
    pub swarms: Vec<SwarmSummary>,
    /// Number of swarms examined.
    pub examined: u64,
}

/// A walk over one shard that keeps the largest swarms.
pub struct Top {
    by: Measure,
    limit: usize,
    cancelled: Arc<AtomicBool>,
    begun: bool,
    examined: u64,
    largest: BinaryHeap<Reverse<Ranked>>,
    response: Sender<Found>,
}

impl Top {
    /// Sends the largest `limit` swarms to `response`; ends without a response once `cancelled` is
    /// set.
    pub fn new(
        by: Measure,
        limit: usize,
        cancelled: Arc<AtomicBool>,
        response: Sender<Found>,
    ) -> Self {
        // Allocated here, so that the worker does not allocate.
        let largest = BinaryHeap::with_capacity(limit + 1);
        Self { by, limit, cancelled, begun: false, examined: 0, largest, response }
    }

    fn examine(&mut self, swarm: &SwarmSummary) {
        self.examined += 1;
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
        if self.cancelled.load(Ordering::Relaxed) {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let more = shard.walk(now.moment, STEP, |swarm| {
            self.examine(swarm);
            Verdict::Keep
        });
        if !more {
            let swarms = self.largest.drain().map(|Reverse(ranked)| ranked.swarm).collect();
            let _ = self.response.try_send(Found { swarms, examined: self.examined });
        }
        more
    }
}

/// The largest swarms of all shards, in descending order.
pub fn merge(by: Measure, limit: usize, found: impl IntoIterator<Item = Found>) -> Found {
    let mut all = Found::default();
    for part in found {
        all.swarms.extend(part.swarms);
        all.examined += part.examined;
    }
    all.swarms.sort_by_key(|swarm| (Reverse(by.of(swarm)), swarm.info_hash));
    all.swarms.truncate(limit);
    all
}

/// A swarm and its size. Between equal sizes the smaller info hash ranks higher.
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

    /// A shard in which swarm `n` has `n` peers, a third of them seeders.
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

    fn found(shard: &mut Shard, by: Measure, limit: usize) -> Found {
        let (sender, response) = bounded(1);
        let mut top = Top::new(by, limit, Arc::default(), sender);
        while top.step(shard, NOW) {}
        response.try_recv().unwrap()
    }

    #[test]
    fn the_largest_swarms_of_all_shards_are_found_in_order() {
        let mut shard = shard(300);
        for by in [Measure::Peers, Measure::Seeders, Measure::Leechers] {
            let found = found(&mut shard, by, 10);
            assert_eq!((found.swarms.len(), found.examined), (10, 299));
            // As if two shards had found half of them each.
            let halves =
                found.swarms.chunks(5).map(|half| Found { swarms: half.to_vec(), examined: 1 });
            let merged = merge(by, 4, halves);
            let largest: Vec<InfoHash> =
                merged.swarms.iter().map(|swarm| swarm.info_hash).collect();
            if by == Measure::Peers {
                assert_eq!(largest, [299, 298, 297, 296].map(hash));
            }
            let sizes: Vec<u64> = merged.swarms.iter().map(|swarm| by.of(swarm)).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        }
        assert_eq!(found(&mut shard, Measure::Completed, 10).swarms, [], "no swarm has completed");
    }

    #[test]
    fn a_cancelled_search_sends_no_response() {
        let mut shard = shard(300);
        let (sender, response) = bounded(1);
        let cancelled = Arc::new(AtomicBool::new(false));
        let mut top = Top::new(Measure::Peers, 10, cancelled.clone(), sender);
        assert!(top.step(&mut shard, NOW));
        cancelled.store(true, Ordering::Relaxed);
        assert!(!top.step(&mut shard, NOW));
        assert!(response.is_empty());
    }
}
