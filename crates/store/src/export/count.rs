//! Reads the counts of all swarms of a shard.

use onrush_proto::InfoHash;
use onrush_swarm::{Shard, Verdict};

use onrush_tracker::clock::Now;
use onrush_tracker::stream::ShardReader;

/// Swarms per step: about 10 us when they are not in the CPU caches.
const STEP: usize = 128;
/// Swarms in a message.
const MESSAGE: usize = 4096;

/// The counts of a swarm, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwarmCounts {
    /// The info hash.
    pub info_hash: InfoHash,
    /// Peers with all pieces.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// Peers that became seeders by the event `completed`.
    pub completed: u32,
}

/// Counts the swarms of one shard.
#[derive(Debug)]
pub struct SwarmCounter(Vec<SwarmCounts>);

impl Default for SwarmCounter {
    fn default() -> Self {
        Self(Vec::with_capacity(MESSAGE + STEP))
    }
}

impl ShardReader for SwarmCounter {
    type Message = Vec<SwarmCounts>;

    fn read(&mut self, shard: &mut Shard, now: Now) -> (Option<Self::Message>, bool) {
        let more = shard.walk(now.moment, STEP, |met| {
            let (info_hash, completed) = (met.info_hash, met.completed);
            let (seeders, leechers) = (met.seeders, met.leechers);
            self.0.push(SwarmCounts { info_hash, seeders, leechers, completed });
            Verdict::Keep
        });
        let complete = self.0.len() >= MESSAGE || !more;
        (complete.then(|| std::mem::take(&mut self.0)), more)
    }
}
