//! Forgetting whole swarms. Of a large one only the entry goes at once and its peers go piece by piece, so that
//! none takes long however many they are.

use onrush_proto::{Family, InfoHash};

use crate::change_log::{Change, ChangeKind};
use crate::peers::{Expired, Expiry, Large, Peers, SweepPosition};
use crate::shard::Shard;
use crate::time::Moment;

/// A large swarm that was forgotten: the peers that it still has, and how far they are gone.
#[derive(Debug)]
pub(crate) struct RemovedSwarm {
    pub(crate) peers: Box<Large>,
    position: SweepPosition,
}

impl Shard {
    /// Forgets a swarm with all of its peers and its `completed`; false when it is not known.
    ///
    /// Nobody finds it any more. Where it had more peers than a single block has, they keep their memory, and are
    /// counted, until [`release`](Self::release) or [`sweep`](Self::sweep) has come to them.
    pub fn remove(&mut self, info_hash: &InfoHash, now: Moment) -> bool {
        let Some(place) = self.store.find(info_hash) else {
            return false;
        };
        self.remove_at(place, now);
        true
    }

    /// Forgets the swarm at a place with all that is in it.
    pub(crate) fn remove_at(&mut self, place: u32, now: Moment) {
        let Self { store, totals, removed, .. } = self;
        let info_hash = store.get(place).info_hash;
        let peers = &mut store.get_mut(place).peers;
        if let Peers::Large(_) = peers {
            let nobody = Peers::Inline4 { len: 0, rows: [[0; 8]; 2] };
            if let Peers::Large(peers) = std::mem::replace(peers, nobody) {
                removed.push(RemovedSwarm { peers, position: SweepPosition::default() });
            }
        } else {
            peers.each(&mut |endpoint, stamp| {
                totals.peer_removed(endpoint.family(), stamp.seeder())
            });
        }
        store.remove(place);
        let kind = ChangeKind::SwarmRemoved;
        self.log_change(|| Change { info_hash, at: now, completed: 0, kind });
    }

    /// Lets peers of large swarms that were forgotten go: up to `budget`, and at most the rest of a chunk (165
    /// peers) more. Returns whether some are left.
    pub fn release(&mut self, budget: usize) -> bool {
        self.release_some(budget);
        !self.removed.is_empty()
    }

    /// How much work that was: a peer that goes is one piece of it.
    pub(crate) fn release_some(&mut self, budget: usize) -> usize {
        let mut done = 0;
        while done < budget
            && let Some(RemovedSwarm { peers, position }) = self.removed.last_mut()
        {
            let mut expired = Expired::default();
            let (work, next) = peers.sweep_step(*position, Expiry::OF_ALL, &mut expired);
            done += work.max(1);
            match next {
                Some(next) => *position = next,
                None => drop(self.removed.pop()),
            }
            for family in [Family::V4, Family::V6] {
                let at = family as usize;
                self.totals.peers_removed(
                    family,
                    expired.peers[at].into(),
                    expired.seeders[at].into(),
                );
            }
        }
        done
    }
}
