//! More peers than a single block holds: a set per family and kind, so that drawing from a rare
//! kind costs no more.

use onrush_proto::{Endpoint, Family};
use rand::Rng;
use rand::rngs::SmallRng;

use super::chunked_set::ChunkedSet;
use super::order::{Run, WalkPosition};
use super::{Announcer, Counts, Expired, Expiry, Found, Kind, Place, Stamp, is_hidden};
use crate::batch::Announce;
use crate::keys::Keys;
use crate::sample::{self, Draw, Networks};
use crate::sources::SwarmSources;

/// The peers of a large swarm.
#[derive(Debug, Default)]
pub(crate) struct Large {
    counts: Counts,
    v4: Group<6>,
    v6: Group<18>,
    /// The peers of each source, if they are limited.
    sources: Option<Box<SwarmSources>>,
}

/// The peers of one family: a set for each [`Kind`], in its order.
#[derive(Debug, Default)]
struct Group<const N: usize>([ChunkedSet<N>; KINDS as usize]);

/// The position of a sweep in a large swarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepPosition {
    /// The number of the set, in the order IPv4, IPv6, and within a family seeders, leechers,
    /// hidden.
    set: u8,
    chunk: u32,
}

/// Sets of one family.
const KINDS: u8 = 3;

/// Peers that are examined for each place of a list which one network would fill: with fewer others
/// among them, the list has more of that network.
const EXAMINED: usize = 16;

impl Large {
    /// An empty swarm, which will soon have `peers` peers.
    pub(super) fn for_peers(peers: usize, keys: &Keys) -> Self {
        let sources = keys.counts_sources.then(|| Box::new(SwarmSources::new(peers)));
        Self { sources, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.seeders as usize + self.counts.leechers as usize
    }

    #[inline]
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether there are peers of this family.
    pub(super) fn has(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4.len() > 0,
            Family::V6 => self.v6.len() > 0,
        }
    }

    /// Adds a new peer.
    pub(super) fn insert(&mut self, endpoint: &Endpoint, stamp: Stamp, keys: &Keys) {
        match endpoint {
            Endpoint::V4(row) => self.v4.insert(row, stamp, keys),
            Endpoint::V6(row) => self.v6.insert(row, stamp, keys),
        }
        self.added(endpoint, stamp, keys);
    }

    /// Counts a peer that was just added.
    #[inline]
    fn added(&mut self, endpoint: &Endpoint, stamp: Stamp, keys: &Keys) {
        self.counts.add(stamp);
        let peers = self.len();
        let Some(sources) = &mut self.sources else { return };
        if sources.is_outgrown(peers) {
            self.count_sources(keys);
        } else {
            sources.add(keys.source(endpoint));
        }
    }

    /// Counts the peers of all sources anew, in a table for as many peers as there are.
    #[cold]
    fn count_sources(&mut self, keys: &Keys) {
        let mut sources = SwarmSources::new(self.len());
        self.each(&mut |endpoint, _| sources.add(keys.source(&endpoint)));
        self.sources = Some(Box::new(sources));
    }

    /// The number of peers of a source and of its network, or a few more.
    pub(super) fn of_source(&self, endpoint: &Endpoint, keys: &Keys) -> [u64; 2] {
        self.sources.as_ref().map_or([0; 2], |sources| sources.of(keys.source(endpoint)))
    }

    /// A uniformly random peer, if there is one.
    pub(super) fn any(&self, rng: &mut SmallRng) -> Option<(Endpoint, Stamp)> {
        let nth = sample::scale(rng.next_u32(), self.len());
        match nth.checked_sub(self.v4.len()) {
            None => self.v4.any(nth, rng).map(|(row, stamp)| (Endpoint::V4(row), stamp)),
            Some(nth) => self.v6.any(nth, rng).map(|(row, stamp)| (Endpoint::V6(row), stamp)),
        }
    }

    /// Stores an announcer.
    #[inline]
    pub(super) fn announce(&mut self, announcer: Announcer<'_>, keys: &Keys) -> Found {
        let Announcer { endpoint, stamp, may_store, .. } = announcer;
        let found = match endpoint {
            Endpoint::V4(row) => self.v4.announce(row, announcer, keys),
            Endpoint::V6(row) => self.v6.announce(row, announcer, keys),
        };
        match found.before {
            Some(before) if before != stamp.seeder() => {
                self.counts.remove(before);
                self.counts.add(stamp);
            }
            None if may_store => self.added(endpoint, stamp, keys),
            _ => {}
        }
        found
    }

    /// Removes a peer; returns whether it was a seeder, if it was stored.
    pub(super) fn remove(&mut self, endpoint: &Endpoint, keys: &Keys) -> Option<bool> {
        let stamp = match endpoint {
            Endpoint::V4(row) => self.v4.remove(row, keys),
            Endpoint::V6(row) => self.v6.remove(row, keys),
        }?;
        self.counts.remove(stamp.seeder());
        if let Some(sources) = &mut self.sources {
            sources.remove(keys.source(endpoint));
        }
        Some(stamp.seeder())
    }

    /// Appends the peers that an announcer gets.
    #[inline]
    pub(super) fn sample(
        &self,
        announce: &Announce,
        own: Option<Place>,
        draw: &mut Draw,
        rng: &mut SmallRng,
        out: &mut Vec<u8>,
    ) {
        match announce.endpoint {
            Endpoint::V4(_) => self.v4.sample(announce, own, draw, rng, out),
            Endpoint::V6(_) => self.v6.sample(announce, own, draw, rng, out),
        }
    }

    /// Visits the next chunk, or frees one that is no longer needed. Returns the work done, and the
    /// next position, if any.
    pub(crate) fn sweep_step(
        &mut self,
        position: SweepPosition,
        expiry: Expiry,
        keys: &Keys,
        expired: &mut Expired,
    ) -> (usize, Option<SweepPosition>) {
        let Self { counts, v4, v6, sources } = self;
        let mut remove = |endpoint: Endpoint, stamp: Stamp| {
            counts.remove(stamp.seeder());
            if let Some(sources) = sources {
                sources.remove(keys.source(&endpoint));
            }
            expired.add(endpoint, stamp);
        };
        let (work, on) = match position.set.checked_sub(KINDS) {
            None => {
                v4.0[usize::from(position.set)].sweep_step(position.chunk, expiry, |row, stamp| {
                    remove(Endpoint::V4(*row), stamp);
                })
            }
            Some(set) => v6.0[usize::from(set)].sweep_step(position.chunk, expiry, |row, stamp| {
                remove(Endpoint::V6(*row), stamp);
            }),
        };
        let next_set = SweepPosition { set: position.set + 1, chunk: 0 };
        let on = match on {
            Some(chunk) => Some(SweepPosition { chunk, ..position }),
            None => (next_set.set < 2 * KINDS).then_some(next_set),
        };
        (work, on)
    }

    /// Calls `f` with each peer.
    pub(crate) fn each(&self, f: &mut dyn FnMut(Endpoint, Stamp)) {
        for set in &self.v4.0 {
            set.each(&mut |row, stamp| f(Endpoint::V4(*row), stamp));
        }
        for set in &self.v6.0 {
            set.each(&mut |row, stamp| f(Endpoint::V6(*row), stamp));
        }
    }

    /// The next part of a walk: calls `f` with some peers from the position on. Returns the number
    /// visited, and the next position, if any.
    pub(super) fn walk_step(
        &self,
        position: WalkPosition,
        keys: &Keys,
        f: &mut dyn FnMut(Endpoint, Stamp),
    ) -> (usize, Option<WalkPosition>) {
        let (visited, next) = if position.family == Family::V4 as u8 {
            self.v4.walk_step(position.hash, keys, &mut |row, stamp| f(Endpoint::V4(*row), stamp))
        } else {
            self.v6.walk_step(position.hash, keys, &mut |row, stamp| f(Endpoint::V6(*row), stamp))
        };
        let next = next.map(|hash| WalkPosition { hash, ..position }).or(position.next_family());
        (visited, next)
    }

    /// A peer's stamp, if the peer is stored.
    pub(super) fn stamp(&self, endpoint: &Endpoint, keys: &Keys) -> Option<Stamp> {
        match endpoint {
            Endpoint::V4(row) => self.v4.stamp(row, keys),
            Endpoint::V6(row) => self.v6.stamp(row, keys),
        }
    }

    /// Panics when an invariant is violated.
    pub(super) fn check(&self, keys: &Keys) {
        self.v4.0.iter().for_each(|set| set.check(keys));
        self.v6.0.iter().for_each(|set| set.check(keys));
        if let Some(sources) = &self.sources {
            let mut counted = sources.emptied();
            self.each(&mut |endpoint, _| counted.add(keys.source(&endpoint)));
            assert!(**sources == counted, "the table counts the peers that are stored");
        }
    }

    /// Reads a byte that the next announce reads first.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        self.counts.seeders as u8
    }
}

impl<const N: usize> Group<N> {
    fn len(&self) -> usize {
        self.0.iter().map(ChunkedSet::len).sum()
    }

    /// A random peer of the list that peer number `nth` is in.
    fn any(&self, mut nth: usize, rng: &mut SmallRng) -> Option<([u8; N], Stamp)> {
        for set in &self.0 {
            match nth.checked_sub(set.len()) {
                Some(behind) => nth = behind,
                None => return set.any(rng),
            }
        }
        None
    }

    /// Visits all kinds together, as a peer may change its kind meanwhile: the run of the smallest
    /// chunk.
    fn walk_step(
        &self,
        from: u64,
        keys: &Keys,
        f: &mut dyn FnMut(&[u8; N], Stamp),
    ) -> (usize, Option<u64>) {
        let last = self.0.iter().map(|set| set.run_at(from).last).min().unwrap_or(u64::MAX);
        let run = Run { first: from, last };
        let visited = self.0.iter().map(|set| set.each_of(run, keys, f)).sum();
        (visited, last.checked_add(1))
    }

    fn stamp(&self, row: &[u8; N], keys: &Keys) -> Option<Stamp> {
        let hash = keys.row(row);
        self.0.iter().find_map(|set| set.find(hash, row).map(|place| set.stamp(place)))
    }

    fn insert(&mut self, row: &[u8; N], stamp: Stamp, keys: &Keys) {
        let kind = Kind::of(row, stamp.seeder());
        self.0[kind as usize].insert(keys.row(row), row, stamp, keys);
    }

    #[inline]
    fn announce(&mut self, row: &[u8; N], announcer: Announcer<'_>, keys: &Keys) -> Found {
        let Announcer { stamp, settles, may_store, .. } = announcer;
        let hash = keys.row(row);
        let kind = Kind::of(row, stamp.seeder());
        let [seeders, leechers, hidden] = &mut self.0;
        let (set, other) = match kind {
            Kind::Seeder => (seeders, Some(leechers)),
            Kind::Leecher => (leechers, Some(seeders)),
            Kind::Hidden => (hidden, None),
        };
        let own = |place| (kind == Kind::Leecher).then_some(place);
        if let Some(place) = set.find(hash, row) {
            let before = set.stamp(place);
            set.put_stamp(place, stamp.after(before, settles));
            return Found { before: Some(before.seeder()), own: own(place) };
        }
        if let Some(other) = other
            && let Some(place) = other.find(hash, row)
        {
            let before = other.remove(place);
            let place = set.insert(hash, row, stamp.after(before, settles), keys);
            return Found { before: Some(before.seeder()), own: own(place) };
        }
        let stored = may_store.then(|| set.insert(hash, row, stamp, keys));
        Found { before: None, own: stored.and_then(own) }
    }

    fn remove(&mut self, row: &[u8; N], keys: &Keys) -> Option<Stamp> {
        let hash = keys.row(row);
        let (shown, hidden) = self.0.split_at_mut(Kind::Hidden as usize);
        let sets = if is_hidden(row) { hidden } else { shown };
        sets.iter_mut().rev().find_map(|set| set.find(hash, row).map(|place| set.remove(place)))
    }

    #[inline]
    fn sample(
        &self,
        announce: &Announce,
        own: Option<Place>,
        draw: &mut Draw,
        rng: &mut SmallRng,
        out: &mut Vec<u8>,
    ) {
        let want = usize::from(announce.want);
        let [seeders, leechers, _] = &self.0;
        let offered = if announce.seeder { 0 } else { seeders.len() };
        let others = leechers.len() - usize::from(own.is_some());
        let (from_seeders, from_leechers) = sample::mixture(want, offered, others, draw);
        let start = out.len();
        seeders.window(None, from_seeders, rng, out);
        leechers.window(own, from_leechers, rng, out);
        if offered + others <= want {
            return;
        }
        if !Networks::new(want, draw).hold::<N>(&out[start..]) {
            out.truncate(start);
            let mut networks = Networks::new(want, draw);
            for (set, own, take) in [(seeders, None, from_seeders), (leechers, own, from_leechers)]
            {
                if take > 0 {
                    networks.spread(set.turned(own, rng).take(take * EXAMINED), take, out);
                }
            }
        }
    }
}
