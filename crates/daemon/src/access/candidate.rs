//! The list that a reload would put into force, for `onrush ctl list check`.

use super::overrides;
use onrush_config::settings::Access;
use onrush_control::api::admin::ListCheck;
use onrush_control::view::Candidate;
use onrush_store::lists::file::{INFO_HASHES, ListFault};
use onrush_store::lists::journal::Journal;
use onrush_store::lists::shrinkage;
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::{InfoHashSet, sort_distinct};
use onrush_tracker::access::{AccessList, ListKind};

/// Makes the list that a reload would put into force if these were the files of the access list.
pub fn candidate(journal: Option<Journal>) -> Candidate {
    Box::new(move |in_force, kind, mut files| {
        let (inline, most_entries) = match (&in_force.settings.access, kind) {
            (Access::Allow(listed), ListKind::Allow) | (Access::Deny(listed), ListKind::Deny) => {
                (&*listed.hashes, &*in_force.most_entries)
            }
            _ => (&[][..], &[][..]),
        };
        let mut entries: Vec<[u8; 20]> = inline.iter().map(|hash| hash.0).collect();
        let mut refused = None;
        for nth in 0..files.len() {
            let most = shrinkage::most(most_entries, &files, nth);
            let (name, hashes) = &mut files[nth];
            sort_distinct(hashes, &mut || {});
            if let Err(fault) = shrinkage::check(INFO_HASHES.name, most, hashes.len()) {
                let without = "a reload refuses this without --force";
                refused.get_or_insert(format!("{without}: {name}: {fault}"));
            }
            entries.append(hashes);
        }
        let set = OverlaySet::new(InfoHashSet::new(entries));
        if kind == ListKind::Allow && set.is_empty() {
            refused = Some(format!("a reload refuses this: {}", ListFault::Empty));
        }
        let list = match kind {
            ListKind::Allow => AccessList::Allow(set),
            ListKind::Deny => AccessList::Deny(set),
        };
        let mut check = ListCheck { refused, ..ListCheck::default() };
        let Some(journal) = &journal else { return (list, check) };
        let replayed = journal.replay(list);
        check.overrides = overrides(&replayed);
        (replayed.compacted(), check)
    })
}
