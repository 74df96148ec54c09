//! Making a list of info hashes hold for what is stored too: after a list has come into force, every shard
//! forgets what it does not permit.
//!
//! Not at once: an announce that was let in by the former list may still be on its way to its shard. Workers take
//! several turns a second, so two seconds later there is none. And not to the end: a list that is replaced again ends
//! the work for the one before it.

pub mod release;
pub mod remove;
pub mod walk;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use onrush_proto::InfoHash;

use crate::purge::remove::Forget;
use crate::purge::walk::Purge;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::listing::Change;
use onrush_tracker::orders::{Chore, Deaf, Orders};

/// How long after a list came into force the shards are looked through.
const DELAY: Duration = Duration::from_secs(2);

/// The main thread's part in it.
pub struct Enforcement {
    tell: Sender<u64>,
    told: Receiver<u64>,
    /// Ends the purge that is under way.
    superseded: Arc<AtomicBool>,
    due: Option<(Instant, Arc<AccessList>)>,
    /// Single info hashes that are no longer permitted, and when they are to be forgotten.
    singly: VecDeque<(Instant, Arc<[InfoHash]>)>,
    /// Kept until no worker has them any more: freeing millions of hashes takes its time, and a worker has none.
    retired: Vec<Arc<AccessList>>,
}

impl Enforcement {
    /// Of the list that a tracker starts with, which needs none.
    pub fn new() -> Self {
        let (tell, told) = unbounded();
        Self {
            tell,
            told,
            superseded: Arc::default(),
            due: None,
            singly: VecDeque::new(),
            retired: Vec::new(),
        }
    }

    /// Workers follow `list` from now on; `former` is what was in force.
    pub fn begin(&mut self, list: &Arc<AccessList>, former: Arc<AccessList>, now: Instant) {
        self.superseded.store(true, Ordering::Relaxed);
        self.superseded = Arc::default();
        self.due = (!list.is_open()).then(|| (now + DELAY, list.clone()));
        // After a reload of the same list it is in force still, and must stand here once only, when it goes.
        if !Arc::ptr_eq(list, &former) {
            self.retire(former);
        }
    }

    /// Workers follow `list` from now on, which is `former` after some changes. Only the swarms that they
    /// forbid are looked up and forgotten: single ones may be changed every second, and a walk over all swarms
    /// would never end. Such a walk, where one is waiting, is done by the newer list, and one that is under way
    /// goes on by the older: it may forget a swarm that was permitted meanwhile, whose peers announce again.
    pub fn follow(
        &mut self,
        list: &Arc<AccessList>,
        changes: &[Change],
        former: Arc<AccessList>,
        now: Instant,
    ) {
        if let Some((_, due)) = &mut self.due {
            *due = list.clone();
        }
        let names = changes.iter().map(|change| change.info_hash);
        let forbidden: Arc<[InfoHash]> = names.filter(|name| !list.permits(*name)).collect();
        if !forbidden.is_empty() {
            self.singly.push_back((now + DELAY, forbidden));
        }
        self.retire(former);
    }

    /// No worker gets this list any more. It is freed by the main thread once none has it.
    pub fn retire(&mut self, list: Arc<AccessList>) {
        // Twice here it would never go: each would be held by the other.
        if !self.retired.iter().any(|other| Arc::ptr_eq(other, &list)) {
            self.retired.push(list);
        }
    }

    /// To be called once a second with the list in force: has the shards looked through when it is time.
    ///
    /// # Errors
    /// [`Deaf`], when a worker takes no orders.
    pub fn second(&mut self, list: &AccessList, orders: &Orders, now: Instant) -> Result<(), Deaf> {
        self.retired.retain(|list| Arc::strong_count(list) > 1);
        while self.singly.front().is_some_and(|(due, _)| now >= *due) {
            let Some((_, names)) = self.singly.pop_front() else { break };
            // What was permitted again meanwhile stays.
            let names: Arc<[InfoHash]> =
                names.iter().copied().filter(|name| !list.permits(*name)).collect();
            orders.every_shard(|_| Box::new(Forget::new(names.clone(), self.tell.clone())))?;
        }
        let Some((_, list)) = self.due.take_if(|(due, _)| now >= *due) else { return Ok(()) };
        orders.every_shard(|_| {
            let purge = Purge::new(list.clone(), self.superseded.clone(), self.tell.clone());
            Box::new(purge) as Box<dyn Chore>
        })
    }

    /// How many swarms a shard has forgotten, from each that is through.
    pub fn told(&self) -> &Receiver<u64> {
        &self.told
    }
}

impl Default for Enforcement {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::settings::{Access, Listed};

    /// Of nothing, but not open.
    fn list() -> Arc<AccessList> {
        let listed = Listed { hashes: Vec::new(), file: None };
        Arc::new(onrush_store::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap())
    }

    #[test]
    fn a_list_is_freed_when_it_was_replaced_however_often_it_was_read_again() {
        let orders = Orders::new(&[], Arc::from([]));
        let mut enforcement = Enforcement::new();
        let now = Instant::now();
        let (first, second) = (list(), list());
        for _ in 0..3 {
            enforcement.begin(&first, first.clone(), now);
        }
        let gone = Arc::downgrade(&first);
        enforcement.begin(&second, first, now);
        enforcement.second(&second, &orders, now).unwrap();
        assert_eq!(gone.strong_count(), 0);
    }

    /// A merge retires the list that it was made of and the one in force, which are often the same.
    #[test]
    fn a_list_that_is_retired_twice_is_freed() {
        let orders = Orders::new(&[], Arc::from([]));
        let mut enforcement = Enforcement::new();
        let (first, second) = (list(), list());
        let gone = Arc::downgrade(&first);
        enforcement.retire(first.clone());
        enforcement.retire(first);
        enforcement.second(&second, &orders, Instant::now()).unwrap();
        assert_eq!(gone.strong_count(), 0);
    }
}
