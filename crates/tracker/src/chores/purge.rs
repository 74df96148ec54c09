//! Forgetting the swarms that the access list no longer permits, so that a list is in force for what is
//! stored too, not only for who asks next.

use std::sync::Arc;

use crossbeam_channel::Sender;
use onrush_swarm::{Fate, Shard};

use crate::access::AccessList;
use crate::clock::Now;
use crate::orders::Chore;

/// Swarms looked at in a step: each takes a look-up in the list, out of the caches, and forgetting one
/// as long again.
const STEP: usize = 128;

/// A purge of one shard.
pub struct Purge {
    access: Arc<AccessList>,
    begun: bool,
    forgotten: u64,
    tell: Sender<u64>,
}

impl Purge {
    /// Forgets what `access` does not permit, then tells how many swarms these were.
    pub fn new(access: Arc<AccessList>, tell: Sender<u64>) -> Self {
        Self { access, begun: false, forgotten: 0, tell }
    }
}

impl Chore for Purge {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let Self { access, forgotten, .. } = self;
        let more = shard.walk(now.moment, STEP, |swarm| {
            if access.permits(swarm.info_hash) {
                return Fate::Stays;
            }
            *forgotten += 1;
            Fate::Goes
        });
        if !more {
            // Nobody may be listening any more: the process is ending.
            let _ = self.tell.send(self.forgotten);
        }
        more
    }
}
