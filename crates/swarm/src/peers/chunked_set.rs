//! Any number of endpoints of one family and kind, found by a keyed hash, drawn with equal
//! probability.
//!
//! The set is a linear hash table (Litwin, 1980) whose buckets are chunks of about 24 to 96 peers:
//! it grows by splitting one chunk at a time and shrinks by joining two, so no operation takes long
//! at any size, and there is no directory beside the peers.
//!
//! A chunk stores its peers in blocks of 15, and the blocks of all chunks lie in one sequence
//! without gaps. So memory is proportional to the number of peers with any allocator: no chunk is
//! copied to grow, none leaves a hole, and memory is freed in pieces of one size.

use rand::Rng;
use rand::rngs::SmallRng;

use super::order::Run;
use super::scan::find_row;
use super::{Expiry, Place, Stamp};
use crate::keys::Keys;
use crate::sample;
use crate::steps::Steps;

/// The mean number of peers per chunk at which a chunk is split. Chunks that are not split yet have
/// up to twice as many; keyed hashing keeps the spread within some 128.
const SPLIT_ABOVE: usize = 48;
/// The mean number of peers per chunk at which two chunks are joined.
const JOIN_BELOW: usize = 20;
/// Peers per block: with their stamps and the number of their chunk they fill 128 bytes (IPv4).
const BLOCK: usize = 15;
/// The most blocks of a chunk. A full chunk causes splits until it is split itself: of chunks of 96
/// on average, one in 10^10.
const BLOCKS: usize = 11;

/// Draws after which a set counts as nearly empty. With 20 peers per chunk, all of them miss once
/// in 10^19 times.
const DRAWS: usize = 256;

/// A set of endpoints with their stamps.
#[derive(Debug)]
pub(super) struct ChunkedSet<const N: usize> {
    /// 6 KiB per step.
    chunks: Steps<Chunk, 128>,
    /// 4 KiB per step (IPv6: 10).
    blocks: Steps<Block<N>, 32>,
    len: usize,
    /// An upper bound on the length of a chunk. Drawing is uniform with any upper bound.
    longest: usize,
}

/// The peers whose hashes agree in their lowest bits.
#[derive(Debug, Default)]
struct Chunk {
    len: u32,
    /// The blocks of its peers, all full but for the last.
    blocks: [u32; BLOCKS],
}

#[derive(Debug)]
#[repr(align(64))]
struct Block<const N: usize> {
    rows: [[u8; N]; BLOCK],
    stamps: [Stamp; BLOCK],
    /// The number of its chunk.
    owner: u32,
}

const _: () = assert!(size_of::<Chunk>() == 48);
const _: () = assert!(size_of::<Block<6>>() == 128 && size_of::<Block<18>>() == 320);

impl<const N: usize> Default for ChunkedSet<N> {
    fn default() -> Self {
        Self { chunks: Steps::default(), blocks: Steps::default(), len: 0, longest: 0 }
    }
}

impl<const N: usize> ChunkedSet<N> {
    /// The number of peers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place of an endpoint; `hash` is its keyed hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, row: &[u8; N]) -> Option<Place> {
        if self.len == 0 {
            return None;
        }
        let number = self.chunk_of(hash);
        let chunk = self.chunks.get(number);
        for (at, &block) in chunk.used().iter().enumerate() {
            let used = (chunk.len() - at * BLOCK).min(BLOCK);
            if let Some(row) = find_row(&self.blocks.get(block as usize).rows[..used], row) {
                return Some(Place { chunk: number as u32, slot: (at * BLOCK + row) as u32 });
            }
        }
        None
    }

    #[inline]
    pub(super) fn stamp(&self, place: Place) -> Stamp {
        let chunk = self.chunks.get(place.chunk as usize);
        let (block, at) = chunk.place(place.slot as usize);
        self.blocks.get(block).stamps[at]
    }

    #[inline]
    pub(super) fn put_stamp(&mut self, place: Place, stamp: Stamp) {
        let chunk = self.chunks.get(place.chunk as usize);
        let (block, at) = chunk.place(place.slot as usize);
        self.blocks.get_mut(block).stamps[at] = stamp;
    }

    /// Adds a new endpoint.
    pub(super) fn insert(&mut self, hash: u64, row: &[u8; N], stamp: Stamp, keys: &Keys) -> Place {
        self.len += 1;
        if self.len > self.chunks.len() * SPLIT_ABOVE {
            self.split(keys);
        }
        let mut chunk = self.chunk_of(hash);
        while self.chunks.get(chunk).len() == BLOCKS * BLOCK {
            self.split(keys);
            chunk = self.chunk_of(hash);
        }
        let slot = self.push(chunk, row, stamp);
        Place { chunk: chunk as u32, slot: slot as u32 }
    }

    /// Removes the endpoint at a place; returns its stamp.
    pub(super) fn remove(&mut self, place: Place) -> Stamp {
        let stamp = self.stamp(place);
        self.swap_remove(place.chunk as usize, place.slot as usize);
        self.len -= 1;
        // At most two joins: enough to keep pace, and never long.
        for _ in 0..2 {
            self.join();
        }
        stamp
    }

    /// One step of a sweep: visits chunk `at`, or, behind the last, joins two chunks if there are
    /// too many. Calls `expired` for each expired peer. Returns the number of peers visited, and
    /// the next chunk, if any.
    ///
    /// Chunks are visited upwards because splitting moves peers upwards: a peer that is stored when
    /// a pass begins is visited, unless stops cause chunks to be joined meanwhile.
    pub(super) fn sweep_step(
        &mut self,
        at: u32,
        expiry: Expiry,
        expired: impl FnMut(&[u8; N], Stamp),
    ) -> (usize, Option<u32>) {
        if (at as usize) < self.chunks.len() {
            return (self.sweep_chunk(at as usize, expiry, expired), Some(at + 1));
        }
        match self.join() {
            Some(moved) => (moved + 1, Some(at)),
            None => (0, None),
        }
    }

    /// Appends `take` of the endpoints to `out`, except the one at `own`. There must be as many.
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
        self.span(first, slot..self.chunks.get(first).len(), own_in(first), &mut left, out);
        let mut at = first;
        while left > 0 {
            at = if at + 1 == self.chunks.len() { 0 } else { at + 1 };
            let end = if at == first { slot } else { self.chunks.get(at).len() };
            self.span(at, 0..end, own_in(at), &mut left, out);
            if at == first {
                break;
            }
        }
        debug_assert_eq!(left, 0, "there are as many");
    }

    /// The endpoints from a random place on, around the end, except the one at `own`. There must be
    /// one.
    pub(super) fn turned(
        &self,
        own: Option<Place>,
        rng: &mut SmallRng,
    ) -> impl Iterator<Item = [u8; N]> + Clone + use<'_, N> {
        let Place { chunk: first, slot } = self.draw(own, rng);
        let (first, slot, chunks) = (first as usize, slot as usize, self.chunks.len());
        (0..=chunks).flat_map(move |nth| {
            let chunk = (first + nth) % chunks;
            let from = if nth == 0 { slot } else { 0 };
            let to = if nth == chunks { slot } else { self.chunks.get(chunk).len() };
            let places =
                (from..to).map(move |slot| Place { chunk: chunk as u32, slot: slot as u32 });
            let others = places.filter(move |place| Some(*place) != own);
            others.map(move |place| self.peer(chunk, place.slot as usize).0)
        })
    }

    /// Calls `f` with each endpoint.
    pub(super) fn each(&self, f: &mut dyn FnMut(&[u8; N], Stamp)) {
        for number in 0..self.chunks.len() {
            for slot in 0..self.chunks.get(number).len() {
                let (row, stamp) = self.peer(number, slot);
                f(&row, stamp);
            }
        }
    }

    /// The run of hashes of the chunk with position `due`; all hashes if there are no chunks.
    pub(super) fn run_at(&self, due: u64) -> Run {
        if self.chunks.len() == 0 {
            return Run::of_chunk(0, 0);
        }
        let chunk = self.chunk_of(due.reverse_bits());
        let chunks = self.chunks.len();
        let all = chunks.next_power_of_two();
        // One bit less distinguishes a chunk that is not split yet.
        let whole = chunk < all / 2 && chunk + all / 2 >= chunks;
        Run::of_chunk(chunk, all.ilog2() - u32::from(whole))
    }

    /// Calls `f` with each peer of a run that lies within one chunk. Returns the number visited.
    pub(super) fn each_of(
        &self,
        run: Run,
        keys: &Keys,
        f: &mut dyn FnMut(&[u8; N], Stamp),
    ) -> usize {
        if self.len == 0 {
            return 0;
        }
        let number = self.chunk_of(run.first.reverse_bits());
        let all = self.run_at(run.first) == run;
        let len = self.chunks.get(number).len();
        for slot in 0..len {
            let (row, stamp) = self.peer(number, slot);
            if all || run.has(keys.row(&row).reverse_bits()) {
                f(&row, stamp);
            }
        }
        len
    }

    /// Panics when an invariant is violated.
    pub(super) fn check(&self, keys: &Keys) {
        let lengths: Vec<_> = self.chunks.iter().map(Chunk::len).collect();
        assert_eq!(lengths.iter().sum::<usize>(), self.len);
        assert!(lengths.iter().all(|&length| length <= self.longest));
        assert!(self.len <= self.chunks.len() * SPLIT_ABOVE, "chunks are split early enough");
        let mut blocks = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            blocks += chunk.used().len();
            let owns = |&block: &u32| self.blocks.get(block as usize).owner as usize == number;
            assert!(chunk.used().iter().all(owns));
            let belongs = |slot| self.chunk_of(keys.row(&self.peer(number, slot).0)) == number;
            assert!((0..chunk.len()).all(belongs));
        }
        assert_eq!(blocks, self.blocks.len(), "every block has an owner");
        let mut due = Some(0u64);
        while let Some(at) = due.filter(|_| !lengths.is_empty()) {
            let run = self.run_at(at);
            assert_eq!(run.first, at, "runs are adjacent");
            assert_eq!(self.chunk_of(run.last.reverse_bits()), self.chunk_of(at.reverse_bits()));
            due = run.last.checked_add(1);
        }
    }

    /// A uniformly random endpoint, if there is one.
    pub(super) fn any(&self, rng: &mut SmallRng) -> Option<([u8; N], Stamp)> {
        if self.len == 0 {
            return None;
        }
        let place = self.draw(None, rng);
        Some(self.peer(place.chunk as usize, place.slot as usize))
    }

    /// A uniformly random place, except `own`: places are drawn as if all chunks had the greatest
    /// length, until one is occupied. The mean length is above 20, so a few draws suffice.
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
        // Only while a sweep is emptying the set. The first place serves as well.
        Place { chunk: 0, slot: 0 }
    }

    /// The chunk of a hash: by as many bits as distinguish all chunks, or by one bit less where
    /// that chunk is not split off yet.
    #[inline]
    fn chunk_of(&self, hash: u64) -> usize {
        let chunks = self.chunks.len();
        let mask = chunks.next_power_of_two() - 1;
        let chunk = hash as usize & mask;
        if chunk < chunks { chunk } else { chunk & (mask >> 1) }
    }

    /// Removes expired peers from one chunk; returns its former length.
    fn sweep_chunk(
        &mut self,
        at: usize,
        expiry: Expiry,
        mut expired: impl FnMut(&[u8; N], Stamp),
    ) -> usize {
        let before = self.chunks.get(at).len();
        let mut left = before;
        for slot in (0..before).rev() {
            let stamp = self.stamp(Place { chunk: at as u32, slot: slot as u32 });
            if expiry.is_over(stamp) {
                expired(&self.peer(at, slot).0, stamp);
                self.swap_remove(at, slot);
                left -= 1;
            }
        }
        self.len -= before - left;
        before.max(1)
    }

    /// Joins the last chunk with the one that it was split from, if there are too many chunks;
    /// returns the number of peers moved.
    fn join(&mut self) -> Option<usize> {
        let needed = usize::from(self.len > 0);
        if self.len >= self.chunks.len() * JOIN_BELOW || self.chunks.len() == needed {
            return None;
        }
        let last = self.chunks.len() - 1;
        let moved = self.chunks.get(last).len();
        if last > 0 {
            let into = parent(last);
            if self.chunks.get(into).len() + moved > BLOCKS * BLOCK {
                return None;
            }
            for slot in (0..moved).rev() {
                let (row, stamp) = self.peer(last, slot);
                self.push(into, &row, stamp);
                self.drop_last(last);
            }
        }
        self.chunks.pop();
        if self.len == 0 {
            self.longest = 0;
        }
        Some(moved)
    }

    /// Adds a chunk and moves its peers into it.
    #[cold]
    fn split(&mut self, keys: &Keys) {
        let new = self.chunks.len();
        self.chunks.push(Chunk::default());
        if new == 0 {
            return;
        }
        let from = parent(new);
        for slot in (0..self.chunks.get(from).len()).rev() {
            let (row, stamp) = self.peer(from, slot);
            if self.chunk_of(keys.row(&row)) == new {
                self.swap_remove(from, slot);
                self.push(new, &row, stamp);
            }
        }
    }

    #[inline]
    fn peer(&self, chunk: usize, slot: usize) -> ([u8; N], Stamp) {
        let (block, at) = self.chunks.get(chunk).place(slot);
        let block = self.blocks.get(block);
        (block.rows[at], block.stamps[at])
    }

    /// Appends a peer to a chunk that is not full; returns its slot.
    fn push(&mut self, number: usize, row: &[u8; N], stamp: Stamp) -> usize {
        let chunk = self.chunks.get_mut(number);
        let slot = chunk.len();
        chunk.len += 1;
        self.longest = self.longest.max(slot + 1);
        if slot.is_multiple_of(BLOCK) {
            chunk.blocks[slot / BLOCK] = self.blocks.len() as u32;
            let (rows, stamps) = ([*row; BLOCK], [stamp; BLOCK]);
            self.blocks.push(Block { rows, stamps, owner: number as u32 });
        } else {
            let (block, at) = chunk.place(slot);
            let block = self.blocks.get_mut(block);
            (block.rows[at], block.stamps[at]) = (*row, stamp);
        }
        slot
    }

    /// Removes a peer; the last one of its chunk takes its slot.
    fn swap_remove(&mut self, number: usize, slot: usize) {
        let chunk = self.chunks.get(number);
        let last = chunk.len() - 1;
        if slot != last {
            let (block, at) = chunk.place(slot);
            let (row, stamp) = self.peer(number, last);
            let block = self.blocks.get_mut(block);
            (block.rows[at], block.stamps[at]) = (row, stamp);
        }
        self.drop_last(number);
    }

    /// Removes the last peer of a chunk, and its block if that becomes empty: the last block of all
    /// takes its place.
    fn drop_last(&mut self, number: usize) {
        let chunk = self.chunks.get_mut(number);
        chunk.len -= 1;
        let slot = chunk.len();
        if !slot.is_multiple_of(BLOCK) {
            return;
        }
        let free = chunk.blocks[slot / BLOCK];
        self.blocks.swap_remove(free as usize);
        let moved = self.blocks.len() as u32;
        if moved != free {
            let owner = self.blocks.get(free as usize).owner;
            let chunk = self.chunks.get_mut(owner as usize);
            let used = chunk.len().div_ceil(BLOCK);
            for block in chunk.blocks[..used].iter_mut().filter(|block| **block == moved) {
                *block = free;
            }
        }
    }

    /// Appends the endpoints of a range of a chunk, except slot `own`, until `left` is used up.
    #[inline]
    fn span(
        &self,
        number: usize,
        range: std::ops::Range<usize>,
        own: Option<usize>,
        left: &mut usize,
        out: &mut Vec<u8>,
    ) {
        let chunk = self.chunks.get(number);
        let mut slot = range.start;
        while slot < range.end && *left > 0 {
            let (block, at) = chunk.place(slot);
            let start = slot - at;
            let end = range.end.min(start + BLOCK);
            let rows = self.blocks.get(block).rows.as_flattened();
            let own = own.and_then(|own| own.checked_sub(start));
            sample::span(rows, N, at..end - start, own, left, out);
            slot = end;
        }
    }
}

/// The chunk that `chunk`, above 0, is split from: the same number without its highest bit.
fn parent(chunk: usize) -> usize {
    chunk & !(1 << chunk.ilog2())
}

impl Chunk {
    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn used(&self) -> &[u32] {
        &self.blocks[..self.len().div_ceil(BLOCK)]
    }

    /// The block of a slot, and the slot's index in it.
    #[inline]
    fn place(&self, slot: usize) -> (usize, usize) {
        (self.blocks[slot / BLOCK] as usize, slot % BLOCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Tick;
    use crate::time::Moment;

    /// Endpoints whose hashes agree in their lowest bits, which cannot be found without the key.
    fn alike(bits: u32, keys: &Keys) -> impl Iterator<Item = [u8; 6]> {
        (0..u32::MAX).filter_map(move |number| {
            let [a, b, c, d] = number.to_be_bytes();
            let row = [a, b, c, d, 1, 1];
            keys.row(&row).trailing_zeros().ge(&bits).then_some(row)
        })
    }

    #[test]
    fn a_full_chunk_is_split_at_once() {
        let keys = Keys::new([7; 16]);
        let stamp = Stamp::new(Tick::of(Moment(0)), true);
        let mut set = ChunkedSet::<6>::default();
        let rows: Vec<_> = alike(7, &keys).take(3 * BLOCK * BLOCKS).collect();
        for row in &rows {
            set.insert(keys.row(row), row, stamp, &keys);
        }
        set.check(&keys);
        assert!(rows.iter().all(|row| set.find(keys.row(row), row).is_some()));
        for (left, row) in rows.iter().enumerate().rev() {
            let place = set.find(keys.row(row), row).expect("the row is stored");
            set.remove(place);
            assert_eq!(set.len(), left);
            assert!(set.chunks.iter().all(|chunk| chunk.len() <= BLOCK * BLOCKS));
        }
        assert_eq!(set.blocks.len(), 0, "all memory is freed");
    }
}
