//! Which info hashes and sources are served: the owner of the lists in force. Nothing else changes
//! them. The journal of changes and the file of blocks are written by its effects.
//!
//! | module | contents |
//! |---|---|
//! | [`blocks`] | sources that are blocked on request, until they expire |
//! | `block_requests` | blocks made and removed by the admin API |
//! | `candidate` | the list that a reload would put into force |
//! | `changes` | changes of the list of info hashes by the admin API |
//! | `diff` | differences of lists, for the log |
//! | `file_differences` | changes that the files of the list do not have |
//! | `reload` | lists that a reload has read |
//! | [`purge`] | removal of swarms that the list no longer permits |

mod block_requests;
pub mod blocks;
mod candidate;
mod changes;
mod diff;
mod file_differences;
pub mod purge;
mod reload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::effect::{ChangeRecord, Effect, Effects};
use crate::time::Time;
use block_requests::PlannedBlock;
use blocks::Blocks;
pub use candidate::candidate;
use changes::{PlannedChange, RecentChanges};
use file_differences::FileDifferences;
use onrush_config::Settings;
use onrush_control::api::Problem;
use onrush_control::api::admin::{ListChanges, ListOverrides};
use onrush_proto::InfoHash;
use onrush_store::blocks::Block;
use onrush_store::lists::file::ListError;
use onrush_store::lists::journal::{FILE as JOURNAL, ReplayedList};
use onrush_store::lists::shrinkage::EntryHighWaterMark;
use onrush_tracker::access::Lists;
use onrush_tracker::access::member_counts::MemberCounts;
use onrush_tracker::access::origins::MAX_LISTS;
use onrush_tracker::access::overlay::ListChange;
use purge::Purge;
pub use reload::ListReload;

/// The lists in force, with everything that decides how they change.
pub struct AccessControl {
    lists: Lists,
    /// The numbers of entries with which a list that is read again is compared.
    entry_high_water_mark: EntryHighWaterMark,
    /// Whether changes and blocks are recorded in a state directory. Otherwise they end with the
    /// process.
    is_lasting: bool,
    blocks: Blocks,
    differences: FileDifferences,
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
            differences: FileDifferences::default(),
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

    /// The changes of the list that override its files; `None` if there are none.
    pub fn overrides(&self) -> Option<ListOverrides> {
        self.differences.overrides()
    }

    /// A warning about changes in force that could not be recorded; `None` if there are none.
    pub fn unrecorded(&self) -> Option<String> {
        let kind = self.lists.access.kind();
        let of_kind = self.changes.unrecorded.iter().filter(|(of, _)| Some(*of) == kind);
        let number = of_kind.count();
        (number > 0).then(|| {
            format!(
                "changes of the list that could not be written to {JOURNAL}, in force until the \
                 restart or the next upgrade: {number}"
            )
        })
    }

    /// At most `limit` changes that the files of the list do not have, from this info hash on.
    pub fn shown_changes(&self, from: InfoHash, limit: usize) -> ListChanges {
        self.differences.shown(&self.lists.access, from, limit)
    }

    /// Whether a removal of swarms is due later.
    pub fn is_purge_scheduled(&self) -> bool {
        self.purge.is_scheduled()
    }
}

/// The changes of a journal that override files of its list; `None` if there are none.
pub fn overrides(replayed: &ReplayedList) -> Option<ListOverrides> {
    FileDifferences::of(replayed.changes()).overrides()
}

/// The error of a change that is refused because its record could not be written.
fn not_recorded(error: &str) -> Problem {
    Problem::failed(format!("nothing has changed, as {error}"))
}

/// Steps of a start.
impl AccessControl {
    /// From now on changes and blocks are recorded. Continues the list that the journal has
    /// `replayed`.
    pub fn begin_records(&mut self, replayed: &ReplayedList) {
        self.is_lasting = true;
        self.lists.access = Arc::new(replayed.compacted());
        self.differences = FileDifferences::of(replayed.changes());
    }

    /// Compares the lists of a start with those of the predecessor.
    ///
    /// # Errors
    /// A [`ListError`], when a file has less than half of the predecessor's entries.
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
        self.differences.follow(access, changes);
        let changed = Arc::new(access.with(changes));
        // Peers were loaded by the former list.
        let former = std::mem::replace(&mut self.lists.access, changed);
        self.purge.start(&self.lists.access, former, now);
    }
}

/// While the tracker runs.
impl AccessControl {
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
    pub fn recorded(&mut self, result: Result<(), String>, time: Time, effects: &mut Effects) {
        match self.pending.take() {
            Some(Pending::List(change)) => self.finish_change(change, result, time.now, effects),
            Some(Pending::Block(block)) => self.finish_block(block, result, time, effects),
            Some(Pending::ExpiredBlocks) => {
                if let Err(error) = result {
                    let what = "blocks that have ended stay in their file until the next change";
                    effects.warn(format!("{what}: {error}"));
                }
            }
            None => {}
        }
    }
}
