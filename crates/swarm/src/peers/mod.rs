//! The peers of one swarm, in a form that depends on their number.
//!
//! | number | form | bytes each, IPv4 (IPv6) |
//! |---|---|---|
//! | one or two of IPv4, or one of IPv6 | [`inline`]: in the swarm's own entry | none beyond the
//! entry |
//! | up to 128 | [`small`]: one block of memory, searched linearly | 8 (20) and some spare space |
//! | more | [`large`]: per family and kind, a [`chunked_set`] with a keyed hash | about 10 (22) |
//!
//! Lists free memory as they shrink, at half of the length at which they allocated it, so that a
//! swarm whose size oscillates around a boundary does not pay each time.

mod chunked_set;
mod inline;
mod large;
mod order;
mod scan;
mod small;
mod stamp;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint, Family, UNCONNECTABLE_PORT};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::batch::Announce;
use crate::keys::{Keys, prefixes};
use crate::sample::{self, Sampler};
use crate::time::Moment;

pub(crate) use large::{Large, SweepPosition};
pub(crate) use order::WalkPosition;
pub(crate) use small::Shape;
pub(crate) use stamp::{Expiry, Stamp, Tick};

/// The most peers of a single block.
const SMALL_MAX: usize = 128;
/// Peers that are drawn to replace one of a network at its limit. If the network has a share of `s`
/// of the swarm, none of its peers is drawn with a probability of `(1 - s)^128`.
const NEIGHBOUR_DRAWS: usize = 128;
/// Peers of the network among them that are compared.
const NEIGHBOURS_COMPARED: usize = 16;
/// The number of peers at which a large swarm goes back to a single block.
const BACK_TO_SMALL: usize = 64;

/// The peers of a swarm. 24 bytes, the space that the rest of an entry leaves.
#[derive(Debug)]
pub(crate) enum Peers {
    /// None: the swarm is kept for its `completed`.
    Idle(Idle),
    /// One or two of IPv4: endpoint, then stamp.
    Inline4 { len: u8, rows: [[u8; 8]; 2] },
    /// One of IPv6: endpoint, then stamp.
    Inline6 { row: [u8; 20] },
    /// A single block of both families.
    Small { shape: Shape, block: Box<[u8]> },
    /// More than a single block.
    Large(Box<Large>),
}

const _: () = assert!(size_of::<Peers>() == 24);

/// The state of a swarm without peers, stored in their place: since when, and its neighbours in its
/// queue of such swarms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Idle {
    /// The number of its queue, by its `completed`.
    pub(crate) queue: u8,
    pub(crate) since: Moment,
    pub(crate) older: u32,
    pub(crate) newer: u32,
}

/// The number of peers of each kind, hidden ones included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) seeders: u32,
    pub(crate) leechers: u32,
}

impl Counts {
    #[inline]
    fn add(&mut self, stamp: Stamp) {
        *(if stamp.seeder() { &mut self.seeders } else { &mut self.leechers }) += 1;
    }

    #[inline]
    fn remove(&mut self, seeder: bool) {
        *(if seeder { &mut self.seeders } else { &mut self.leechers }) -= 1;
    }
}

/// A peer that announces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcer<'a> {
    pub(crate) endpoint: &'a Endpoint,
    /// As if it were new.
    pub(crate) stamp: Stamp,
    /// Quarters of a tick after its announce before with which it settles.
    pub(crate) settles: u16,
    /// Whether it may be stored if it is new.
    pub(crate) may_store: bool,
}

/// The result of storing an announcer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Whether the announcer was a seeder, if it was stored before.
    pub(crate) before: Option<bool>,
    /// Its place, if it is among the peers that a leecher may get.
    pub(crate) own: Option<Place>,
}

/// The place of a peer in its list of leechers, until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    pub(crate) slot: u32,
}

/// Peers that a sweep has removed, counted per family.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    pub(crate) peers: [u32; 2],
    pub(crate) seeders: [u32; 2],
    /// The peers themselves, if they are listed.
    pub(crate) endpoints: Vec<Endpoint>,
    lists: bool,
}

impl Expired {
    /// No peers yet. They are listed, in the memory of `endpoints`, if `lists` is set.
    pub(crate) fn listing(lists: bool, endpoints: &mut Vec<Endpoint>) -> Self {
        Self { endpoints: std::mem::take(endpoints), lists, ..Self::default() }
    }

    /// The memory of the list, for the next one.
    pub(crate) fn into_list(mut self) -> Vec<Endpoint> {
        self.endpoints.clear();
        self.endpoints
    }

    #[inline]
    fn add(&mut self, endpoint: Endpoint, stamp: Stamp) {
        let family = endpoint.family() as usize;
        self.peers[family] += 1;
        self.seeders[family] += u32::from(stamp.seeder());
        if self.lists {
            self.endpoints.push(endpoint);
        }
    }
}

impl Peers {
    /// A swarm's first peer.
    pub(crate) fn single(endpoint: &Endpoint, stamp: Stamp) -> Self {
        match endpoint {
            Endpoint::V4(row) => Self::Inline4 { len: 1, rows: [inline::join(row, stamp), [0; 8]] },
            Endpoint::V6(row) => Self::Inline6 { row: inline::join(row, stamp) },
        }
    }

    /// The number of peers of each kind, of both families.
    #[inline]
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Small { shape, block } => shape.counts(block),
            Self::Inline4 { len, rows } => inline::counts(&rows[..usize::from(*len)]),
            _ => self.rarer_counts(),
        }
    }

    fn rarer_counts(&self) -> Counts {
        match self {
            Self::Inline6 { row } => inline::counts(std::slice::from_ref(row)),
            Self::Large(large) => large.counts(),
            _ => Counts::default(),
        }
    }

    /// The number of peers.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Idle(_) => 0,
            Self::Inline4 { len, .. } => usize::from(*len),
            Self::Inline6 { .. } => 1,
            Self::Small { shape, .. } => shape.len(),
            Self::Large(large) => large.len(),
        }
    }

    /// Whether there are peers of this family.
    pub(crate) fn has(&self, family: Family) -> bool {
        match self {
            Self::Idle(_) => false,
            Self::Inline4 { len, .. } => *len > 0 && family == Family::V4,
            Self::Inline6 { .. } => family == Family::V6,
            Self::Small { shape, .. } => shape.of(family) > 0,
            Self::Large(large) => large.has(family),
        }
    }

    /// Whether there are no peers.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fast path: a repeated announce in a swarm of a few dozen peers. Appends the whole reply;
    /// `false` for any other announce, before anything was changed.
    #[inline]
    pub(crate) fn refresh(
        &mut self,
        announce: &Announce,
        seen: Tick,
        sampler: &mut Sampler,
        out: &mut Vec<u8>,
    ) -> bool {
        let Self::Small { shape, block } = self else { return false };
        let stamp = Stamp::new(seen, announce.seeder);
        let is_refreshed = match &announce.endpoint {
            Endpoint::V4(row) => shape.refresh(block, row, announce, stamp, sampler, out),
            Endpoint::V6(row) => shape.refresh(block, row, announce, stamp, sampler, out),
        };
        if is_refreshed && shape.may_be_crowded(announce.want) {
            shape.spread_crowds(block, announce, sampler, out);
        }
        is_refreshed
    }

    /// Appends the whole reply to an announce that is no stop, and whose announcer was
    /// [stored](Self::announce), if it may be.
    #[inline]
    pub(crate) fn reply(
        &self,
        announce: &Announce,
        own: Option<Place>,
        sampler: &mut Sampler,
        out: &mut Vec<u8>,
    ) {
        let (interval, mut draw) = sampler.draw();
        out.extend_from_slice(&head(announce, interval, self.counts()));
        match (self, &announce.endpoint) {
            (Self::Inline4 { len, rows }, Endpoint::V4(row)) => {
                inline::sample(&rows[..usize::from(*len)], row, announce, &mut draw, out);
            }
            (Self::Inline6 { row: stored }, Endpoint::V6(row)) => {
                inline::sample(std::slice::from_ref(stored), row, announce, &mut draw, out);
            }
            (Self::Small { shape, block }, _) => {
                shape.sample(block, announce, own, &mut draw, out);
                if shape.may_be_crowded(announce.want) {
                    shape.spread_crowds(block, announce, sampler, out);
                }
            }
            (Self::Large(large), _) => {
                large.sample(announce, own, &mut draw, &mut sampler.rng, out);
            }
            _ => {}
        }
    }

    /// Stores an announcer, new or known, as a seeder or a leecher.
    #[inline]
    pub(crate) fn announce(&mut self, announcer: Announcer<'_>, keys: &Keys) -> Found {
        loop {
            match self {
                Self::Idle(_) => {
                    if announcer.may_store {
                        *self = Self::single(announcer.endpoint, announcer.stamp);
                    }
                    return Found { before: None, own: None };
                }
                Self::Inline4 { len, rows } => {
                    if let Endpoint::V4(row) = announcer.endpoint
                        && let Some(found) = inline::announce(len, rows, row, announcer)
                    {
                        return found;
                    }
                }
                Self::Inline6 { row: stored } => {
                    if let Endpoint::V6(row) = announcer.endpoint
                        && let Some(found) =
                            inline::announce(&mut 1, std::slice::from_mut(stored), row, announcer)
                    {
                        return found;
                    }
                }
                Self::Small { shape, block } => {
                    if let Some(found) = shape.announce(block, announcer) {
                        return found;
                    }
                }
                Self::Large(large) => return large.announce(announcer, keys),
            }
            // The announcer is not stored, and this form is full.
            if !announcer.may_store {
                return Found { before: None, own: None };
            }
            self.grow(announcer.endpoint.family(), keys);
        }
    }

    /// Removes a peer; returns whether it was a seeder, if it was stored.
    pub(crate) fn remove(&mut self, endpoint: &Endpoint, keys: &Keys) -> Option<bool> {
        match self {
            Self::Idle(_) => None,
            Self::Inline4 { len, rows } => {
                let Endpoint::V4(row) = endpoint else { return None };
                let at = inline::find(&rows[..usize::from(*len)], row)?;
                let stamp = inline::stamp(&rows[at]);
                *len -= 1;
                rows.swap(at, usize::from(*len));
                self.shrink();
                Some(stamp.seeder())
            }
            Self::Inline6 { row: stored } => {
                let Endpoint::V6(row) = endpoint else { return None };
                inline::find(std::slice::from_ref(stored), row)?;
                let stamp = inline::stamp(stored);
                *self = Self::Inline4 { len: 0, rows: [[0; 8]; 2] };
                Some(stamp.seeder())
            }
            Self::Small { shape, block } => {
                let stamp = shape.remove(block, endpoint)?;
                self.shrink();
                Some(stamp.seeder())
            }
            Self::Large(large) => large.remove(endpoint, keys),
        }
    }

    /// Removes all expired peers at once; not for [`Large`], which is swept in steps.
    pub(crate) fn sweep(&mut self, expiry: Expiry, expired: &mut Expired) {
        match self {
            Self::Idle(_) | Self::Large(_) => return,
            Self::Inline4 { len, rows } => {
                for at in (0..usize::from(*len)).rev() {
                    let stamp = inline::stamp(&rows[at]);
                    if expiry.is_over(stamp) {
                        expired.add(Endpoint::V4(*inline::endpoint(&rows[at])), stamp);
                        *len -= 1;
                        rows.swap(at, usize::from(*len));
                    }
                }
            }
            Self::Inline6 { row } => {
                let stamp = inline::stamp(row);
                if expiry.is_over(stamp) {
                    expired.add(Endpoint::V6(*inline::endpoint(row)), stamp);
                    *self = Self::Inline4 { len: 0, rows: [[0; 8]; 2] };
                }
            }
            Self::Small { shape, block } => shape.sweep(block, expiry, expired),
        }
        if expired.peers != [0; 2] {
            self.shrink();
        }
    }

    /// Changes to a smaller form if the number of peers permits. For [`Large`] that takes a while,
    /// so only sweeps do it.
    pub(crate) fn shrink(&mut self) {
        if let Self::Large(large) = self
            && large.len() <= BACK_TO_SMALL
        {
            *self = self.to_small(Family::V4);
        }
        match self {
            Self::Small { shape, .. } if shape.len() <= 1 => {
                let mut last = None;
                self.each(&mut |endpoint, stamp| last = Some((endpoint, stamp)));
                *self = match last {
                    Some((endpoint, stamp)) => Self::single(&endpoint, stamp),
                    None => Self::Inline4 { len: 0, rows: [[0; 8]; 2] },
                };
            }
            _ => {}
        }
    }

    /// Calls `f` with each peer.
    pub(crate) fn each(&self, f: &mut dyn FnMut(Endpoint, Stamp)) {
        match self {
            Self::Idle(_) => {}
            Self::Inline4 { len, rows } => {
                for row in &rows[..usize::from(*len)] {
                    f(Endpoint::V4(*inline::endpoint(row)), inline::stamp(row));
                }
            }
            Self::Inline6 { row } => f(Endpoint::V6(*inline::endpoint(row)), inline::stamp(row)),
            Self::Small { shape, block } => shape.each(block, f),
            Self::Large(large) => large.each(f),
        }
    }

    /// The next part of a walk: calls `f` with peers from the position on, IPv4 before IPv6, until
    /// `budget` peers, or up to one chunk of each kind more, were visited. Returns the next
    /// position, if any.
    pub(crate) fn walk_step(
        &self,
        mut position: WalkPosition,
        budget: usize,
        keys: &Keys,
        f: &mut dyn FnMut(Endpoint, Stamp),
    ) -> Option<WalkPosition> {
        let Self::Large(large) = self else {
            match position {
                WalkPosition::FIRST => self.each(f),
                // The swarm has changed its form since the last part.
                position => self.each(&mut |endpoint, stamp| {
                    if WalkPosition::of(&endpoint, keys) >= position {
                        f(endpoint, stamp);
                    }
                }),
            }
            return None;
        };
        let mut left = budget.max(1);
        while left > 0 {
            let (visited, next) = large.walk_step(position, keys, f);
            position = next?;
            left = left.saturating_sub(visited.max(1));
        }
        Some(position)
    }

    /// The number of peers of an endpoint's source and of its network; in a large swarm it may be
    /// a few more.
    pub(crate) fn of_source(&self, endpoint: &Endpoint, keys: &Keys) -> [u64; 2] {
        if let Self::Large(large) = self {
            return large.of_source(endpoint, keys);
        }
        let [source, network, _] =
            prefixes(endpoint.family()).map(|length| &endpoint.as_bytes()[..length]);
        let mut numbers = [0; 2];
        self.each(&mut |other, _| {
            if other.family() == endpoint.family() {
                for (number, prefix) in numbers.iter_mut().zip([source, network]) {
                    *number += u64::from(other.as_bytes().starts_with(prefix));
                }
            }
        });
        numbers
    }

    /// A peer of a newcomer's network to replace: of some random ones, one of the source that has
    /// most in this swarm, if that is a quarter more than the newcomer's.
    pub(crate) fn replaceable_neighbour(
        &self,
        newcomer: &Endpoint,
        keys: &Keys,
        rng: &mut SmallRng,
    ) -> Option<Endpoint> {
        let [_, network, _] = prefixes(newcomer.family());
        let network = &newcomer.as_bytes()[..network];
        let [own, _] = self.of_source(newcomer, keys);
        let (mut most, mut chosen) = (own + own / 4 + 1, None);
        let mut compared = 0;
        for _ in 0..NEIGHBOUR_DRAWS {
            let (endpoint, _) = self.any(rng)?;
            if endpoint.family() == newcomer.family() && endpoint.as_bytes().starts_with(network) {
                let [peers, _] = self.of_source(&endpoint, keys);
                if peers > most {
                    (most, chosen) = (peers, Some(endpoint));
                }
                compared += 1;
                if compared == NEIGHBOURS_COMPARED {
                    break;
                }
            }
        }
        chosen
    }

    /// A uniformly random peer, if there is one.
    pub(crate) fn any(&self, rng: &mut SmallRng) -> Option<(Endpoint, Stamp)> {
        match self {
            Self::Idle(_) => None,
            Self::Inline4 { len, rows } => {
                let row = &rows[sample::scale(rng.next_u32(), usize::from(*len))];
                Some((Endpoint::V4(*inline::endpoint(row)), inline::stamp(row)))
            }
            Self::Inline6 { row } => {
                Some((Endpoint::V6(*inline::endpoint(row)), inline::stamp(row)))
            }
            Self::Small { shape, block } => Some(shape.any(block, rng)),
            Self::Large(large) => large.any(rng),
        }
    }

    /// A peer's stamp, if the peer is stored.
    pub(crate) fn stamp(&self, endpoint: &Endpoint, keys: &Keys) -> Option<Stamp> {
        match (self, endpoint) {
            (Self::Inline4 { len, rows }, Endpoint::V4(row)) => {
                let rows = &rows[..usize::from(*len)];
                inline::find(rows, row).map(|at| inline::stamp(&rows[at]))
            }
            (Self::Inline6 { row }, Endpoint::V6(sought)) => {
                inline::find(std::slice::from_ref(row), sought).map(|_| inline::stamp(row))
            }
            (Self::Small { shape, block }, _) => shape.stamp_of(block, endpoint),
            (Self::Large(large), _) => large.stamp(endpoint, keys),
            _ => None,
        }
    }

    /// Reads the memory that the next announce reads, to bring it into the cache; the value has no
    /// meaning.
    #[inline]
    pub(crate) fn touch(&self) -> u8 {
        match self {
            Self::Small { block, .. } => scan::touch(block),
            Self::Large(large) => large.touch(),
            _ => 0,
        }
    }

    /// Panics when an invariant of the form is violated.
    pub(crate) fn check(&self, keys: &Keys) {
        match self {
            Self::Inline4 { len, .. } => assert!((1..=2).contains(len), "{len} peers inline"),
            Self::Small { shape, block } => shape.check(block),
            Self::Large(large) => large.check(keys),
            Self::Idle(_) | Self::Inline6 { .. } => {}
        }
        let (mut seeders, mut peers) = (0, Vec::new());
        self.each(&mut |endpoint, stamp| {
            seeders += u32::from(stamp.seeder());
            peers.push(endpoint);
        });
        let all = peers.len();
        assert_eq!(self.counts(), Counts { seeders, leechers: all as u32 - seeders });
        assert_eq!(self.len(), all);
        peers.sort_unstable();
        peers.dedup();
        assert_eq!(peers.len(), all, "no peer is stored twice");
    }

    /// Changes to the next larger form, with space for one more peer of `family`.
    #[cold]
    fn grow(&mut self, family: Family, keys: &Keys) {
        *self = match self {
            Self::Small { .. } => {
                let mut large = Box::new(Large::for_peers(self.len(), keys));
                self.each(&mut |endpoint, stamp| large.insert(&endpoint, stamp, keys));
                Self::Large(large)
            }
            _ => self.to_small(family),
        };
    }

    /// The same peers in a single block, with space for one more of `family`.
    fn to_small(&self, family: Family) -> Self {
        let mut bytes = family.peer_len() + small::STAMP_LEN;
        self.each(&mut |endpoint, _| bytes += endpoint.family().peer_len() + small::STAMP_LEN);
        let mut shape = Shape::default();
        let mut block = small::with_capacity(bytes);
        self.each(&mut |endpoint, stamp| {
            shape.insert(&mut block, &endpoint, stamp);
        });
        Self::Small { shape, block }
    }
}

/// The head of a reply.
#[inline]
pub(crate) fn head(announce: &Announce, interval: u32, counts: Counts) -> [u8; HEAD_LEN] {
    let mut bytes = [0; HEAD_LEN];
    let Counts { seeders, leechers } = counts;
    let transaction_id = announce.transaction_id;
    AnnounceHead { transaction_id, interval, leechers, seeders }.write(&mut bytes);
    bytes
}

/// The list that a peer is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Seeder,
    Leecher,
    /// Counted, but never given to others.
    Hidden,
}

impl Kind {
    #[inline]
    fn of(row: &[u8], seeder: bool) -> Self {
        match (is_hidden(row), seeder) {
            (true, _) => Self::Hidden,
            (false, true) => Self::Seeder,
            (false, false) => Self::Leecher,
        }
    }
}

/// Whether others cannot connect to an endpoint in wire form: [`UNCONNECTABLE_PORT`], or a
/// link-local address (RFC 4291, section 2.5.6; RFC 3927), which means something on one link only.
#[inline]
fn is_hidden(row: &[u8]) -> bool {
    let link_local = match row.len() {
        6 => row[0] == 169 && row[1] == 254,
        _ => row[0] == 0xfe && row[1] & 0xc0 == 0x80,
    };
    link_local || row[row.len() - 2..] == UNCONNECTABLE_PORT.to_be_bytes()
}
