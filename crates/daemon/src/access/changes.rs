//! Changes of the list of info hashes by the admin API, without reading the list's files again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use onrush_proto::InfoHash;

use super::diff::ListDiff;
use super::file_differences::FileDifferences;
use super::{AccessControl, ConcurrentWork, Pending, not_recorded};
use crate::effect::{ChangeRecord, Effect, Effects};
use crate::time::Time;
use onrush_control::api::Problem;
use onrush_control::api::admin::ListUpdate;
use onrush_control::caller::Caller;
use onrush_control::request::Responder;
use onrush_tracker::access::overlay::{Author, ListChange, OverlaySet};
use onrush_tracker::access::{AccessList, ListKind, Lists};

/// Recent changes, which a reload or a merge in progress has not seen.
#[derive(Default)]
pub(super) struct RecentChanges {
    /// Changes since a reload began, which may have read the journal before; without a journal all
    /// changes, and those from the first one in `unrecorded` on. Each is of a kind: adding to the
    /// deny list is the opposite of adding to the allow list.
    pub(super) since_reload: Vec<(ListKind, ListChange)>,
    /// Changes in force that could not be written to the journal. The next record has them, too.
    pub(super) unrecorded: Vec<(ListKind, ListChange)>,
    /// Changes since the merge in progress began.
    since_merge: Vec<ListChange>,
    /// The list being merged.
    merging: Option<Arc<AccessList>>,
}

/// A change that is permitted.
pub(super) struct PlannedChange {
    /// Those of the request that a reload, a merge or a successor may miss.
    changes: Vec<ListChange>,
    /// Those that change the list.
    effective: Vec<ListChange>,
    kind: ListKind,
    list: Arc<AccessList>,
    /// Whether a reload may miss it.
    for_reload: bool,
    /// Whether it is refused if it cannot be recorded.
    needs_record: bool,
    caller: Caller,
    responder: ListResponder,
}

/// Replies to the request for a change.
type ListResponder = Responder<Result<ListUpdate, Problem>>;

impl RecentChanges {
    /// Applies the changes that lists read by the current reload may lack, also to `differences`.
    pub(super) fn repeat(&self, read: &mut Lists, differences: &mut FileDifferences) {
        let of_kind = self.since_reload.iter().filter(|(of, _)| Some(*of) == read.access.kind());
        let changes: Vec<_> = of_kind.map(|(_, change)| change.clone()).collect();
        if !changes.is_empty() {
            differences.follow(&read.access, &changes);
            read.access = Arc::new(read.access.with(&changes));
        }
    }

    /// Records changes for a merge in progress and, if it may miss them, for a reload.
    fn record(&mut self, kind: ListKind, changes: &[ListChange], for_reload: bool) {
        if changes.iter().any(|change| change.is_reset) {
            let reset: HashSet<InfoHash> = changes.iter().map(|change| change.info_hash).collect();
            self.since_reload
                .retain(|(of, change)| *of != kind || !reset.contains(&change.info_hash));
        } else if for_reload {
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

impl AccessControl {
    /// Adds hashes to the list and removes others, at once and across restarts, or resets some. The
    /// list may have `limit` entries. Responds when the change is in force, or why it is refused.
    pub fn change(
        &mut self,
        (changes, caller, responder): (Vec<ListChange>, Caller, ListResponder),
        limit: usize,
        concurrent: ConcurrentWork,
        time: Time,
        effects: &mut Effects,
    ) {
        let author = Arc::new(Author { unix: time.unix, name: caller.to_string() });
        let changes = changes.into_iter();
        let changes: Vec<ListChange> =
            changes.filter_map(|it| self.differences.resolve(it, author.clone())).collect();
        let (kind, list, effective) = match self.check_change(&changes, limit, concurrent) {
            Ok(checked) => checked,
            Err(error) => return effects.reply(responder, Err(error)),
        };
        // Changes without effect are not recorded, unless a reload or upgrade in progress may have
        // read a different list.
        let may_differ = concurrent.reload || concurrent.upgrade;
        // The successor reads the record.
        let needs_record = concurrent.upgrade || changes.iter().any(|change| change.is_reset);
        let new = if may_differ { changes } else { effective.clone() };
        let former = self.changes.unrecorded.iter().filter(|(of, _)| *of == kind);
        let recorded: Vec<ListChange> =
            former.map(|(_, change)| change).chain(&new).cloned().collect();
        let for_reload =
            concurrent.reload || !self.is_lasting || !self.changes.since_reload.is_empty();
        let (list, has_record) = (Arc::new(list), !recorded.is_empty());
        let record = ChangeRecord::ListChanges(kind, recorded);
        let change = PlannedChange {
            changes: new,
            effective,
            kind,
            list,
            for_reload,
            needs_record,
            caller,
            responder,
        };
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
        concurrent: ConcurrentWork,
    ) -> Result<(ListKind, AccessList, Vec<ListChange>), Problem> {
        concurrent.permit_change()?;
        // A reload or a successor may have read another file.
        if (concurrent.reload || concurrent.upgrade) && changes.iter().any(|it| it.is_reset) {
            let error = "a reload or an upgrade is in progress: repeat the request when it is over";
            return Err(Problem::conflict(error));
        }
        let former = &self.lists.access;
        let (Some(kind), Some(listing)) = (former.kind(), former.set()) else {
            let error = "there is no list: access.mode is \"open\"; write \"allow\" or \"deny\" \
                         and reload";
            return Err(Problem::conflict(error));
        };
        let effective = changes.iter().filter(|change| listing.is_changed_by(change)).cloned();
        let list = former.with(changes);
        if list.len() > limit.max(former.len()) {
            return Err(Problem::conflict(format!(
                "the list would have more than {limit} info hashes: raise limits.list_entries and \
                 reload"
            )));
        }
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            let error = "the allow list would be empty, and the tracker would serve no info hash";
            return Err(Problem::conflict(error));
        }
        Ok((kind, list, effective.collect()))
    }

    /// Puts a change into force whose record was written, as one that was confirmed must survive a
    /// crash. Where the disk refuses it, a takedown is in force nevertheless, until the restart.
    pub(super) fn finish_change(
        &mut self,
        change: PlannedChange,
        result: Result<(), String>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let (for_reload, needs_record) = (change.for_reload, change.needs_record);
        let PlannedChange { changes, effective, kind, list, caller, responder, .. } = change;
        if let Err(error) = &result
            && needs_record
        {
            return effects.reply(responder, Err(not_recorded(error)));
        }
        let unrecorded = result.err();
        match unrecorded.is_some() {
            true => self.changes.unrecorded.extend(changes.iter().map(|it| (kind, it.clone()))),
            false => self.changes.unrecorded.retain(|(of, _)| *of != kind),
        }
        self.changes.record(kind, &changes, for_reload || unrecorded.is_some());
        self.differences.follow(&self.lists.access, &effective);
        let former = std::mem::replace(&mut self.lists.access, list.clone());
        self.purge.update(&list, &effective, former, now);
        self.changes.merge(&list, effects);
        let (mode, entries) = (kind.name(), list.len());
        let text = match effective.as_slice() {
            [] => format!("{mode} list: a change by {caller} has no effect"),
            some => {
                let diff = ListDiff::of(some);
                format!("{mode} list changed by {caller}: {diff}; entries now: {entries}")
            }
        };
        match &unrecorded {
            None => effects.info(text),
            Some(why) => effects
                .warn(format!("{text}; in force until the restart or the next upgrade: {why}")),
        }
        effects.push(Effect::Publish);
        let update = ListUpdate {
            mode: mode.to_owned(),
            entries: entries as u64,
            changed: effective.len() as u64,
            lasting: self.is_lasting && unrecorded.is_none(),
            unrecorded,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::ListReload;
    use onrush_config::Settings;
    use onrush_store::blocks::Block;
    use onrush_tracker::access::set::InfoHashSet;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    fn time() -> Time {
        Time { now: Instant::now(), unix: 1_000 }
    }

    fn deny_list() -> AccessControl {
        let empty = OverlaySet::new(InfoHashSet::new(Vec::new()));
        let lists = Lists { access: Arc::new(AccessList::Deny(empty)), ..Lists::open() };
        AccessControl::new(lists, 1)
    }

    fn hash(number: u16) -> InfoHash {
        let mut bytes = [7; 20];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(bytes)
    }

    /// Requests a change. Returns its effects, and where its result arrives.
    fn request(
        access: &mut AccessControl,
        changes: Vec<ListChange>,
        concurrent: ConcurrentWork,
    ) -> (Effects, Receiver<Result<ListUpdate, Problem>>) {
        let (to, result) = channel();
        let responder = Responder::new(move |result| to.send(result).unwrap());
        let mut effects = Effects::default();
        let caller = Caller::Address("127.0.0.1:9".parse().unwrap());
        access.change((changes, caller, responder), 20_000, concurrent, time(), &mut effects);
        (effects, result)
    }

    /// More changes than the overlay holds are merged into the list while further changes are made.
    #[test]
    fn many_changes_are_merged() {
        let mut access = deny_list();
        let (mut merging, mut merges) = (None, 0);
        for chunk in 0..6 {
            let listed = |listed| move |number| ListChange::new(hash(number), listed);
            let all: Vec<u16> = (chunk * 1_500..(chunk + 1) * 1_500).collect();
            let changes = all.iter().copied().map(listed(true));
            let former = (chunk > 0).then(|| (chunk - 1) * 1_500).into_iter();
            let changes = changes.chain(former.map(listed(false))).collect();
            let (effects, result) = request(&mut access, changes, ConcurrentWork::default());
            for effect in effects.send_replies() {
                if let Effect::Merge(list) = effect {
                    assert!(merging.replace(list).is_none(), "one merge at a time");
                }
            }
            assert!(result.recv().unwrap().is_ok());
            // Merged one change later.
            if chunk % 2 == 1
                && let Some(list) = merging.take()
            {
                let mut effects = Effects::default();
                access.merged(Some(&list.merged()), &mut effects);
                assert!(matches!(effects.0[..], [Effect::Publish]), "{effects:?}");
                merges += 1;
            }
        }
        let list = &access.lists().access;
        assert!(merges > 0 && !list.set().unwrap().should_merge(), "{merges}");
        assert_eq!(list.len(), 9_000 - 5);
        let is_removed = |at: u16| at.is_multiple_of(1_500) && at < 7_500;
        assert!((0..9_000).all(|at| list.permits(hash(at)) == is_removed(at)));
    }

    #[test]
    fn a_change_is_in_force_once_it_is_recorded() {
        let mut access = deny_list();
        access.is_lasting = true;
        let change = || vec![ListChange::new(hash(1), true)];
        let (effects, result) = request(&mut access, change(), ConcurrentWork::default());
        assert!(
            matches!(effects.0[..], [Effect::Record(ChangeRecord::ListChanges(..))]),
            "{effects:?}"
        );
        assert!(access.lists().access.permits(hash(1)) && result.try_recv().is_err());
        let mut recorded = Effects::default();
        access.recorded(Ok(()), time(), &mut recorded);
        assert!(matches!(recorded.send_replies()[..], [Effect::Notice(_), Effect::Publish]));
        assert!(result.recv().unwrap().is_ok_and(|update| update.lasting));
        assert!(!access.lists().access.permits(hash(1)));
    }

    /// A takedown cannot wait for room on a disk. A reload keeps the change, a later record has it.
    #[test]
    fn a_change_that_cannot_be_recorded_is_in_force_and_is_recorded_later() {
        let mut access = deny_list();
        access.is_lasting = true;
        let full = || "j cannot be written: full".to_owned();
        let change = |access: &mut AccessControl, number, result: Result<(), String>| {
            let added = vec![ListChange::new(hash(number), true)];
            let (planned, reply) = request(access, added, ConcurrentWork::default());
            let recorded = planned.0.into_iter().find_map(|effect| match effect {
                Effect::Record(ChangeRecord::ListChanges(_, changes)) => Some(changes),
                _ => None,
            });
            let recorded = recorded.unwrap_or_default();
            let recorded: Vec<InfoHash> = recorded.iter().map(|it| it.info_hash).collect();
            let mut effects = Effects::default();
            access.recorded(result, time(), &mut effects);
            let notices = effects.notices();
            effects.send_replies();
            (recorded, reply.recv().unwrap().unwrap(), notices)
        };
        let (recorded, update, log) = change(&mut access, 1, Err(full()));
        assert_eq!((recorded, update.lasting), (vec![hash(1)], false));
        assert_eq!(update.unrecorded.unwrap(), "j cannot be written: full");
        assert!(log[0].level == log::Level::Warn && log[0].text.contains("until the restart"));
        for _ in 0..2 {
            let settings = Settings::for_test("[access]\nmode = \"deny\"\n");
            let read = onrush_store::lists::load(&settings, &mut || {}).unwrap();
            let reload = ListReload { settings: &settings, read, replayed: None, forced: false };
            let (mut keys, mut effects) = (Vec::new(), Effects::default());
            access.reconfigure(reload, &mut keys, time().now, &mut effects).unwrap();
            access.reload_ended();
            assert!(!access.lists().access.permits(hash(1)));
        }
        assert!(access.unrecorded().unwrap().ends_with(" upgrade: 1"));
        // The same request again: it has no effect, and is recorded.
        let (recorded, update, _) = change(&mut access, 1, Ok(()));
        assert_eq!((recorded, update.changed, update.lasting), (vec![hash(1)], 0, true));
        assert_eq!((access.unrecorded(), access.changes.since_reload.len()), (None, 1));
        assert_eq!(change(&mut access, 2, Ok(())).0, [hash(2)]);

        // A successor would miss it.
        let upgrade = ConcurrentWork { upgrade: true, ..ConcurrentWork::default() };
        let added = vec![ListChange::new(hash(3), true)];
        let (_, reply) = request(&mut access, added, upgrade);
        let mut effects = Effects::default();
        access.recorded(Err(full()), time(), &mut effects);
        effects.send_replies();
        assert!(reply.recv().unwrap().unwrap_err().error.contains("nothing has changed, as j "));
        assert!(access.lists().access.permits(hash(3)));
    }

    #[test]
    fn a_reset_returns_to_the_file_and_is_refused_while_another_file_may_be_read() {
        let listed = OverlaySet::new(InfoHashSet::new(vec![hash(1).0, hash(2).0]));
        let lists = Lists { access: Arc::new(AccessList::Deny(listed)), ..Lists::open() };
        let mut access = AccessControl::new(lists, 1);
        let change = |number, listed| ListChange::new(hash(number), listed);
        let reset = |number| ListChange { is_reset: true, ..change(number, false) };
        let changes = vec![change(1, false), change(2, false), change(3, true)];
        request(&mut access, changes, ConcurrentWork::default());
        let overrides = access.overrides().unwrap().to_string();
        let by = format!("{}, removed 1970-01-01 by 127.0.0.1:9 ", hash(1));
        assert!(overrides.starts_with("2 entries ") && overrides.contains(&by), "{overrides}");
        for concurrent in [
            ConcurrentWork { reload: true, ..ConcurrentWork::default() },
            ConcurrentWork { upgrade: true, ..ConcurrentWork::default() },
        ] {
            let (effects, result) = request(&mut access, vec![reset(1)], concurrent);
            effects.send_replies();
            assert!(result.recv().unwrap().unwrap_err().error.contains("repeat"));
        }
        let resets = [1, 3, 9].map(reset).to_vec();
        let (effects, result) = request(&mut access, resets, ConcurrentWork::default());
        effects.assert_logged(&["127.0.0.1:9", &format!("added {}; ", hash(1)), "removed "]);
        effects.send_replies();
        assert_eq!(result.recv().unwrap().unwrap().changed, 2);
        assert_eq!([1, 2, 3].map(|n| access.lists().access.permits(hash(n))), [false, true, true]);
        assert_eq!(access.overrides().unwrap().first.info_hash, hash(2).to_string());
        // Without a state directory changes are repeated on a file that is read again; the reset
        // ones are not.
        let settings = Settings::for_test("[access]\nmode = \"deny\"\n");
        let read = onrush_store::lists::load(&settings, &mut || {}).unwrap();
        let reload = ListReload { settings: &settings, read, replayed: None, forced: true };
        let (mut keys, mut effects) = (Vec::new(), Effects::default());
        access.reconfigure(reload, &mut keys, time().now, &mut effects).unwrap();
        assert!(access.lists().access.is_empty() && access.overrides().is_none());
    }

    #[test]
    fn the_log_has_what_a_change_adds_and_removes_and_for_whom() {
        let mut access = deny_list();
        let mut change = |numbers: std::ops::Range<u16>, listed| {
            let changes = numbers.map(|number| ListChange::new(hash(number), listed));
            request(&mut access, changes.collect(), ConcurrentWork::default()).0
        };
        let added = change(0..5, true);
        added.assert_logged(&["deny list changed by 127.0.0.1:9", "and 2 more; ", "now: 5"]);
        change(1..2, false).assert_logged(&[&format!("removed {}; ", hash(1)), "now: 4"]);
        change(1..2, false).assert_logged(&["127.0.0.1:9 ", "has no effect"]);
    }

    #[test]
    fn a_change_that_is_not_permitted_is_refused_as_a_whole() {
        let only = OverlaySet::new(InfoHashSet::new(vec![hash(0).0]));
        let allow = Arc::new(AccessList::Allow(only));
        let add = |number| (0..number).map(|n| ListChange::new(hash(n), true)).collect::<Vec<_>>();
        let remove = vec![ListChange::new(hash(0), false)];
        for (list, changes, part) in [
            (allow.clone(), remove, "allow list"),
            (allow, add(20_001), "20000 info hashes: raise limits.list_entries"),
            (Arc::new(AccessList::Open), add(1), "access.mode"),
        ] {
            let lists = Lists { access: list.clone(), ..Lists::open() };
            let mut access = AccessControl::new(lists, 1);
            let (effects, result) = request(&mut access, changes, ConcurrentWork::default());
            assert_eq!(effects.send_replies().len(), 0);
            let refused = result.recv().unwrap().unwrap_err();
            assert!(refused.error.contains(part), "{refused:?}");
            assert_eq!(access.lists().access, list);
        }
    }

    #[test]
    fn a_block_that_ends_is_removed_from_the_file() {
        let (mut access, mut at) = (deny_list(), time());
        access.is_lasting = true;
        let (prefix, since) = ("192.0.2.0/24".parse().unwrap(), at.unix);
        let [reason, by] = [(); 2].map(|()| String::new());
        access.blocks.load(vec![Block { prefix, since, seconds: Some(1), reason, by }], at);
        at = Time { now: at.now + Duration::from_secs(1), unix: at.unix + 1 };
        let mut effects = Effects::default();
        access.expire_blocks(ConcurrentWork::default(), at, &mut effects);
        let is_empty = |effect: &Effect| match effect {
            Effect::Record(ChangeRecord::Blocks(left)) => left.is_empty(),
            _ => false,
        };
        assert!(effects.0.iter().any(is_empty), "{effects:?}");
    }

    #[test]
    fn a_change_without_effect_is_recorded_for_a_reload_or_successor_that_may_miss_it() {
        let (reload, upgrade) = (
            ConcurrentWork { reload: true, ..ConcurrentWork::default() },
            ConcurrentWork { upgrade: true, ..ConcurrentWork::default() },
        );
        for (concurrent, recorded) in
            [(ConcurrentWork::default(), false), (reload, true), (upgrade, true)]
        {
            let mut access = deny_list();
            access.is_lasting = true;
            let change = vec![ListChange::new(hash(1), false)];
            let (effects, _result) = request(&mut access, change, concurrent);
            let has_record = effects.0.iter().any(|it| matches!(it, Effect::Record(_)));
            assert_eq!(has_record, recorded, "{concurrent:?}");
        }
        let releasing = ConcurrentWork { is_releasing: true, ..ConcurrentWork::default() };
        let (effects, result) = request(&mut deny_list(), Vec::new(), releasing);
        assert_eq!(effects.send_replies().len(), 0);
        assert!(result.recv().unwrap().unwrap_err().error.contains("a handoff is in progress"));
    }
}
