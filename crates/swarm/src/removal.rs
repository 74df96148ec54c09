//! Forgetting whole swarms. Of a large one only the entry goes at once and its peers go piece by piece, so that
//! none takes long however many they are.

use onrush_proto::{Family, InfoHash};

use crate::peers::{Expiry, Gone, Many, Peers, Spot};
use crate::shard::Shard;

/// A large swarm that was forgotten: the peers that it still has, and how far they are gone.
#[derive(Debug)]
pub(crate) struct RemovedSwarm {
    pub(crate) peers: Box<Many>,
    spot: Spot,
}

impl Shard {
    /// Forgets a swarm with all of its peers and its `completed`; false when it is not known.
    ///
    /// Nobody finds it any more. Where it had more peers than a single block has, they keep their memory, and are
    /// counted, until [`release`](Self::release) or [`sweep`](Self::sweep) has come to them.
    pub fn remove(&mut self, info_hash: &InfoHash) -> bool {
        let Some(place) = self.store.find(info_hash) else {
            return false;
        };
        self.remove_at(place);
        true
    }

    /// Forgets the swarm at a place with all that is in it.
    pub(crate) fn remove_at(&mut self, place: u32) {
        let Self { store, totals, removed, .. } = self;
        let peers = &mut store.get_mut(place).peers;
        if let Peers::Many(_) = peers {
            let nobody = Peers::Inline4 { len: 0, rows: [[0; 8]; 2] };
            if let Peers::Many(peers) = std::mem::replace(peers, nobody) {
                removed.push(RemovedSwarm { peers, spot: Spot::default() });
            }
        } else {
            peers.each(&mut |endpoint, stamp| totals.left(endpoint.family(), stamp.seeder()));
        }
        store.remove(place);
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
            && let Some(RemovedSwarm { peers, spot }) = self.removed.last_mut()
        {
            let mut gone = Gone::default();
            let (work, next) = peers.sweep_on(*spot, Expiry::OF_ALL, &mut gone);
            done += work.max(1);
            match next {
                Some(next) => *spot = next,
                None => drop(self.removed.pop()),
            }
            for family in [Family::V4, Family::V6] {
                let at = family as usize;
                self.totals.left_many(family, gone.peers[at].into(), gone.seeders[at].into());
            }
        }
        done
    }
}
