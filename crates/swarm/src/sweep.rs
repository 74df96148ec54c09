//! Forgetting what has not been heard of, in small steps: a bounded piece of the shard per call,
//! so that no request ever waits for a clean-up.

use std::time::Duration;

use onrush_proto::Family;

use crate::change_log::{Change, ChangeKind};
use crate::index::Index;
use crate::peers::{Expired, Expiry, Peers, SweepPosition};
use crate::shard::Shard;
use crate::time::Moment;

/// What a call of [`Shard::sweep`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Swarms, peers and tables of the index looked at; those of swarms that were forgotten, too.
    pub visited: usize,
    /// Peers forgotten.
    pub expired: usize,
    /// Swarms without peers whose `completed` was forgotten after its time.
    pub idle_expired: usize,
    /// Whether a pass has come to its end, so that everything was looked at once more.
    pub pass_finished: bool,
}

/// How far the current pass has come.
///
/// A pass begins with the tables of the index, so that they shrink with the swarms even if no
/// swarm is left, and goes on downwards from the last swarm: removing one moves the last into its place, which
/// this pass has met already, so nothing is left out and nothing has to be remembered.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// Tables of the index still to be looked at.
    tables: usize,
    /// Swarms still to be met: those at places below.
    left: usize,
    /// Where in the next of them, if it is a large one.
    position: SweepPosition,
    /// Those met so far that have peers of each family.
    by_family: SwarmsByFamily,
}

/// Swarms that have peers of each family; those with peers of both are in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwarmsByFamily {
    /// Swarms with IPv4 peers.
    pub v4: u64,
    /// Swarms with IPv6 peers.
    pub v6: u64,
}

/// Tables that are looked at in one go.
const TABLES: usize = 64;

impl Cursor {
    fn is_at_the_end(&self) -> bool {
        self.tables == 0 && self.left == 0
    }
}

impl Shard {
    /// Forgets peers that have not announced for a lifetime, and idle swarms after their time, a
    /// piece of the shard per call. Looks at `budget` peers and swarms at most, plus the rest of
    /// one short list (under 256 peers). Ends early when a pass that began in this call has come
    /// to its end: `usize::MAX` looks at everything once, and at some twice.
    ///
    /// A peer whose lifetime is over when a pass begins is gone when it ends, but for the peers
    /// of a list of more than 128 which has shrunk by departures in the meantime: some of these
    /// may stay until the next pass.
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
                self.store.tidy(tables);
                self.cursor.tables -= tables;
                swept.visited += tables;
                // Who has come meanwhile is met as well: a pass that began with nobody would count nobody.
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

    /// The budget with which calls of [`sweep`](Self::sweep) that come `since_last` after one
    /// another get once around the shard in `full_pass`; above 0.
    pub fn sweep_budget(&self, since_last: Duration, full_pass: Duration) -> usize {
        let all = (self.store.len() + self.tables()) as u128 + u128::from(self.totals.peers());
        let due = (all * since_last.as_nanos()).div_ceil(full_pass.as_nanos().max(1));
        usize::try_from(due).unwrap_or(usize::MAX).saturating_add(1)
    }

    fn tables(&self) -> usize {
        Index::tables_for(self.settings.max_peers.saturating_add(self.settings.max_idle_swarms))
    }

    /// The queue of idle swarms is in order of age: whoever is too old is at its head.
    fn sweep_idle(&mut self, now: Moment, budget: usize, swept: &mut Swept) {
        while swept.visited < budget
            && let Some((place, since)) = self.store.oldest_idle()
            && now.since(since) >= self.settings.completed_retention
        {
            self.store.remove(place);
            swept.idle_expired += 1;
            swept.visited += 1;
        }
    }

    /// Looks at the next swarm, or at the next part of a large one.
    fn sweep_next(&mut self, now: Moment, expiry: Expiry, budget: usize, swept: &mut Swept) {
        if self.cursor.left > self.store.len() {
            // Where the pass had come to is gone, and nothing it has met took that place: the
            // next swarm is to be met from its beginning.
            self.cursor = Cursor {
                left: self.store.len(),
                by_family: self.cursor.by_family,
                ..Cursor::default()
            };
        }
        let Some(at) = self.cursor.left.checked_sub(1) else { return };
        let place = at as u32;
        let endpoints = self.logs_all().then(Vec::new);
        let swarm = self.store.get_mut(place);
        let (info_hash, peers) = (swarm.info_hash, &mut swarm.peers);
        let mut expired = Expired { endpoints, ..Expired::default() };
        let mut position = Some(self.cursor.position);
        if let Peers::Large(large) = peers {
            while let Some(on) = position
                && swept.visited < budget
            {
                let (visited, next) = large.sweep_step(on, expiry, &mut expired);
                swept.visited += visited;
                position = next;
            }
        } else {
            swept.visited += 1 + peers.len();
            peers.sweep(expiry, &mut expired);
            position = None;
        }
        let emptied = peers.is_empty() && !matches!(peers, Peers::Idle(_));
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
        self.count_expired(&expired, swept);
        for endpoint in expired.endpoints.into_iter().flatten() {
            let kind = ChangeKind::Expired { endpoint };
            self.log_change(|| Change { info_hash, at: now, completed: 0, kind });
        }
        if emptied {
            self.emptied(place, now);
        }
    }

    fn count_expired(&mut self, expired: &Expired, swept: &mut Swept) {
        for family in [Family::V4, Family::V6] {
            let peers = expired.peers[family as usize];
            self.totals.peers_removed(
                family,
                peers.into(),
                expired.seeders[family as usize].into(),
            );
            self.totals.expired += u64::from(peers);
            swept.expired += peers as usize;
        }
    }
}
