//! A list of info hashes that may have millions of entries: sorted, with a table in front that says from 16 bytes
//! whether a hash may be there, and at which place.
//!
//! | part | bytes per hash |
//! |---|---|
//! | the hashes, sorted, each once | 20 |
//! | the table: a block of 16 bytes for four and a half hashes | 3.6 |
//!
//! A block stands for one part of the range of all hashes, each for as large a one. It tells where the hashes of its
//! part begin, and has a fingerprint of each of them: its last byte. So a look-up of a stranger is one read (some 2 %
//! meet a fingerprint like theirs, and are searched for in that part), and one of a listed hash is two: its block, and the hash itself. Why, with
//! figures: docs/decisions/0038. The bits of a SHA-1 are as good as random; a list of others (or one that was ground to
//! have many of the same first bits) has blocks that are crowded, whose hashes are found by binary search.

use std::cmp::Ordering;
use std::hint::black_box;

use onrush_proto::InfoHash;

/// Hashes to two blocks, on average. A block of more than [`FINGERPRINTS`] is one of a thousand.
const PER_TWO_BLOCKS: usize = 9;
/// Look-ups whose cache misses are made to overlap.
const GROUP: usize = 32;
/// Comparisons or blocks between two reports of progress: some 10 ms.
const STEP: usize = 1 << 20;

/// Info hashes, each once.
#[derive(Clone, Debug)]
pub struct InfoHashSet {
    hashes: Box<[[u8; 20]]>,
    /// And behind the last of them an empty one, which begins where the hashes end.
    blocks: Box<[Bucket]>,
}

impl InfoHashSet {
    /// The list of these, in any order; duplicates count once.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub fn new(hashes: Vec<[u8; 20]>) -> Self {
        Self::with_progress(hashes, &mut || {})
    }

    /// As [`new`](Self::new); calls `progress` every 10 ms or so, as sorting hundreds of millions of
    /// hashes takes longer than reading them.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub fn with_progress(mut hashes: Vec<[u8; 20]>, progress: &mut dyn FnMut()) -> Self {
        let mut progress = Paced { progress, steps: 0 };
        hashes.sort_unstable_by(|one, other| progress.compare(one, other));
        hashes.dedup();
        let hashes = hashes.into_boxed_slice();
        let len = u32::try_from(hashes.len()).expect("fewer than 2^32 info hashes");
        let parts = (2 * hashes.len()).div_ceil(PER_TWO_BLOCKS).max(1);
        let mut blocks = Vec::with_capacity(parts + 1);
        let mut rest = &*hashes;
        for part in 0..parts {
            progress.step();
            let start = len - rest.len() as u32;
            let own = rest.iter().take_while(|hash| part_of(hash, parts) == part).count();
            blocks.push(Bucket::new(start, &rest[..own]));
            rest = &rest[own..];
        }
        blocks.push(Bucket::new(len, &[]));
        Self { hashes, blocks: blocks.into_boxed_slice() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this one is listed.
    #[inline(always)]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        let hash = &info_hash.0;
        let part = self.part_of(hash);
        let block = &self.blocks[part];
        match block.place(hash) {
            Some(place) if self.hashes.get(place) == Some(hash) => true,
            None if !block.is_crowded() => false,
            _ => self.is_in_part(hash, part),
        }
    }

    /// Reads what looking up each of these will read, so that their cache misses overlap: first the blocks of all,
    /// then, for those that these do not send away, the hashes that they point at. Within a pass no read waits for
    /// the one before it. Plain reads do what prefetching would, without `unsafe`.
    pub fn prefetch(&self, names: &[&[u8; 20]]) {
        for names in names.chunks(GROUP) {
            let mut blocks = [Bucket::EMPTY; GROUP];
            for (block, name) in blocks.iter_mut().zip(names) {
                *block = self.blocks[self.part_of(name)];
            }
            let mut places = [0; GROUP];
            let mut len = 0;
            for (block, name) in blocks.iter().zip(names) {
                let place = block.place(name);
                places[len] = place.unwrap_or(0);
                len += usize::from(place.is_some());
            }
            // A hash may lie across two cache lines.
            let read = places[..len].iter().filter_map(|place| self.hashes.get(*place));
            black_box(read.fold(0, |read, hash| read ^ hash[0] ^ hash[19]));
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, [u8; 20]> {
        self.hashes.iter()
    }

    /// Those from this one on, in order.
    pub fn iter_from(&self, first: &[u8; 20]) -> std::slice::Iter<'_, [u8; 20]> {
        self.hashes[self.hashes.partition_point(|hash| hash < first)..].iter()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.hashes) + size_of_val(&*self.blocks)
    }

    #[inline]
    fn part_of(&self, hash: &[u8; 20]) -> usize {
        part_of(hash, self.blocks.len() - 1)
    }

    /// For what a fingerprint cannot tell.
    #[inline(never)]
    fn is_in_part(&self, hash: &[u8; 20], part: usize) -> bool {
        let (start, end) = (self.blocks[part].start(), self.blocks[part + 1].start());
        self.hashes[start..end].binary_search(hash).is_ok()
    }
}

/// Two lists are the same when they list the same.
impl PartialEq for InfoHashSet {
    fn eq(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }
}

impl Eq for InfoHashSet {}

/// Which of `parts` equal parts of the range of all hashes this one is in: in the order of the hashes.
#[inline]
fn part_of(hash: &[u8; 20], parts: usize) -> usize {
    let (first, _) = hash.split_first_chunk().expect("20 bytes are more than 8");
    ((u128::from(u64::from_be_bytes(*first)) * parts as u128) >> 64) as usize
}

/// Calls `progress` once in [`STEP`] steps.
struct Paced<'a> {
    progress: &'a mut dyn FnMut(),
    steps: usize,
}

impl Paced<'_> {
    #[inline]
    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEP) {
            (self.progress)();
        }
    }

    #[inline]
    fn compare(&mut self, one: &[u8; 20], other: &[u8; 20]) -> Ordering {
        self.step();
        one.cmp(other)
    }
}

/// Fingerprints that fit into a block.
const FINGERPRINTS: usize = 12;
/// One in each byte.
const ONES: u64 = u64::MAX / 255;

/// What is to be known of one part: sixteen bytes in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Bucket {
    /// The fingerprints of the first eight hashes, the first of them in the lowest byte; 0 where there is none.
    low: u64,
    /// Those of four more, and above them the place of the part's first hash.
    high: u64,
}

impl Bucket {
    const EMPTY: Self = Self { low: 0, high: 0 };
    /// Of a crowded block: no hash before it and one in the last place is nothing that comes about otherwise.
    const CROWDED: u64 = 0xFF00_0000;

    /// Of the part with these hashes, the first of which has the place `start`.
    fn new(start: u32, hashes: &[[u8; 20]]) -> Self {
        let mut bytes = [0; 16];
        bytes[FINGERPRINTS..].copy_from_slice(&start.to_le_bytes());
        match hashes.len() {
            0..=FINGERPRINTS => {
                bytes.iter_mut().zip(hashes).for_each(|(byte, hash)| *byte = fingerprint(hash));
            }
            _ => bytes[FINGERPRINTS - 1] = 0xFF,
        }
        let all = u128::from_le_bytes(bytes);
        Self { low: all as u64, high: (all >> 64) as u64 }
    }

    /// The place of the part's first hash.
    #[inline]
    fn start(&self) -> usize {
        (self.high >> 32) as usize
    }

    /// Whether the part has more hashes than there are fingerprints here.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.low == 0 && self.high & 0xFFFF_FFFF == Self::CROWDED
    }

    /// The place of the first hash with the same fingerprint.
    #[inline]
    fn place(&self, hash: &[u8; 20]) -> Option<usize> {
        let wanted = u64::from(fingerprint(hash)) * ONES;
        // Where a place is, nothing is looked for.
        let (low, high) =
            (zero_bytes(self.low ^ wanted), zero_bytes((self.high ^ wanted) | !0 << 32));
        let found = (u128::from(high) << 64 | u128::from(low)).trailing_zeros() as usize / 8;
        (found < FINGERPRINTS).then_some(self.start() + found)
    }
}

/// Never 0. Of the end of the hash, as those of one part begin alike.
#[inline]
fn fingerprint(hash: &[u8; 20]) -> u8 {
    hash[19].max(1)
}

/// A bit in each byte that is 0, and perhaps in those above the lowest such (Warren, "Hacker's Delight", 2nd edition,
/// section 6-1).
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & ONES << 7
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::*;

    proptest! {
        /// Against a set, with hashes that have much in common.
        #[test]
        fn it_contains_what_was_put_in(
            few in proptest::collection::vec(proptest::array::uniform3(0u8..4), 0..300),
            asked in proptest::collection::vec(proptest::array::uniform3(0u8..4), 50),
        ) {
            let hash = |seed: &[u8; 3]| {
                let mut hash = [0; 20];
                (hash[0], hash[7], hash[19]) = (seed[0] << 6, seed[1], seed[2]);
                hash
            };
            let set: HashSet<_> = few.iter().map(hash).collect();
            let list = InfoHashSet::new(few.iter().map(hash).collect());
            prop_assert_eq!(list.len(), set.len());
            prop_assert_eq!(list.is_empty(), set.is_empty());
            for seed in asked.iter().chain(&few) {
                let hash = hash(seed);
                prop_assert_eq!(list.contains(&InfoHash(hash)), set.contains(&hash));
            }
        }
    }

    /// How many of these a fingerprint sends on to the hashes.
    fn passed(list: &InfoHashSet, hashes: impl Iterator<Item = [u8; 20]>) -> usize {
        hashes.filter(|hash| list.blocks[list.part_of(hash)].place(hash).is_some()).count()
    }

    #[test]
    fn a_list_is_compact_and_its_fingerprints_stop_most() {
        let mut rng = SmallRng::seed_from_u64(5);
        for len in [1, 1_000, 100_000, 131_072, 140_000] {
            let list = InfoHashSet::new((0..len).map(|_| rng.random()).collect());
            let per_hash = list.bytes() as f64 / list.len() as f64;
            assert!(len == 1 || per_hash < 26.0, "{len}: {per_hash} bytes per hash");
            let passed = passed(&list, (0..100_000).map(|_| rng.random()));
            assert!(passed < 2_500, "{len}: {passed} of 100,000 strangers pass");
            let crowded = list.blocks.iter().filter(|block| block.is_crowded()).count();
            assert!(crowded * 500 <= list.blocks.len(), "{len}: {crowded} blocks are crowded");
            let hashes = list.hashes.clone();
            assert!(hashes.iter().all(|hash| list.contains(&InfoHash(*hash))));
        }
    }

    /// All of them in one part, with few different fingerprints, one of which is the mark of a crowded part.
    #[test]
    fn hashes_that_have_much_in_common_are_told_apart() {
        let hash = |n: u32| {
            let mut hash = [0xAA; 20];
            hash[16..].copy_from_slice(&n.to_be_bytes());
            hash
        };
        for len in [2, 12, 13, 1_000, 100_000] {
            let number = |n: u32| 256 * n + [0, 1, 7, 255][n as usize % 4];
            let list = InfoHashSet::new((0..len).map(|n| hash(number(n))).collect());
            let contains = |number| list.contains(&InfoHash(hash(number)));
            assert!((0..len).all(|n| contains(number(n))), "{len}");
            assert!((len..2 * len).all(|n| !contains(number(n))), "{len}");
            assert!((0..len).all(|n| !contains(number(n) ^ 0x80)), "{len}");
            assert!(!list.contains(&InfoHash([0; 20])) && !list.contains(&InfoHash([0xFF; 20])));
            let names: Vec<_> = (0..2 * len).map(|n| hash(256 * n)).collect();
            list.prefetch(&names.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_block_finds_the_first_of_a_fingerprint_and_nothing_in_its_place() {
        let hash = |last: u8| [[7; 19].as_slice(), &[last]].concat().try_into().unwrap();
        // The place has the bytes that are looked for.
        let block = Bucket::new(0x0909_0909, &[9, 8, 8, 0, 1].map(hash));
        let place = |last| block.place(&hash(last)).map(|place| place - 0x0909_0909);
        assert_eq!([9, 8, 0, 1, 5].map(place), [Some(0), Some(1), Some(3), Some(3), None]);
        let full: Vec<_> = (1..=12).map(hash).collect();
        let block = Bucket::new(40, &full);
        assert!((1..=12).all(|n| block.place(&hash(n)) == Some(39 + usize::from(n))));
        assert!(!block.is_crowded() && block.place(&hash(40)).is_none());
        let crowded = Bucket::new(40, &[full, vec![hash(13)]].concat());
        assert!(crowded.is_crowded() && crowded.start() == 40);
        // An empty one is not.
        assert!(!Bucket::new(7, &[]).is_crowded());
    }

    #[test]
    fn lists_are_the_same_when_they_list_the_same() {
        let (one, two) = ([1; 20], [2; 20]);
        assert_eq!(InfoHashSet::new(vec![one, two, one]), InfoHashSet::new(vec![two, one]));
        assert_ne!(InfoHashSet::new(vec![one]), InfoHashSet::new(vec![two]));
    }
}
