//! A list of info hashes that may have millions of entries: sorted, with an index by their first bits, and
//! a filter in front that answers for most of those that are not in it from one word.
//!
//! | part | bytes per hash |
//! |---|---|
//! | the hashes, sorted, each once | 20 |
//! | where those with the same first bits begin: an entry of 4 bytes for two to four hashes | 1 to 2 |
//! | the filter, 16 bits per hash | 2 |
//!
//! The filter is a Bloom filter in blocks (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom
//! filters", 2007) of a word: the four bits of a hash are in one, so a look-up is one read, and it sends some 2 % of
//! strangers on to the sorted list. It is hashed with a random key, as info hashes are chosen by strangers. Whoever lists
//! many with the same first bits makes a look-up longer, but no longer than a binary search over all.

use std::cmp::Ordering;
use std::hint::black_box;
use std::time::Instant;

use onrush_proto::InfoHash;

use crate::process::service::Patience;

/// Hashes that share an entry of the index, on average, are two at least and less than twice as many.
const PER_BUCKET: usize = 2;
/// So many with the same first bits are looked through one by one.
const SCANNED: usize = 12;
/// Look-ups whose cache misses are made to overlap.
const GROUP: usize = 32;
/// Hashes to a word of the filter: 16 bits for each.
const PER_WORD: usize = 4;
/// Comparisons, entries of the index or hashes in the filter, some 10 ms, after which a service manager that waits
/// hears that it goes on.
const STEP: usize = 1 << 20;

/// Info hashes, each once.
#[derive(Clone, Debug)]
pub struct HashList {
    hashes: Box<[[u8; 20]]>,
    /// Where the hashes with these first bits begin, and behind the last of them the end of all.
    starts: Box<[u32]>,
    /// How many bits are shifted out of the first 64 of a hash to leave those that the index goes by.
    shift: u32,
    filter: Filter,
}

impl HashList {
    /// Of these, in any order; those that stand there several times count once.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub fn new(mut hashes: Vec<[u8; 20]>) -> Self {
        let mut patience = Paced::new();
        hashes.sort_unstable_by(|one, other| patience.compared(one, other));
        hashes.dedup();
        let hashes = hashes.into_boxed_slice();
        let len = u32::try_from(hashes.len()).expect("fewer than 2^32 info hashes");
        // At least one bit: a shift by all 64 is none.
        let buckets = (hashes.len() / PER_BUCKET / 2 + 1).next_power_of_two().max(2);
        let shift = 64 - buckets.trailing_zeros();
        let mut starts = Vec::with_capacity(buckets + 1);
        let mut at = 0;
        for bucket in 0..buckets {
            patience.step();
            while at < hashes.len() && first_bits(&hashes[at], shift) < bucket {
                at += 1;
            }
            starts.push(at as u32);
        }
        starts.push(len);
        let filter = Filter::new(&hashes, &mut patience);
        Self { hashes, starts: starts.into_boxed_slice(), shift, filter }
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
    #[inline]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        self.filter.may_contain(&info_hash.0) && self.is_listed(&info_hash.0)
    }

    /// Reads what looking up each of these will read, so that their cache misses overlap: first the filter of
    /// all, then, for those that it does not send away, where their part of the list begins, and then that part.
    /// Within a pass no read waits for the one before it. Plain reads do what prefetching would, without
    /// `unsafe`.
    pub fn look_ahead(&self, names: &[&[u8; 20]]) {
        for names in names.chunks(GROUP) {
            let mut places = [(0, 0); GROUP];
            for (place, name) in places.iter_mut().zip(names) {
                *place = self.filter.place(name);
            }
            let mut passed = [0u8; GROUP];
            let mut len = 0;
            for (at, (word, bits)) in places[..names.len()].iter().enumerate() {
                passed[len] = at as u8;
                len += usize::from(self.filter.words[*word] & bits == *bits);
            }
            let mut parts = [(0u32, 0u32); GROUP];
            for (part, at) in parts.iter_mut().zip(&passed[..len]) {
                let bucket = first_bits(names[usize::from(*at)], self.shift);
                *part = (self.starts[bucket], self.starts[bucket + 1]);
            }
            // A part of usual size lies in two or three cache lines.
            let read = parts[..len].iter().fold(0, |read, (start, end)| {
                let ends = [*start, start.midpoint(*end), end.saturating_sub(1)];
                ends.iter().fold(read, |read, at| {
                    read ^ self.hashes.get(*at as usize).map_or(0, |hash| hash[10])
                })
            });
            black_box(read);
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

    #[inline(never)]
    fn is_listed(&self, hash: &[u8; 20]) -> bool {
        let bucket = first_bits(hash, self.shift);
        let (start, end) = (self.starts[bucket] as usize, self.starts[bucket + 1] as usize);
        let bucket = &self.hashes[start..end];
        match bucket.len() {
            // To tell whether two are the same takes less than to tell which comes first.
            0..=SCANNED => bucket.contains(hash),
            _ => bucket.binary_search(hash).is_ok(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.hashes) + size_of_val(&*self.starts) + size_of_val(&*self.filter.words)
    }
}

/// Two lists are the same when they list the same.
impl PartialEq for HashList {
    fn eq(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }
}

impl Eq for HashList {}

#[inline]
fn first_bits(hash: &[u8; 20], shift: u32) -> usize {
    let (first, _) = hash.split_first_chunk().expect("20 bytes are more than 8");
    (u64::from_be_bytes(*first) >> shift) as usize
}

/// Keeps a service manager patient over the sorting of hundreds of millions, which takes longer than reading them. The
/// clock is read once in many steps.
struct Paced {
    patience: Patience,
    steps: usize,
}

impl Paced {
    fn new() -> Self {
        Self { patience: Patience::new(), steps: 0 }
    }

    #[inline]
    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEP) {
            self.patience.step(Instant::now());
        }
    }

    #[inline]
    fn compared(&mut self, one: &[u8; 20], other: &[u8; 20]) -> Ordering {
        self.step();
        one.cmp(other)
    }
}

/// Says no to most of what is not listed, and never to what is.
#[derive(Clone, Debug)]
struct Filter {
    words: Box<[u64]>,
    offset: u64,
    /// One for each 32 bits of a hash, random.
    keys: [u64; 5],
}

impl Filter {
    fn new(hashes: &[[u8; 20]], patience: &mut Paced) -> Self {
        let words = vec![0; hashes.len() / PER_WORD + 1].into_boxed_slice();
        let mut filter = Self { words, offset: rand::random(), keys: rand::random() };
        for hash in hashes {
            patience.step();
            let (word, bits) = filter.place(hash);
            filter.words[word] |= bits;
        }
        filter
    }

    #[inline]
    fn may_contain(&self, hash: &[u8; 20]) -> bool {
        let (word, bits) = self.place(hash);
        self.words[word] & bits == bits
    }

    /// The word of a hash, and its bits there. The 33 highest bits of the sum are uniform and independent for any two
    /// hashes (Lemire and Kaser, "Strongly universal string hashing is fast", 2014, theorem 1): they pick the word.
    #[inline]
    fn place(&self, hash: &[u8; 20]) -> (usize, u64) {
        let (words, _) = hash.as_chunks::<4>();
        let mut sum = self.offset;
        for (word, key) in words.iter().zip(self.keys) {
            sum = sum.wrapping_add(u64::from(u32::from_le_bytes(*word)).wrapping_mul(key));
        }
        let word = ((sum >> 32) * self.words.len() as u64) >> 32;
        // Of the word's own bits others: those of the sum stirred once.
        let stirred = (sum ^ sum >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bit = |n: u32| 1u64 << (stirred >> (64 - 6 * n) & 63);
        (word as usize, bit(1) | bit(2) | bit(3) | bit(4))
    }
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
            let list = HashList::new(few.iter().map(hash).collect());
            prop_assert_eq!(list.len(), set.len());
            prop_assert_eq!(list.is_empty(), set.is_empty());
            for seed in asked.iter().chain(&few) {
                let hash = hash(seed);
                prop_assert_eq!(list.contains(&InfoHash(hash)), set.contains(&hash));
            }
        }
    }

    #[test]
    fn a_list_is_compact_and_its_filter_stops_most() {
        let mut rng = SmallRng::seed_from_u64(5);
        for len in [1, 1_000, 100_000, 131_072, 140_000] {
            let list = HashList::new((0..len).map(|_| rng.random()).collect());
            let per_hash = list.bytes() as f64 / list.len() as f64;
            assert!(len == 1 || per_hash < 26.0, "{len}: {per_hash} bytes per hash");
            let passed = (0..100_000).filter(|_| list.filter.may_contain(&rng.random())).count();
            assert!(passed < 3_500, "{len}: {passed} of 100,000 strangers pass the filter");
            let hashes = list.hashes.clone();
            assert!(hashes.iter().all(|hash| list.contains(&InfoHash(*hash))));
        }
    }

    #[test]
    fn hashes_that_count_up_pass_no_more_often() {
        let hash = |n: u32| {
            let mut hash = [0xAA; 20];
            hash[16..].copy_from_slice(&n.to_be_bytes());
            hash
        };
        let list = HashList::new((0..100_000).map(hash).collect());
        let passed = (1..=100_000).filter(|n| list.filter.may_contain(&hash(1 << 24 | n))).count();
        assert!(passed < 3_500, "{passed} of 100,000 strangers pass the filter");
        assert!((0..100_000).all(|n| list.contains(&InfoHash(hash(n)))));
    }

    #[test]
    fn lists_are_the_same_when_they_list_the_same() {
        let (one, two) = ([1; 20], [2; 20]);
        assert_eq!(HashList::new(vec![one, two, one]), HashList::new(vec![two, one]));
        assert_ne!(HashList::new(vec![one]), HashList::new(vec![two]));
    }
}
