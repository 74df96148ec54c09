//! Load shedding: which connects are answered while the host is overloaded.
//!
//! Sources that have used a valid connection id since the overload began are always answered. Other
//! sources are answered in some time slots of each cycle; which slots depends on the source and the
//! cycle. A client whose connect got no answer asks again after 15, 30 and 60 seconds (BEP 15,
//! "Time outs"), in other slots, while a flood from forged sources costs less.
//!
//! Proven sources are kept in a Bloom filter that all workers share: words of bits that are read
//! and written as a whole, without a lock. A false positive only answers a source that could be
//! shed.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use siphasher::sip::SipHasher13;

/// Time slots per cycle; also the highest step of overload.
pub const SLOTS: u32 = 8;
/// Seconds per slot: about the time before a client asks again.
const SLOT_SECONDS: u64 = 16;
/// Minimum and maximum words of a generation: 128 KiB and 16 MiB.
const WORDS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 21;
/// Words that are sampled to estimate how full a generation is.
const SAMPLE: usize = 4096;

/// The decision which connects are answered. Cheap to clone; clones share the proven sources.
#[derive(Clone, Debug)]
pub struct Shedding {
    proven: Arc<ProvenSources>,
    open: u32,
}

impl Shedding {
    /// Answers unproven sources in `open` of [`SLOTS`] slots.
    pub fn new(proven: Arc<ProvenSources>, open: u32) -> Self {
        Self { proven, open }
    }

    /// The number of slots, out of [`SLOTS`], in which unproven sources are answered.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether a connect of `source` (an IPv4 address, or the first 64 bits of an IPv6 address) is
    /// answered at `unix`, seconds since 1970.
    pub fn admits(&self, source: u64, unix: u64) -> bool {
        let slots = u64::from(SLOTS);
        let (cycle, slot) = (unix / SLOT_SECONDS / slots, unix / SLOT_SECONDS % slots);
        // The offset changes with the cycle: a client that asks again after whole cycles would
        // otherwise always meet the same slot.
        let slot = (slot + self.proven.hash(source, cycle)) % slots;
        slot < u64::from(self.open) || self.proven.contains(source)
    }

    /// Records that `source` has used a connection id that only its own address can have.
    pub fn record_proof(&self, source: u64) {
        self.proven.add(source);
    }
}

/// Sources that have proven their address, in this generation and the one before.
#[derive(Debug)]
pub struct ProvenSources {
    generations: [Box<[AtomicU64]>; 2],
    current: AtomicUsize,
    key: [u8; 16],
}

impl ProvenSources {
    /// Sized for a tracker of at most `peers` peers: one bit per peer and generation, as many
    /// sources have several peers.
    pub fn new(peers: u64) -> Self {
        let words = (peers / 64).next_power_of_two().clamp(*WORDS.start(), *WORDS.end());
        let words = || (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { generations: [words(), words()], current: AtomicUsize::new(0), key: rand::random() }
    }

    /// Starts a generation. Sources that were recorded only before the current one are dropped.
    pub fn start_generation(&self) {
        let next = 1 - self.current.load(Ordering::Relaxed);
        self.generations[next].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.current.store(next, Ordering::Relaxed);
    }

    /// Whether a quarter of this generation's bits are set. With two such generations, one unproven
    /// source in ten is a false positive.
    pub fn is_crowded(&self) -> bool {
        let words = &self.generations[self.current.load(Ordering::Relaxed)];
        let sample = &words[..SAMPLE];
        let set: u32 = sample.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        set as usize > SAMPLE * 64 / 4
    }

    /// Keyed, so that an attacker who chooses sources cannot choose bits. Used only under overload,
    /// so that its 20 ns are acceptable.
    fn hash(&self, source: u64, purpose: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(source);
        hasher.write_u64(purpose);
        hasher.finish()
    }

    /// The word of a source, and its two bits.
    fn place(&self, source: u64) -> (usize, u64) {
        // No cycle has this number.
        let hash = self.hash(source, u64::MAX);
        let word = (hash >> 12) & (self.generations[0].len() as u64 - 1);
        (word as usize, 1 << (hash & 63) | 1 << (hash >> 6 & 63))
    }

    fn contains(&self, source: u64) -> bool {
        let (word, bits) = self.place(source);
        self.generations.iter().any(|words| words[word].load(Ordering::Relaxed) & bits == bits)
    }

    /// Writes only new bits, so that workers seldom contend for a cache line.
    fn add(&self, source: u64) {
        let (word, bits) = self.place(source);
        let word = &self.generations[self.current.load(Ordering::Relaxed)][word];
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unproven_source_is_answered_in_the_open_slots_of_a_cycle() {
        let known = Arc::new(ProvenSources::new(1_000_000));
        for open in 2..=SLOTS {
            let shedding = Shedding::new(known.clone(), open);
            let mut at_once = 0;
            for source in 0..1_000 {
                // The start of a cycle.
                let start = 8 * SLOT_SECONDS * 12_345;
                let slots: Vec<bool> = (0..8)
                    .map(|slot| shedding.admits(source, start + slot * SLOT_SECONDS))
                    .collect();
                let admitted = slots.iter().filter(|admitted| **admitted).count();
                assert_eq!(admitted as u32, open, "source {source}");
                at_once += usize::from(slots[0]);
            }
            let expected = 1_000 * open as usize / 8;
            assert!(at_once.abs_diff(expected) < 80, "{at_once} of 1,000 with {open} slots");
        }
    }

    /// BEP 15: again 15 * 2^n seconds after the last request, eight times.
    #[test]
    fn retries_at_the_intervals_of_bep_15_get_through() {
        let shedding = Shedding::new(Arc::new(ProvenSources::new(1_000)), 2);
        let (mut by_the_fourth, mut never) = (0, 0);
        for client in 0..10_000 {
            let mut at = 1_000_000 + client * 7;
            let admitted = (0..9).position(|n| {
                let admits = shedding.admits(client, at);
                at += 15 << n;
                admits
            });
            by_the_fourth += usize::from(admitted.is_some_and(|n| n < 4));
            never += usize::from(admitted.is_none());
        }
        assert!(by_the_fourth > 7_000, "{by_the_fourth} of 10,000 by the fourth request");
        assert!(never < 1_000, "{never} of 10,000 never");
    }

    #[test]
    fn proven_sources_are_answered_for_two_generations() {
        let known = Arc::new(ProvenSources::new(2_000_000));
        let shedding = Shedding::new(known.clone(), 2);
        let answered = |source| (0..8).all(|slot| shedding.admits(source, slot * SLOT_SECONDS));
        (0..100_000).for_each(|source| shedding.record_proof(source << 20));
        assert!((0..100_000).all(|source| answered(source << 20)));
        let strangers = (0..10_000).filter(|source| answered(source << 20 | 1)).count();
        assert!(strangers < 200, "{strangers} of 10,000 are false positives");
        known.start_generation();
        assert!(answered(5 << 20), "the previous generation counts");
        shedding.record_proof(5 << 20);
        known.start_generation();
        assert!(answered(5 << 20));
        assert!(!(0..100).all(|source| answered((source + 50) << 20)), "older sources are dropped");
    }

    #[test]
    fn a_generation_is_crowded_before_false_positives_are_frequent() {
        let known = ProvenSources::new(0);
        let mut sources = 0;
        while !known.is_crowded() {
            known.add(sources);
            sources += 1;
        }
        known.start_generation();
        for source in 0..sources {
            known.add(1 << 40 | source);
        }
        let mistaken = (0..10_000).filter(|source| known.contains(1 << 50 | source)).count();
        assert!(mistaken < 1_700, "{mistaken} of 10,000 are false positives after {sources}");
    }
}
