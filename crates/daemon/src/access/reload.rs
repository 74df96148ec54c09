//! Puts lists into force that a reload has read.

use std::sync::Arc;
use std::time::Instant;

use super::AccessControl;
use super::diff::ListDiff;
use super::file_differences::FileDifferences;
use crate::effect::{Effect, Effects};
use onrush_config::Settings;
use onrush_config::reload::KeyChange;
use onrush_store::lists::file::ListError;
use onrush_store::lists::journal::ReplayedList;
use onrush_store::lists::shrinkage::EntryHighWaterMark;
use onrush_tracker::access::member_counts::MemberCounts;
use onrush_tracker::access::origins::MAX_LISTS;
use onrush_tracker::access::{AccessList, Lists};

/// A reload, as far as it concerns lists.
pub struct ListReload<'a> {
    /// The settings to be put into force.
    pub settings: &'a Settings,
    /// The lists that were read for them.
    pub read: Lists,
    /// The journal as it was replayed on the list.
    pub replayed: Option<ReplayedList>,
    /// Whether a list is accepted that lost most of its entries.
    pub forced: bool,
}

impl AccessControl {
    /// Puts lists into force that were read. A changed file is added to the `changed` keys, unless
    /// one of its table is there.
    ///
    /// # Errors
    /// A [`ListError`]; nothing has changed then.
    pub fn reconfigure(
        &mut self,
        reload: ListReload<'_>,
        changed: &mut Vec<KeyChange>,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), ListError> {
        let ListReload { settings, mut read, replayed, forced } = reload;
        let changes = replayed.iter().flat_map(ReplayedList::changes);
        let mut differences = FileDifferences::of(changes);
        self.changes.repeat(&mut read, &mut differences);
        self.entry_high_water_mark = match forced {
            true => EntryHighWaterMark::of(&read),
            false => self.entry_high_water_mark.with(settings, Some(&self.lists.blocked), &read)?,
        };
        if let Some(replayed) = replayed
            && self.changes.since_reload.is_empty()
        {
            effects.push(Effect::CompactJournal(replayed));
        }
        self.differences = differences;
        let former = self.lists.access.clone();
        self.replace(read, changed, effects);
        self.compile_blocks();
        // Even of an unchanged list, so that a reload repeats a purge that has failed.
        self.purge.start(&self.lists.access, former, now);
        Ok(())
    }

    /// A reload has ended: the next one finds the changes until now in the journal, if any.
    pub fn reload_ended(&mut self) {
        if self.is_lasting && self.changes.unrecorded.is_empty() {
            self.changes.since_reload.clear();
        }
    }

    fn replace(&mut self, read: Lists, changed: &mut Vec<KeyChange>, effects: &mut Effects) {
        let lists = &mut self.lists;
        let lengths = |lists: &Lists| [lists.access.len(), lists.blocked.len()];
        let before = lengths(lists);
        let mut add = |keys: &[&str]| {
            if !changed.iter().any(|change| keys.contains(&change.key.as_str())) {
                let what = "other entries".to_owned();
                let of = |key: &&str| KeyChange { key: (*key).to_owned(), what };
                changed.extend(keys.last().map(of));
            }
        };
        let mut difference = String::new();
        if read.access != lists.access {
            difference = ListDiff::between(&lists.access, &read.access).to_string();
            let names = |list: &AccessList| -> Vec<_> {
                list.parts().iter().map(|part| part.name.clone()).collect()
            };
            if names(&read.access) != names(&lists.access) {
                // The counters are by number.
                lists.forbidden = Arc::new(MemberCounts::new(self.members, MAX_LISTS));
            }
            lists.access = read.access;
            add(&["access.mode", "access.info_hashes", "access.error", "access.files"]);
        }
        if read.blocked != lists.blocked {
            lists.blocked = read.blocked;
            add(&["access.blocked", "access.blocked_file"]);
        }
        let now = lengths(lists);
        let more = if difference.is_empty() { difference } else { format!("; {difference}") };
        let hashes = ("info hashes", before[0], now[0], more.as_str());
        let blocks = ("blocked address ranges", before[1], now[1], "");
        for (name, before, now, more) in [hashes, blocks] {
            if before + now > 0 {
                effects.info(format!(
                    "list of {name}: {before} entries before the reload, {now} now{more}"
                ));
            }
        }
    }
}
