//! Any number of endpoints of one family and kind, found by a keyed hash, drawn with equal
//! chances.
//!
//! A bag is a linear hash table (Litwin, 1980) whose buckets are chunks of about 24 to 96 peers:
//! it grows by splitting one chunk at a time and shrinks by joining two, so nothing takes long
//! however many peers there are, and there is no table beside the peers.
//!
//! ```text
//! chunk:  | endpoints, N bytes each | room | stamps, 2 bytes each | room |
//! ```

use rand::Rng;
use rand::rngs::SmallRng;

use super::few::{STAMP_LEN, resize};
use super::scan::position;
use super::{Expiry, Place, Stamp};
use crate::keys::Keys;
use crate::sample;
use crate::steps::Steps;

/// Peers per chunk, on average, at which a chunk is split. Those that wait for their turn to be
/// split have up to twice as many; keyed hashing keeps the rest of the spread within some 128.
const SPLIT_ABOVE: usize = 48;
/// Peers per chunk, on average, at which two are joined.
const JOIN_BELOW: usize = 20;
/// Peers by which the room of a chunk grows and shrinks.
const ROOM_STEP: usize = 8;

/// Draws after which a bag is taken for nearly empty. In one with 20 peers per chunk, none of
/// this many finds somebody once in 10^19 times.
const DRAWS: usize = 256;

/// A set of endpoints with their stamps.
#[derive(Debug)]
pub(super) struct Bag<const N: usize> {
    /// 24 KiB to a step.
    chunks: Steps<Chunk<N>, 1024>,
    len: usize,
    /// No chunk is longer. Drawing stays fair however far above the truth this is.
    longest: usize,
}

#[derive(Debug, Default)]
struct Chunk<const N: usize> {
    len: u32,
    block: Box<[u8]>,
}

impl<const N: usize> Default for Bag<N> {
    fn default() -> Self {
        Self { chunks: Steps::default(), len: 0, longest: 0 }
    }
}

impl<const N: usize> Bag<N> {
    /// Peers in the bag.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where an endpoint is; `hash` is its keyed hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, row: &[u8; N]) -> Option<Place> {
        if self.len == 0 {
            return None;
        }
        let chunk = self.chunk_of(hash);
        let slot = position(self.chunks.get(chunk).rows(), row)?;
        Some(Place { chunk: chunk as u32, slot: slot as u32 })
    }

    #[inline]
    pub(super) fn stamp(&self, place: Place) -> Stamp {
        self.chunks.get(place.chunk as usize).stamp(place.slot as usize)
    }

    #[inline]
    pub(super) fn put_stamp(&mut self, place: Place, stamp: Stamp) {
        self.chunks.get_mut(place.chunk as usize).put_stamp(place.slot as usize, stamp);
    }

    /// Adds an endpoint that is not there.
    pub(super) fn insert(&mut self, hash: u64, row: &[u8; N], stamp: Stamp, keys: &Keys) -> Place {
        self.len += 1;
        if self.len > self.chunks.len() * SPLIT_ABOVE {
            self.split(keys);
        }
        let chunk = self.chunk_of(hash);
        let slot = self.push(chunk, row, stamp);
        Place { chunk: chunk as u32, slot: slot as u32 }
    }

    /// Removes the endpoint at a place; its stamp.
    pub(super) fn remove(&mut self, place: Place) -> Stamp {
        let chunk = self.chunks.get_mut(place.chunk as usize);
        let stamp = chunk.stamp(place.slot as usize);
        chunk.swap_remove(place.slot as usize);
        chunk.shrink();
        self.len -= 1;
        // At most two at a time: enough to keep up, never long.
        for _ in 0..2 {
            self.join();
        }
        stamp
    }

    /// One step of a sweep: looks at chunk number `at`, or, behind the last, joins two chunks if
    /// there are too many. Calls `gone` for each peer that was not heard of for too long. Returns
    /// how many peers that touched, and where to go on, if not done.
    ///
    /// Chunks are walked upwards because splitting moves peers upwards: a peer that is there when
    /// a walk begins is met, unless chunks are joined meanwhile by peers that leave.
    pub(super) fn sweep_on(
        &mut self,
        at: u32,
        expiry: Expiry,
        gone: impl FnMut(Stamp),
    ) -> (usize, Option<u32>) {
        if (at as usize) < self.chunks.len() {
            return (self.sweep_chunk(at as usize, expiry, gone), Some(at + 1));
        }
        match self.join() {
            Some(moved) => (moved + 1, Some(at)),
            None => (0, None),
        }
    }

    /// Appends `take` of the endpoints to `out`, none of them the one at `own`. There must be as
    /// many.
    #[inline]
    pub(super) fn window(
        &self,
        own: Option<Place>,
        take: usize,
        rng: &mut SmallRng,
        out: &mut Vec<u8>,
    ) {
        if take == 0 {
            return;
        }
        let Place { chunk: first, slot } = self.draw(own, rng);
        let own_in =
            |at: usize| own.filter(|own| own.chunk as usize == at).map(|own| own.slot as usize);
        let (first, slot, mut left) = (first as usize, slot as usize, take);
        let chunk = self.chunks.get(first);
        sample::span(&chunk.block, N, slot..chunk.len(), own_in(first), &mut left, out);
        let mut at = first;
        while left > 0 {
            at = if at + 1 == self.chunks.len() { 0 } else { at + 1 };
            let chunk = self.chunks.get(at);
            let end = if at == first { slot } else { chunk.len() };
            sample::span(&chunk.block, N, 0..end, own_in(at), &mut left, out);
            if at == first {
                break;
            }
        }
        debug_assert_eq!(left, 0, "there are enough");
    }

    /// Calls `f` with each endpoint.
    pub(super) fn each(&self, f: &mut dyn FnMut(&[u8; N], Stamp)) {
        for chunk in self.chunks.iter() {
            for (slot, row) in chunk.rows().iter().enumerate() {
                f(row, chunk.stamp(slot));
            }
        }
    }

    /// Panics when something is not where it must be.
    pub(super) fn check(&self, keys: &Keys) {
        let lengths: Vec<_> = self.chunks.iter().map(Chunk::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), self.len);
        assert!(lengths.iter().all(|&length| length <= self.longest));
        assert!(self.len <= self.chunks.len() * SPLIT_ABOVE, "chunks are split in time");
        for (at, chunk) in self.chunks.iter().enumerate() {
            assert!(chunk.room() < chunk.len() + 3 * ROOM_STEP, "room is given back");
            assert!(chunk.rows().iter().all(|row| self.chunk_of(keys.row(row)) == at));
        }
    }

    /// A place of which every endpoint, but for the one at `own`, has the same chance: places
    /// are drawn among as many as there would be if all chunks were of the greatest length,
    /// until there is somebody. The mean length is above 20, so that takes a few draws.
    #[inline]
    fn draw(&self, own: Option<Place>, rng: &mut SmallRng) -> Place {
        for _ in 0..DRAWS {
            // One number for both: its halves are independent.
            let bits = rng.next_u64();
            let chunk = sample::scale((bits >> 32) as u32, self.chunks.len()) as u32;
            let slot = sample::scale(bits as u32, self.longest) as u32;
            let place = Place { chunk, slot };
            if slot < self.chunks.get(chunk as usize).len && Some(place) != own {
                return place;
            }
        }
        // Only while a sweep is thinning out a bag. Whoever is first will do.
        Place { chunk: 0, slot: 0 }
    }

    /// The chunk of a hash: by as many bits as tell all chunks apart, or by one bit less where
    /// that chunk has not been split off yet.
    #[inline]
    fn chunk_of(&self, hash: u64) -> usize {
        let chunks = self.chunks.len();
        let mask = chunks.next_power_of_two() - 1;
        let chunk = hash as usize & mask;
        if chunk < chunks { chunk } else { chunk & (mask >> 1) }
    }

    /// Removes from one chunk who has not been heard of for too long; how many it had.
    fn sweep_chunk(&mut self, at: usize, expiry: Expiry, mut gone: impl FnMut(Stamp)) -> usize {
        let chunk = self.chunks.get_mut(at);
        let before = chunk.len();
        for slot in (0..before).rev() {
            let stamp = chunk.stamp(slot);
            if expiry.is_over(stamp) {
                gone(stamp);
                chunk.swap_remove(slot);
            }
        }
        if chunk.len() < before {
            chunk.shrink();
        }
        self.len -= before - chunk.len();
        before.max(1)
    }

    /// Joins the last chunk with the one that it was split from, if there are too many chunks;
    /// the number of peers moved, if so.
    fn join(&mut self) -> Option<usize> {
        let needed = usize::from(self.len > 0);
        if self.len >= self.chunks.len() * JOIN_BELOW || self.chunks.len() == needed {
            return None;
        }
        let last = self.chunks.pop()?;
        if self.chunks.len() == 0 {
            self.longest = 0;
            return Some(0);
        }
        let into = parent(self.chunks.len());
        for (slot, row) in last.rows().iter().enumerate() {
            self.push(into, row, last.stamp(slot));
        }
        Some(last.len())
    }

    /// Adds a chunk and moves into it who belongs there now.
    #[cold]
    fn split(&mut self, keys: &Keys) {
        let new = self.chunks.len();
        self.chunks.push(Chunk::default());
        if new == 0 {
            return;
        }
        let from = parent(new);
        let length = self.chunks.get(from).len();
        for slot in (0..length).rev() {
            let chunk = self.chunks.get(from);
            let (row, stamp) = (chunk.rows()[slot], chunk.stamp(slot));
            if self.chunk_of(keys.row(&row)) == new {
                self.chunks.get_mut(from).swap_remove(slot);
                self.push(new, &row, stamp);
            }
        }
        self.chunks.get_mut(from).shrink();
    }

    fn push(&mut self, chunk: usize, row: &[u8; N], stamp: Stamp) -> usize {
        let chunk = self.chunks.get_mut(chunk);
        chunk.push(row, stamp);
        self.longest = self.longest.max(chunk.len());
        chunk.len() - 1
    }
}

/// The chunk that chunk number `chunk`, above 0, is split from: the same without its highest bit.
fn parent(chunk: usize) -> usize {
    chunk & !(1 << chunk.ilog2())
}

impl<const N: usize> Chunk<N> {
    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn room(&self) -> usize {
        self.block.len() / (N + STAMP_LEN)
    }

    #[inline]
    fn rows(&self) -> &[[u8; N]] {
        &self.block.as_chunks().0[..self.len()]
    }

    #[inline]
    fn stamp_at(&self, slot: usize) -> usize {
        self.room() * N + slot * STAMP_LEN
    }

    #[inline]
    fn stamp(&self, slot: usize) -> Stamp {
        let at = self.stamp_at(slot);
        Stamp::from_bytes([self.block[at], self.block[at + 1]])
    }

    #[inline]
    fn put_stamp(&mut self, slot: usize, stamp: Stamp) {
        let at = self.stamp_at(slot);
        self.block[at..at + STAMP_LEN].copy_from_slice(&stamp.to_bytes());
    }

    fn push(&mut self, row: &[u8; N], stamp: Stamp) {
        if self.len() == self.room() {
            self.set_room(self.len() + 1);
        }
        let (slot, at) = (self.len(), self.len() * N);
        self.block[at..at + N].copy_from_slice(row);
        self.len += 1;
        self.put_stamp(slot, stamp);
    }

    fn swap_remove(&mut self, slot: usize) {
        let last = self.len() - 1;
        self.block.copy_within(last * N..(last + 1) * N, slot * N);
        self.put_stamp(slot, self.stamp(last));
        self.len -= 1;
    }

    /// Gives room back when there are three steps of it, all but one: peers that come and go by
    /// the dozen do not make it grow and shrink.
    fn shrink(&mut self) {
        if self.len == 0 {
            self.block = Box::default();
        } else if self.len() + 3 * ROOM_STEP <= self.room() {
            self.set_room(self.len() + ROOM_STEP);
        }
    }

    /// Moves to a block with room for `peers` at least.
    fn set_room(&mut self, peers: usize) {
        // One less than a multiple, for the 8 bytes that allocators add.
        let room = (peers + 1).next_multiple_of(ROOM_STEP) - 1;
        let (old, used) = (self.stamp_at(0), self.len() * STAMP_LEN);
        if room > self.room() {
            resize(&mut self.block, room * (N + STAMP_LEN));
            self.block.copy_within(old..old + used, room * N);
        } else {
            self.block.copy_within(old..old + used, room * N);
            resize(&mut self.block, room * (N + STAMP_LEN));
        }
    }
}
