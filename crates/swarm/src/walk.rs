//! A walk over all swarms of a shard, in pieces: for whoever needs to see every swarm, or every peer, while
//! requests go on being served between the pieces.
//!
//! A walk meets each swarm that is there from its beginning to its end exactly once, whatever comes and goes
//! meanwhile. Swarms that come after it began are not met; those that go before their turn neither. Large
//! swarms are met with their peers in several pieces: each peer that is there from the walk's beginning to
//! its end is in exactly one of these, also when it announces again or changes what it is meanwhile; who comes or
//! goes may be met or not.

use onrush_proto::{Endpoint, InfoHash};

use crate::peers::{Counts, TICK, Tick, WalkPosition};
use crate::shard::Shard;
use crate::time::Moment;

/// What a walk shows of a swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwarmSummary {
    /// Its name.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Peers that miss nothing.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// Seconds since its last peer left, where it has none.
    pub idle_for: Option<u32>,
}

/// What is to become of a swarm that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Keep,
    /// It is forgotten with its peers and its `completed`.
    Remove,
}

/// Who is shown swarms with their peers.
pub trait Visitor {
    /// A swarm, or the next piece of one that has many peers: `goes_on` tells that it was shown before.
    /// Its counts are of the whole swarm.
    fn swarm(&mut self, swarm: &SwarmSummary, goes_on: bool);

    /// A peer of the swarm that was shown last, seen so many seconds ago, to within 4. In each piece
    /// those of IPv4 come first.
    fn peer(&mut self, endpoint: &Endpoint, seeder: bool, age: u32);
}

impl Shard {
    /// Begins a walk over the swarms that are there now. There is one walk at a time: one that is under
    /// way is over.
    pub fn begin_walk(&mut self) {
        self.store.begin_walk();
    }

    /// How many swarms the walk that is under way has not met yet, or not all of: the length of a step is seen by
    /// it.
    pub fn walk_remaining(&self) -> usize {
        self.store.walk_remaining()
    }

    /// Meets up to `swarms` more swarms; returns whether there are more. Takes as long as that: a large one that
    /// goes is not gone at once (see [`removal`](Self::remove)).
    pub fn walk(
        &mut self,
        now: Moment,
        swarms: usize,
        mut meet: impl FnMut(&SwarmSummary) -> Verdict,
    ) -> bool {
        for _ in 0..swarms {
            let Some((place, _)) = self.store.walk_next() else { return false };
            if meet(&self.met(place, now)) == Verdict::Remove {
                self.remove_at(place, now);
            }
        }
        !self.store.walk_is_over()
    }

    /// Shows more swarms with their peers, up to `budget` swarms and peers together, but always something:
    /// at most the rest of a short list (128 peers) or of a few chunks of a long one more. Returns whether there
    /// are more.
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
            visitor.swarm(&self.met(place, now), position != WalkPosition::FIRST);
            let mut peers = 0;
            let (swarm, keys) = self.store.with_keys(place);
            let next = swarm.peers.walk_step(position, left, keys, &mut |endpoint, stamp| {
                peers += 1;
                let age = u32::from(tick.since(stamp.seen())) * TICK;
                visitor.peer(&endpoint, stamp.seeder(), age);
            });
            match next {
                // The budget is used up.
                Some(position) => {
                    self.store.partial(place, position);
                    break;
                }
                None => left = left.saturating_sub(1 + peers),
            }
        }
        !self.store.walk_is_over()
    }

    /// Meets one swarm by its name; `None` when it is not known.
    pub fn summary(&self, info_hash: &InfoHash, now: Moment) -> Option<SwarmSummary> {
        self.store.find(info_hash).map(|place| self.met(place, now))
    }

    fn met(&self, place: u32, now: Moment) -> SwarmSummary {
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
        let settings = ShardSettings {
            interval: 1800,
            interval_jitter_percent: 5,
            peer_lifetime: 3600,
            completed_retention: 86_400,
            max_peers: 10_000,
            max_idle_swarms: 50,
        };
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
    fn one_that_is_known_is_met_by_name() {
        let mut shard = shard();
        serve(&mut shard, 1, Event::Started);
        serve(&mut shard, 1, Event::Completed);
        let met = shard.summary(&hash(1), Moment(20)).unwrap();
        assert_eq!((met.info_hash, met.seeders, met.leechers), (hash(1), 1, 0));
        assert_eq!(met.idle_for, None);
        assert_eq!(shard.summary(&hash(2), Moment(20)), None);
    }

    proptest! {
        /// Whatever comes and goes: who stays is met once, who leaves at most once, who comes late never.
        #[test]
        fn every_swarm_that_stays_is_met_once(before: [u8; 40], steps in steps()) {
            let mut shard = shard();
            before.iter().for_each(|number| serve(&mut shard, number % 80, Event::Started));
            shard.begin_walk();
            let there = |shard: &Shard| -> Vec<InfoHash> {
                shard.swarms(Moment(10)).map(|swarm| swarm.info_hash).collect()
            };
            // Who has been there all the time, and who was there at the beginning.
            let at_first = there(&shard);
            let mut stayed = at_first.clone();
            let mut met: HashMap<InfoHash, usize> = HashMap::new();
            let mut meet = |swarm: &SwarmSummary| {
                *met.entry(swarm.info_hash).or_default() += 1;
                Verdict::Keep
            };
            for step in steps {
                match step {
                    Step::Come(number) => serve(&mut shard, number, Event::Started),
                    Step::Complete(number) => serve(&mut shard, number, Event::Completed),
                    Step::Leave(number) => serve(&mut shard, number, Event::Stopped),
                    Step::Walk(swarms) => drop(shard.walk(Moment(10), swarms, &mut meet)),
                }
                shard.check();
                let now = there(&shard);
                stayed.retain(|name| now.contains(name));
            }
            while shard.walk(Moment(10), 3, &mut meet) {}
            prop_assert!(!shard.walk(Moment(10), 3, &mut meet), "it is over");
            for name in &stayed {
                prop_assert_eq!(met.get(name), Some(&1), "{:?}", name);
            }
            for (name, times) in &met {
                prop_assert!(*times == 1 || !stayed.contains(name));
                prop_assert!(at_first.contains(name), "{:?} came later", name);
            }
        }

        /// Swarms that are to go are gone, with their peers, and the others are as they were.
        #[test]
        fn whoever_is_to_go_goes(numbers: [u8; 60], odd in 0u8..2) {
            let mut shard = shard();
            numbers.iter().for_each(|number| serve(&mut shard, *number, Event::Started));
            shard.begin_walk();
            let goes = |swarm: &SwarmSummary| match swarm.info_hash.0[0] % 2 == odd {
                true => Verdict::Remove,
                false => Verdict::Keep,
            };
            while shard.walk(Moment(10), 7, goes) {
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
