//! Purge: after a change of the access list, every shard removes the swarms that are no longer
//! permitted.
//!
//! A purge is delayed, since announces that the former list has permitted may still be on the way
//! to their shard. Workers take several turns a second, so after two seconds there are none, unless
//! a worker is stalled: then the delay begins again.

pub mod swarm_removal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;

use crate::effect::{Effect, Effects, Removal};
use onrush_tracker::access::AccessList;
use onrush_tracker::access::overlay::ListChange;

/// Time between a change of the list and the purge.
const DELAY: Duration = Duration::from_secs(2);

/// A worker without a turn for this long may hold announces that the former list has permitted.
const STALL_DELAYS_PURGE: Duration = Duration::from_secs(1);

/// Decides when shards are purged, and frees former lists. The list of the start needs no purge:
/// peers were loaded by it.
#[derive(Default)]
pub(super) struct Purge {
    /// Stops the walk in progress.
    superseded: Arc<AtomicBool>,
    /// The next walk over all swarms.
    walk: Option<(Instant, Arc<AccessList>)>,
    /// Single info hashes that are no longer permitted.
    named: VecDeque<(Instant, Arc<[InfoHash]>)>,
    /// Former lists, freed here once no worker holds them: freeing millions of hashes would delay a
    /// worker.
    retired: Vec<Arc<AccessList>>,
}

impl Purge {
    /// Schedules a walk for a `list` that has replaced `former`, and stops the walk in progress.
    pub(super) fn start(&mut self, list: &Arc<AccessList>, former: Arc<AccessList>, now: Instant) {
        self.superseded.store(true, Ordering::Relaxed);
        self.superseded = Arc::default();
        self.walk = (!list.is_open()).then(|| (now + DELAY, list.clone()));
        // A reload of an unchanged list leaves the same one in force.
        if !Arc::ptr_eq(list, &former) {
            self.retire(former);
        }
    }

    /// Schedules the removal of the swarms that `changes` forbid. They are looked up one by one: if
    /// changes came every second, a walk over all swarms would never finish. A scheduled walk uses
    /// the new list. A walk in progress continues with the former list: it may remove a swarm that
    /// is permitted again, whose peers return with their next announce.
    pub(super) fn update(
        &mut self,
        list: &Arc<AccessList>,
        changes: &[ListChange],
        former: Arc<AccessList>,
        now: Instant,
    ) {
        if let Some((_, walk)) = &mut self.walk {
            *walk = list.clone();
        }
        let changed = changes.iter().map(|change| change.info_hash);
        let forbidden: Arc<[InfoHash]> = changed.filter(|hash| !list.permits(*hash)).collect();
        if !forbidden.is_empty() {
            self.named.push_back((now + DELAY, forbidden));
        }
        self.retire(former);
    }

    /// Keeps a former list until no worker holds it.
    pub(super) fn retire(&mut self, list: Arc<AccessList>) {
        // A second entry would keep the first one alive.
        if !self.retired.iter().any(|other| Arc::ptr_eq(other, &list)) {
            self.retired.push(list);
        }
    }

    /// Call every second with the list in force, and how long each worker has been `stalled`:
    /// starts removals that are due.
    pub(super) fn tick(
        &mut self,
        list: &AccessList,
        stalled: &[Duration],
        now: Instant,
        effects: &mut Effects,
    ) {
        if stalled.iter().any(|time| *time >= STALL_DELAYS_PURGE) {
            self.walk.iter_mut().for_each(|(due, _)| *due = now + DELAY);
            self.named.iter_mut().for_each(|(due, _)| *due = now + DELAY);
        }
        self.retired.retain(|list| Arc::strong_count(list) > 1);
        while self.named.front().is_some_and(|(due, _)| now >= *due) {
            let Some((_, hashes)) = self.named.pop_front() else { break };
            // Without the hashes that are permitted again.
            let hashes = hashes.iter().copied().filter(|hash| !list.permits(*hash)).collect();
            effects.push(Effect::Remove(Removal::Named(hashes)));
        }
        if let Some((_, list)) = self.walk.take_if(|(due, _)| now >= *due) {
            let superseded = self.superseded.clone();
            effects.push(Effect::Remove(Removal::Forbidden { list, superseded }));
        }
    }

    /// Whether a removal is due later.
    pub(super) fn is_scheduled(&self) -> bool {
        self.walk.is_some() || !self.named.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::settings::{Access, Listed};

    /// A deny list without entries.
    fn list() -> Arc<AccessList> {
        let listed = Listed::default();
        Arc::new(onrush_store::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap())
    }

    #[test]
    fn a_stalled_worker_delays_a_purge() {
        let (mut purge, start, list) = (Purge::default(), Instant::now(), list());
        let at = |seconds| start + Duration::from_secs(seconds);
        purge.start(&list, list.clone(), at(0));
        let changes = [ListChange::new(InfoHash([1; 20]), true)];
        purge.update(&Arc::new(list.with(&changes)), &changes, list.clone(), at(0));
        let mut tick = |stalled, second| {
            let mut effects = Effects::default();
            purge.tick(&list, &[Duration::ZERO, stalled], at(second), &mut effects);
            (effects.0.len(), purge.is_scheduled())
        };
        assert_eq!(tick(Duration::ZERO, 1), (0, true));
        for second in 2..10 {
            assert_eq!(tick(Duration::from_secs(second - 1), second), (0, true), "at {second} s");
        }
        assert_eq!(tick(Duration::ZERO, 10), (0, true));
        assert_eq!(tick(Duration::ZERO, 11), (2, false));
    }

    #[test]
    fn a_replaced_list_is_freed() {
        let mut purge = Purge::default();
        let now = Instant::now();
        let (first, second) = (list(), list());
        let weak = Arc::downgrade(&first);
        for _ in 0..3 {
            purge.start(&first, first.clone(), now);
        }
        // A merge retires its source and the list in force, which are often the same.
        purge.retire(first.clone());
        purge.start(&second, first, now);
        purge.tick(&second, &[], now, &mut Effects::default());
        assert_eq!(weak.strong_count(), 0, "after reloads of itself, and retired twice");
    }
}
