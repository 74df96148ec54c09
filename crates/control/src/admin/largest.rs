//! Search for the largest swarms of a shard.

use std::cmp::Reverse;
use std::sync::Weak;

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
    request: Weak<()>,
    begun: bool,
    found: Found,
    response: Sender<Found>,
}

impl Top {
    /// Sends the largest `limit` swarms to `response`; ends without a response once `request` is
    /// dropped.
    pub fn new(by: Measure, limit: usize, request: Weak<()>, response: Sender<Found>) -> Self {
        // Allocated here, so that the worker does not allocate.
        let found = Found { swarms: Vec::with_capacity(2 * limit), examined: 0 };
        Self { by, limit, request, begun: false, found, response }
    }
}

impl ShardTask for Top {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.request.strong_count() == 0 {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let more = shard.walk(now.moment, STEP, |swarm| {
            self.found.examine(swarm, self.by, self.limit);
            Verdict::Keep
        });
        if !more {
            self.found.keep_largest(self.by, self.limit);
            let _ = self.response.try_send(std::mem::take(&mut self.found));
        }
        more
    }
}

impl Found {
    fn examine(&mut self, swarm: &SwarmSummary, by: Measure, limit: usize) {
        self.examined += 1;
        if by.of(swarm) > 0 {
            self.swarms.push(*swarm);
        }
        if self.swarms.len() == 2 * limit {
            self.keep_largest(by, limit);
        }
    }

    fn keep_largest(&mut self, by: Measure, limit: usize) {
        if self.swarms.len() > limit {
            self.swarms.select_nth_unstable_by_key(limit, |swarm| rank(by, swarm));
            self.swarms.truncate(limit);
        }
    }
}

/// Sort key by which the largest swarm comes first; of equal ones that with the smaller info hash.
fn rank(by: Measure, swarm: &SwarmSummary) -> (Reverse<u64>, InfoHash) {
    (Reverse(by.of(swarm)), swarm.info_hash)
}

/// The largest swarms of all shards, in descending order.
pub fn merge(by: Measure, limit: usize, found: impl IntoIterator<Item = Found>) -> Found {
    let mut all = Found::default();
    for part in found {
        all.swarms.extend(part.swarms);
        all.examined += part.examined;
    }
    all.swarms.sort_unstable_by_key(|swarm| rank(by, swarm));
    all.swarms.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use crossbeam_channel::bounded;
    use onrush_proto::Endpoint;
    use onrush_swarm::{Moment, PeerView, ShardSettings};

    use super::*;

    const NOW: Now = Now { moment: Moment(5), unix: 5 };

    /// A shard in which swarm `n` has `n` peers, a third of them seeders.
    fn shard(swarms: u16) -> Shard {
        let mut shard = Shard::new(ShardSettings::default(), [1; 16], 1);
        for swarm in 1..swarms {
            let peers = (0..swarm).map(|peer| PeerView {
                endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 1_000 + peer),
                seeder: peer % 3 == 0,
                age: 0,
            });
            shard.restore(hash(swarm), 0, peers, NOW.moment);
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
        let request = Arc::new(());
        let mut top = Top::new(by, limit, Arc::downgrade(&request), sender);
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
        let request = Arc::new(());
        let mut top = Top::new(Measure::Peers, 10, Arc::downgrade(&request), sender);
        assert!(top.step(&mut shard, NOW));
        drop(request);
        assert!(!top.step(&mut shard, NOW));
        assert!(response.is_empty());
    }
}
