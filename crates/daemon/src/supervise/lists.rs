//! Changes of the list of info hashes while the tracker runs, without reading its file again.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::Supervisor;
use onrush_control::request::{ListChangeError, ListChanged};
use onrush_store::lists::journal::ReplayedList;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::ListKind;
use onrush_tracker::access::overlay::{ListChange, OverlaySet};

/// What the main thread keeps of changes that others have to learn of yet.
pub(super) struct Changes {
    /// Made since a reload began to read the list, which may have read the journal already; without a journal,
    /// all that were made. Each to the list of a kind: "add" to the other means the opposite.
    unread: Vec<(ListKind, ListChange)>,
    /// Made while a list is being merged.
    while_merging: Vec<ListChange>,
    /// The list that is being merged.
    merging: Option<Arc<AccessList>>,
    tell: Sender<AccessList>,
    merged: Receiver<AccessList>,
}

impl Changes {
    pub(super) fn new() -> Self {
        let (tell, merged) = unbounded();
        let (unread, while_merging) = (Vec::new(), Vec::new());
        Self { unread, while_merging, merging: None, tell, merged }
    }

    /// What a list of this kind that was just read does not know of.
    pub(super) fn unread(&self, kind: Option<ListKind>) -> Vec<ListChange> {
        let of_kind = self.unread.iter().filter(|(of, _)| Some(*of) == kind);
        of_kind.map(|(_, change)| *change).collect()
    }

    /// A reload is over, whatever came of it: the next one finds all changes in the journal, if there is one.
    pub(super) fn end_reading(&mut self, has_journal: bool) {
        if has_journal {
            self.unread.clear();
        }
    }

    /// Where lists arrive that were merged.
    pub(super) fn merged(&self) -> &Receiver<AccessList> {
        &self.merged
    }

    fn record(&mut self, kind: ListKind, changes: &[ListChange], keep: bool) {
        if keep {
            self.unread.extend(changes.iter().map(|change| (kind, *change)));
        }
        if self.merging.is_some() {
            self.while_merging.extend_from_slice(changes);
        }
    }

    /// Has a list with many changes merged, on a thread of its own: one of millions takes a second.
    fn merge(&mut self, list: &Arc<AccessList>) {
        if self.merging.is_some() || !list.set().is_some_and(OverlaySet::should_merge) {
            return;
        }
        let (tell, ragged) = (self.tell.clone(), list.clone());
        let merge = move || {
            // The receiver goes only with the process.
            let _ = tell.send(ragged.merged());
        };
        // Without a thread the list goes on as it is, only slower to change.
        if thread::Builder::new().name("merge".into()).spawn(merge).is_ok() {
            self.merging = Some(list.clone());
            self.while_merging.clear();
        }
    }
}

impl Supervisor {
    /// Puts these on the list and takes these off it, at once and for as long as the state directory lasts.
    pub(super) fn change_list(
        &mut self,
        changes: &[ListChange],
    ) -> Result<ListChanged, ListChangeError> {
        if self.upgrading.is_settled() {
            return Err(ListChangeError::Upgrading);
        }
        let former = self.tracker.lists.access.clone();
        let (Some(kind), Some(listing)) = (former.kind(), former.set()) else {
            return Err(ListChangeError::NoList);
        };
        let news: Vec<ListChange> = changes
            .iter()
            .filter(|change| listing.contains(&change.info_hash) != change.listed)
            .copied()
            .collect();
        let list = former.with(changes);
        if list.len() > self.settings.limits.list_entries.max(former.len()) {
            return Err(ListChangeError::Full(self.settings.limits.list_entries));
        }
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            return Err(ListChangeError::NothingLeft);
        }
        // What changes nothing need not be kept, unless a list that is being read here or by a process that follows says something else.
        let others_read = self.reload.is_reading() || self.upgrading.is_under_way();
        let lasting = if others_read { changes } else { &news };
        // On the disk first: what was promised must not be forgotten by a restart.
        if let Some(journal) = self.tracker.journal.as_ref().filter(|_| !lasting.is_empty()) {
            journal.append(kind, lasting).map_err(|error| ListChangeError::Journal {
                path: journal.path().to_owned(),
                error: error.to_string(),
            })?;
        }
        let keep = self.reload.is_reading() || self.tracker.journal.is_none();
        self.changes.record(kind, changes, keep);
        let list = Arc::new(list);
        let changed = ListChanged {
            kind,
            listed: list.len(),
            changed: news.len(),
            lasting: self.tracker.journal.is_some(),
        };
        self.tracker.lists.access = list.clone();
        self.announce_rules();
        self.enforcement.follow(&list, &news, former, Instant::now());
        self.changes.merge(&list);
        log::info!("the list has changed by {} info hashes and has {} now", news.len(), list.len());
        Ok(changed)
    }

    /// The file of the list was read: what it says now is taken out of the journal, so that the file decides about
    /// it from now on. Where something was changed since the journal was read, the next time.
    pub(super) fn shorten_journal(&self, resumed: Option<&ReplayedList>) {
        let (Some(journal), Some(resumed)) = (&self.tracker.journal, resumed) else { return };
        // A process that takes over reads on from where it has been.
        if !self.changes.unread.is_empty() || self.upgrading.is_under_way() {
            return;
        }
        if let Some(what) = journal.compact_or_warn(resumed) {
            log::warn!("{what}");
        }
    }

    /// A list was merged: it replaces the one that it was made of, unless that has been replaced already.
    pub(super) fn list_merged(&mut self, merged: &AccessList) {
        let Some(of) = self.changes.merging.take() else { return };
        let since = std::mem::take(&mut self.changes.while_merging);
        let list = merged.with(&since);
        let former = self.tracker.lists.access.clone();
        if list != *former {
            // A reload came in between. What it has read is merged enough, or will be.
            return;
        }
        self.tracker.lists.access = Arc::new(list);
        self.announce_rules();
        self.enforcement.retire(of);
        self.enforcement.retire(former);
    }
}
