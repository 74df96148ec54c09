//! All swarms of a shard, without gaps: by info hash, by place, and, if without peers, by the time
//! since their last one, in queues by the magnitude of their `completed`, the least of which is
//! evicted first.
//!
//! The last swarm moves into the place of a removed one. So memory is proportional to the number of
//! swarms, is freed from the end, and a sweep reads the entries in sequence.

use onrush_proto::InfoHash;

use crate::index::Index;
use crate::keys::Keys;
use crate::peers::{Idle, Peers, WalkPosition};
use crate::steps::Steps;
use crate::swarm::Swarm;
use crate::time::Moment;

/// No place: there are never as many swarms.
const NOWHERE: u32 = u32::MAX;

/// Queues of swarms without peers, by their `completed`: 1, 2 to 3, 4 to 15, 16 to 255, 256 to
/// 65,535, and more.
const QUEUES: usize = 6;

/// The queue of a `completed` above 0.
pub(crate) fn queue_of(completed: u32) -> u8 {
    completed.ilog2().checked_ilog2().map_or(0, |magnitude| magnitude as u8 + 1)
}

/// A predicted place of a swarm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate(u32);

impl Candidate {
    /// No prediction.
    pub(crate) const NOWHERE: Self = Self(NOWHERE);

    #[inline]
    pub(crate) fn place(self) -> Option<u32> {
        (self.0 != NOWHERE).then_some(self.0)
    }
}

/// The swarms.
#[derive(Debug)]
pub(crate) struct Store {
    /// The keys of the shard.
    pub(crate) keys: Keys,
    /// 192 KiB per step.
    swarms: Steps<Swarm, 4096>,
    index: Index,
    /// The ends of the queues, by [`Idle::queue`].
    oldest: [u32; QUEUES],
    newest: [u32; QUEUES],
    /// The number of swarms without peers.
    pub(crate) idle: usize,
    /// The number of removals so far, modulo 2^32: changes whenever another swarm may have moved
    /// into the place of a removed one.
    pub(crate) removals: u32,
    /// The current walk has not visited the places below this one yet; 0 without a walk.
    unvisited: u32,
    /// The swarm that the walk has visited in part; [`NOWHERE`] without one. It is not among the
    /// unvisited.
    partial: u32,
    /// The walk's position within that swarm.
    due: WalkPosition,
}

impl Store {
    /// For at most `swarms`.
    pub(crate) fn new(keys: Keys, swarms: u64) -> Self {
        let index = Index::new(swarms);
        Self {
            keys,
            swarms: Steps::default(),
            index,
            oldest: [NOWHERE; QUEUES],
            newest: [NOWHERE; QUEUES],
            idle: 0,
            removals: 0,
            unvisited: 0,
            partial: NOWHERE,
            due: WalkPosition::FIRST,
        }
    }

    /// The number of swarms, those without peers included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.swarms.len()
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &Swarm {
        self.swarms.get(place as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut Swarm {
        self.swarms.get_mut(place as usize)
    }

    /// Predicts a swarm's place from the index alone, by the [keyed hash](Keys::info_hash) of its
    /// info hash.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Candidate {
        Candidate(self.index.candidate(hash).unwrap_or(NOWHERE))
    }

    /// Verifies a prediction against the entry. A verified one stays correct until a swarm is
    /// removed.
    #[inline]
    pub(crate) fn verified(&self, info_hash: &InfoHash, Candidate(place): Candidate) -> Candidate {
        match self.swarms.checked(place as usize) {
            Some(swarm) if swarm.info_hash == *info_hash => Candidate(place),
            _ => Candidate::NOWHERE,
        }
    }

    /// Reads the memory of a predicted swarm's peers, to bring it into the cache.
    #[inline]
    pub(crate) fn touch_peers(&self, Candidate(place): Candidate) -> u32 {
        match self.swarms.checked(place as usize) {
            Some(swarm) => u32::from(swarm.peers.touch()),
            None => 0,
        }
    }

    /// A swarm, by a prediction since which nothing was added or removed.
    #[inline]
    pub(crate) fn lookup(&self, name: &[u8; 20], Candidate(place): Candidate) -> Option<&Swarm> {
        match self.swarms.checked(place as usize)? {
            swarm if swarm.info_hash.0 == *name => Some(swarm),
            _ => self.find(&InfoHash(*name)).map(|place| self.get(place)),
        }
    }

    /// The place of a swarm, by comparing every candidate of the index.
    pub(crate) fn find(&self, info_hash: &InfoHash) -> Option<u32> {
        let hash = self.keys.info_hash(info_hash);
        self.index.find(hash, |place| self.get(place).info_hash == *info_hash)
    }

    /// Adds a swarm that is not stored yet and has a peer; returns its place.
    pub(crate) fn add(&mut self, swarm: Swarm) -> u32 {
        let place = self.swarms.len() as u32;
        let hash = self.keys.info_hash(&swarm.info_hash);
        self.swarms.push(swarm);
        let Self { keys, swarms, index, .. } = self;
        index.insert(hash, place, |place| keys.info_hash(&swarms.get(place as usize).info_hash));
        place
    }

    /// Begins a walk over all current swarms, or restarts it.
    pub(crate) fn begin_walk(&mut self) {
        self.unvisited = self.swarms.len() as u32;
        self.partial = NOWHERE;
    }

    /// The next swarm of the walk, if there is one, and the position within it.
    pub(crate) fn walk_next(&mut self) -> Option<(u32, WalkPosition)> {
        if self.partial != NOWHERE {
            return Some((std::mem::replace(&mut self.partial, NOWHERE), self.due));
        }
        self.unvisited = self.unvisited.checked_sub(1)?;
        Some((self.unvisited, WalkPosition::FIRST))
    }

    /// Continues the walk later within this swarm.
    pub(crate) fn partial(&mut self, place: u32, due: WalkPosition) {
        (self.partial, self.due) = (place, due);
    }

    /// The number of swarms that the walk has not visited, or only in part.
    pub(crate) fn walk_remaining(&self) -> usize {
        self.unvisited as usize + usize::from(self.partial != NOWHERE)
    }

    /// Whether the walk has visited all swarms.
    pub(crate) fn walk_is_over(&self) -> bool {
        self.unvisited == 0 && self.partial == NOWHERE
    }

    /// Removes a swarm; the last one moves into its place. A walk in progress still visits each of
    /// the others once: if it has not visited the removed swarm, the last unvisited one moves there
    /// instead, and the last of all swarms takes that one's place.
    pub(crate) fn remove(&mut self, place: u32) {
        self.removals = self.removals.wrapping_add(1);
        self.activate(place);
        self.index.remove(self.hash_at(place), place);
        if self.partial == place {
            self.partial = NOWHERE;
        }
        let mut hole = place;
        if place < self.unvisited {
            self.unvisited -= 1;
            hole = self.unvisited;
            if hole != place {
                self.swarms.swap(place as usize, hole as usize);
                self.moved(hole, place);
            }
        }
        let last = self.swarms.len() as u32 - 1;
        self.swarms.swap_remove(hole as usize);
        if hole != last {
            self.moved(last, hole);
        }
    }

    /// Updates the index and the neighbours in the queue after a swarm has moved.
    fn moved(&mut self, from: u32, to: u32) {
        self.index.moved(self.hash_at(to), from, to);
        if self.partial == from {
            self.partial = to;
        }
        if let Peers::Idle(Idle { queue, older, newer, .. }) = self.get(to).peers {
            self.link(queue, [older, newer], [to, to]);
        }
    }

    /// Appends a swarm that has lost its last peer to its queue.
    pub(crate) fn make_idle(&mut self, place: u32, since: Moment) {
        let queue = queue_of(self.get(place).completed);
        let older = self.newest[usize::from(queue)];
        self.get_mut(place).peers = Peers::Idle(Idle { queue, since, older, newer: NOWHERE });
        self.link(queue, [older, NOWHERE], [place, place]);
        self.idle += 1;
    }

    /// When the last swarm of the queue that `completed` selects lost its last peer.
    pub(crate) fn newest_idle(&self, completed: u32) -> Option<Moment> {
        self.idle_since(self.newest[usize::from(queue_of(completed))])
    }

    /// Takes a swarm out of its queue, if it is in one, before it gets a peer or is removed.
    #[inline]
    pub(crate) fn activate(&mut self, place: u32) {
        if let Peers::Idle(Idle { queue, older, newer, .. }) = self.get(place).peers {
            self.link(queue, [older, newer], [newer, older]);
            self.idle -= 1;
        }
    }

    /// The swarm that has been without peers for the longest time, and since when.
    pub(crate) fn oldest_idle(&self) -> Option<(u32, Moment)> {
        let heads = self.oldest.into_iter();
        let heads = heads.filter_map(|place| Some((place, self.idle_since(place)?)));
        heads.min_by_key(|(_, since)| *since)
    }

    /// The swarm without peers to evict first: the oldest of the least magnitude. So a count that a
    /// few sources can make displaces no greater one.
    pub(crate) fn least_idle(&self) -> Option<u32> {
        self.oldest.into_iter().find(|place| *place != NOWHERE)
    }

    fn idle_since(&self, place: u32) -> Option<Moment> {
        match self.swarms.checked(place as usize)?.peers {
            Peers::Idle(idle) => Some(idle.since),
            _ => None,
        }
    }

    /// Frees memory of the index, limited to about `work` tables and places.
    pub(crate) fn shrink_index(&mut self, work: usize) {
        let Self { keys, swarms, index, .. } = self;
        index.shrink(work, |place| keys.info_hash(&swarms.get(place as usize).info_hash));
    }

    /// All swarms.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Swarm> {
        self.swarms.iter()
    }

    /// A swarm, and the keys that changes of its peers need.
    #[inline]
    pub(crate) fn with_keys(&mut self, place: u32) -> (&mut Swarm, &Keys) {
        (self.swarms.get_mut(place as usize), &self.keys)
    }

    fn hash_at(&self, place: u32) -> u64 {
        self.keys.info_hash(&self.get(place).info_hash)
    }

    /// Links `next` behind `older` and `previous` before `newer`; [`NOWHERE`] is an end of the
    /// queue.
    fn link(&mut self, queue: u8, [older, newer]: [u32; 2], [next, previous]: [u32; 2]) {
        match self.idle_mut(older) {
            Some(idle) => idle.newer = next,
            None => self.oldest[usize::from(queue)] = next,
        }
        match self.idle_mut(newer) {
            Some(idle) => idle.older = previous,
            None => self.newest[usize::from(queue)] = previous,
        }
    }

    fn idle_mut(&mut self, place: u32) -> Option<&mut Idle> {
        if place == NOWHERE {
            return None;
        }
        match &mut self.get_mut(place).peers {
            Peers::Idle(idle) => Some(idle),
            _ => {
                debug_assert!(false, "place {place} is not idle");
                None
            }
        }
    }

    /// Panics when an invariant between the parts is violated.
    pub(crate) fn check(&self) {
        assert_eq!(self.index.len(), self.swarms.len(), "the index has each swarm once");
        for (place, swarm) in self.swarms.iter().enumerate() {
            assert_eq!(self.find(&swarm.info_hash), Some(place as u32));
            swarm.peers.check(&self.keys);
        }
        self.check_queue();
    }

    fn check_queue(&self) {
        let mut queued = 0;
        for (queue, (oldest, newest)) in self.oldest.into_iter().zip(self.newest).enumerate() {
            let (mut at, mut before, mut since) = (oldest, NOWHERE, Moment(0));
            while at != NOWHERE {
                let Peers::Idle(idle) = self.get(at).peers else { panic!("{at} is not idle") };
                assert_eq!(usize::from(idle.queue), queue, "a swarm is in its own queue");
                assert_eq!(queue_of(self.get(at).completed), idle.queue, "that of its count");
                assert_eq!(idle.older, before, "links are symmetric");
                assert!(idle.since >= since, "the queue is in order of age");
                (before, at, since, queued) = (at, idle.newer, idle.since, queued + 1);
            }
            assert_eq!(newest, before, "the queue's end");
        }
        assert_eq!(self.idle, queued, "the queues' length");
        let idle = self.iter().filter(|swarm| swarm.peers.is_empty()).count();
        assert_eq!(idle, queued, "swarms without peers are queued");
    }
}
