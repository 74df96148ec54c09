//! Which sources have completed which swarms lately, so that each counts once.
//!
//! Entries by a keyed hash of swarm and source: fingerprints of 28 bits in lines of 16, with the
//! number of the period in which they were entered, modulo 15. At the limit of memory, a line that
//! is full of this period forgets one of its entries, so that its source counts again. A source
//! that has not completed a swarm is taken for one that has at most once in a million times: 16 of
//! 2^28 fingerprints in each of up to seven tables.

/// Entries of a line: one cache line.
const LINE: usize = 16;

/// The bits of an entry's period.
const PERIOD: u32 = 0xF;

/// Lines of the first table.
const FIRST_LINES: usize = 1 << 12;

/// The sources that have completed swarms in this period. Where no table has space for one, a table
/// is added that is as large as all before it together.
#[derive(Debug)]
pub(crate) struct Completions {
    tables: Vec<Box<[[u32; LINE]]>>,
    max_lines: usize,
}

impl Completions {
    /// With space for at least this many, a number above 0.
    pub(crate) fn new(entries: u64) -> Self {
        let max_lines = (entries as usize).div_ceil(LINE).next_power_of_two();
        Self { tables: vec![table(max_lines.min(FIRST_LINES))], max_lines }
    }

    /// Enters the key of a swarm and a source; false if it has been entered in this period.
    pub(crate) fn enter(&mut self, key: u64, period: u32) -> bool {
        // Empty entries are of period 0.
        // Other fingerprints after 15 periods, as lines that are not full keep old entries.
        let fingerprint = (key >> 32) as u32 ^ (period / PERIOD) << 4;
        let entry = fingerprint & !PERIOD | (period % PERIOD + 1);
        if self.tables.iter_mut().any(|table| line(table, key).contains(&entry)) {
            return false;
        }
        let is_free = |other: &&mut u32| (**other ^ entry) & PERIOD != 0;
        let free = |table: &mut Box<[[u32; LINE]]>| {
            line(table, key).iter_mut().find(is_free).map(|free| *free = entry)
        };
        if self.tables.iter_mut().rev().find_map(free).is_none() {
            let lines: usize = self.tables.iter().map(|table| table.len()).sum();
            let at = if lines < self.max_lines {
                self.tables.push(table(lines));
                self.tables.len() - 1
            } else {
                // By the number of lines of each table.
                let at = key as usize & (self.max_lines - 1);
                (at / FIRST_LINES).checked_ilog2().map_or(0, |number| number as usize + 1)
            };
            line(&mut self.tables[at], key)[(key >> 32) as usize % LINE] = entry;
        }
        true
    }
}

/// The line of a key in a table.
fn line(table: &mut [[u32; LINE]], key: u64) -> &mut [u32; LINE] {
    &mut table[key as usize & (table.len() - 1)]
}

/// An empty table.
fn table(lines: usize) -> Box<[[u32; LINE]]> {
    vec![[0; LINE]; lines].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn a_key_is_entered_once_per_period() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut completions = Completions::new(16_384);
        let keys: Vec<u64> = (0..4_000).map(|_| rng.random()).collect();
        for period in [0, 1, 14, 15, 16, 254] {
            let entered =
                |it: &mut Completions| keys.iter().filter(|key| it.enter(**key, period)).count();
            let first = entered(&mut completions);
            assert!((3_999..=4_000).contains(&first), "{first} in period {period}");
            assert_eq!(entered(&mut completions), 0, "period {period}");
        }
    }

    #[test]
    fn memory_grows_with_the_entries_of_a_period() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut completions = Completions::new(1 << 22);
        let mut lines = Vec::new();
        for (period, entries) in [(0, 9_000), (1, 9_000), (2, 9_000), (3, 1 << 18)] {
            (0..entries).for_each(|_| _ = completions.enter(rng.random(), period));
            lines.push(completions.tables.iter().map(|table| table.len()).sum::<usize>());
        }
        assert_eq!(lines[..3], [1 << 12; 3]);
        assert!((1 << 14..=1 << 15).contains(&lines[3]), "{} lines", lines[3]);
    }

    /// An attacker who enters other keys to have his first one forgotten needs as many as there are
    /// entries, and memory has its limit.
    #[test]
    fn a_full_line_forgets_one_entry() {
        let mut rng = SmallRng::seed_from_u64(2);
        for entries in [16_384, 1 << 18] {
            let mut completions = Completions::new(entries);
            (0..2 * entries).for_each(|_| _ = completions.enter(rng.random(), 7));
            let mut others = 0;
            for _ in 0..20 {
                let key = rng.random();
                completions.enter(key, 7);
                while !completions.enter(key, 7) {
                    (0..500).for_each(|_| _ = completions.enter(rng.random(), 7));
                    others += 500;
                }
            }
            assert!(others / 20 > entries / 2, "{others} others for 20 of {entries}");
            let lines: usize = completions.tables.iter().map(|table| table.len()).sum();
            assert_eq!(lines * LINE, entries as usize);
        }
    }
}
