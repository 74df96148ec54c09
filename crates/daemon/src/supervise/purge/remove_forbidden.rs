//! Removal of all swarms that the access list does not permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_swarm::{Shard, Verdict};

use super::release::free_some_peers;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms visited per step. Each takes a lookup in the list with cache misses, and a removal takes
/// as long again, with up to 128 peers to be subtracted from the totals.
const STEP: usize = 128;

/// Walks over one shard.
pub struct RemoveForbidden {
    access: Arc<AccessList>,
    superseded: Arc<AtomicBool>,
    begun: bool,
    walked: bool,
    removed: u64,
    result: Sender<u64>,
}

impl RemoveForbidden {
    /// Removes the swarms that `access` does not permit, then sends their number. Stops without a
    /// result once `superseded` is set: another list is in force.
    pub fn new(access: Arc<AccessList>, superseded: Arc<AtomicBool>, result: Sender<u64>) -> Self {
        Self { access, superseded, begun: false, walked: false, removed: 0, result }
    }

    /// Visits some swarms. Returns whether there are more.
    fn walk(&mut self, shard: &mut Shard, now: Now) -> bool {
        let Self { access, removed, .. } = self;
        shard.walk(now.moment, STEP, |swarm| {
            if access.permits(swarm.info_hash) {
                return Verdict::Keep;
            }
            *removed += 1;
            Verdict::Remove
        })
    }
}

impl ShardTask for RemoveForbidden {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.superseded.load(Ordering::Relaxed) {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        if free_some_peers(shard) {
            return true;
        }
        if !self.walked {
            self.walked = !self.walk(shard, now);
        }
        if !self.walked || shard.release(0) {
            return true;
        }
        // The receiver is dropped when the process ends.
        let _ = self.result.send(self.removed);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crossbeam_channel::unbounded;
    use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
    use onrush_swarm::{Announce, Moment, ShardBatch, ShardSettings};

    use super::*;
    use onrush_config::settings::{Access, Listed};

    const NOW: Now = Now { moment: Moment(5), unix: 5 };

    /// A shard with this number of swarms, each of one peer.
    fn shard(swarms: u32) -> Shard {
        let settings = ShardSettings {
            interval: 1800,
            interval_jitter_percent: 5,
            peer_lifetime: 3600,
            completed_retention: 0,
            max_peers: 10_000,
            max_idle_swarms: 0,
        };
        let mut shard = Shard::new(settings, [1; 16], 1);
        for number in 0..swarms {
            let announce = Announce {
                info_hash: hash(number),
                endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 6881),
                event: Event::Started,
                seeder: false,
                want: 0,
                transaction_id: TransactionId(number),
            };
            let mut batch = ShardBatch::<(), ()>::new(1, 1, 64);
            batch.push_announce(announce, ()).unwrap();
            shard.serve(&mut batch, NOW.moment);
        }
        shard
    }

    fn hash(number: u32) -> InfoHash {
        let mut hash = [7; 20];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    }

    fn denied(numbers: impl Iterator<Item = u32>) -> Arc<AccessList> {
        let listed = Listed { hashes: numbers.map(hash).collect(), file: None };
        Arc::new(onrush_store::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap())
    }

    #[test]
    fn removal_takes_several_steps_and_sends_the_number() {
        let mut shard = shard(1_000);
        let (result, results) = unbounded();
        let mut task = RemoveForbidden::new(denied((0..1_000).step_by(4)), Arc::default(), result);
        let steps = 1 + std::iter::from_fn(|| task.step(&mut shard, NOW).then_some(())).count();
        assert_eq!(steps, 1_000usize.div_ceil(STEP));
        assert_eq!((results.try_recv(), shard.totals().swarms), (Ok(250), 750));
    }

    #[test]
    fn a_superseded_task_stops_without_a_result() {
        let mut shard = shard(1_000);
        let (result, results) = unbounded();
        let superseded = Arc::new(AtomicBool::new(false));
        let mut task = RemoveForbidden::new(denied(0..1_000), superseded.clone(), result);
        assert!(task.step(&mut shard, NOW));
        superseded.store(true, Ordering::Relaxed);
        assert!(!task.step(&mut shard, NOW));
        assert_eq!(shard.totals().swarms as usize, 1_000 - STEP);
        assert!(results.is_empty());
    }
}
