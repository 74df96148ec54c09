//! The list that a reload would put into force, for `onrush ctl list check`.

use onrush_config::settings::{Access, Listed};
use onrush_control::view::Candidate;
use onrush_store::lists::journal::Journal;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::InfoHashSet;

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
