//! Changes of the list of info hashes by the admin API, without reading the list's file again.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::Supervisor;
use super::list_diff::ListDiff;
use onrush_config::settings::{Access, Listed};
use onrush_control::api::admin::ListUpdate;
use onrush_control::caller::Caller;
use onrush_control::request::ListChangeError;
use onrush_control::view::Candidate;
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_tracker::access::AccessList;
use onrush_tracker::access::ListKind;
use onrush_tracker::access::overlay::{ListChange, OverlaySet};
use onrush_tracker::access::set::InfoHashSet;

/// Recent changes, which a reload or a merge in progress has not seen.
pub(super) struct ListChanges {
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

impl ListChanges {
    pub(super) fn new() -> Self {
        let (sender, merged) = unbounded();
        let (since_reload, since_merge) = (Vec::new(), Vec::new());
        Self { since_reload, since_merge, merging: None, sender, merged }
    }

    /// The changes that a list of this kind, read by the current reload, may lack.
    pub(super) fn of_kind_since_reload(&self, kind: Option<ListKind>) -> Vec<ListChange> {
        let of_kind = self.since_reload.iter().filter(|(of, _)| Some(*of) == kind);
        of_kind.map(|(_, change)| change.clone()).collect()
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
pub(super) fn candidate(journal: Option<Journal>) -> Candidate {
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
            Some(journal) => journal.replay(list).settled(),
            None => list,
        }
    })
}

impl Supervisor {
    /// Adds hashes to the list and removes others, at once and across restarts.
    pub(super) fn change_list(
        &mut self,
        changes: &[ListChange],
        caller: Caller,
    ) -> Result<ListUpdate, ListChangeError> {
        if self.upgrade.is_final {
            return Err(ListChangeError::Upgrading);
        }
        let former = self.tracker.lists.access.clone();
        let (Some(kind), Some(listing)) = (former.kind(), former.set()) else {
            return Err(ListChangeError::NoList);
        };
        let effective: Vec<ListChange> =
            changes.iter().filter(|change| listing.is_changed_by(change)).cloned().collect();
        let list = former.with(changes);
        if list.len() > self.settings.limits.list_entries.max(former.len()) {
            return Err(ListChangeError::Full(self.settings.limits.list_entries));
        }
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            return Err(ListChangeError::NothingLeft);
        }
        // Changes without effect are not journaled, unless a reload or upgrade in progress may have
        // read a different list.
        let in_progress = self.reload.loading || self.upgrade.is_running();
        let journaled = if in_progress { changes } else { &effective };
        // On disk first: a change that was confirmed must survive a crash.
        if let Some(journal) = self.tracker.state.journal.as_ref().filter(|_| !journaled.is_empty())
        {
            journal.append(kind, journaled).map_err(|error| ListChangeError::Journal {
                path: journal.path().to_owned(),
                error: error.to_string(),
            })?;
        }
        if self.reload.loading || self.tracker.state.journal.is_none() {
            let of_kind = changes.iter().map(|change| (kind, change.clone()));
            self.list_changes.since_reload.extend(of_kind);
        }
        if self.list_changes.merging.is_some() {
            self.list_changes.since_merge.extend_from_slice(changes);
        }
        let list = Arc::new(list);
        let changed = ListUpdate {
            mode: kind.name().to_owned(),
            entries: list.len() as u64,
            changed: effective.len() as u64,
            lasting: self.tracker.state.journal.is_some(),
        };
        self.tracker.lists.access = list.clone();
        self.tracker.most_entries.follow_change(former.len(), list.len());
        self.publish_rules();
        self.purge.update(&list, &effective, former, Instant::now());
        self.list_changes.merge(&list);
        let (kind, entries) = (kind.name(), list.len());
        match effective.as_slice() {
            [] => log::info!("{kind} list: a change by {caller} has no effect"),
            some => {
                let diff = ListDiff::of(some);
                log::info!("{kind} list changed by {caller}: {diff}; entries now: {entries}");
            }
        }
        Ok(changed)
    }

    /// After the list's file was read: removes changes from the journal that the file contains, so
    /// that the file decides from now on. Skipped where the journal has changed since it was read.
    pub(super) fn compact_journal(&self, replayed: Option<&ReplayedList>) {
        let (Some(journal), Some(replayed)) = (&self.tracker.state.journal, replayed) else {
            return;
        };
        // A successor continues to read at the length that it has seen.
        if !self.list_changes.since_reload.is_empty() || self.upgrade.is_running() {
            return;
        }
        if let Some(warning) = journal.compact_or_warn(replayed) {
            log::warn!("{warning}");
        }
    }

    /// Replaces the list in force by its merged form, unless a reload has replaced it meanwhile.
    pub(super) fn replace_by_merged(&mut self, merged: &AccessList) {
        let Some(source) = self.list_changes.merging.take() else { return };
        let since = std::mem::take(&mut self.list_changes.since_merge);
        let list = merged.with(&since);
        let former = self.tracker.lists.access.clone();
        if list != *former {
            // A reload has put another list into force.
            return;
        }
        self.tracker.lists.access = Arc::new(list);
        self.publish_rules();
        self.purge.retire(source);
        self.purge.retire(former);
    }
}
