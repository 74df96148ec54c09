//! From info hashes to places of swarms in the store.
//!
//! Large small tables of four-byte places; the info hashes themselves stay with the swarms. A
//! table that is full grows alone, so no step ever rehashes more than some hundred swarms,
//! however many there are.
//!
//! Tables of equal share would all be full, and double, at about the same population: memory
//! would jump, and so would the time that announces take. Here the share of the last table is
//! half of the first one's, and in between it falls evenly (as in Martin's spiral storage, 1979):
//! at any population some are about to double, some have just done so, and memory per swarm
//! stays the same.

use hashbrown::HashTable;

/// Swarms per table, on average, when the shard is as full as it may be. A table with the largest
/// share has half as many more: one that has outgrown its room moves 448 at most, some 30
/// microseconds of work.
const SWARMS_PER_TABLE: u64 = 512;
/// An empty table takes 32 bytes, these 2 MiB.
const MAX_TABLES: u64 = 1 << 16;
/// Bits that pick a table: enough to share hashes out finely.
const TABLE_BITS: u32 = 24;
/// How far into the tables a part `x` of all hashes leads: `2^x - 1` but for a half percent,
/// as `x * (LINEAR + (1 - LINEAR) * x)`.
const LINEAR: f64 = 0.656_489;

/// The tables. Every method takes the keyed hash of the info hash it is about, and a way to
/// find that of a place.
#[derive(Debug)]
pub(crate) struct Index {
    tables: Box<[HashTable<u32>]>,
    /// What [`table_of`](Self::table_of) multiplies with: both factors times the number of tables,
    /// the first in as many bits behind the point as pick a table.
    factors: [u64; 2],
    /// The table that [`tidy`](Self::tidy) looks at next.
    next_to_tidy: usize,
}

impl Index {
    /// For at most `swarms`; more still work, more slowly.
    pub(crate) fn new(swarms: u64) -> Self {
        let tables = Self::tables_for(swarms);
        // Rounded down, so that the last part of all hashes leads to the last table, not behind it.
        let second = ((1.0 - LINEAR) * tables as f64) as u64;
        let first = ((tables as u64) << TABLE_BITS) - (second << TABLE_BITS);
        Self {
            tables: (0..tables).map(|_| HashTable::new()).collect(),
            factors: [first, second],
            next_to_tidy: 0,
        }
    }

    /// How many tables there are for that many swarms.
    pub(crate) fn tables_for(swarms: u64) -> usize {
        swarms.div_ceil(SWARMS_PER_TABLE).clamp(1, MAX_TABLES) as usize
    }

    /// Where a swarm with this hash may be: the first place whose few stored bits agree, which
    /// is the right one nine times of ten if it is there at all. Looks at no swarm, so that the
    /// cache misses of several calls overlap.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        self.table(hash).find(hash, |_| true).copied()
    }

    /// The place of which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table(hash).find(hash, |&place| is_it(place)).copied()
    }

    /// Adds a place, which must not be there.
    pub(crate) fn insert(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        self.table_mut(hash).insert_unique(hash, place, |&place| hash_of(place));
    }

    /// Forgets a place, which must be there.
    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        match self.table_mut(hash).find_entry(hash, |&it| it == place) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => debug_assert!(false, "place {place} is not in the index"),
        }
    }

    /// A swarm has moved.
    pub(crate) fn moved(&mut self, hash: u64, from: u32, to: u32) {
        match self.table_mut(hash).find_mut(hash, |&it| it == from) {
            Some(place) => *place = to,
            None => debug_assert!(false, "place {from} is not in the index"),
        }
    }

    /// Gives back memory of tables that are less than a quarter full: goes on where it stopped
    /// the last time, for about `work` tables looked at and places moved.
    pub(crate) fn tidy(&mut self, work: usize, hash_of: impl Fn(u32) -> u64) {
        let mut done = 0;
        for _ in 0..self.tables.len() {
            if done >= work {
                return;
            }
            let table = &mut self.tables[self.next_to_tidy];
            done += 1;
            if table.len() * 4 < table.capacity() {
                done += table.len();
                table.shrink_to(table.len() * 2, |&place| hash_of(place));
            }
            self.next_to_tidy = (self.next_to_tidy + 1) % self.tables.len();
        }
    }

    #[inline]
    fn table(&self, hash: u64) -> &HashTable<u32> {
        &self.tables[self.table_of(hash)]
    }

    #[inline]
    fn table_mut(&mut self, hash: u64) -> &mut HashTable<u32> {
        let table = self.table_of(hash);
        &mut self.tables[table]
    }

    /// hashbrown picks buckets by some ten of the lowest bits and marks them with the seven highest,
    /// so tables are picked by bits between these: from bit 31 downwards, the last of which hardly
    /// matter.
    #[inline]
    fn table_of(&self, hash: u64) -> usize {
        let part = u64::from(hash as u32 >> (32 - TABLE_BITS));
        let [first, second] = self.factors;
        // No overflow: 24 bits times 40, as there are 2^16 tables at most.
        ((part * (first + second * part)) >> (2 * TABLE_BITS)) as usize
    }

    /// Places in all tables, counted one table after the other.
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(HashTable::len).sum()
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        self.tables.iter().map(HashTable::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(place: u32) -> u64 {
        (u64::from(place) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
    }

    #[test]
    fn finds_what_was_put_in_and_moved() {
        let mut index = Index::new(100_000);
        (0..100_000).for_each(|place| index.insert(hash(place), place, hash));
        for place in 0..100_000 {
            assert_eq!(index.find(hash(place), |it| it == place), Some(place));
        }
        assert_eq!(index.find(hash(100_000), |it| it == 100_000), None);
        index.moved(hash(5), 5, 200_000);
        assert_eq!(index.find(hash(5), |it| it == 200_000), Some(200_000));
        index.remove(hash(5), 200_000);
        assert_eq!(index.find(hash(5), |it| it == 200_000), None);
        assert_eq!(index.len(), 99_999);
    }

    #[test]
    fn the_first_guess_is_nearly_always_right() {
        let mut index = Index::new(50_000);
        (0..50_000).for_each(|place| index.insert(hash(place), place, hash));
        let right =
            (0..50_000).filter(|&place| index.candidate(hash(place)) == Some(place)).count();
        assert!(right > 45_000, "{right} of 50000");
    }

    #[test]
    fn no_table_grows_beyond_what_can_be_moved_quickly() {
        let mut index = Index::new(1 << 20);
        (0..1 << 20).for_each(|place| index.insert(hash(place), place, hash));
        assert!(index.tables.iter().all(|table| table.capacity() <= 896));
    }

    #[test]
    fn memory_per_swarm_does_not_jump() {
        let mut index = Index::new(1 << 20);
        let mut per_swarm = Vec::new();
        for place in 0..1 << 20 {
            index.insert(hash(place), place, hash);
            if place >= 1 << 18 && place % 4096 == 0 {
                // Room for so many is 8/7 as many places of 5 bytes.
                let bytes = index.capacity() as f64 * 40.0 / 7.0;
                per_swarm.push(bytes / f64::from(place));
            }
        }
        let least = per_swarm.iter().copied().fold(f64::MAX, f64::min);
        let most = per_swarm.iter().copied().fold(0.0, f64::max);
        assert!(least > 7.0 && most < 9.0, "{least} to {most} bytes");
    }

    #[test]
    fn memory_comes_back_in_small_pieces() {
        let mut index = Index::new(100_000);
        (0..100_000).for_each(|place| index.insert(hash(place), place, hash));
        (100..100_000).for_each(|place| index.remove(hash(place), place));
        let full = index.capacity();
        index.tidy(10, hash);
        assert!(index.capacity() > full / 2, "a little work frees a little");
        for _ in 0..200 {
            index.tidy(10, hash);
        }
        assert!(index.capacity() < 1_000);
        assert!((0..100).all(|place| index.find(hash(place), |it| it == place).is_some()));
    }
}
