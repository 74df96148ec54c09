//! A list as it is in force: what was read at last, and what has been added and removed since. The changes lie
//! in two small lists of their own, so that one more of them costs as much as there are changes, not as much as
//! the list is long.

use std::collections::HashSet;
use std::sync::Arc;

use onrush_proto::InfoHash;

use super::set::InfoHashSet;

/// Changes from which on they are worth being merged into the list.
const MANY_CHANGES: usize = 4096;

/// An info hash that is put on a list or taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Which.
    pub info_hash: InfoHash,
    /// Whether it is listed from now on.
    pub listed: bool,
}

/// A list of info hashes with what has changed since it was read. Cheap to clone where little has changed.
#[derive(Clone, Debug)]
pub struct OverlaySet {
    base: Arc<InfoHashSet>,
    /// Not in `base`.
    added: InfoHashSet,
    /// In `base`.
    removed: InfoHashSet,
}

impl OverlaySet {
    /// A list that nothing has changed in.
    pub fn new(base: InfoHashSet) -> Self {
        Self {
            base: Arc::new(base),
            added: InfoHashSet::new(Vec::new()),
            removed: InfoHashSet::new(Vec::new()),
        }
    }

    /// Whether this one is listed.
    #[inline]
    pub fn contains(&self, info_hash: &InfoHash) -> bool {
        match self.has_changes() {
            true => self.contains_now(info_hash),
            false => self.base.contains(info_hash),
        }
    }

    /// With the changes. Apart, so that without any a look-up in one list is all there is.
    #[inline(never)]
    fn contains_now(&self, info_hash: &InfoHash) -> bool {
        match self.base.contains(info_hash) {
            true => !self.removed.contains(info_hash),
            false => self.added.contains(info_hash),
        }
    }

    /// Reads what looking up each of these will read, all of them at once: see
    /// [`InfoHashSet::prefetch`]. The changes are few enough to stay in the nearest caches.
    #[inline]
    pub fn prefetch(&self, names: &[&[u8; 20]]) {
        self.base.prefetch(names);
    }

    /// How many are listed.
    pub fn len(&self) -> usize {
        self.base.len() + self.added.len() - self.removed.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What has changed since the list was read or merged, each hash once.
    pub fn changes(&self) -> impl Iterator<Item = ListChange> {
        let change =
            |listed| move |hash: &[u8; 20]| ListChange { info_hash: InfoHash(*hash), listed };
        self.added.iter().map(change(true)).chain(self.removed.iter().map(change(false)))
    }

    /// Whether so much has changed that it is worth being merged.
    pub fn should_merge(&self) -> bool {
        self.added.len() + self.removed.len() > MANY_CHANGES
    }

    #[inline]
    fn has_changes(&self) -> bool {
        self.added.len() + self.removed.len() > 0
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.base.bytes() + self.added.bytes() + self.removed.bytes()
    }

    /// The list after these changes, of which later ones count. Takes as long as there are changes in all.
    pub fn with(&self, changes: &[ListChange]) -> Self {
        let mut added: HashSet<[u8; 20]> = self.added.iter().copied().collect();
        let mut removed: HashSet<[u8; 20]> = self.removed.iter().copied().collect();
        for (hash, listed) in last_of_each(changes) {
            let in_base = self.base.contains(&InfoHash(hash));
            match (listed, in_base) {
                (true, false) => added.insert(hash),
                (false, true) => removed.insert(hash),
                (true, true) => removed.remove(&hash),
                (false, false) => added.remove(&hash),
            };
        }
        let list = |hashes: HashSet<_>| InfoHashSet::new(hashes.into_iter().collect());
        Self { base: self.base.clone(), added: list(added), removed: list(removed) }
    }

    /// The same list in one piece. Takes as long as the list is long.
    pub fn merged(&self) -> Self {
        Self::new(InfoHashSet::new(self.iter().copied().collect()))
    }

    /// All that are listed, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8; 20]> {
        self.iter_from([0; 20])
    }

    /// Those from this one on, in order.
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

/// What becomes of each info hash in the end, once, in order of the hashes.
fn last_of_each(changes: &[ListChange]) -> impl Iterator<Item = ([u8; 20], bool)> {
    let mut last: Vec<_> =
        changes.iter().map(|change| (change.info_hash.0, change.listed)).collect();
    // Stable, so that what came later stays behind.
    last.sort_by_key(|(hash, _)| *hash);
    let mut last = last.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut change = last.next()?;
        while let Some(later) = last.next_if(|(hash, _)| *hash == change.0) {
            change = later;
        }
        Some(change)
    })
}

/// Two are the same when they list the same, whatever has led to it.
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
        /// Against a set: whatever is added and removed, merged or not.
        #[test]
        fn changes_hold(
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
