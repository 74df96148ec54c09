//! Changes of the list of info hashes by the admin API, without reading the list's files again.

use std::sync::Arc;
use std::time::Instant;

use super::diff::ListDiff;
use super::{AccessControl, InProgress, Pending};
use crate::effect::{Effect, Effects, Record, RecordError};
use crate::time::Time;
use onrush_config::settings::{Access, Listed};
use onrush_control::api::admin::ListUpdate;
use onrush_control::caller::Caller;
use onrush_control::request::{ListChangeError, Responder};
use onrush_control::view::Candidate;
use onrush_store::lists::journal::Journal;
use onrush_tracker::access::overlay::{ListChange, OverlaySet};
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, ListKind, Lists};

/// Recent changes, which a reload or a merge in progress has not seen.
#[derive(Default)]
pub(super) struct RecentChanges {
    /// Changes since a reload began, which may have read the journal before; without a journal, all
    /// changes. Each is of a kind: adding to the deny list is the opposite of adding to the allow
    /// list.
    pub(super) since_reload: Vec<(ListKind, ListChange)>,
    /// Changes since the merge in progress began.
    since_merge: Vec<ListChange>,
    /// The list being merged.
    merging: Option<Arc<AccessList>>,
}

/// A change that is permitted.
pub(super) struct PlannedChange {
    /// All changes of the request.
    changes: Vec<ListChange>,
    /// Those that change the list.
    effective: Vec<ListChange>,
    kind: ListKind,
    list: Arc<AccessList>,
    /// Whether a reload may miss it.
    for_reload: bool,
    caller: Caller,
    responder: ListResponder,
}

/// Replies to the request for a change.
type ListResponder = Responder<Result<ListUpdate, ListChangeError>>;

impl RecentChanges {
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

    /// Merges a list with many changes: millions of entries take a second.
    fn merge(&mut self, list: &Arc<AccessList>, effects: &mut Effects) {
        if self.merging.is_none() && list.set().is_some_and(OverlaySet::should_merge) {
            self.merging = Some(list.clone());
            self.since_merge.clear();
            effects.push(Effect::Merge(list.clone()));
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
    /// `limit` entries. Responds when the change is in force, or why it is refused.
    pub fn change(
        &mut self,
        (changes, caller, responder): (Vec<ListChange>, Caller, ListResponder),
        limit: usize,
        in_progress: InProgress,
        time: Time,
        effects: &mut Effects,
    ) {
        let (kind, list, effective) = match self.check_change(&changes, limit, in_progress) {
            Ok(checked) => checked,
            Err(error) => return effects.reply(responder, Err(error)),
        };
        // Changes without effect are not recorded, unless a reload or upgrade in progress may have
        // read a different list.
        let may_differ = in_progress.reload || in_progress.upgrade;
        let recorded = if may_differ { &changes } else { &effective };
        let record = Record::ListChanges(kind, recorded.clone());
        let for_reload = in_progress.reload || !self.is_lasting;
        let (list, has_record) = (Arc::new(list), !recorded.is_empty());
        let change =
            PlannedChange { changes, effective, kind, list, for_reload, caller, responder };
        match has_record {
            true => self.record(record, Pending::List(change), time, effects),
            false => self.finish_change(change, Ok(()), time.now, effects),
        }
    }

    /// The list after a change, and the changes that have an effect.
    fn check_change(
        &self,
        changes: &[ListChange],
        limit: usize,
        in_progress: InProgress,
    ) -> Result<(ListKind, AccessList, Vec<ListChange>), ListChangeError> {
        if in_progress.is_final {
            return Err(ListChangeError::Upgrading);
        }
        let former = &self.lists.access;
        let (Some(kind), Some(listing)) = (former.kind(), former.set()) else {
            return Err(ListChangeError::NoList);
        };
        let effective = changes.iter().filter(|change| listing.is_changed_by(change)).cloned();
        let list = former.with(changes);
        if list.len() > limit.max(former.len()) {
            return Err(ListChangeError::Full(limit));
        }
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            return Err(ListChangeError::NothingLeft);
        }
        Ok((kind, list, effective.collect()))
    }

    /// Puts a change into force whose record was written: one that was confirmed must survive a
    /// crash.
    pub(super) fn finish_change(
        &mut self,
        change: PlannedChange,
        result: Result<(), RecordError>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let PlannedChange { changes, effective, kind, list, for_reload, caller, responder } =
            change;
        if let Err(RecordError { path, error }) = result {
            return effects.reply(responder, Err(ListChangeError::Journal { path, error }));
        }
        self.changes.record(kind, &changes, for_reload);
        let former = std::mem::replace(&mut self.lists.access, list.clone());
        self.entry_high_water_mark.follow_change(former.len(), list.len());
        self.purge.update(&list, &effective, former, now);
        self.changes.merge(&list, effects);
        let (mode, entries) = (kind.name(), list.len());
        effects.info(match effective.as_slice() {
            [] => format!("{mode} list: a change by {caller} has no effect"),
            some => {
                let diff = ListDiff::of(some);
                format!("{mode} list changed by {caller}: {diff}; entries now: {entries}")
            }
        });
        effects.push(Effect::Publish);
        let update = ListUpdate {
            mode: mode.to_owned(),
            entries: entries as u64,
            changed: effective.len() as u64,
            lasting: self.is_lasting,
        };
        effects.reply(responder, Ok(update));
    }

    /// Replaces the list in force by its merged form, unless a reload has replaced it meanwhile.
    /// `None`: it could not be merged, and further changes take longer.
    pub fn merged(&mut self, merged: Option<&AccessList>, effects: &mut Effects) {
        let (Some(source), Some(merged)) = (self.changes.merging.take(), merged) else { return };
        let since = std::mem::take(&mut self.changes.since_merge);
        let list = merged.with(&since);
        let former = self.lists.access.clone();
        if list != *former {
            // A reload has put another list into force.
            return;
        }
        self.lists.access = Arc::new(list);
        self.purge.retire(source);
        self.purge.retire(former);
        effects.push(Effect::Publish);
    }
}
