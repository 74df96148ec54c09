//! A set of info hashes with the changes since it was loaded. The changes are kept in two small
//! sets, so that a change takes time proportional to the number of changes, not to the length of
//! the list. Beside them are the origins of the entries, at which no lookup looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onrush_proto::InfoHash;

use super::origins::Origins;
use super::set::InfoHashSet;

/// Number of changes above which merging pays.
const MAX_CHANGES: usize = 4096;

/// The addition or removal of one info hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// The info hash.
    pub info_hash: InfoHash,
    /// Whether the info hash is listed after the change.
    pub listed: bool,
    /// Whether the change is a reset: it returns the info hash to what the files of the list say.
    pub is_reset: bool,
    /// Why, for an info hash that is in no file.
    pub comment: Option<Arc<str>>,
    /// Its author, if known.
    pub author: Option<Arc<Author>>,
}

/// When and by whom a change was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Seconds since 1970.
    pub unix: u64,
    /// The user or address.
    pub name: String,
}

impl ListChange {
    /// A change without a comment, by an unknown author.
    pub fn new(info_hash: InfoHash, listed: bool) -> Self {
        Self { info_hash, listed, is_reset: false, comment: None, author: None }
    }
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
    /// Where the entries of `base` come from.
    origins: Arc<Origins>,
    /// The comments of added info hashes, also once they are merged.
    comments: Arc<HashMap<[u8; 20], Arc<str>>>,
}

impl OverlaySet {
    /// A set without changes and without origins.
    pub fn new(base: InfoHashSet) -> Self {
        Self {
            base: Arc::new(base),
            added: InfoHashSet::new(Vec::new()),
            removed: InfoHashSet::new(Vec::new()),
            origins: Arc::default(),
            comments: Arc::default(),
        }
    }

    /// The set with these origins of its entries.
    pub fn with_origins(self, origins: Origins) -> Self {
        Self { origins: Arc::new(origins), ..self }
    }

    /// Where the entries come from.
    pub fn origins(&self) -> &Origins {
        &self.origins
    }

    /// The comment of a listed info hash.
    pub fn comment(&self, info_hash: &InfoHash) -> Option<&str> {
        let of_change = || self.comments.get(&info_hash.0).map(|comment| &**comment);
        self.origins.comment(info_hash).or_else(of_change)
    }

    /// Whether a change has an effect on the set or on a comment.
    pub fn is_changed_by(&self, change: &ListChange) -> bool {
        let ListChange { info_hash, listed, comment, .. } = change;
        let is_commented = *listed
            && comment.is_some()
            && !self.base.contains(info_hash)
            && self.comments.get(&info_hash.0) != comment.as_ref();
        self.contains(info_hash) != *listed || is_commented
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
        let sets = self.base.bytes() + self.added.bytes() + self.removed.bytes();
        sets + self.origins.bytes()
    }

    /// The set after `changes`; of several for one info hash the last counts. Takes time
    /// proportional to the number of all changes.
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = &'a ListChange>) -> Self {
        let mut added: HashSet<[u8; 20]> = self.added.iter().copied().collect();
        let mut removed: HashSet<[u8; 20]> = self.removed.iter().copied().collect();
        let mut comments = self.comments.clone();
        for ListChange { info_hash, listed, comment, .. } in changes {
            let InfoHash(hash) = *info_hash;
            match comment {
                _ if !listed && !comments.contains_key(&hash) => {}
                _ if !listed => _ = Arc::make_mut(&mut comments).remove(&hash),
                Some(comment) if !self.base.contains(info_hash) => {
                    Arc::make_mut(&mut comments).insert(hash, comment.clone());
                }
                _ => {}
            }
            match (*listed, self.base.contains(info_hash)) {
                (true, false) => added.insert(hash),
                (false, true) => removed.insert(hash),
                (true, true) => removed.remove(&hash),
                (false, false) => added.remove(&hash),
            };
        }
        let list = |hashes: HashSet<_>| InfoHashSet::new(hashes.into_iter().collect());
        let (added, removed) = (list(added), list(removed));
        Self { base: self.base.clone(), added, removed, origins: self.origins.clone(), comments }
    }

    /// The set with its changes merged. Takes time proportional to its length.
    pub fn merged(&self) -> Self {
        let base = InfoHashSet::new(self.iter().copied().collect());
        let (origins, comments) = (self.origins.clone(), self.comments.clone());
        Self { origins, comments, ..Self::new(base) }
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

/// Sets with the same info hashes, origins and comments are equal, whatever their changes.
impl PartialEq for OverlaySet {
    fn eq(&self, other: &Self) -> bool {
        let same_hashes = || match self.has_changes() || other.has_changes() {
            true => self.len() == other.len() && self.iter().eq(other.iter()),
            false => self.base == other.base,
        };
        self.origins == other.origins && self.comments == other.comments && same_hashes()
    }
}

impl Eq for OverlaySet {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::access::origins::{OriginsBuilder, Part, comment};

    fn hash(number: u8) -> [u8; 20] {
        let mut hash = [0; 20];
        hash[(number % 3) as usize] = number;
        hash
    }

    fn unlabelled(hashes: &BTreeSet<[u8; 20]>) -> OverlaySet {
        let set = InfoHashSet::new(hashes.iter().copied().collect());
        OverlaySet::new(set)
    }

    #[test]
    fn info_hashes_that_are_added_have_their_own_comments() {
        let part = Part { name: "".into(), error: "".into(), entries: 0 };
        let mut builder = OriginsBuilder::new(part);
        builder.entry(0, [1; 20], "in the file");
        let base = InfoHashSet::new(vec![[1; 20], [2; 20]]);
        let set = OverlaySet::new(base).with_origins(builder.build());
        let change = |number: u8, listed, why: Option<&str>| ListChange {
            comment: why.map(comment),
            ..ListChange::new(InfoHash([number; 20]), listed)
        };
        let changes = [
            (change(1, true, Some("other")), false),
            (change(2, true, Some("why")), false),
            (change(3, true, None), true),
            (change(3, true, Some("why")), true),
            (change(3, false, Some("gone")), false),
        ];
        for (change, has_effect) in &changes {
            assert_eq!(set.is_changed_by(change), *has_effect, "{change:?}");
            assert_eq!(set.with(std::slice::from_ref(change)) != set, *has_effect, "{change:?}");
        }
        let comments = |set: &OverlaySet| {
            [1, 2, 3].map(|n| set.comment(&InfoHash([n; 20])).map(str::to_owned))
        };
        let changed = set.with(&[change(2, true, Some("why")), change(3, true, Some("new"))]);
        assert!(!changed.is_changed_by(&change(3, true, Some("new"))));
        assert!(!changed.is_changed_by(&change(3, true, None)));
        assert!(changed.is_changed_by(&change(3, true, Some("newer"))));
        let shown = [Some("in the file"), None, Some("new")].map(|it| it.map(str::to_owned));
        assert_eq!(comments(&changed), shown);
        assert_eq!(comments(&changed.merged()), shown);
        let removed = changed.with(&[change(2, false, None), change(3, false, None)]);
        assert_eq!(comments(&removed)[1..], [None, None]);
        assert_eq!((removed.added.len(), removed.removed.len()), (0, 1));
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
            let mut listing = unlabelled(&set);
            for (changes, merge) in steps {
                let mut list = Vec::new();
                for (number, listed) in changes {
                    let hash = hash(number);
                    if listed { set.insert(hash) } else { set.remove(&hash) };
                    list.push(ListChange::new(InfoHash(hash), listed));
                }
                listing = listing.with(&list);
                if merge {
                    let merged = listing.merged();
                    prop_assert!(merged == listing && !merged.has_changes());
                    listing = merged;
                }
                prop_assert!(listing.iter().eq(&set));
                prop_assert_eq!((listing.len(), listing.is_empty()), (set.len(), set.is_empty()));
                for number in 0..60 {
                    let name = hash(number);
                    prop_assert_eq!(listing.contains(&InfoHash(name)), set.contains(&name));
                }
            }
            let afresh = unlabelled(&set);
            prop_assert!(afresh == listing);
            let other = afresh.with(&[ListChange::new(InfoHash([9; 20]), true)]);
            prop_assert!(other != listing);
        }
    }
}
