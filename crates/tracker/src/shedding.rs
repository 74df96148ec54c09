//! Whose connects are answered while there is too much to do: those of sources that have used a good connection id
//! since the pressure began, always; those of others in a part of the time, each source in its own part, which changes
//! from cycle to cycle. A client whose connect was not answered asks again after 15, 30, 60 seconds (BEP 15, "Time
//! outs"), in other parts, while a flood of made-up sources costs less.
//!
//! Sources are remembered in a filter that all workers share: words of bits, each set and read as a whole, no lock. A
//! source that is taken for another is served: nobody suffers from a mistake.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use siphasher::sip::SipHasher13;

/// The hardest pressure.
pub const SLOTS: u32 = 8;
/// Seconds of a part of the time: about what a client waits before it asks again.
const SLOT: u64 = 16;
/// Words of a generation at least and at most: 128 KiB and 16 MiB.
const WORDS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 21;
/// Words that are looked at to tell how full a generation is.
const SAMPLE: usize = 4096;

/// Whose connects are answered.
#[derive(Clone, Debug)]
pub struct Shedding {
    known: Arc<ProvenSources>,
    open: u32,
}

impl Shedding {
    /// New sources are answered in `open` parts of [`SLOTS`].
    pub fn new(known: Arc<ProvenSources>, open: u32) -> Self {
        Self { known, open }
    }

    /// In how many parts of [`SLOTS`] new sources are answered.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// Whether a connect of this source (an IPv4 address, or the first 64 bits of an IPv6 one) is answered at
    /// this time, in seconds since 1970.
    pub fn admits(&self, source: u64, unix: u64) -> bool {
        let steps = u64::from(SLOTS);
        let (cycle, slot) = (unix / SLOT / steps, unix / SLOT % steps);
        // Another part in each cycle: whoever asks again after whole cycles must not meet the same one for ever.
        let part = (slot + self.known.hash(source, cycle)) % steps;
        part < u64::from(self.open) || self.known.has(source)
    }

    /// This source has used an id that only its own address can have.
    pub fn record_proof(&self, source: u64) {
        self.known.add(source);
    }
}

/// Sources that have proven themselves, in this generation and the one before.
#[derive(Debug)]
pub struct ProvenSources {
    generations: [Box<[AtomicU64]>; 2],
    current: AtomicUsize,
    key: [u8; 16],
}

impl ProvenSources {
    /// For a tracker of at most so many peers: a bit for each, as many sources have several.
    pub fn new(peers: u64) -> Self {
        let words = (peers / 64).next_power_of_two().clamp(*WORDS.start(), *WORDS.end());
        let words = || (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { generations: [words(), words()], current: AtomicUsize::new(0), key: rand::random() }
    }

    /// Begins a generation: whoever has not proven himself since the last time is forgotten.
    pub fn start_generation(&self) {
        let next = 1 - self.current.load(Ordering::Relaxed);
        self.generations[next].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.current.store(next, Ordering::Relaxed);
    }

    /// Whether a quarter of the bits of this generation are set: from there on one stranger in ten is taken for
    /// somebody else, with both generations full.
    pub fn is_crowded(&self) -> bool {
        let words = &self.generations[self.current.load(Ordering::Relaxed)];
        let sample = &words[..SAMPLE];
        let set: u32 = sample.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        set as usize > SAMPLE * 64 / 4
    }

    /// Keyed: whoever chooses sources does not choose bits. Only under pressure, so it may cost some 20 ns.
    fn hash(&self, source: u64, purpose: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(source);
        hasher.write_u64(purpose);
        hasher.finish()
    }

    /// A word and two of its bits.
    fn place(&self, source: u64) -> (usize, u64) {
        // No cycle has this number.
        let hash = self.hash(source, u64::MAX);
        let word = (hash >> 12) & (self.generations[0].len() as u64 - 1);
        (word as usize, 1 << (hash & 63) | 1 << (hash >> 6 & 63))
    }

    fn has(&self, source: u64) -> bool {
        let (word, bits) = self.place(source);
        self.generations.iter().any(|words| words[word].load(Ordering::Relaxed) & bits == bits)
    }

    /// Written only where it is new, so that workers rarely take the line from each other.
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
    fn every_new_source_gets_its_part_of_each_cycle() {
        let known = Arc::new(ProvenSources::new(1_000_000));
        for open in 2..=SLOTS {
            let shedding = Shedding::new(known.clone(), open);
            let mut at_once = 0;
            for source in 0..1_000 {
                // A cycle begins here.
                let start = 8 * SLOT * 12_345;
                let slots: Vec<bool> =
                    (0..8).map(|slot| shedding.admits(source, start + slot * SLOT)).collect();
                let admitted = slots.iter().filter(|admitted| **admitted).count();
                assert_eq!(admitted as u32, open, "source {source}");
                at_once += usize::from(slots[0]);
            }
            let expected = 1_000 * open as usize / 8;
            assert!(at_once.abs_diff(expected) < 80, "{at_once} of 1,000 with {open} parts");
        }
    }

    /// BEP 15: 15 * 2^n seconds after the last time, eight times.
    #[test]
    fn who_asks_again_as_clients_do_gets_through() {
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
        assert!(by_the_fourth > 7_000, "{by_the_fourth} of 10,000 by the fourth time");
        assert!(never < 1_000, "{never} of 10,000 never");
    }

    #[test]
    fn who_has_proven_himself_is_always_answered_for_two_generations() {
        let known = Arc::new(ProvenSources::new(2_000_000));
        let shedding = Shedding::new(known.clone(), 2);
        let answered = |source| (0..8).all(|slot| shedding.admits(source, slot * SLOT));
        (0..100_000).for_each(|source| shedding.record_proof(source << 20));
        assert!((0..100_000).all(|source| answered(source << 20)));
        let strangers = (0..10_000).filter(|source| answered(source << 20 | 1)).count();
        assert!(strangers < 200, "{strangers} of 10,000 strangers are taken for others");
        known.start_generation();
        assert!(answered(5 << 20), "the generation before counts");
        shedding.record_proof(5 << 20);
        known.start_generation();
        assert!(answered(5 << 20));
        assert!(!(0..100).all(|source| answered((source + 50) << 20)), "the others are forgotten");
    }

    #[test]
    fn a_crowd_is_noticed_before_everybody_is_known() {
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
        let mistaken = (0..10_000).filter(|source| known.has(1 << 50 | source)).count();
        assert!(mistaken < 1_700, "{mistaken} of 10,000 are taken for others after {sources}");
    }
}
