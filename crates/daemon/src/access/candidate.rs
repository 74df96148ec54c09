//! The list that a reload would put into force, for `onrush ctl list check`.

use super::overrides;
use onrush_config::settings::{Access, Listed};
use onrush_control::view::{Candidate, CandidateList, InForce};
use onrush_store::lists::file::{INFO_HASHES, ListFault};
use onrush_store::lists::journal::Journal;
use onrush_store::lists::shrinkage;
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::{InfoHashSet, sort_distinct};
use onrush_tracker::access::{AccessList, ListKind};

/// Makes the list that a reload would put into force if these were the files of the access list.
pub fn candidate(journal: Option<Journal>) -> Candidate {
    Box::new(move |in_force, kind, files| {
        let listed = match (&in_force.settings.access, kind) {
            (Access::Allow(listed), ListKind::Allow) | (Access::Deny(listed), ListKind::Deny) => {
                listed.clone()
            }
            _ => Listed::default(),
        };
        let mut entries: Vec<[u8; 20]> = listed.hashes.iter().map(|hash| hash.0).collect();
        let mut refused = None;
        for (nth, (name, mut hashes)) in files.into_iter().enumerate() {
            sort_distinct(&mut hashes, &mut || {});
            let most = most(in_force, &listed, nth, &name);
            if let Err(fault) = shrinkage::check(INFO_HASHES.name, most, hashes.len()) {
                let without = "a reload refuses this without --force";
                refused.get_or_insert(format!("{without}: {name}: {fault}"));
            }
            entries.append(&mut hashes);
        }
        let set = OverlaySet::new(InfoHashSet::new(entries));
        let list = match kind {
            ListKind::Allow if set.is_empty() => {
                refused = Some(format!("a reload refuses this: {}", ListFault::Empty));
                AccessList::Allow(set)
            }
            ListKind::Allow => AccessList::Allow(set),
            ListKind::Deny => AccessList::Deny(set),
        };
        let Some(journal) = &journal else {
            return CandidateList { list, overrides: None, refused };
        };
        let replayed = journal.replay(list);
        CandidateList { list: replayed.compacted(), overrides: overrides(&replayed), refused }
    })
}

/// The number of entries with which a reload compares the file in the place of the `nth`: the one
/// with this name, if there is one.
fn most(in_force: &InForce, listed: &Listed, nth: usize, name: &str) -> usize {
    let file = listed.files.iter().find(|file| file.name() == name).or(listed.files.get(nth));
    file.and_then(|file| in_force.most_entries.get(&*file.name())).copied().unwrap_or(0)
}
