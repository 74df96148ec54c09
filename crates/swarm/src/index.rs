//! From info hashes to the places of swarms in the store.
//!
//! Many small tables of four-byte places; the info hashes themselves stay in the swarms' entries. A
//! full table grows alone, so no step rehashes more than some hundred swarms, however many there
//! are.
//!
//! Tables of equal share would all fill up and double at about the same population: memory, and the
//! time of announces, would jump. Here the share of the last table is half of the first one's, and
//! in between it falls evenly (as in Martin's spiral storage, 1979): at any population some tables
//! are about to double and some have just doubled, and memory per swarm is constant.

use hashbrown::HashTable;

/// Swarms per table, on average, when the shard is full. The table with the largest share has half
/// as many more: growing one moves 448 places at most, some 30 microseconds of work.
const SWARMS_PER_TABLE: u64 = 512;
/// An empty table takes 32 bytes, these 2 MiB.
const MAX_TABLES: u64 = 1 << 16;
/// Bits of the hash that pick a table: enough for fine shares.
const TABLE_BITS: u32 = 24;
/// Maps a fraction `x` of all hashes to a fraction of the tables: `2^x - 1` within half a percent,
/// as `x * (LINEAR + (1 - LINEAR) * x)`.
const LINEAR: f64 = 0.656_489;

/// The tables. Every method takes the keyed hash of its info hash, and a function that returns the
/// hash of a place.
#[derive(Debug)]
pub(crate) struct Index {
    tables: Box<[HashTable<u32>]>,
    /// The factors of [`table_of`](Self::table_of): both times the number of tables, the first one
    /// with as many fractional bits as pick a table.
    factors: [u64; 2],
    /// The table that [`shrink`](Self::shrink) visits next.
    next_to_shrink: usize,
}

impl Index {
    /// For at most `swarms`; more still work, but more slowly.
    pub(crate) fn new(swarms: u64) -> Self {
        let tables = Self::tables_for(swarms);
        // Rounded down, so that the greatest hash maps to the last table, not behind it.
        let second = ((1.0 - LINEAR) * tables as f64) as u64;
        let first = ((tables as u64) << TABLE_BITS) - (second << TABLE_BITS);
        Self {
            tables: (0..tables).map(|_| HashTable::new()).collect(),
            factors: [first, second],
            next_to_shrink: 0,
        }
    }

    /// The number of tables for that many swarms.
    pub(crate) fn tables_for(swarms: u64) -> usize {
        swarms.div_ceil(SWARMS_PER_TABLE).clamp(1, MAX_TABLES) as usize
    }

    /// The predicted place of a swarm with this hash: the first place whose stored tag agrees,
    /// which is correct in nine cases of ten if the swarm is stored. Reads no swarm, so that the
    /// cache misses of several calls overlap.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64) -> Option<u32> {
        self.table(hash).find(hash, |_| true).copied()
    }

    /// The place that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table(hash).find(hash, |&place| is_it(place)).copied()
    }

    /// Adds a place, which must be new.
    pub(crate) fn insert(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        self.table_mut(hash).insert_unique(hash, place, |&place| hash_of(place));
    }

    /// Removes a place, which must be stored.
    pub(crate) fn remove(&mut self, hash: u64, place: u32) {
        match self.table_mut(hash).find_entry(hash, |&it| it == place) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => debug_assert!(false, "place {place} is not in the index"),
        }
    }

    /// Updates the place of a swarm that has moved.
    pub(crate) fn moved(&mut self, hash: u64, from: u32, to: u32) {
        match self.table_mut(hash).find_mut(hash, |&it| it == from) {
            Some(place) => *place = to,
            None => debug_assert!(false, "place {from} is not in the index"),
        }
    }

    /// Frees memory of tables that are less than a quarter full: continues where the last call
    /// stopped, for about `work` tables visited and places moved.
    pub(crate) fn shrink(&mut self, work: usize, hash_of: impl Fn(u32) -> u64) {
        let mut done = 0;
        for _ in 0..self.tables.len() {
            if done >= work {
                return;
            }
            let table = &mut self.tables[self.next_to_shrink];
            done += 1;
            if table.len() * 4 < table.capacity() {
                done += table.len();
                table.shrink_to(table.len() * 2, |&place| hash_of(place));
            }
            self.next_to_shrink = (self.next_to_shrink + 1) % self.tables.len();
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

    /// hashbrown picks buckets by some ten of the lowest bits and stores the seven highest as tags,
    /// so tables are picked by the bits in between: from bit 31 downwards, of which the lowest
    /// hardly matter.
    #[inline]
    fn table_of(&self, hash: u64) -> usize {
        let part = u64::from(hash as u32 >> (32 - TABLE_BITS));
        let [first, second] = self.factors;
        // No overflow: 24 bits times 40, as there are 2^16 tables at most.
        ((part * (first + second * part)) >> (2 * TABLE_BITS)) as usize
    }

    /// The number of places in all tables, by adding them up.
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
    fn stored_and_moved_places_are_found() {
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
    fn the_first_prediction_is_nearly_always_correct() {
        let mut index = Index::new(50_000);
        (0..50_000).for_each(|place| index.insert(hash(place), place, hash));
        let right =
            (0..50_000).filter(|&place| index.candidate(hash(place)) == Some(place)).count();
        assert!(right > 45_000, "{right} of 50000");
    }

    #[test]
    fn the_largest_table_is_bounded() {
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
                // A capacity of so many takes 8/7 as many places of 5 bytes.
                let bytes = index.capacity() as f64 * 40.0 / 7.0;
                per_swarm.push(bytes / f64::from(place));
            }
        }
        let least = per_swarm.iter().copied().fold(f64::MAX, f64::min);
        let most = per_swarm.iter().copied().fold(0.0, f64::max);
        assert!(least > 7.0 && most < 9.0, "{least} to {most} bytes");
    }

    #[test]
    fn memory_is_freed_in_small_pieces() {
        let mut index = Index::new(100_000);
        (0..100_000).for_each(|place| index.insert(hash(place), place, hash));
        (100..100_000).for_each(|place| index.remove(hash(place), place));
        let full = index.capacity();
        index.shrink(10, hash);
        assert!(index.capacity() > full / 2, "a small budget frees little");
        for _ in 0..200 {
            index.shrink(10, hash);
        }
        assert!(index.capacity() < 1_000);
        assert!((0..100).all(|place| index.find(hash(place), |it| it == place).is_some()));
    }
}
