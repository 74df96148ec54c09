//! Counts of keys in a table of fixed size: a counting Bloom filter in lines of a few cells, so
//! that a key costs one or two cache misses.
//!
//! A key has two cells of one line, and its count is the lesser of the two. Counts are never too
//! low. They are too high by what other keys have added to both cells: about the
//! [mean](Counts::mean) of a cell at most, and much more only where both cells are shared with keys
//! of large counts, which cannot be arranged without the secret key of the hashes.

/// Cells of a line.
const LINE: usize = 16;

/// An unsigned number that counts within its range: a cell that has reached its end stays there.
pub(crate) trait Cell: Copy + Default + Ord + Into<u64> {
    /// One more, unless that is out of range.
    fn incremented(self) -> Self;
    /// One less, unless the cell is 0 or at the end of its range, where counts were lost.
    fn decremented(self) -> Self;
}

macro_rules! cell {
    ($Number:ty) => {
        impl Cell for $Number {
            #[inline]
            fn incremented(self) -> Self {
                self.saturating_add(1)
            }

            #[inline]
            fn decremented(self) -> Self {
                if self == Self::MAX { self } else { self.saturating_sub(1) }
            }
        }
    };
}
cell!(u16);
cell!(u32);

/// Counts of keys, which are hashes under a secret key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts<C> {
    lines: Box<[[C; LINE]]>,
    /// The sum of all counts.
    sum: u64,
}

impl<C: Cell> Counts<C> {
    /// A table of at least this many cells.
    pub(crate) fn new(cells: usize) -> Self {
        let lines = cells.div_ceil(LINE).next_power_of_two();
        Self { lines: vec![[C::default(); LINE]; lines].into_boxed_slice(), sum: 0 }
    }

    /// The line of a key, and its cells there, which are not the same.
    #[inline]
    fn place(&self, key: u64) -> (usize, [usize; 2]) {
        let line = (key >> 20) as usize & (self.lines.len() - 1);
        let first = key as usize % LINE;
        let second = first ^ ((key >> 4) as usize % LINE).max(1);
        (line, [first, second])
    }

    /// Counts a key.
    #[inline]
    pub(crate) fn add(&mut self, key: u64) {
        let (line, cells) = self.place(key);
        let line = &mut self.lines[line];
        cells.into_iter().for_each(|cell| line[cell] = line[cell].incremented());
        self.sum += 1;
    }

    /// Takes back an [`add`](Self::add).
    #[inline]
    pub(crate) fn remove(&mut self, key: u64) {
        let (line, cells) = self.place(key);
        let line = &mut self.lines[line];
        cells.into_iter().for_each(|cell| line[cell] = line[cell].decremented());
        self.sum -= 1;
    }

    /// The count of a key, or more.
    #[inline]
    pub(crate) fn of(&self, key: u64) -> u64 {
        let (line, [first, second]) = self.place(key);
        self.lines[line][first].min(self.lines[line][second]).into()
    }

    /// The count of a key without the mean of a cell, which other keys have added to it on average.
    #[inline]
    pub(crate) fn without_mean(&self, key: u64) -> u64 {
        self.of(key).saturating_sub(self.mean())
    }

    /// The mean of a cell, rounded down.
    pub(crate) fn mean(&self) -> u64 {
        self.sum * 2 / (self.lines.len() * LINE) as u64
    }

    /// The number of cells.
    pub(crate) fn cells(&self) -> usize {
        self.lines.len() * LINE
    }

    /// Sets all counts to 0.
    pub(crate) fn clear(&mut self) {
        self.lines.fill([C::default(); LINE]);
        self.sum = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    proptest! {
        /// Against exact counts: never too low, and exact again once the others are gone.
        #[test]
        fn counts_are_never_too_low(seed: u64, steps in 1usize..2_000) {
            let mut rng = SmallRng::seed_from_u64(seed);
            let keys: Vec<u64> = (0..50).map(|_| rng.random()).collect();
            let mut counts = Counts::<u32>::new(64);
            let mut exact: HashMap<u64, u64> = HashMap::new();
            for _ in 0..steps {
                let key = keys[rng.random_range(0..keys.len())];
                let count = exact.entry(key).or_default();
                if *count > 0 && rng.random_bool(0.4) {
                    *count -= 1;
                    counts.remove(key);
                } else {
                    *count += 1;
                    counts.add(key);
                }
                prop_assert!(counts.of(key) >= *exact.get(&key).unwrap());
            }
            let all: u64 = exact.values().sum();
            prop_assert_eq!(counts.mean(), all * 2 / 64);
            for (key, count) in exact {
                (0..count).for_each(|_| counts.remove(key));
            }
            prop_assert_eq!(counts, Counts::new(64));
        }
    }

    /// The error that the module documents, with 100 keys at 1,000 times the mean among the others.
    #[test]
    fn counts_are_too_high_by_the_mean_of_a_cell() {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut counts = Counts::<u32>::new(1 << 16);
        for _ in 0..1 << 18 {
            counts.add(rng.random());
        }
        assert_eq!(counts.mean(), 8);
        for _ in 0..100 {
            let heavy = rng.random();
            (0..8_000).for_each(|_| counts.add(heavy));
        }
        let mean = counts.mean();
        let absent: Vec<u64> = (0..10_000).map(|_| counts.of(rng.random())).collect();
        let beyond = absent.iter().filter(|count| **count > mean).count();
        assert!(beyond < 20, "{beyond} of 10,000 are above {mean}");
    }

    #[test]
    fn a_cell_at_the_end_of_its_range_stays_there() {
        let mut counts = Counts::<u16>::new(16);
        (0..70_000).for_each(|_| counts.add(5));
        (0..70_000).for_each(|_| counts.remove(5));
        assert_eq!(counts.of(5), u64::from(u16::MAX), "too high rather than too low");
        counts.clear();
        assert_eq!(counts.of(5), 0);
    }
}
