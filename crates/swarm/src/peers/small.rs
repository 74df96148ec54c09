//! Up to 128 peers of both families in one block of memory.
//!
//! ```text
//! | IPv4 endpoints, 6 bytes each | IPv6 endpoints, 18 each  | IPv4 stamps | IPv6 stamps | spare |
//!   seeders, leechers, hidden      seeders, leechers, hidden   2 bytes each, in the same order
//! ```
//!
//! Everything is packed: the peers of a reply are a run of bytes, and a search for an endpoint
//! reads nothing else. Adding or removing a peer moves the bytes behind it, 2.5 KB at most.

use std::cell::Cell;
use std::collections::HashMap;

use onrush_proto::{Endpoint, Family};
use rand::Rng;
use rand::rngs::SmallRng;

use super::scan::find_row;
use super::{Announcer, Counts, Expired, Expiry, Found, Kind, Place, SMALL_MAX, Stamp, head};
use crate::batch::Announce;
use crate::keys::prefixes;
use crate::sample::{self, Draw, Sampler, network};

/// Bytes of a stamp.
pub(super) const STAMP_LEN: usize = 2;
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

const _: () = assert!(SMALL_MAX <= u8::MAX as usize, "lengths are bytes");

/// The number of peers of each kind in a block, from which all offsets follow.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Per family: seeders, leechers, hidden.
    kinds: [[u8; 3]; 2],
    /// Without [`ADDED`]: an upper bound of the peers of one network.
    crowd: Cell<u8>,
}

/// The bit of [`Shape::crowd`] that is set while peers have been added since the networks were
/// counted. Each added peer raises the other bits by one; 127, their maximum, means 127 or 128.
const ADDED: u8 = 0x80;

/// The offsets of the peers of one family: seeders, then leechers, then hidden.
struct Lists {
    /// The offset of the first row.
    rows: usize,
    /// The offset of the first stamp.
    stamps: usize,
    seeders: usize,
    leechers: usize,
}

/// A new block of at least this many bytes.
pub(super) fn with_capacity(bytes: usize) -> Box<[u8]> {
    vec![0; rounded(bytes)].into_boxed_slice()
}

/// Rounds a length up to one that wastes nothing in allocators that add 8 bytes and round to 16, as
/// glibc's does, and little in others.
fn rounded(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16) - 8
}

impl Shape {
    /// Peers in the block.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.of(Family::V4) + self.of(Family::V6)
    }

    /// The number of peers of each kind.
    #[inline]
    pub(super) fn counts(&self, block: &[u8]) -> Counts {
        let [[seeders, leechers, hidden], more] = self.kinds;
        let counts = Counts {
            seeders: u32::from(seeders) + u32::from(more[0]),
            leechers: u32::from(leechers) + u32::from(more[1]),
        };
        if hidden | more[2] == 0 { counts } else { self.with_hidden(counts, block) }
    }

    /// Adds the hidden peers to the counts; only their stamps show whether they are seeders.
    #[cold]
    fn with_hidden(&self, mut counts: Counts, block: &[u8]) -> Counts {
        for family in FAMILIES {
            let end = self.of(family);
            for at in end - self.kind(family, Kind::Hidden)..end {
                counts.add(self.stamp(block, family, at));
            }
        }
        counts
    }

    /// The fast path: the announcer is stored in the list of its kind. Appends the whole reply;
    /// `false` for any other announce, before anything was changed.
    #[inline(never)]
    pub(super) fn refresh<const N: usize>(
        &self,
        block: &mut [u8],
        row: &[u8; N],
        announce: &Announce,
        stamp: Stamp,
        sampler: &mut Sampler,
        out: &mut Vec<u8>,
    ) -> bool {
        let (lists, counts) = (self.lists::<N>(), self.counts(block));
        let (endpoints, stamps) = block.split_at_mut(lists.stamps);
        let rows = endpoints[lists.rows..][..(lists.seeders + lists.leechers) * N].as_chunks().0;
        let (seeders, leechers) = rows.split_at(lists.seeders);
        let (own_kind, first) =
            if stamp.seeder() { (seeders, 0) } else { (leechers, lists.seeders) };
        // Hidden peers are in neither list.
        let Some(slot) = find_row(own_kind, row) else { return false };
        let stored = &mut stamps.as_chunks_mut().0[first + slot];
        *stored = stamp.after(Stamp(*stored), sampler.settles).0;
        let (interval, mut draw) = sampler.draw();
        let want = usize::from(announce.want);
        out.extend_from_slice(&head(announce, interval, counts));
        if announce.seeder {
            sample::rows(leechers, 0, None, want, &mut draw, out);
        } else {
            sample::rows(rows, lists.seeders, Some(slot), want, &mut draw, out);
        }
        true
    }

    /// Stores an announcer; `None` if it is new and may not be stored or the block is full.
    pub(super) fn announce(
        &mut self,
        block: &mut Box<[u8]>,
        announcer: Announcer<'_>,
    ) -> Option<Found> {
        let Announcer { endpoint, stamp, settles, may_store } = announcer;
        let family = endpoint.family();
        let kind = Kind::of(endpoint.as_bytes(), stamp.seeder());
        let (before, at) = match self.find(block, endpoint) {
            Some(at) => {
                let before = self.stamp(block, family, at);
                let stamp = stamp.after(before, settles);
                if before.seeder() == stamp.seeder() || kind == Kind::Hidden {
                    self.put_stamp(block, family, at, stamp);
                    (Some(before.seeder()), at)
                } else {
                    self.take_out(block, family, at);
                    (Some(before.seeder()), self.insert(block, endpoint, stamp))
                }
            }
            None if may_store && self.len() < SMALL_MAX => {
                (None, self.insert(block, endpoint, stamp))
            }
            None => return None,
        };
        let own = (kind == Kind::Leecher)
            .then(|| Place { chunk: 0, slot: (at - self.kind(family, Kind::Seeder)) as u32 });
        Some(Found { before, own })
    }

    /// Appends a new peer to its kind; returns its number in its family.
    pub(super) fn insert(
        &mut self,
        block: &mut Box<[u8]>,
        endpoint: &Endpoint,
        stamp: Stamp,
    ) -> usize {
        let (family, row) = (endpoint.family(), endpoint.as_bytes());
        let kind = Kind::of(row, stamp.seeder());
        self.crowd.set(((self.crowd.get() & !ADDED).min(!ADDED - 1) + 1) | ADDED);
        let at =
            self.kinds[family as usize][..=kind as usize].iter().map(|&n| usize::from(n)).sum();
        let used = self.used();
        let needed = used + row.len() + STAMP_LEN;
        if needed > block.len() {
            resize(block, rounded(needed + needed / 8));
        }
        let (row_at, stamp_at) = (self.row_at(family, at), self.stamp_at(family, at));
        block.copy_within(stamp_at..used, stamp_at + row.len() + STAMP_LEN);
        block.copy_within(row_at..stamp_at, row_at + row.len());
        block[row_at..row_at + row.len()].copy_from_slice(row);
        self.kinds[family as usize][kind as usize] += 1;
        self.put_stamp(block, family, at, stamp);
        at
    }

    /// Removes a peer and frees memory; returns its stamp, if it was stored.
    pub(super) fn remove(&mut self, block: &mut Box<[u8]>, endpoint: &Endpoint) -> Option<Stamp> {
        let at = self.find(block, endpoint)?;
        let stamp = self.stamp(block, endpoint.family(), at);
        self.take_out(block, endpoint.family(), at);
        self.shrink(block);
        Some(stamp)
    }

    /// Removes expired peers.
    pub(super) fn sweep(&mut self, block: &mut Box<[u8]>, expiry: Expiry, expired: &mut Expired) {
        for family in FAMILIES {
            for at in (0..self.of(family)).rev() {
                let stamp = self.stamp(block, family, at);
                if expiry.is_over(stamp) {
                    expired.add(self.endpoint(block, family, at), stamp);
                    self.take_out(block, family, at);
                }
            }
        }
        self.shrink(block);
    }

    /// Appends the peers that an announcer gets.
    #[inline]
    pub(super) fn sample(
        &self,
        block: &[u8],
        announce: &Announce,
        own: Option<Place>,
        draw: &mut Draw,
        out: &mut Vec<u8>,
    ) {
        match announce.endpoint {
            Endpoint::V4(_) => self.sample_rows::<6>(block, announce, own, draw, out),
            Endpoint::V6(_) => self.sample_rows::<18>(block, announce, own, draw, out),
        }
    }

    #[inline]
    fn sample_rows<const N: usize>(
        &self,
        block: &[u8],
        announce: &Announce,
        own: Option<Place>,
        draw: &mut Draw,
        out: &mut Vec<u8>,
    ) {
        let (rows, seeders) = self.offered::<N>(block, announce.seeder);
        let own = own.map(|place| place.slot as usize);
        sample::rows(rows, seeders, own, announce.want.into(), draw, out);
    }

    /// The rows that a seeder or a leecher may get, and how many of them are seeders.
    #[inline]
    fn offered<'a, const N: usize>(&self, block: &'a [u8], seeder: bool) -> (&'a [[u8; N]], usize) {
        let Lists { rows, seeders, leechers, .. } = self.lists::<N>();
        let rows = block[rows..][..(seeders + leechers) * N].as_chunks::<N>().0;
        if seeder { (&rows[seeders..], 0) } else { (rows, seeders) }
    }

    /// Whether a network may have more peers than its [part](sample::part) of a list for `want`.
    #[inline]
    pub(super) fn may_be_crowded(&self, want: u16) -> bool {
        u16::from(self.crowd.get() & !ADDED) > want / sample::NETWORK_PART as u16
    }

    /// Draws the list of a reply again if a network has more than its part of it.
    #[cold]
    #[inline(never)]
    pub(super) fn spread_crowds(
        &self,
        block: &[u8],
        announce: &Announce,
        sampler: &mut Sampler,
        out: &mut Vec<u8>,
    ) {
        let (_, draw) = sampler.draw();
        match &announce.endpoint {
            Endpoint::V4(row) => self.spread_rows(block, row, announce, draw, out),
            Endpoint::V6(row) => self.spread_rows(block, row, announce, draw, out),
        }
    }

    fn spread_rows<const N: usize>(
        &self,
        block: &[u8],
        row: &[u8; N],
        announce: &Announce,
        draw: Draw,
        out: &mut Vec<u8>,
    ) {
        let want = usize::from(announce.want);
        let (rows, seeders) = self.offered(block, announce.seeder);
        // Counted for a list of all peers, too: the lower bound spares the lists that follow.
        if self.most_of_network(block) > sample::part(want) && rows.len() > want {
            let own = if announce.seeder { None } else { find_row(&rows[seeders..], row) };
            sample::spread_crowds(rows, seeders, own, want, draw, out);
        }
    }

    /// The peers of the network that has most: counted if peers were added since.
    fn most_of_network(&self, block: &[u8]) -> usize {
        if self.crowd.get() & ADDED != 0 {
            let (v4, v6) = block.split_at(self.row_at(Family::V6, 0));
            let v6 = &v6.as_chunks().0[..self.of(Family::V6)];
            let v4 = most_of_network::<6>(v4.as_chunks().0);
            self.crowd.set(v4.max(most_of_network::<18>(v6)).min(!ADDED));
        }
        self.crowd.get().into()
    }

    /// Calls `f` with each peer.
    pub(super) fn each(&self, block: &[u8], f: &mut dyn FnMut(Endpoint, Stamp)) {
        let (rows, _) = block.as_chunks::<6>();
        for (at, row) in rows[..self.of(Family::V4)].iter().enumerate() {
            f(Endpoint::V4(*row), self.stamp(block, Family::V4, at));
        }
        let (rows, _) = block[self.row_at(Family::V6, 0)..].as_chunks::<18>();
        for (at, row) in rows[..self.of(Family::V6)].iter().enumerate() {
            f(Endpoint::V6(*row), self.stamp(block, Family::V6, at));
        }
    }

    /// A uniformly random peer.
    pub(super) fn any(&self, block: &[u8], rng: &mut SmallRng) -> (Endpoint, Stamp) {
        let nth = sample::scale(rng.next_u32(), self.len());
        let (family, nth) = match nth.checked_sub(self.of(Family::V4)) {
            None => (Family::V4, nth),
            Some(nth) => (Family::V6, nth),
        };
        (self.endpoint(block, family, nth), self.stamp(block, family, nth))
    }

    /// A peer's stamp, if the peer is stored.
    pub(super) fn stamp_of(&self, block: &[u8], endpoint: &Endpoint) -> Option<Stamp> {
        let at = self.find(block, endpoint)?;
        Some(self.stamp(block, endpoint.family(), at))
    }

    /// Panics when an invariant of the block is violated.
    pub(super) fn check(&self, block: &[u8]) {
        assert!((2..=SMALL_MAX).contains(&self.len()), "{} peers in a block", self.len());
        assert!(self.used() <= block.len());
        assert!(block.len() <= rounded(self.used() * 2 + 64), "spare space is freed");
        let (mut numbers, mut networks) = ([0; 2], HashMap::<_, u8>::new());
        self.each(block, &mut |endpoint, stamp| {
            let family = endpoint.family();
            let kind = Kind::of(endpoint.as_bytes(), stamp.seeder());
            let number = &mut numbers[family as usize];
            let before: usize =
                self.kinds[family as usize][..kind as usize].iter().map(|&n| usize::from(n)).sum();
            let range = before..before + self.kind(family, kind);
            assert!(range.contains(number), "{kind:?} number {number} is not in {range:?}");
            *number += 1;
            let [_, network, _] = prefixes(family);
            let prefix = &endpoint.as_bytes()[..network];
            *networks.entry((family as u8, prefix.to_vec())).or_default() += 1;
        });
        let most = networks.into_values().max().unwrap_or(0);
        assert!(most.min(!ADDED) <= self.crowd.get() & !ADDED, "the bound of networks");
    }

    /// The number of an endpoint in its family.
    #[inline]
    fn find(&self, block: &[u8], endpoint: &Endpoint) -> Option<usize> {
        let rows = &block[self.row_at(endpoint.family(), 0)..];
        match endpoint {
            Endpoint::V4(row) => find_row(&rows.as_chunks().0[..self.of(Family::V4)], row),
            Endpoint::V6(row) => find_row(&rows.as_chunks().0[..self.of(Family::V6)], row),
        }
    }

    /// Closes the gap of a removed peer.
    fn take_out(&mut self, block: &mut [u8], family: Family, at: usize) {
        let (width, used) = (family.peer_len(), self.used());
        let (row_at, stamp_at) = (self.row_at(family, at), self.stamp_at(family, at));
        block.copy_within(row_at + width..stamp_at, row_at);
        block.copy_within(stamp_at + STAMP_LEN..used, stamp_at - width);
        let mut end = 0;
        for number in &mut self.kinds[family as usize] {
            end += usize::from(*number);
            if at < end {
                *number -= 1;
                return;
            }
        }
    }

    /// The lists of the family with rows of `N` bytes.
    #[inline]
    fn lists<const N: usize>(&self) -> Lists {
        let [v4, v6] = [self.of(Family::V4), self.of(Family::V6)];
        let (family, rows, stamps) = if N == Family::V4.peer_len() {
            (Family::V4, 0, v4 * 6 + v6 * 18)
        } else {
            (Family::V6, v4 * 6, v4 * 6 + v6 * 18 + v4 * STAMP_LEN)
        };
        let [seeders, leechers, _] = self.kinds[family as usize].map(usize::from);
        Lists { rows, stamps, seeders, leechers }
    }

    /// Peers of a family.
    #[inline]
    pub(super) fn of(&self, family: Family) -> usize {
        self.kinds[family as usize].iter().map(|&number| usize::from(number)).sum()
    }

    #[inline]
    fn kind(&self, family: Family, kind: Kind) -> usize {
        usize::from(self.kinds[family as usize][kind as usize])
    }

    /// Bytes of the block in use.
    fn used(&self) -> usize {
        self.stamp_at(Family::V6, self.of(Family::V6))
    }

    #[inline]
    fn row_at(&self, family: Family, at: usize) -> usize {
        match family {
            Family::V4 => at * 6,
            Family::V6 => self.of(Family::V4) * 6 + at * 18,
        }
    }

    #[inline]
    fn stamp_at(&self, family: Family, at: usize) -> usize {
        let before = if family == Family::V6 { self.of(Family::V4) } else { 0 };
        self.row_at(Family::V6, self.of(Family::V6)) + (before + at) * STAMP_LEN
    }

    fn endpoint(&self, block: &[u8], family: Family, at: usize) -> Endpoint {
        let row = &block[self.row_at(family, at)..];
        match family {
            Family::V4 => Endpoint::V4(row.as_chunks().0[0]),
            Family::V6 => Endpoint::V6(row.as_chunks().0[0]),
        }
    }

    #[inline]
    fn stamp(&self, block: &[u8], family: Family, at: usize) -> Stamp {
        let start = self.stamp_at(family, at);
        Stamp([block[start], block[start + 1]])
    }

    #[inline]
    fn put_stamp(&self, block: &mut [u8], family: Family, at: usize, stamp: Stamp) {
        let start = self.stamp_at(family, at);
        block[start..start + STAMP_LEN].copy_from_slice(&stamp.0);
    }

    /// Shrinks the block when half of it would do.
    fn shrink(&self, block: &mut Box<[u8]>) {
        let enough = rounded(self.used());
        if enough * 2 <= block.len() {
            resize(block, enough);
        }
    }
}

/// The number of peers of the network that has most of the rows.
fn most_of_network<const N: usize>(rows: &[[u8; N]]) -> u8 {
    let mut networks = [0; SMALL_MAX];
    let networks = &mut networks[..rows.len()];
    networks.iter_mut().zip(rows).for_each(|(it, row)| *it = network(row));
    networks.sort_unstable();
    networks.chunk_by(u64::eq).map(|peers| peers.len() as u8).max().unwrap_or(0)
}

/// Resizes a block, in place if the allocator can.
pub(super) fn resize(block: &mut Box<[u8]>, bytes: usize) {
    let mut vector = Vec::from(std::mem::take(block));
    if bytes > vector.len() {
        vector.reserve_exact(bytes - vector.len());
        vector.resize(bytes, 0);
    } else {
        vector.truncate(bytes);
    }
    *block = vector.into_boxed_slice();
}
