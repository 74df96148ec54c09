//! Removing whole swarms. The entry of a large one is removed at once and its peers are released in
//! steps, so that no call takes long.

use onrush_proto::InfoHash;

use super::Shard;
use super::change_log::{ChangeKind, ShardChange};
use crate::peers::{Expired, Expiry, Large, Peers, SweepPosition};
use crate::time::Moment;

/// A removed large swarm: its remaining peers, and the position of their release.
#[derive(Debug)]
pub(crate) struct RemovedSwarm {
    pub(crate) peers: Box<Large>,
    position: SweepPosition,
}

impl Shard {
    /// Removes a swarm with all of its peers and its `completed`; false when it is unknown.
    ///
    /// It cannot be found any more. If it had more peers than a single block holds, they keep their
    /// memory and are counted until [`release`](Self::release) or [`sweep`](Self::sweep) has
    /// released them.
    pub fn remove(&mut self, info_hash: &InfoHash, now: Moment) -> bool {
        let Some(place) = self.store.find(info_hash) else {
            return false;
        };
        self.remove_at(place, now);
        true
    }

    /// Removes the swarm at a place with its peers.
    pub(crate) fn remove_at(&mut self, place: u32, now: Moment) {
        let Self { store, totals, removed, sources, .. } = self;
        let (swarm, keys) = store.with_keys(place);
        let (info_hash, peers) = (swarm.info_hash, &mut swarm.peers);
        if let Peers::Large(_) = peers {
            let empty = Peers::Inline4 { len: 0, rows: [[0; 8]; 2] };
            if let Peers::Large(peers) = std::mem::replace(peers, empty) {
                removed.push(RemovedSwarm { peers, position: SweepPosition::default() });
            }
        } else {
            peers.each(&mut |endpoint, stamp| {
                totals.peer_removed(endpoint.family(), stamp.seeder());
                if let Some(sources) = sources {
                    sources.peer_removed(keys.source(&endpoint));
                }
            });
        }
        store.remove(place);
        let kind = ChangeKind::SwarmRemoved;
        self.log_change(|| ShardChange { info_hash, at: now, completed: 0, kind });
    }

    /// Releases peers of removed large swarms: up to `budget`, and at most the rest of a chunk (165
    /// peers) more. Returns whether some are left.
    pub fn release(&mut self, budget: usize) -> bool {
        self.release_some(budget);
        !self.removed.is_empty()
    }

    /// Releases peers; returns the work done, in peers.
    pub(crate) fn release_some(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(RemovedSwarm { peers, position }) = self.removed.last_mut()
        {
            let mut expired = Expired::listing(self.sources.is_some(), &mut self.expired);
            let keys = &self.store.keys;
            let (work, next) = peers.sweep_step(*position, Expiry::OF_ALL, keys, &mut expired);
            done += work.max(1);
            match next {
                Some(next) => *position = next,
                None => drop(self.removed.pop()),
            }
            self.remove_from_counts(&expired);
            self.expired = expired.into_list();
        }
        done
    }
}
