//! Lookup of one swarm in its shard.

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary};

use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Task for the shard that owns an info hash.
pub struct Lookup {
    info_hash: InfoHash,
    response: Sender<Option<SwarmSummary>>,
}

impl Lookup {
    /// Sends the summary of this swarm to `response`, or `None` where the shard has no such swarm.
    pub fn new(info_hash: InfoHash, response: Sender<Option<SwarmSummary>>) -> Self {
        Self { info_hash, response }
    }
}

impl ShardTask for Lookup {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        // The request may have timed out, and the receiver is gone.
        let _ = self.response.try_send(shard.summary(&self.info_hash, now.moment));
        false
    }
}
