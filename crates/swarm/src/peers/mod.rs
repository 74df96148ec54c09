//! The peers of one swarm, in as few bytes as their number allows.
//!
//! | how many | where | bytes each, IPv4 (IPv6) |
//! |---|---|---|
//! | one or two of IPv4, or one of IPv6 | [`inline`]: in the swarm's own entry | none beyond the entry |
//! | up to 128 | [`few`]: one block of memory, looked through | 8 (20) and some room |
//! | more | [`many`]: per family and kind, [`bag`]s of blocks picked by a keyed hash | about 10 (22) |
//!
//! Lists give room back as they shrink, at half of the length at which they took it, so that a
//! swarm which swings around a boundary does not pay each time.

mod bag;
mod few;
mod inline;
mod many;
mod order;
mod scan;
mod stamp;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint, Family};
use rand::rngs::SmallRng;

use crate::batch::Announce;
use crate::keys::Keys;
use crate::sample::{Dice, Draw};
use crate::store::Idle;

pub(crate) use few::Shape;
pub(crate) use many::{Many, Spot};
pub(crate) use order::Due;
pub(crate) use stamp::{Expiry, Stamp, TICK, Tick};

/// Peers beyond which a single block is looked through no more.
const FEW_MAX: usize = 128;
/// Peers at which a swarm goes back to a single block.
const FEW_AGAIN: usize = 64;

/// The peers of a swarm. 24 bytes, as the rest of an entry leaves them.
#[derive(Debug)]
pub(crate) enum Peers {
    /// None: the swarm is there for its `completed` only.
    Idle(Idle),
    /// One or two of IPv4: endpoint, then stamp.
    Inline4 { len: u8, rows: [[u8; 8]; 2] },
    /// One of IPv6: endpoint, then stamp.
    Inline6 { row: [u8; 20] },
    /// A single block of both families.
    Few { shape: Shape, block: Box<[u8]> },
    /// More than a single block.
    Many(Box<Many>),
}

const _: () = assert!(size_of::<Peers>() == 24);

/// Peers of both kinds, those that are never handed out included.
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

/// Who announces what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcer<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) seeder: bool,
    pub(crate) seen: Tick,
    /// Whether it may be stored if it is not yet.
    pub(crate) may_join: bool,
}

/// What an announce found and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Whether the announcer was a seeder, if it was there.
    pub(crate) before: Option<bool>,
    /// Where it is now, if it is among those that a leecher may get.
    pub(crate) own: Option<Place>,
}

/// Where in its list of leechers a peer is, until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    pub(crate) slot: u32,
}

/// What an announcer may get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) own: Option<Place>,
    pub(crate) seeder: bool,
    pub(crate) want: usize,
}

/// Peers that a sweep has removed, per family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Gone {
    pub(crate) peers: [u32; 2],
    pub(crate) seeders: [u32; 2],
}

impl Gone {
    #[inline]
    fn count(&mut self, family: Family, stamp: Stamp) {
        self.peers[family as usize] += 1;
        self.seeders[family as usize] += u32::from(stamp.seeder());
    }
}

impl Peers {
    /// A swarm's first peer.
    pub(crate) fn one(endpoint: &Endpoint, stamp: Stamp) -> Self {
        match endpoint {
            Endpoint::V4(row) => Self::Inline4 { len: 1, rows: [inline::join(row, stamp), [0; 8]] },
            Endpoint::V6(row) => Self::Inline6 { row: inline::join(row, stamp) },
        }
    }

    /// How many there are of each kind, of both families.
    #[inline]
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Few { shape, block } => shape.counts(block),
            Self::Inline4 { len, rows } => inline::counts(&rows[..usize::from(*len)]),
            _ => self.rarer_counts(),
        }
    }

    fn rarer_counts(&self) -> Counts {
        match self {
            Self::Inline6 { row } => inline::counts(std::slice::from_ref(row)),
            Self::Many(many) => many.counts(),
            _ => Counts::default(),
        }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Idle(_) => 0,
            Self::Inline4 { len, .. } => usize::from(*len),
            Self::Inline6 { .. } => 1,
            Self::Few { shape, .. } => shape.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Whether there are any of this family.
    pub(crate) fn has(&self, family: Family) -> bool {
        match self {
            Self::Idle(_) => false,
            Self::Inline4 { len, .. } => *len > 0 && family == Family::V4,
            Self::Inline6 { .. } => family == Family::V6,
            Self::Few { shape, .. } => shape.of(family) > 0,
            Self::Many(many) => many.has(family),
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The usual announce in a swarm of some dozen peers: appends the whole reply. `false` when it
    /// is another, and nothing has been done.
    #[inline]
    pub(crate) fn again(
        &mut self,
        announce: &Announce,
        seen: Tick,
        dice: &mut Dice,
        out: &mut Vec<u8>,
    ) -> bool {
        let Self::Few { shape, block } = self else { return false };
        let stamp = Stamp::new(seen, announce.seeder);
        match &announce.endpoint {
            Endpoint::V4(row) => shape.again(block, row, announce, stamp, dice, out),
            Endpoint::V6(row) => shape.again(block, row, announce, stamp, dice, out),
        }
    }

    /// Any announce of a peer that does not stop: appends the whole reply. Whether the announcer
    /// was a seeder, if it was there.
    #[inline]
    pub(crate) fn serve(
        &mut self,
        announce: &Announce,
        announcer: Announcer<'_>,
        keys: &Keys,
        dice: &mut Dice,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let Found { before, own } = self.announce(announcer, keys);
        let (interval, mut draw) = dice.roll();
        out.extend_from_slice(&head(announce, interval, self.counts()));
        let Announcer { endpoint, seeder, .. } = announcer;
        let wanted = Wanted { endpoint, own, seeder, want: usize::from(announce.want) };
        self.sample(wanted, &mut draw, &mut dice.rng, out);
        before
    }

    /// An announcer is there, or comes, as a seeder or not.
    #[inline]
    pub(crate) fn announce(&mut self, announcer: Announcer<'_>, keys: &Keys) -> Found {
        let stamp = Stamp::new(announcer.seen, announcer.seeder);
        loop {
            match self {
                Self::Idle(_) => {
                    if announcer.may_join {
                        *self = Self::one(announcer.endpoint, stamp);
                    }
                    return Found { before: None, own: None };
                }
                Self::Inline4 { len, rows } => {
                    if let Endpoint::V4(row) = announcer.endpoint
                        && let Some(found) =
                            inline::announce(len, rows, row, stamp, announcer.may_join)
                    {
                        return found;
                    }
                }
                Self::Inline6 { row: stored } => {
                    if let Endpoint::V6(row) = announcer.endpoint
                        && let Some(found) = inline::announce(
                            &mut 1,
                            std::slice::from_mut(stored),
                            row,
                            stamp,
                            announcer.may_join,
                        )
                    {
                        return found;
                    }
                }
                Self::Few { shape, block } => {
                    if let Some(found) = shape.announce(block, announcer, stamp) {
                        return found;
                    }
                }
                Self::Many(many) => return many.announce(announcer, stamp, keys),
            }
            // Not there, and no room for it in this form.
            if !announcer.may_join {
                return Found { before: None, own: None };
            }
            self.widen(announcer.endpoint.family(), keys);
        }
    }

    /// Removes a peer; whether it was a seeder, if it was there at all.
    pub(crate) fn remove(&mut self, endpoint: &Endpoint, keys: &Keys) -> Option<bool> {
        match self {
            Self::Idle(_) => None,
            Self::Inline4 { len, rows } => {
                let Endpoint::V4(row) = endpoint else { return None };
                let at = inline::find(&rows[..usize::from(*len)], row)?;
                let stamp = inline::stamp(&rows[at]);
                *len -= 1;
                rows.swap(at, usize::from(*len));
                self.narrow();
                Some(stamp.seeder())
            }
            Self::Inline6 { row: stored } => {
                let Endpoint::V6(row) = endpoint else { return None };
                inline::find(std::slice::from_ref(stored), row)?;
                let stamp = inline::stamp(stored);
                *self = Self::Inline4 { len: 0, rows: [[0; 8]; 2] };
                Some(stamp.seeder())
            }
            Self::Few { shape, block } => {
                let stamp = shape.remove(block, endpoint)?;
                self.narrow();
                Some(stamp.seeder())
            }
            Self::Many(many) => many.remove(endpoint, keys),
        }
    }

    #[inline]
    fn sample(&self, wanted: Wanted<'_>, draw: &mut Draw, rng: &mut SmallRng, out: &mut Vec<u8>) {
        match (self, wanted.endpoint) {
            (Self::Inline4 { len, rows }, Endpoint::V4(own)) => {
                inline::sample(&rows[..usize::from(*len)], own, wanted, draw, out);
            }
            (Self::Inline6 { row }, Endpoint::V6(own)) => {
                inline::sample(std::slice::from_ref(row), own, wanted, draw, out);
            }
            (Self::Few { shape, block }, _) => shape.sample(block, wanted, draw, out),
            (Self::Many(many), _) => many.sample(wanted, draw, rng, out),
            _ => {}
        }
    }

    /// Removes who has not been heard of for too long, all at once: not for [`Many`], which is
    /// swept piece by piece.
    pub(crate) fn sweep(&mut self, expiry: Expiry) -> Gone {
        let mut gone = Gone::default();
        match self {
            Self::Idle(_) | Self::Many(_) => return gone,
            Self::Inline4 { len, rows } => {
                for at in (0..usize::from(*len)).rev() {
                    let stamp = inline::stamp(&rows[at]);
                    if expiry.is_over(stamp) {
                        gone.count(Family::V4, stamp);
                        *len -= 1;
                        rows.swap(at, usize::from(*len));
                    }
                }
            }
            Self::Inline6 { row } => {
                let stamp = inline::stamp(row);
                if expiry.is_over(stamp) {
                    gone.count(Family::V6, stamp);
                    *self = Self::Inline4 { len: 0, rows: [[0; 8]; 2] };
                }
            }
            Self::Few { shape, block } => shape.sweep(block, expiry, &mut gone),
        }
        if gone != Gone::default() {
            self.narrow();
        }
        gone
    }

    /// Goes to a smaller form if the peers are few enough for it. For [`Many`] that takes a
    /// while, so only sweeps do it.
    pub(crate) fn narrow(&mut self) {
        if let Self::Many(many) = self
            && many.len() <= FEW_AGAIN
        {
            *self = self.as_few(Family::V4);
        }
        match self {
            Self::Few { shape, .. } if shape.len() <= 1 => {
                let mut last = None;
                self.each(&mut |endpoint, stamp| last = Some((endpoint, stamp)));
                *self = match last {
                    Some((endpoint, stamp)) => Self::one(&endpoint, stamp),
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
            Self::Few { shape, block } => shape.each(block, f),
            Self::Many(many) => many.each(f),
        }
    }

    /// The next piece of a walk: calls `f` with peers that are due, IPv4 before IPv6, until `budget` were
    /// looked at or a chunk of each kind more. Where to go on, if not done.
    pub(crate) fn meet_on(
        &self,
        mut due: Due,
        budget: usize,
        keys: &Keys,
        f: &mut dyn FnMut(Endpoint, Stamp),
    ) -> Option<Due> {
        let Self::Many(many) = self else {
            match due {
                Due::FIRST => self.each(f),
                // It had another form when the walk came to it.
                due => self.each(&mut |endpoint, stamp| {
                    if Due::of(&endpoint, keys) >= due {
                        f(endpoint, stamp);
                    }
                }),
            }
            return None;
        };
        let mut left = budget.max(1);
        while left > 0 {
            let (looked_at, next) = many.meet_on(due, keys, f);
            due = next?;
            left = left.saturating_sub(looked_at.max(1));
        }
        Some(due)
    }

    /// A peer's stamp, if it is there.
    pub(crate) fn stamp(&self, endpoint: &Endpoint, keys: &Keys) -> Option<Stamp> {
        match (self, endpoint) {
            (Self::Inline4 { len, rows }, Endpoint::V4(row)) => {
                let rows = &rows[..usize::from(*len)];
                inline::find(rows, row).map(|at| inline::stamp(&rows[at]))
            }
            (Self::Inline6 { row }, Endpoint::V6(sought)) => {
                inline::find(std::slice::from_ref(row), sought).map(|_| inline::stamp(row))
            }
            (Self::Few { shape, block }, _) => shape.stamp_of(block, endpoint),
            (Self::Many(many), _) => many.stamp(endpoint, keys),
            _ => None,
        }
    }

    /// Reads where the next announce will: what it returns has no meaning.
    #[inline]
    pub(crate) fn touch(&self) -> u8 {
        match self {
            Self::Few { block, .. } => scan::touch(block),
            Self::Many(many) => many.touch(),
            _ => 0,
        }
    }

    /// Panics when something does not hold that must hold in each form.
    pub(crate) fn check(&self, keys: &Keys) {
        match self {
            Self::Inline4 { len, .. } => assert!((1..=2).contains(len), "{len} peers inline"),
            Self::Few { shape, block } => shape.check(block),
            Self::Many(many) => many.check(keys),
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
        assert_eq!(peers.len(), all, "nobody is there twice");
    }

    /// Goes to the next larger form, with room for one peer of `family` more.
    #[cold]
    fn widen(&mut self, family: Family, keys: &Keys) {
        *self = match self {
            Self::Few { .. } => {
                let mut many = Box::new(Many::default());
                self.each(&mut |endpoint, stamp| many.insert(&endpoint, stamp, keys));
                Self::Many(many)
            }
            _ => self.as_few(family),
        };
    }

    /// The same peers in a single block, with room for one of `family` more.
    fn as_few(&self, family: Family) -> Self {
        let mut bytes = family.peer_len() + few::STAMP_LEN;
        self.each(&mut |endpoint, _| bytes += endpoint.family().peer_len() + few::STAMP_LEN);
        let mut shape = Shape::default();
        let mut block = few::with_room(bytes);
        self.each(&mut |endpoint, stamp| {
            shape.insert(&mut block, &endpoint, stamp);
        });
        Self::Few { shape, block }
    }
}

/// What a reply begins with.
#[inline]
pub(crate) fn head(announce: &Announce, interval: u32, counts: Counts) -> [u8; HEAD_LEN] {
    let mut bytes = [0; HEAD_LEN];
    let Counts { seeders, leechers } = counts;
    let transaction_id = announce.transaction_id;
    AnnounceHead { transaction_id, interval, leechers, seeders }.write(&mut bytes);
    bytes
}

/// Which list a peer is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Seeder,
    Leecher,
    /// Counted, never handed out: clients that cannot accept connections announce port 1.
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

/// Whether an endpoint in wire form has port 1.
#[inline]
fn is_hidden(row: &[u8]) -> bool {
    row[row.len() - 2..] == [0, 1]
}
