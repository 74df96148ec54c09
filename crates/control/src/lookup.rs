//! Looking up one swarm, for whoever operates the tracker.

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary};

use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// A look-up in the shard of the info hash.
pub struct LookUp {
    info_hash: InfoHash,
    tell: Sender<Option<SwarmSummary>>,
}

impl LookUp {
    /// Tells what the shard has of this swarm.
    pub fn new(info_hash: InfoHash, tell: Sender<Option<SwarmSummary>>) -> Self {
        Self { info_hash, tell }
    }
}

impl ShardTask for LookUp {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        // Whoever asked may have given up.
        let _ = self.tell.try_send(shard.summary(&self.info_hash, now.moment));
        false
    }
}
