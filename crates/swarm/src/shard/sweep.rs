//! Removing expired peers and swarms, a bounded part of the shard per call, so that no request
//! waits for it.

use std::time::Duration;

use onrush_proto::Family;

use super::Shard;
use super::change_log::{ChangeKind, ShardChange};
use crate::index::Index;
use crate::peers::{Expired, Expiry, Peers, SweepPosition};
use crate::time::Moment;

/// The work of a call of [`Shard::sweep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Swarms, peers and tables of the index visited, those of removed swarms included.
    pub visited: usize,
    /// Whether a full pass over the shard ended in this call.
    pub pass_finished: bool,
}

/// The position of the current pass.
///
/// A pass begins with the tables of the index, so that they shrink even if no swarm is left, and
/// then runs downwards from the last swarm: removing one moves the last swarm into its place, which
/// this pass has visited already, so none is missed.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Tables of the index that are left to visit.
    tables: usize,
    /// Swarms that are left to visit: those at places below.
    left: usize,
    /// The position within the next one, if it is a large one.
    position: SweepPosition,
    /// The swarms visited so far that have peers of each family.
    by_family: SwarmsByFamily,
}

/// Swarms that have peers of each family; a swarm with peers of both counts in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwarmsByFamily {
    /// Swarms with IPv4 peers.
    pub v4: u64,
    /// Swarms with IPv6 peers.
    pub v6: u64,
}

/// Tables visited at once.
const TABLES: usize = 64;

impl Cursor {
    fn is_at_the_end(&self) -> bool {
        self.tables == 0 && self.left == 0
    }
}

impl Shard {
    /// Removes peers that have not announced for a lifetime, and idle swarms after their retention,
    /// a part of the shard per call. Visits at most `budget` peers and swarms, plus the rest of one
    /// short list (under 256 peers). Returns early when a pass that began in this call ends:
    /// `usize::MAX` visits everything once, and some parts twice.
    ///
    /// A peer that has expired when a pass begins is removed when it ends, except in a list of more
    /// than 128 peers that has shrunk by stops meanwhile: some of its peers may stay until the next
    /// pass.
    pub fn sweep(&mut self, now: Moment, budget: usize) -> Swept {
        let mut swept = Swept::default();
        self.sweep_idle(now, budget, &mut swept);
        swept.visited += self.release_some(budget.saturating_sub(swept.visited));
        let expiry = Expiry::new(now, self.settings.peer_lifetime);
        let mut began = false;
        while swept.visited < budget {
            if self.cursor.is_at_the_end() {
                if began {
                    break;
                }
                began = true;
                self.cursor =
                    Cursor { tables: self.tables(), left: self.store.len(), ..Cursor::default() };
            }
            if self.cursor.tables > 0 {
                let tables = self.cursor.tables.min(TABLES).min(budget - swept.visited);
                self.store.shrink_index(tables);
                self.cursor.tables -= tables;
                swept.visited += tables;
                // Swarms created meanwhile are visited as well: a pass that began with none would
                // count none.
                self.cursor.left = self.store.len();
            } else {
                self.sweep_next(now, expiry, budget, &mut swept);
            }
            if self.cursor.is_at_the_end() {
                swept.pass_finished = true;
                self.by_family = self.cursor.by_family;
            }
        }
        swept
    }

    /// The budget with which calls of [`sweep`](Self::sweep) at intervals of `since_last` complete
    /// a pass in `full_pass`; above 0.
    pub fn sweep_budget(&self, since_last: Duration, full_pass: Duration) -> usize {
        let all = (self.store.len() + self.tables()) as u128 + u128::from(self.totals.peers());
        let due = (all * since_last.as_nanos()).div_ceil(full_pass.as_nanos().max(1));
        usize::try_from(due).unwrap_or(usize::MAX).saturating_add(1)
    }

    fn tables(&self) -> usize {
        Index::tables_for(self.settings.max_peers.saturating_add(self.settings.max_idle_swarms))
    }

    /// The queue of idle swarms is in order of age: the oldest is at its head.
    fn sweep_idle(&mut self, now: Moment, budget: usize, swept: &mut Swept) {
        while swept.visited < budget
            && let Some((place, since)) = self.store.oldest_idle()
            && now.since(since) >= self.settings.completed_retention
        {
            self.store.remove(place);
            swept.visited += 1;
        }
    }

    /// Visits the next swarm, or the next part of a large one.
    fn sweep_next(&mut self, now: Moment, expiry: Expiry, budget: usize, swept: &mut Swept) {
        if self.cursor.left > self.store.len() {
            // The swarm at the position is gone, and the pass has visited no swarm that took its
            // place: the next one is visited from its beginning.
            self.cursor = Cursor {
                left: self.store.len(),
                by_family: self.cursor.by_family,
                ..Cursor::default()
            };
        }
        let Some(at) = self.cursor.left.checked_sub(1) else { return };
        let place = at as u32;
        let visited_before = swept.visited;
        let lists = self.sources.is_some() || self.logs_all();
        let mut expired = Expired::listing(lists, &mut self.expired);
        let (swarm, keys) = self.store.with_keys(place);
        let (info_hash, peers) = (swarm.info_hash, &mut swarm.peers);
        let mut position = Some(self.cursor.position);
        if let Peers::Large(large) = peers {
            while let Some(on) = position
                && swept.visited < budget
            {
                let (visited, next) = large.sweep_step(on, expiry, keys, &mut expired);
                swept.visited += visited;
                position = next;
            }
        } else {
            swept.visited += 1 + peers.len();
            peers.sweep(expiry, &mut expired);
            position = None;
        }
        let emptied = peers.is_empty() && !matches!(peers, Peers::Idle(_));
        let passed = swept.visited - visited_before;
        match position {
            Some(position) if !emptied => self.cursor.position = position,
            _ => {
                if !emptied {
                    peers.shrink();
                    self.cursor.by_family.v4 += u64::from(peers.has(Family::V4));
                    self.cursor.by_family.v6 += u64::from(peers.has(Family::V6));
                }
                self.cursor.left = at;
                self.cursor.position = SweepPosition::default();
            }
        }
        self.remove_from_counts(&expired);
        self.totals.expired += u64::from(expired.peers.into_iter().sum::<u32>());
        if self.logs_all() {
            for &endpoint in &expired.endpoints {
                let kind = ChangeKind::Expired { endpoint };
                self.log_change(|| ShardChange { info_hash, at: now, completed: 0, kind });
            }
        }
        self.expired = expired.into_list();
        self.pass(place, passed);
        if emptied {
            self.emptied(place, now);
        }
    }

    /// Takes removed peers out of all counts.
    pub(super) fn remove_from_counts(&mut self, expired: &Expired) {
        for family in [Family::V4, Family::V6] {
            let (peers, seeders) =
                (expired.peers[family as usize], expired.seeders[family as usize]);
            self.totals.peers_removed(family, peers.into(), seeders.into());
        }
        if let Some(sources) = &mut self.sources {
            let keys = &self.store.keys;
            expired.endpoints.iter().for_each(|peer| sources.peer_removed(keys.source(peer)));
        }
    }
}
