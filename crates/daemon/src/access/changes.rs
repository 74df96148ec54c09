//! Changes of the list of info hashes by the admin API, without reading the list's files again.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::diff::ListDiff;
use super::{AccessControl, InProgress};
use onrush_config::settings::{Access, Listed};
use onrush_control::api::admin::ListUpdate;
use onrush_control::caller::Caller;
use onrush_control::request::ListChangeError;
use onrush_control::view::Candidate;
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::overlay::{ListChange, OverlaySet};
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, ListKind, Lists};

/// Recent changes, which a reload or a merge in progress has not seen.
pub(super) struct RecentChanges {
    /// Changes since a reload began, which may have read the journal before; without a journal, all
    /// changes. Each is of a kind: adding to the deny list is the opposite of adding to the allow
    /// list.
    pub(super) since_reload: Vec<(ListKind, ListChange)>,
    /// Changes since the merge in progress began.
    since_merge: Vec<ListChange>,
    /// The list being merged.
    merging: Option<Arc<AccessList>>,
    sender: Sender<AccessList>,
    /// Receives merged lists.
    pub(super) merged: Receiver<AccessList>,
}

impl RecentChanges {
    pub(super) fn new() -> Self {
        let (sender, merged) = unbounded();
        let (since_reload, since_merge) = (Vec::new(), Vec::new());
        Self { since_reload, since_merge, merging: None, sender, merged }
    }

    /// Applies the changes that lists read by the current reload may lack.
    pub(super) fn repeat(&self, read: &mut Lists) {
        let of_kind = self.since_reload.iter().filter(|(of, _)| Some(*of) == read.access.kind());
        let changes: Vec<_> = of_kind.map(|(_, change)| change.clone()).collect();
        if !changes.is_empty() {
            read.access = Arc::new(read.access.with(&changes));
        }
    }

    /// Records changes for a merge in progress and, if it may miss them, for a reload.
    fn record(&mut self, kind: ListKind, changes: &[ListChange], for_reload: bool) {
        if for_reload {
            self.since_reload.extend(changes.iter().map(|change| (kind, change.clone())));
        }
        if self.merging.is_some() {
            self.since_merge.extend_from_slice(changes);
        }
    }

    /// Merges a list with many changes, on a thread of its own: millions of entries take a second.
    fn merge(&mut self, list: &Arc<AccessList>) {
        if self.merging.is_some() || !list.set().is_some_and(OverlaySet::should_merge) {
            return;
        }
        let (sender, ragged) = (self.sender.clone(), list.clone());
        let merge = move || {
            // The receiver lives as long as the process.
            let _ = sender.send(ragged.merged());
        };
        // Without a thread the list stays as it is, and further changes take longer.
        if thread::Builder::new().name("merge".into()).spawn(merge).is_ok() {
            self.merging = Some(list.clone());
            self.since_merge.clear();
        }
    }
}

/// Makes the list that a reload would put into force if the files of the access list had other
/// entries.
pub fn candidate(journal: Option<Journal>) -> Candidate {
    Box::new(move |settings, mut entries| {
        let set = |listed: &Listed| {
            entries.extend(listed.hashes.iter().map(|hash| hash.0));
            OverlaySet::new(InfoHashSet::new(entries))
        };
        let list = match &settings.access {
            Access::Open => AccessList::Open,
            Access::Allow(listed) => AccessList::Allow(set(listed)),
            Access::Deny(listed) => AccessList::Deny(set(listed)),
        };
        match &journal {
            Some(journal) => journal.replay(list).compacted(),
            None => list,
        }
    })
}

impl AccessControl {
    /// Adds hashes to the list and removes others, at once and across restarts. The list may have
    /// `limit` entries. The caller sends the lists to the workers.
    ///
    /// # Errors
    /// [`ListChangeError`]; nothing has changed then.
    pub fn change(
        &mut self,
        changes: &[ListChange],
        caller: Caller,
        limit: usize,
        in_progress: InProgress,
        now: Instant,
    ) -> Result<ListUpdate, ListChangeError> {
        if in_progress.is_final {
            return Err(ListChangeError::Upgrading);
        }
        let former = self.lists.access.clone();
        let (Some(kind), Some(listing)) = (former.kind(), former.set()) else {
            return Err(ListChangeError::NoList);
        };
        let effective: Vec<ListChange> =
            changes.iter().filter(|change| listing.is_changed_by(change)).cloned().collect();
        let list = former.with(changes);
        if list.len() > limit.max(former.len()) {
            return Err(ListChangeError::Full(limit));
        }
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            return Err(ListChangeError::NothingLeft);
        }
        // Changes without effect are not journaled, unless a reload or upgrade in progress may have
        // read a different list.
        let may_differ = in_progress.reload || in_progress.upgrade;
        self.append(kind, if may_differ { changes } else { &effective })?;
        self.changes.record(kind, changes, in_progress.reload || self.journal.is_none());
        let list = Arc::new(list);
        self.lists.access = list.clone();
        self.entry_high_water_mark.follow_change(former.len(), list.len());
        self.purge.update(&list, &effective, former, now);
        self.changes.merge(&list);
        let (kind, entries) = (kind.name(), list.len());
        match effective.as_slice() {
            [] => log::info!("{kind} list: a change by {caller} has no effect"),
            some => {
                let diff = ListDiff::of(some);
                log::info!("{kind} list changed by {caller}: {diff}; entries now: {entries}");
            }
        }
        Ok(ListUpdate {
            mode: kind.to_owned(),
            entries: entries as u64,
            changed: effective.len() as u64,
            lasting: self.journal.is_some(),
        })
    }

    /// Appends to the journal before a change is in force: one that was confirmed must survive a
    /// crash.
    fn append(&self, kind: ListKind, changes: &[ListChange]) -> Result<(), ListChangeError> {
        let Some(journal) = self.journal.as_ref().filter(|_| !changes.is_empty()) else {
            return Ok(());
        };
        journal.append(kind, changes).map_err(|error| ListChangeError::Journal {
            path: journal.path().to_owned(),
            error: error.to_string(),
        })
    }

    /// After the list's file was read: removes changes from the journal that the file contains, so
    /// that the file decides from now on. Skipped where the journal has changed since it was read.
    pub(super) fn compact_journal(&self, replayed: Option<&ReplayedList>, in_progress: InProgress) {
        let (Some(journal), Some(replayed)) = (&self.journal, replayed) else { return };
        // A successor continues to read at the length that it has seen.
        if !self.changes.since_reload.is_empty() || in_progress.upgrade {
            return;
        }
        if let Some(warning) = journal.compact_or_warn(replayed) {
            log::warn!("{warning}");
        }
    }

    /// Replaces the list in force by its merged form, unless a reload has replaced it meanwhile.
    /// Returns whether it has; the caller then sends it to the workers.
    pub fn replace_by_merged(&mut self, merged: &AccessList) -> bool {
        let Some(source) = self.changes.merging.take() else { return false };
        let since = std::mem::take(&mut self.changes.since_merge);
        let list = merged.with(&since);
        let former = self.lists.access.clone();
        if list != *former {
            // A reload has put another list into force.
            return false;
        }
        self.lists.access = Arc::new(list);
        self.purge.retire(source);
        self.purge.retire(former);
        true
    }
}
