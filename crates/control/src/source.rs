//! Where everything about a running tracker is read.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use onrush_proto::InfoHash;
use onrush_swarm::ShardMap;

use crate::view::Overview;
use onrush_tracker::lanes::Mailbox;

/// A running tracker, as the HTTP side knows it.
pub struct Source {
    /// Who works, and what is in force.
    pub overview: Overview,
    /// When it was started, on a clock that nobody sets.
    pub started: Instant,
    mailboxes: Arc<[Mailbox]>,
    map: ShardMap,
}

impl Source {
    /// Of a tracker that has just been started. `mailboxes` lead to its workers, `map` says which shard owns an info
    /// hash.
    pub fn new(overview: Overview, mailboxes: Arc<[Mailbox]>, map: ShardMap) -> Self {
        Self { overview, started: Instant::now(), mailboxes, map }
    }

    /// How many batches wait for a worker, and how many may.
    pub fn lane(&self, worker: usize) -> (usize, usize) {
        self.mailboxes[worker].requests.depth()
    }

    /// The shard that owns an info hash.
    pub fn shard_of(&self, info_hash: &InfoHash) -> usize {
        self.map.shard_of(info_hash)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} workers)", self.mailboxes.len())
    }
}
