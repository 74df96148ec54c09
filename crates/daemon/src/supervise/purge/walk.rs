//! Forgetting the swarms that the access list no longer permits, so that a list is in force for what is
//! stored too, not only for who asks next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_swarm::{Shard, Verdict};

use super::release::lets_go;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::orders::Chore;

/// Swarms looked at in a step: each takes a look-up in the list, out of the caches, and forgetting one
/// as long again, with up to 128 peers to be counted out at once.
const STEP: usize = 128;

/// A purge of one shard.
pub struct Purge {
    access: Arc<AccessList>,
    superseded: Arc<AtomicBool>,
    begun: bool,
    walked: bool,
    forgotten: u64,
    tell: Sender<u64>,
}

impl Purge {
    /// Forgets what `access` does not permit, then tells how many swarms these were. Ends without a word
    /// once it is `superseded`: another list is in force by then.
    pub fn new(access: Arc<AccessList>, superseded: Arc<AtomicBool>, tell: Sender<u64>) -> Self {
        Self { access, superseded, begun: false, walked: false, forgotten: 0, tell }
    }

    /// Looks at some more swarms; whether there are more.
    fn walk_on(&mut self, shard: &mut Shard, now: Now) -> bool {
        let Self { access, forgotten, .. } = self;
        shard.walk(now.moment, STEP, |swarm| {
            if access.permits(swarm.info_hash) {
                return Verdict::Keep;
            }
            *forgotten += 1;
            Verdict::Remove
        })
    }
}

impl Chore for Purge {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.superseded.load(Ordering::Relaxed) {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        if lets_go(shard) {
            return true;
        }
        if !self.walked {
            self.walked = !self.walk_on(shard, now);
        }
        if !self.walked || shard.release(0) {
            return true;
        }
        // Nobody may be listening any more: the process is ending.
        let _ = self.tell.send(self.forgotten);
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

    /// A shard with so many swarms of one peer.
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
    fn it_takes_several_steps_and_tells_how_many_went() {
        let mut shard = shard(1_000);
        let (tell, told) = unbounded();
        let mut purge = Purge::new(denied((0..1_000).step_by(4)), Arc::default(), tell);
        let steps = 1 + std::iter::from_fn(|| purge.step(&mut shard, NOW).then_some(())).count();
        assert_eq!(steps, 1_000usize.div_ceil(STEP));
        assert_eq!((told.try_recv(), shard.totals().swarms), (Ok(250), 750));
    }

    #[test]
    fn one_that_is_superseded_forgets_no_more() {
        let mut shard = shard(1_000);
        let (tell, told) = unbounded();
        let superseded = Arc::new(AtomicBool::new(false));
        let mut purge = Purge::new(denied(0..1_000), superseded.clone(), tell);
        assert!(purge.step(&mut shard, NOW));
        superseded.store(true, Ordering::Relaxed);
        assert!(!purge.step(&mut shard, NOW));
        assert_eq!(shard.totals().swarms as usize, 1_000 - STEP);
        assert!(told.is_empty());
    }
}
