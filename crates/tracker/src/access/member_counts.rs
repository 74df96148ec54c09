//! Counters of refused requests, an array for each member of the tracker (worker or front), so that
//! a flood at all workers writes to few shared cache lines. The control side reads the sums.

use crate::metrics::Counter;

/// A counter for each member and slot.
#[derive(Debug, Default)]
pub struct MemberCounts {
    by_member: Box<[Box<[Counter]>]>,
}

/// Always equal: lists and blocks that differ only in their counts are the same.
impl PartialEq for MemberCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MemberCounts {}

impl MemberCounts {
    /// Counters for this many members and slots, 8 bytes each.
    pub fn new(members: usize, slots: usize) -> Self {
        let counters = || (0..slots).map(|_| Counter::default()).collect();
        Self { by_member: (0..members).map(|_| counters()).collect() }
    }

    /// The requests counted in a slot by all members.
    pub fn sum(&self, slot: usize) -> u64 {
        self.by_member.iter().filter_map(|slots| slots.get(slot)).map(Counter::get).sum()
    }

    /// Sets the count of a member that counts elsewhere. Only the thread of `member` may call this.
    pub(crate) fn set(&self, member: usize, slot: usize, count: u64) {
        if let Some(counter) = self.by_member.get(member).and_then(|slots| slots.get(slot)) {
            counter.set(count);
        }
    }

    /// Counts a request. Only the thread of `member` may call this with its number.
    pub(crate) fn add(&self, member: usize, slot: usize) {
        if let Some(counter) = self.by_member.get(member).and_then(|slots| slots.get(slot)) {
            counter.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_count_for_themselves() {
        let counts = MemberCounts::new(2, 2);
        for (member, slot) in [(0, 1), (1, 1), (1, 0), (2, 1), (0, 2)] {
            counts.add(member, slot);
        }
        assert_eq!([counts.sum(0), counts.sum(1), counts.sum(2)], [1, 2, 0]);
    }
}
