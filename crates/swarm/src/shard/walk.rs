//! A walk over all swarms of a shard, in steps, with or without their peers. Requests are served
//! between the steps.
//!
//! A walk visits each swarm that exists from its beginning to its end exactly once, whatever is
//! added and removed meanwhile. Swarms created after its beginning are not visited, and neither are
//! those removed before their turn. Large swarms are visited in several parts: each peer that is
//! stored from the walk's beginning to its end is in exactly one part, even if it announces again
//! or becomes a seeder meanwhile; peers that are added or removed may be shown or not.

use onrush_proto::{Endpoint, InfoHash};

use super::Shard;
use crate::peers::{Counts, Tick, WalkPosition};
use crate::time::{Moment, TICK};

/// A swarm as a walk shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmSummary {
    /// The info hash.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Peers that have the whole torrent.
    pub seeders: u32,
    /// Other peers.
    pub leechers: u32,
    /// Seconds since its last peer left, if it has none.
    pub idle_for: Option<u32>,
}

/// The decision about a visited swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Keep it.
    Keep,
    /// Remove it with its peers and its `completed`.
    Remove,
}

/// Receives swarms with their peers.
pub trait Visitor {
    /// Shows a swarm, or with `continued` the next part of a large one. Its counts are of the whole
    /// swarm.
    fn swarm(&mut self, swarm: &SwarmSummary, continued: bool);

    /// Shows a peer of the last swarm, and its age in seconds, to within 8. In each part the IPv4
    /// peers come first.
    fn peer(&mut self, endpoint: &Endpoint, seeder: bool, age: u32);
}

impl Shard {
    /// Begins a walk over the current swarms. A shard has one walk at a time: a walk in progress
    /// ends.
    pub fn begin_walk(&mut self) {
        self.store.begin_walk();
    }

    /// The number of swarms that the walk has not visited, or only in part: it shows the length of
    /// a step.
    pub fn walk_remaining(&self) -> usize {
        self.store.walk_remaining()
    }

    /// Visits up to `swarms` more swarms; returns whether there are more. The peers of a removed
    /// large swarm are released later (see [`remove`](Self::remove)).
    pub fn walk(
        &mut self,
        now: Moment,
        swarms: usize,
        mut visit: impl FnMut(&SwarmSummary) -> Verdict,
    ) -> bool {
        for _ in 0..swarms {
            let Some((place, _)) = self.store.walk_next() else { return false };
            if visit(&self.summary_at(place, now)) == Verdict::Remove {
                self.remove_at(place, now);
            }
        }
        !self.store.walk_is_over()
    }

    /// Shows more swarms with their peers, up to `budget` swarms and peers together, and at most
    /// the rest of a short list (128 peers) or of a few chunks of a large one more. Returns whether
    /// there are more.
    pub fn walk_with_peers(
        &mut self,
        now: Moment,
        budget: usize,
        visitor: &mut impl Visitor,
    ) -> bool {
        let tick = Tick::of(now);
        let mut left = budget.max(1);
        while left > 0 {
            let Some((place, position)) = self.store.walk_next() else { return false };
            visitor.swarm(&self.summary_at(place, now), position != WalkPosition::FIRST);
            let mut peers = 0;
            let (swarm, keys) = self.store.with_keys(place);
            let next = swarm.peers.walk_step(position, left, keys, &mut |endpoint, stamp| {
                peers += 1;
                let age = u32::from(tick.since(stamp.seen())) * TICK;
                visitor.peer(&endpoint, stamp.seeder(), age);
            });
            match next {
                // The budget is spent.
                Some(position) => {
                    self.store.partial(place, position);
                    break;
                }
                None => left = left.saturating_sub(1 + peers),
            }
        }
        !self.store.walk_is_over()
    }

    /// A swarm by its info hash; `None` when it is unknown.
    pub fn summary(&self, info_hash: &InfoHash, now: Moment) -> Option<SwarmSummary> {
        self.store.find(info_hash).map(|place| self.summary_at(place, now))
    }

    fn summary_at(&self, place: u32, now: Moment) -> SwarmSummary {
        let swarm = self.store.get(place);
        let Counts { seeders, leechers } = swarm.peers.counts();
        let idle_for = swarm.idle_for(now);
        let (info_hash, completed) = (swarm.info_hash, swarm.completed);
        SwarmSummary { info_hash, completed, seeders, leechers, idle_for }
    }
}
