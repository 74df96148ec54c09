//! Forgetting single swarms, by their names.

use std::sync::Arc;

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::Shard;

use super::release::lets_go;
use onrush_tracker::clock::Now;
use onrush_tracker::orders::Chore;

/// Swarms looked up in a step: each may be there, with up to 128 peers to be counted out at once.
const STEP: usize = 64;

/// What one shard is to forget.
pub struct Forget {
    names: Arc<[InfoHash]>,
    done: usize,
    forgotten: u64,
    tell: Sender<u64>,
}

impl Forget {
    /// Forgets the swarms of these names that the shard has, then tells how many these were.
    pub fn new(names: Arc<[InfoHash]>, tell: Sender<u64>) -> Self {
        Self { names, done: 0, forgotten: 0, tell }
    }
}

impl Chore for Forget {
    fn step(&mut self, shard: &mut Shard, _: Now) -> bool {
        if lets_go(shard) {
            return true;
        }
        let to = (self.done + STEP).min(self.names.len());
        let gone = self.names[self.done..to].iter().filter(|name| shard.remove(name)).count();
        (self.done, self.forgotten) = (to, self.forgotten + gone as u64);
        if to < self.names.len() || shard.release(0) {
            return true;
        }
        // Nobody may be listening any more: the process is ending.
        let _ = self.tell.send(self.forgotten);
        false
    }
}
