//! Which info hashes and sources are served: the owner of the lists in force. Nothing else changes
//! them. The journal of changes and the file of blocks are written by its effects.
//!
//! | module | contents |
//! |---|---|
//! | [`blocks`] | sources that are blocked on request, until they expire |
//! | `block_requests` | blocks made and removed by the admin API |
//! | `changes` | changes of the list of info hashes by the admin API |
//! | `diff` | differences of lists, for the log |
//! | [`purge`] | removal of swarms that the list no longer permits |

mod block_requests;
pub mod blocks;
mod changes;
mod diff;
pub mod purge;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::effect::{ChangeRecord, Effect, Effects, RecordError};
use crate::time::Time;
use block_requests::PlannedBlock;
use blocks::Blocks;
pub use changes::candidate;
use changes::{PlannedChange, RecentChanges};
use diff::ListDiff;
use onrush_config::Settings;
use onrush_config::reload::KeyChange;
use onrush_control::api::Problem;
use onrush_store::blocks::Block;
use onrush_store::lists::EntryHighWaterMark;
use onrush_store::lists::file::ListError;
use onrush_store::lists::journal::ReplayedList;
use onrush_tracker::access::member_counts::MemberCounts;
use onrush_tracker::access::origins::MAX_LISTS;
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::access::{AccessList, Lists};
use purge::Purge;

/// The lists in force, with everything that decides how they change.
pub struct AccessControl {
    lists: Lists,
    /// The numbers of entries with which a list that is read again is compared.
    entry_high_water_mark: EntryHighWaterMark,
    /// Whether changes and blocks are recorded in a state directory. Otherwise they end with the
    /// process.
    is_lasting: bool,
    blocks: Blocks,
    changes: RecentChanges,
    /// The change that waits for its record. Records are written one at a time.
    pending: Option<Pending>,
    purge: Purge,
    /// Number of members that count refusals.
    members: usize,
}

/// A change that is in force once its record is on disk.
enum Pending {
    List(PlannedChange),
    Block(PlannedBlock),
    /// Blocks have ended already.
    ExpiredBlocks,
}

/// Other work that has read, or may have read, the lists before a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConcurrentWork {
    /// The configuration is being read.
    pub reload: bool,
    /// A successor is starting.
    pub upgrade: bool,
    /// The sockets are being released
    /// ([`Upgrade::is_releasing`](crate::upgrade::progress::Upgrade::is_releasing)).
    pub is_releasing: bool,
}

impl ConcurrentWork {
    /// Refuses a change that the successor would miss.
    fn permit_change(self) -> Result<(), Problem> {
        match self.is_releasing {
            true => {
                Err(Problem::conflict("a handoff is in progress: repeat the request in a second"))
            }
            false => Ok(()),
        }
    }
}

impl AccessControl {
    /// These lists, with refusals counted by this many members.
    pub fn new(mut lists: Lists, members: usize) -> Self {
        lists.forbidden = Arc::new(MemberCounts::new(members, MAX_LISTS));
        Self {
            entry_high_water_mark: EntryHighWaterMark::of(&lists),
            lists,
            is_lasting: false,
            blocks: Blocks::new(members),
            changes: RecentChanges::default(),
            pending: None,
            purge: Purge::default(),
            members,
        }
    }

    /// The lists in force.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// The numbers of entries with which a list that is read again is compared.
    pub fn entry_high_water_mark(&self) -> &EntryHighWaterMark {
        &self.entry_high_water_mark
    }

    /// Whether a removal of swarms is due later.
    pub fn is_purge_scheduled(&self) -> bool {
        self.purge.is_scheduled()
    }
}

/// Steps of a start.
impl AccessControl {
    /// From now on changes and blocks are recorded. Continues the list that the journal has
    /// `replayed`.
    pub fn begin_records(&mut self, replayed: &ReplayedList) {
        self.is_lasting = true;
        self.lists.access = Arc::new(replayed.compacted());
        self.entry_high_water_mark = EntryHighWaterMark::of(&self.lists);
    }

    /// Compares the lists of a start with those of the predecessor.
    ///
    /// # Errors
    /// A [`ListError`], when a list has less than half of the predecessor's entries.
    pub fn compare_with(
        &mut self,
        predecessor: &EntryHighWaterMark,
        settings: &Settings,
    ) -> Result<(), ListError> {
        self.entry_high_water_mark = predecessor.with(settings, None, &self.lists)?;
        Ok(())
    }

    /// Continues the blocks of the state directory.
    pub fn load_blocks(&mut self, blocks: Vec<Block>, time: Time) {
        self.blocks.load(blocks, time);
        self.compile_blocks();
    }

    /// Applies list changes that the predecessor has made since the journal was replayed here.
    pub fn apply_late_changes(&mut self, changes: &[ListChange], now: Instant) {
        if changes.is_empty() {
            return;
        }
        let access = &self.lists.access;
        let changed = Arc::new(access.with(changes));
        self.entry_high_water_mark.follow_change(access.len(), changed.len());
        // Peers were loaded by the former list.
        let former = std::mem::replace(&mut self.lists.access, changed);
        self.purge.start(&self.lists.access, former, now);
    }
}

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

/// While the tracker runs.
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
        self.changes.repeat(&mut read);
        self.entry_high_water_mark = match forced {
            true => EntryHighWaterMark::of(&read),
            false => self.entry_high_water_mark.with(settings, Some(&self.lists.blocked), &read)?,
        };
        if let Some(replayed) = replayed
            && self.changes.since_reload.is_empty()
        {
            effects.push(Effect::CompactJournal(replayed));
        }
        let former = self.lists.access.clone();
        self.replace(read, changed, effects);
        self.compile_blocks();
        // Even of an unchanged list, so that a reload repeats a purge that has failed.
        self.purge.start(&self.lists.access, former, now);
        Ok(())
    }

    /// A reload has ended: the next one finds the changes until now in the journal.
    pub fn reload_ended(&mut self) {
        if self.is_lasting {
            self.changes.since_reload.clear();
        }
    }

    /// Call every second with how long each worker has been `stalled`: starts removals of swarms
    /// that are due, and removes blocks that have ended.
    pub fn tick(
        &mut self,
        stalled: &[Duration],
        concurrent: ConcurrentWork,
        time: Time,
        effects: &mut Effects,
    ) {
        self.purge.tick(&self.lists.access, stalled, time.now, effects);
        self.expire_blocks(concurrent, time, effects);
    }

    /// A shard has removed swarms.
    pub fn removed(swarms: u64, effects: &mut Effects) {
        match swarms {
            0 => {}
            1 => effects.info("removed 1 swarm that is no longer permitted"),
            swarms => effects.info(format!("removed {swarms} swarms that are no longer permitted")),
        }
    }

    /// Writes a record before a `change` is in force, where changes are recorded.
    fn record(&mut self, record: ChangeRecord, change: Pending, time: Time, effects: &mut Effects) {
        self.pending = Some(change);
        match self.is_lasting {
            true => effects.push(Effect::Record(record)),
            false => self.recorded(Ok(()), time, effects),
        }
    }

    /// The record of the pending change was written, or could not be.
    pub fn recorded(&mut self, result: Result<(), RecordError>, time: Time, effects: &mut Effects) {
        match self.pending.take() {
            Some(Pending::List(change)) => self.finish_change(change, result, time.now, effects),
            Some(Pending::Block(block)) => self.finish_block(block, result, time, effects),
            Some(Pending::ExpiredBlocks) => {
                if let Err(RecordError { path, error }) = result {
                    effects.warn(format!(
                        "blocks that have ended stay in {} until the next change: it cannot be \
                         written: {error}",
                        path.display()
                    ));
                }
            }
            None => {}
        }
    }

    fn replace(&mut self, read: Lists, changed: &mut Vec<KeyChange>, effects: &mut Effects) {
        let lists = &mut self.lists;
        let before = EntryHighWaterMark::of(lists);
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
        let now = EntryHighWaterMark::of(lists);
        let more = if difference.is_empty() { difference } else { format!("; {difference}") };
        let hashes = ("info hashes", before.info_hashes, now.info_hashes, more.as_str());
        let blocks = ("blocked addresses", before.blocks, now.blocks, "");
        for (name, before, now, more) in [hashes, blocks] {
            if before + now > 0 {
                effects.info(format!(
                    "list of {name}: {before} entries before the reload, {now} now{more}"
                ));
            }
        }
    }
}
