//! Removal of single swarms by info hash.

use std::sync::Arc;

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::Shard;

use super::release::free_some_peers;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms looked up per step: each may exist, with up to 128 peers to be subtracted from the
/// totals.
const STEP: usize = 64;

/// Removes swarms from one shard.
pub struct RemoveNamed {
    info_hashes: Arc<[InfoHash]>,
    done: usize,
    removed: u64,
    result: Sender<u64>,
}

impl RemoveNamed {
    /// Removes the swarms of these info hashes, then sends the number of those that existed.
    pub fn new(info_hashes: Arc<[InfoHash]>, result: Sender<u64>) -> Self {
        Self { info_hashes, done: 0, removed: 0, result }
    }
}

impl ShardTask for RemoveNamed {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if free_some_peers(shard) {
            return true;
        }
        let to = (self.done + STEP).min(self.info_hashes.len());
        let step = &self.info_hashes[self.done..to];
        let removed = step.iter().filter(|info_hash| shard.remove(info_hash, now.moment)).count();
        self.removed += removed as u64;
        self.done = to;
        if to < self.info_hashes.len() || shard.release(0) {
            return true;
        }
        // The receiver is dropped when the process ends.
        let _ = self.result.send(self.removed);
        false
    }
}
