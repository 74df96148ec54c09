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
use crate::peers::{Counts, TICK, Tick, WalkPosition};
use crate::time::Moment;

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

    /// Shows a peer of the last swarm, and its age in seconds, to within 4. In each part the IPv4
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    use onrush_proto::{Endpoint, Event, TransactionId};
    use proptest::prelude::*;

    use super::*;
    use crate::batch::{Announce, ShardBatch};
    use crate::shard::ShardSettings;

    fn shard() -> Shard {
        let settings = ShardSettings { max_idle_swarms: 50, ..ShardSettings::default() };
        Shard::new(settings, [7; 16], 1)
    }

    fn hash(number: u8) -> InfoHash {
        InfoHash([number; 20])
    }

    fn serve(shard: &mut Shard, number: u8, event: Event) {
        let announce = Announce {
            info_hash: hash(number),
            endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 51_413),
            event,
            seeder: true,
            want: 0,
            transaction_id: TransactionId(1),
        };
        let mut batch = ShardBatch::<(), ()>::new(1, 1, 64);
        batch.push_announce(announce, ()).unwrap();
        shard.serve(&mut batch, Moment(10));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Come(u8),
        Complete(u8),
        Leave(u8),
        Walk(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = 0u8..80;
        let step = prop_oneof![
            2 => number.clone().prop_map(Step::Come),
            1 => number.clone().prop_map(Step::Complete),
            2 => number.prop_map(Step::Leave),
            2 => (1usize..12).prop_map(Step::Walk),
        ];
        proptest::collection::vec(step, 1..200)
    }

    #[test]
    fn a_known_swarm_is_found_by_its_info_hash() {
        let mut shard = shard();
        serve(&mut shard, 1, Event::Started);
        serve(&mut shard, 1, Event::Completed);
        let visited = shard.summary(&hash(1), Moment(20)).unwrap();
        assert_eq!((visited.info_hash, visited.seeders, visited.leechers), (hash(1), 1, 0));
        assert_eq!(visited.idle_for, None);
        assert_eq!(shard.summary(&hash(2), Moment(20)), None);
    }

    proptest! {
        /// Swarms that stay are visited once, removed ones at most once, and later ones never.
        #[test]
        fn every_swarm_that_stays_is_visited_once(before: [u8; 40], steps in steps()) {
            let mut shard = shard();
            before.iter().for_each(|number| serve(&mut shard, number % 80, Event::Started));
            shard.begin_walk();
            let there = |shard: &Shard| -> Vec<InfoHash> {
                shard.swarms(Moment(10)).map(|swarm| swarm.info_hash).collect()
            };
            // The swarms that existed all the time, and those at the beginning.
            let at_first = there(&shard);
            let mut stayed = at_first.clone();
            let mut visited: HashMap<InfoHash, usize> = HashMap::new();
            let mut visit = |swarm: &SwarmSummary| {
                *visited.entry(swarm.info_hash).or_default() += 1;
                Verdict::Keep
            };
            for step in steps {
                match step {
                    Step::Come(number) => serve(&mut shard, number, Event::Started),
                    Step::Complete(number) => serve(&mut shard, number, Event::Completed),
                    Step::Leave(number) => serve(&mut shard, number, Event::Stopped),
                    Step::Walk(swarms) => drop(shard.walk(Moment(10), swarms, &mut visit)),
                }
                shard.check();
                let now = there(&shard);
                stayed.retain(|name| now.contains(name));
            }
            while shard.walk(Moment(10), 3, &mut visit) {}
            prop_assert!(!shard.walk(Moment(10), 3, &mut visit), "the walk is over");
            for name in &stayed {
                prop_assert_eq!(visited.get(name), Some(&1), "{:?}", name);
            }
            for (name, times) in &visited {
                prop_assert!(*times == 1 || !stayed.contains(name));
                prop_assert!(at_first.contains(name), "{:?} was created later", name);
            }
        }

        /// Swarms with the verdict `Remove` are removed with their peers; the others are unchanged.
        #[test]
        fn swarms_with_the_verdict_remove_are_removed(numbers: [u8; 60], odd in 0u8..2) {
            let mut shard = shard();
            numbers.iter().for_each(|number| serve(&mut shard, *number, Event::Started));
            shard.begin_walk();
            let verdict = |swarm: &SwarmSummary| match swarm.info_hash.0[0] % 2 == odd {
                true => Verdict::Remove,
                false => Verdict::Keep,
            };
            while shard.walk(Moment(10), 7, verdict) {
                shard.check();
            }
            shard.check();
            let mut left: Vec<u8> = shard.swarms(Moment(10)).map(|s| s.info_hash.0[0]).collect();
            left.sort_unstable();
            let mut expected = numbers.to_vec();
            expected.retain(|number| number % 2 != odd);
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(left, expected);
        }
    }
}
