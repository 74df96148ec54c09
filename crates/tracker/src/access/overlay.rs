//! A set of info hashes with the changes since it was loaded. The changes are kept in two small
//! sets, so that a change takes time proportional to the number of changes, not to the length of
//! the list.

use std::collections::HashSet;
use std::sync::Arc;

use onrush_proto::InfoHash;

use super::set::InfoHashSet;

/// Number of changes above which merging pays.
const MAX_CHANGES: usize = 4096;

/// The addition or removal of one info hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// The info hash.
    pub info_hash: InfoHash,
    /// Whether the info hash is listed after the change.
    pub listed: bool,
}

/// A set of info hashes with the changes since it was loaded. Cheap to clone while there are few
/// changes.
#[derive(Clone, Debug)]
pub struct OverlaySet {
    base: Arc<InfoHashSet>,
    /// Added info hashes, none of them in `base`.
    added: InfoHashSet,
    /// Removed info hashes, all of them in `base`.
    removed: InfoHashSet,
}

impl OverlaySet {
    /// A set without changes.
    pub fn new(base: InfoHashSet) -> Self {
        Self {
            base: Arc::new(base),
            added: InfoHashSet::new(Vec::new()),
            removed: InfoHashSet::new(Vec::new()),
        }
    }

    /// Whether the set contains the info hash.
    #[inline]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        match self.has_changes() {
            true => self.contains_with_changes(info_hash),
            false => self.base.contains(info_hash),
        }
    }

    /// Not inlined, so that a set without changes costs one lookup.
    #[inline(never)]
    fn contains_with_changes(&self, info_hash: &InfoHash) -> bool {
        match self.base.contains(info_hash) {
            true => !self.removed.contains(info_hash),
            false => self.added.contains(info_hash),
        }
    }

    /// As [`InfoHashSet::prefetch`]. The changes are few enough to stay in the CPU caches.
    #[inline]
    pub fn prefetch(&self, names: &[&[u8; 20]]) {
        self.base.prefetch(names);
    }

    /// The number of info hashes.
    pub fn len(&self) -> usize {
        self.base.len() + self.added.len() - self.removed.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The changes since the set was loaded or merged, each info hash once.
    pub fn changes(&self) -> impl Iterator<Item = ListChange> {
        let change =
            |listed| move |hash: &[u8; 20]| ListChange { info_hash: InfoHash(*hash), listed };
        self.added.iter().map(change(true)).chain(self.removed.iter().map(change(false)))
    }

    /// Whether there are enough changes for a merge to pay.
    pub fn should_merge(&self) -> bool {
        self.added.len() + self.removed.len() > MAX_CHANGES
    }

    #[inline]
    fn has_changes(&self) -> bool {
        self.added.len() + self.removed.len() > 0
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.base.bytes() + self.added.bytes() + self.removed.bytes()
    }

    /// The set after `changes`; of several for one info hash the last counts. Takes time
    /// proportional to the number of all changes.
    pub fn with(&self, changes: &[ListChange]) -> Self {
        let mut added: HashSet<[u8; 20]> = self.added.iter().copied().collect();
        let mut removed: HashSet<[u8; 20]> = self.removed.iter().copied().collect();
        for ListChange { info_hash, listed } in changes {
            let InfoHash(hash) = *info_hash;
            match (*listed, self.base.contains(info_hash)) {
                (true, false) => added.insert(hash),
                (false, true) => removed.insert(hash),
                (true, true) => removed.remove(&hash),
                (false, false) => added.remove(&hash),
            };
        }
        let list = |hashes: HashSet<_>| InfoHashSet::new(hashes.into_iter().collect());
        Self { base: self.base.clone(), added: list(added), removed: list(removed) }
    }

    /// The set with its changes merged. Takes time proportional to its length.
    pub fn merged(&self) -> Self {
        Self::new(InfoHashSet::new(self.iter().copied().collect()))
    }

    /// All info hashes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8; 20]> {
        self.iter_from([0; 20])
    }

    /// The info hashes from `first` on, in order.
    pub fn iter_from(&self, first: [u8; 20]) -> impl Iterator<Item = &[u8; 20]> {
        let mut added = self.added.iter_from(&first).peekable();
        let mut kept = self
            .base
            .iter_from(&first)
            .filter(|hash| self.removed.is_empty() || !self.removed.contains(&InfoHash(**hash)))
            .peekable();
        std::iter::from_fn(move || match (kept.peek(), added.peek()) {
            (Some(old), Some(new)) if new < old => added.next(),
            (None, _) => added.next(),
            _ => kept.next(),
        })
    }
}

/// Sets with the same info hashes are equal, whatever their changes.
impl PartialEq for OverlaySet {
    fn eq(&self, other: &Self) -> bool {
        match self.has_changes() || other.has_changes() {
            true => self.len() == other.len() && self.iter().eq(other.iter()),
            false => self.base == other.base,
        }
    }
}

impl Eq for OverlaySet {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn hash(number: u8) -> [u8; 20] {
        let mut hash = [0; 20];
        hash[(number % 3) as usize] = number;
        hash
    }

    proptest! {
        /// Compared with a `BTreeSet` under additions, removals and merges.
        #[test]
        fn changes_match_a_plain_set(
            base in proptest::collection::vec(0u8..60, 0..40),
            steps in proptest::collection::vec(
                (proptest::collection::vec((0u8..60, any::<bool>()), 0..8), any::<bool>()),
                0..12,
            ),
        ) {
            let mut set: BTreeSet<[u8; 20]> = base.iter().map(|n| hash(*n)).collect();
            let mut listing = OverlaySet::new(InfoHashSet::new(set.iter().copied().collect()));
            for (changes, merge) in steps {
                let mut list = Vec::new();
                for (number, listed) in changes {
                    let hash = hash(number);
                    if listed { set.insert(hash) } else { set.remove(&hash) };
                    list.push(ListChange { info_hash: InfoHash(hash), listed });
                }
                listing = listing.with(&list);
                if merge {
                    let merged = listing.merged();
                    prop_assert!(merged == listing && merged.changes().next().is_none());
                    listing = merged;
                }
                prop_assert!(listing.iter().eq(&set));
                prop_assert_eq!((listing.len(), listing.is_empty()), (set.len(), set.is_empty()));
                for number in 0..60 {
                    let name = hash(number);
                    prop_assert_eq!(listing.contains(&InfoHash(name)), set.contains(&name));
                }
            }
            let afresh = OverlaySet::new(InfoHashSet::new(set.iter().copied().collect()));
            prop_assert!(afresh == listing);
            let other = afresh.with(&[ListChange { info_hash: InfoHash([9; 20]), listed: true }]);
            prop_assert!(other != listing);
        }
    }
}
