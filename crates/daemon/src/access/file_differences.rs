//! The changes of the list that differ from its files, with the authors.

use std::collections::BTreeMap;
use std::sync::Arc;

use onrush_control::api::admin::{ChangedEntry, ListChanges, ListOverrides};
use onrush_proto::InfoHash;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::overlay::{Author, ListChange};

/// The changes of a list that its files do not have.
#[derive(Debug, Default)]
pub(super) struct FileDifferences {
    changes: BTreeMap<InfoHash, ListChange>,
}

impl FileDifferences {
    /// These changes, which the files of the list do not have.
    pub(super) fn of<'a>(changes: impl IntoIterator<Item = &'a ListChange>) -> Self {
        let changes = changes.into_iter().map(|change| (change.info_hash, change.clone()));
        Self { changes: changes.collect() }
    }

    /// Follows changes of a list that was `list` before.
    pub(super) fn follow(&mut self, list: &AccessList, changes: &[ListChange]) {
        // Of several for one info hash the last counts.
        let last: BTreeMap<_, _> = changes.iter().map(|it| (it.info_hash, it)).collect();
        for (hash, change) in last {
            let in_file = match self.changes.get(&hash) {
                Some(former) => !former.listed,
                None => list.set().is_some_and(|set| set.contains(&hash)),
            };
            match change.listed == in_file {
                true => self.changes.remove(&hash),
                false => self.changes.insert(hash, change.clone()),
            };
        }
    }

    /// A requested change by its author. A reset of an info hash without a change is `None`.
    pub(super) fn resolve(&self, change: ListChange, author: Arc<Author>) -> Option<ListChange> {
        let author = Some(author);
        if !change.is_reset {
            return Some(ListChange { author, ..change });
        }
        let listed = !self.changes.get(&change.info_hash)?.listed;
        Some(ListChange { listed, author, comment: None, ..change })
    }

    /// At most `limit` changes of `list`, from this info hash on.
    pub(super) fn shown(&self, list: &AccessList, from: InfoHash, limit: usize) -> ListChanges {
        let mut rest = self.changes.range(from..);
        let shown = rest.by_ref().take(limit).map(|(hash, change)| {
            let set = list.set().filter(|_| change.listed);
            let comment = set.and_then(|set| set.comment(hash)).map(str::to_owned);
            ChangedEntry { comment, ..entry(change) }
        });
        ListChanges {
            changes: shown.collect(),
            total: self.changes.len() as u64,
            overrides: self.overriding().count() as u64,
            next: rest.next().map(|(hash, _)| hash.to_string()),
        }
    }

    /// The changes that override a file; `None` if there are none.
    pub(super) fn overrides(&self) -> Option<ListOverrides> {
        let mut overriding = self.overriding();
        let first = entry(overriding.next()?);
        Some(ListOverrides { first, entries: 1 + overriding.count() as u64 })
    }

    /// An info hash that is in a file differs only by its removal.
    fn overriding(&self) -> impl Iterator<Item = &ListChange> {
        self.changes.values().filter(|change| !change.listed)
    }
}

fn entry(change: &ListChange) -> ChangedEntry {
    let author = change.author.as_ref();
    ChangedEntry {
        info_hash: change.info_hash.to_string(),
        listed: change.listed,
        time: author.map(|author| author.unix),
        by: author.map(|author| author.name.clone()),
        comment: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use onrush_tracker::access::overlay::OverlaySet;
    use onrush_tracker::access::set::InfoHashSet;

    proptest! {
        /// Compared with the set of the file, over batches in which info hashes are repeated.
        #[test]
        fn changes_are_the_difference_to_the_file(
            file in proptest::collection::btree_set(0u8..20, 0..20),
            batches in proptest::collection::vec(
                proptest::collection::vec((0u8..20, any::<bool>()), 0..8), 0..6),
        ) {
            let hash = |number: u8| InfoHash([number; 20]);
            let base = InfoHashSet::new(file.iter().map(|number| hash(*number).0).collect());
            let mut list = AccessList::Deny(OverlaySet::new(base));
            let (mut listed, mut differences) = (file.clone(), FileDifferences::default());
            for batch in batches {
                let changes: Vec<ListChange> =
                    batch.iter().map(|(number, to)| ListChange::new(hash(*number), *to)).collect();
                differences.follow(&list, &changes);
                // A merge forgets which entries are those of the file.
                list = list.with(&changes).merged();
                for (number, to) in batch {
                    if to { listed.insert(number) } else { listed.remove(&number) };
                }
            }
            let shown = differences.shown(&list, hash(0), 30);
            let found = shown.changes.iter().map(|it| (it.info_hash.clone(), !it.listed));
            let differing = file.symmetric_difference(&listed);
            let expected =
                differing.map(|number| (hash(*number).to_string(), file.contains(number)));
            prop_assert!(found.eq(expected), "{:?}", shown);
            prop_assert_eq!(shown.overrides as usize, file.difference(&listed).count());
            let first = file.difference(&listed).next().map(|number| hash(*number).to_string());
            prop_assert_eq!(differences.overrides().map(|it| it.first.info_hash), first);
            // Page by page.
            let (mut from, mut pages) = (Some(hash(0)), Vec::new());
            while let Some(first) = from {
                let page = differences.shown(&list, first, 3);
                pages.extend(page.changes);
                from = page.next.map(|next| next.parse().unwrap());
            }
            prop_assert_eq!(pages, shown.changes);
        }
    }
}
