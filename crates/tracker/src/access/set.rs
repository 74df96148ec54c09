//! An immutable set of info hashes, up to millions: sorted, with a table in front that tells from
//! 16 bytes whether the set may contain a hash, and at which place.
//!
//! | part | bytes per hash |
//! |---|---|
//! | the hashes, sorted, each once | 20 |
//! | the table: a bucket of 16 bytes for four and a half hashes | 3.6 |
//!
//! The range of all hashes is divided into equal parts, one per bucket. A bucket holds the place of
//! its part's first hash and a fingerprint of each hash, its last byte. A lookup of a hash that is
//! not in the set is one read (about 2 % match a fingerprint by chance and search their part); a
//! lookup of a hash in the set is two: its bucket and the hash. docs/decisions/0038 has the
//! figures. SHA-1 is uniform enough for this; hashes that are not (or were chosen to share their
//! first bits) make crowded buckets, whose hashes are found by binary search.

use std::hint::black_box;

use onrush_proto::InfoHash;

/// Mean number of hashes per two buckets. One bucket in a thousand has more than [`FINGERPRINTS`].
const PER_TWO_BUCKETS: usize = 9;
/// Lookups whose cache misses overlap.
const GROUP: usize = 32;
/// Comparisons or buckets between two reports of progress: about 10 ms.
const STEP: usize = 1 << 20;

/// An immutable set of info hashes.
#[derive(Clone, Debug)]
pub struct InfoHashSet {
    hashes: Box<[[u8; 20]]>,
    /// The last bucket is empty and begins where the hashes end.
    buckets: Box<[Bucket]>,
}

impl InfoHashSet {
    /// The set of these hashes, in any order, with or without duplicates.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub fn new(hashes: Vec<[u8; 20]>) -> Self {
        Self::with_progress(hashes, &mut || {})
    }

    /// As [`new`](Self::new), and calls `progress` about every 10 ms: sorting hundreds of millions
    /// of hashes takes longer than reading them.
    ///
    /// # Panics
    /// When there are 2^32 or more.
    pub fn with_progress(mut hashes: Vec<[u8; 20]>, progress: &mut dyn FnMut()) -> Self {
        sort_distinct(&mut hashes, progress);
        let mut step = every_step(progress);
        let hashes = hashes.into_boxed_slice();
        let len = u32::try_from(hashes.len()).expect("fewer than 2^32 info hashes");
        let parts = (2 * hashes.len()).div_ceil(PER_TWO_BUCKETS).max(1);
        let mut buckets = Vec::with_capacity(parts + 1);
        let mut rest = &*hashes;
        for part in 0..parts {
            step();
            let start = len - rest.len() as u32;
            let own = rest.iter().take_while(|hash| part_of(hash, parts) == part).count();
            buckets.push(Bucket::new(start, &rest[..own]));
            rest = &rest[own..];
        }
        buckets.push(Bucket::new(len, &[]));
        Self { hashes, buckets: buckets.into_boxed_slice() }
    }

    /// The number of hashes.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether the set contains the info hash.
    #[inline(always)]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        let hash = &info_hash.0;
        let part = self.part_of(hash);
        let bucket = &self.buckets[part];
        match bucket.place(hash) {
            Some(place) if self.hashes.get(place) == Some(hash) => true,
            None if !bucket.is_crowded() => false,
            _ => self.is_in_part(hash, part),
        }
    }

    /// Reads the memory that looking up each of `hashes` will read, so that the cache misses
    /// overlap: first all buckets, then the hashes at matching fingerprints. Within a pass no read
    /// depends on the one before. Plain reads do what prefetch instructions would, without
    /// `unsafe`.
    pub fn prefetch(&self, wanted: &[&[u8; 20]]) {
        for wanted in wanted.chunks(GROUP) {
            let mut buckets = [Bucket::EMPTY; GROUP];
            for (bucket, hash) in buckets.iter_mut().zip(wanted) {
                *bucket = self.buckets[self.part_of(hash)];
            }
            let mut places = [0; GROUP];
            let mut len = 0;
            for (bucket, hash) in buckets.iter().zip(wanted) {
                let place = bucket.place(hash);
                places[len] = place.unwrap_or(0);
                len += usize::from(place.is_some());
            }
            // A hash may span two cache lines.
            let read = places[..len].iter().filter_map(|place| self.hashes.get(*place));
            black_box(read.fold(0, |read, hash| read ^ hash[0] ^ hash[19]));
        }
    }

    /// The hashes, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, [u8; 20]> {
        self.hashes.iter()
    }

    /// The hashes from `first` on, in order.
    pub fn iter_from(&self, first: &[u8; 20]) -> std::slice::Iter<'_, [u8; 20]> {
        self.hashes[self.hashes.partition_point(|hash| hash < first)..].iter()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.hashes) + size_of_val(&*self.buckets)
    }

    #[inline]
    fn part_of(&self, hash: &[u8; 20]) -> usize {
        part_of(hash, self.buckets.len() - 1)
    }

    /// Searches a part, after a false match of a fingerprint or in a crowded bucket.
    #[inline(never)]
    fn is_in_part(&self, hash: &[u8; 20], part: usize) -> bool {
        let (start, end) = (self.buckets[part].start(), self.buckets[part + 1].start());
        self.hashes[start..end].binary_search(hash).is_ok()
    }
}

/// Sorts info hashes, and removes repeated ones. Calls `progress` about every 10 ms.
pub fn sort_distinct(hashes: &mut Vec<[u8; 20]>, progress: &mut dyn FnMut()) {
    let mut step = every_step(progress);
    hashes.sort_unstable_by(|one, other| {
        step();
        one.cmp(other)
    });
    hashes.dedup();
}

/// Calls `progress` at every [`STEP`]th call.
fn every_step(progress: &mut dyn FnMut()) -> impl FnMut() {
    let mut steps = 0usize;
    move || {
        steps += 1;
        if steps.is_multiple_of(STEP) {
            progress();
        }
    }
}

impl PartialEq for InfoHashSet {
    fn eq(&self, other: &Self) -> bool {
        self.hashes == other.hashes
    }
}

impl Eq for InfoHashSet {}

/// The part of a hash, when the range of all hashes is divided into `parts` equal parts in order.
#[inline]
fn part_of(hash: &[u8; 20], parts: usize) -> usize {
    let (first, _) = hash.split_first_chunk().expect("20 bytes are more than 8");
    ((u128::from(u64::from_be_bytes(*first)) * parts as u128) >> 64) as usize
}

/// Fingerprints per bucket.
const FINGERPRINTS: usize = 12;
/// The number 1 in each byte.
const ONES: u64 = u64::MAX / 255;

/// The table's entry of one part: 16 bytes within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
struct Bucket {
    /// The fingerprints of the first eight hashes, from the lowest byte up; 0 for none.
    low: u64,
    /// The fingerprints of four more hashes; the upper half is the place of the part's first hash.
    high: u64,
}

impl Bucket {
    const EMPTY: Self = Self { low: 0, high: 0 };
    /// The fingerprints of a crowded bucket: only the last. No other bucket has this pattern.
    const CROWDED: u64 = 0xFF00_0000;

    /// The bucket of a part with these hashes, of which the first is at `start`.
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

    /// Whether the part has more hashes than the bucket has fingerprints.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.low == 0 && self.high & 0xFFFF_FFFF == Self::CROWDED
    }

    /// The place of the first hash with the fingerprint of `hash`.
    #[inline]
    fn place(&self, hash: &[u8; 20]) -> Option<usize> {
        let wanted = u64::from(fingerprint(hash)) * ONES;
        // The mask keeps the bytes of the place from matching.
        let (low, high) =
            (zero_bytes(self.low ^ wanted), zero_bytes((self.high ^ wanted) | !0 << 32));
        let found = (u128::from(high) << 64 | u128::from(low)).trailing_zeros() as usize / 8;
        (found < FINGERPRINTS).then_some(self.start() + found)
    }
}

/// The fingerprint of a hash, never 0: its last byte, as the hashes of a part begin alike.
#[inline]
fn fingerprint(hash: &[u8; 20]) -> u8 {
    hash[19].max(1)
}

/// Sets the top bit of each byte that is 0; bytes above the lowest such byte may be set in error
/// (Warren, "Hacker's Delight", 2nd edition, section 6-1).
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
        /// Compared with a `HashSet`, with hashes that share most bytes.
        #[test]
        fn lookups_match_a_plain_set(
            few in proptest::collection::vec(proptest::array::uniform3(0u8..4), 0..300),
            asked in proptest::collection::vec(proptest::array::uniform3(0u8..4), 50),
        ) {
            let hash = |seed: &[u8; 3]| {
                let mut hash = [0; 20];
                (hash[0], hash[7], hash[19]) = (seed[0] << 6, seed[1], seed[2]);
                hash
            };
            let plain: HashSet<_> = few.iter().map(hash).collect();
            let set = InfoHashSet::new(few.iter().map(hash).collect());
            prop_assert_eq!(set.len(), plain.len());
            prop_assert_eq!(set.is_empty(), plain.is_empty());
            for seed in asked.iter().chain(&few) {
                let hash = hash(seed);
                prop_assert_eq!(set.contains(&InfoHash(hash)), plain.contains(&hash));
            }
        }
    }

    /// How many of `hashes` match a fingerprint.
    fn passed(set: &InfoHashSet, hashes: impl Iterator<Item = [u8; 20]>) -> usize {
        hashes.filter(|hash| set.buckets[set.part_of(hash)].place(hash).is_some()).count()
    }

    #[test]
    fn a_set_is_compact_and_few_other_hashes_match_a_fingerprint() {
        let mut rng = SmallRng::seed_from_u64(5);
        for len in [1, 1_000, 100_000, 131_072, 140_000] {
            let set = InfoHashSet::new((0..len).map(|_| rng.random()).collect());
            let per_hash = set.bytes() as f64 / set.len() as f64;
            assert!(len == 1 || per_hash < 26.0, "{len}: {per_hash} bytes per hash");
            let passed = passed(&set, (0..100_000).map(|_| rng.random()));
            assert!(passed < 2_500, "{len}: {passed} of 100,000 other hashes match");
            let crowded = set.buckets.iter().filter(|bucket| bucket.is_crowded()).count();
            assert!(crowded * 500 <= set.buckets.len(), "{len}: {crowded} buckets are crowded");
            let hashes = set.hashes.clone();
            assert!(hashes.iter().all(|hash| set.contains(&InfoHash(*hash))));
        }
    }

    /// All hashes are in one part, with few fingerprints, one of which marks a crowded bucket.
    #[test]
    fn hashes_with_a_common_prefix_are_distinguished() {
        let hash = |n: u32| {
            let mut hash = [0xAA; 20];
            hash[16..].copy_from_slice(&n.to_be_bytes());
            hash
        };
        for len in [2, 12, 13, 1_000, 100_000] {
            let number = |n: u32| 256 * n + [0, 1, 7, 255][n as usize % 4];
            let set = InfoHashSet::new((0..len).map(|n| hash(number(n))).collect());
            let contains = |number| set.contains(&InfoHash(hash(number)));
            assert!((0..len).all(|n| contains(number(n))), "{len}");
            assert!((len..2 * len).all(|n| !contains(number(n))), "{len}");
            assert!((0..len).all(|n| !contains(number(n) ^ 0x80)), "{len}");
            assert!(!set.contains(&InfoHash([0; 20])) && !set.contains(&InfoHash([0xFF; 20])));
            let wanted: Vec<_> = (0..2 * len).map(|n| hash(256 * n)).collect();
            set.prefetch(&wanted.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_bucket_finds_the_first_match_and_ignores_the_bytes_of_the_place() {
        let hash = |last: u8| [[7; 19].as_slice(), &[last]].concat().try_into().unwrap();
        // The bytes of the place equal a fingerprint.
        let bucket = Bucket::new(0x0909_0909, &[9, 8, 8, 0, 1].map(hash));
        let place = |last| bucket.place(&hash(last)).map(|place| place - 0x0909_0909);
        assert_eq!([9, 8, 0, 1, 5].map(place), [Some(0), Some(1), Some(3), Some(3), None]);
        let full: Vec<_> = (1..=12).map(hash).collect();
        let bucket = Bucket::new(40, &full);
        assert!((1..=12).all(|n| bucket.place(&hash(n)) == Some(39 + usize::from(n))));
        assert!(!bucket.is_crowded() && bucket.place(&hash(40)).is_none());
        let crowded = Bucket::new(40, &[full, vec![hash(13)]].concat());
        assert!(crowded.is_crowded() && crowded.start() == 40);
        // An empty bucket is not crowded.
        assert!(!Bucket::new(7, &[]).is_crowded());
    }

    #[test]
    fn sets_with_the_same_hashes_are_equal() {
        let (one, two) = ([1; 20], [2; 20]);
        assert_eq!(InfoHashSet::new(vec![one, two, one]), InfoHashSet::new(vec![two, one]));
        assert_ne!(InfoHashSet::new(vec![one]), InfoHashSet::new(vec![two]));
    }
}
