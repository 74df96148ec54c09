//! Which sources have completed which swarms lately, so that each counts once.
//!
//! A fixed number of entries, by a keyed hash of swarm and source: fingerprints of 24 bits in lines
//! of 16, with the number of the period in which they were entered, modulo 255. A line that is full
//! of this period forgets one of its entries, so that its source counts again. A source that has
//! not completed a swarm is taken for one that has at most once in a million times: 16 of 2^24
//! fingerprints.

/// Entries of a line: one cache line.
const LINE: usize = 16;

/// The sources that have completed swarms in this period.
#[derive(Debug)]
pub(crate) struct Completions {
    lines: Box<[[u32; LINE]]>,
}

impl Completions {
    /// With space for at least this many, a number above 0.
    pub(crate) fn new(entries: u64) -> Self {
        let lines = (entries as usize).div_ceil(LINE).next_power_of_two();
        Self { lines: vec![[0; LINE]; lines].into_boxed_slice() }
    }

    /// Enters the key of a swarm and a source; false if it has been entered in this period.
    pub(crate) fn enter(&mut self, key: u64, period: u32) -> bool {
        let at = key as usize & (self.lines.len() - 1);
        let line = &mut self.lines[at];
        // Empty entries are of period 0.
        let period = period % 255 + 1;
        let entry = (key >> 32) as u32 & !0xFF | period;
        if line.contains(&entry) {
            return false;
        }
        let outdated = line.iter().position(|other| other & 0xFF != period);
        line[outdated.unwrap_or((key >> 32) as usize % LINE)] = entry;
        true
    }
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
        for period in [0, 15, 1, 14, 254, 16] {
            let entered =
                |it: &mut Completions| keys.iter().filter(|key| it.enter(**key, period)).count();
            let first = entered(&mut completions);
            assert!((3_999..=4_000).contains(&first), "{first} in period {period}");
            assert_eq!(entered(&mut completions), 0, "period {period}");
        }
    }

    /// An attacker who enters other keys to have his first one forgotten needs as many as there are
    /// entries.
    #[test]
    fn a_full_line_forgets_one_entry() {
        let mut rng = SmallRng::seed_from_u64(2);
        let mut completions = Completions::new(16_384);
        let mut others = 0;
        for _ in 0..20 {
            let key = rng.random();
            completions.enter(key, 7);
            while !completions.enter(key, 7) {
                for _ in 0..500 {
                    completions.enter(rng.random(), 7);
                }
                others += 500;
            }
        }
        assert!(others / 20 > 8_000, "{others} others for 20");
    }
}
