//! Whose connects are answered while there is too much to do: those of sources that have used a good connection id
//! since the pressure began, always; those of others in a part of the time, each source in its own part. A client
//! whose connect was not answered asks again after 15 seconds (BEP 15, "Time outs"), in the next part or a later
//! one, so that every client gets through in the end, while a flood of made-up sources costs less.
//!
//! Sources are remembered in a filter of fixed size that all workers share: words of bits, each set and read as a
//! whole, no lock. A source that is taken for another is served: nobody suffers from a mistake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::policy::STEPS;

/// Seconds of a part of the time: about what a client waits before it asks again.
const SLOT: u64 = 16;
/// Words of a generation, 1 MiB: 8 bits for each of a million sources.
const WORD_BITS: u32 = 17;

/// Whose connects are answered.
#[derive(Clone, Debug)]
pub struct Shedding {
    known: Arc<Known>,
    open: u32,
}

impl Shedding {
    /// New sources are answered in `open` parts of [`STEPS`].
    pub(super) fn new(known: Arc<Known>, open: u32) -> Self {
        Self { known, open }
    }

    /// In how many parts of [`STEPS`] new sources are answered.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether a connect of this source (an IPv4 address, or the first 64 bits of an IPv6 one) is answered at
    /// this time, in seconds since 1970.
    pub fn admits(&self, source: u64, unix: u64) -> bool {
        let hash = self.known.hash(source);
        let part = (u64::from(hash & 7) + unix / SLOT) % u64::from(STEPS);
        part < u64::from(self.open) || self.known.has(hash)
    }

    /// This source has used an id that only its own address can have.
    #[inline]
    pub fn has_proven(&self, source: u64) {
        self.known.add(self.known.hash(source));
    }
}

const _: () = assert!(STEPS == 8, "a source's part is three bits of its hash");

/// Sources that have proven themselves, in this generation and the one before.
#[derive(Debug)]
pub struct Known {
    generations: [Box<[AtomicU64]>; 2],
    current: AtomicUsize,
    keys: [u64; 3],
}

impl Default for Known {
    fn default() -> Self {
        let words = || (0..1 << WORD_BITS).map(|_| AtomicU64::new(0)).collect();
        Self { generations: [words(), words()], current: AtomicUsize::new(0), keys: rand::random() }
    }
}

impl Known {
    /// Begins a generation: whoever has not proven himself since the last time is forgotten.
    pub(super) fn renew(&self) {
        let next = 1 - self.current.load(Ordering::Relaxed);
        self.generations[next].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.current.store(next, Ordering::Relaxed);
    }

    /// 32 bits, uniform and independent for any two sources (Lemire and Kaser, "Strongly universal string hashing
    /// is fast", 2014, theorem 1): whoever chooses sources does not choose bits.
    #[inline]
    fn hash(&self, source: u64) -> u32 {
        let [offset, low, high] = self.keys;
        let sum = offset
            .wrapping_add((source & 0xFFFF_FFFF).wrapping_mul(low))
            .wrapping_add((source >> 32).wrapping_mul(high));
        (sum >> 32) as u32
    }

    /// A word and two bits of it, of 29 bits of the hash; three are the source's part of the time.
    #[inline]
    fn place(hash: u32) -> (usize, u64) {
        let bits = 1 << (hash >> 3 & 63) | 1 << (hash >> 9 & 63);
        ((hash >> (32 - WORD_BITS)) as usize, bits)
    }

    fn has(&self, hash: u32) -> bool {
        let (word, bits) = Self::place(hash);
        self.generations.iter().any(|words| words[word].load(Ordering::Relaxed) & bits == bits)
    }

    /// Written only where it is new, so that workers rarely take the line from each other.
    #[inline]
    fn add(&self, hash: u32) {
        let (word, bits) = Self::place(hash);
        let word = &self.generations[self.current.load(Ordering::Relaxed) & 1][word];
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_new_source_gets_its_part_of_the_time() {
        let known = Arc::<Known>::default();
        for open in 1..=STEPS {
            let shedding = Shedding::new(known.clone(), open);
            let mut at_once = 0;
            for source in 0..1_000 {
                let slots: Vec<bool> =
                    (0..8).map(|slot| shedding.admits(source, 1_000_000 + slot * SLOT)).collect();
                let admitted = slots.iter().filter(|admitted| **admitted).count();
                assert_eq!(admitted as u32, open, "source {source}");
                at_once += usize::from(slots[0]);
            }
            let expected = 1_000 * open as usize / 8;
            assert!(at_once.abs_diff(expected) < 80, "{at_once} of 1,000 with {open} parts");
        }
    }

    #[test]
    fn who_has_proven_himself_is_always_answered_for_two_generations() {
        let known = Arc::<Known>::default();
        let shedding = Shedding::new(known.clone(), 1);
        let answered = |source| (0..8).all(|slot| shedding.admits(source, slot * SLOT));
        (0..100_000).for_each(|source| shedding.has_proven(source << 20));
        assert!((0..100_000).all(|source| answered(source << 20)));
        let strangers = (0..10_000).filter(|source| answered(source << 20 | 1)).count();
        assert!(strangers < 100, "{strangers} of 10,000 strangers are taken for others");
        known.renew();
        assert!(answered(5 << 20), "the generation before counts");
        shedding.has_proven(5 << 20);
        known.renew();
        assert!(answered(5 << 20));
        assert!(!(0..100).all(|source| answered((source + 50) << 20)), "the others are forgotten");
    }
}
