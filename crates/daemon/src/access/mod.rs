//! Which info hashes and sources are served: the owner of the lists in force. Nothing else changes
//! them, and nothing else reads or writes the journal of changes and the file of blocks.
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

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::process::notify;
use blocks::{Blocks, Time};
use changes::RecentChanges;
pub use changes::candidate;
use diff::ListDiff;
use onrush_config::Settings;
use onrush_config::reload::KeyChange;
use onrush_store::lists::file::ListError;
use onrush_store::lists::journal::{Journal, ReplayedList};
use onrush_store::lists::{self, EntryHighWaterMark};
use onrush_tracker::access::origins::PartCounts;
use onrush_tracker::access::{AccessList, Lists};
use onrush_tracker::orders::{Orders, WorkerUnresponsive};
use purge::Purge;

/// The lists in force, with everything that decides how they change.
pub struct AccessControl {
    lists: Lists,
    /// The numbers of entries with which a list that is read again is compared.
    entry_high_water_mark: EntryHighWaterMark,
    /// The state directory. Without a writable one, changes and blocks end with the process.
    directory: Option<PathBuf>,
    /// Changes of the list of info hashes over restarts.
    journal: Option<Journal>,
    blocks: Blocks,
    changes: RecentChanges,
    purge: Purge,
    /// Number of members that count refusals.
    members: usize,
}

/// Other work that has read, or may have read, the lists before a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProgress {
    /// The configuration is being read.
    pub reload: bool,
    /// A successor is starting.
    pub upgrade: bool,
    /// The successor has the final state, and would miss a change.
    pub is_final: bool,
}

impl AccessControl {
    /// The lists that the settings describe, with the files that they name.
    ///
    /// # Errors
    /// [`ListError`], when a file cannot be used, or nothing would be served.
    pub fn load(settings: &Settings) -> Result<Self, ListError> {
        let lists = lists::load(settings, &mut notify::progress())?;
        Ok(Self::new(lists, settings.placement.workers()))
    }

    /// These lists, with refusals counted by this many members.
    pub fn new(mut lists: Lists, members: usize) -> Self {
        lists.forbidden = Arc::new(PartCounts::new(members));
        Self {
            entry_high_water_mark: EntryHighWaterMark::of(&lists),
            lists,
            directory: None,
            journal: None,
            blocks: Blocks::new(members),
            changes: RecentChanges::new(),
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

    /// The journal of changes, for a reload on a thread of its own.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Receives merged lists, for [`replace_by_merged`](Self::replace_by_merged).
    pub fn merged(&self) -> &Receiver<AccessList> {
        &self.changes.merged
    }

    /// Receives the number of swarms that a shard has removed.
    pub fn removed(&self) -> &Receiver<u64> {
        &self.purge.removed
    }
}

/// Steps of a start.
impl AccessControl {
    /// Keeps changes and blocks in this directory, whose lock the process has or shares.
    pub fn use_directory(&mut self, directory: &Path) {
        self.journal = Some(Journal::new(directory));
        self.directory = Some(directory.to_owned());
    }

    /// Repeats the list changes that the journal holds, and returns warnings. The journal is
    /// compacted only if no other process writes to it.
    pub fn replay_journal(&mut self, compact: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(journal) = &self.journal {
            let replayed = journal.replay((*self.lists.access).clone());
            let compaction = if compact { journal.compact_or_warn(&replayed) } else { None };
            self.lists.access = Arc::new(replayed.compacted());
            warnings.extend(replayed.warning.into_iter().chain(compaction));
        }
        self.entry_high_water_mark = EntryHighWaterMark::of(&self.lists);
        warnings.extend(self.lists.access.warning().map(str::to_owned));
        warnings
    }

    /// Compares the lists of a start with those of the predecessor.
    ///
    /// # Errors
    /// [`ListError::Lost`], when a list has less than half of the predecessor's entries.
    pub fn compare_with(
        &mut self,
        predecessor: &EntryHighWaterMark,
        settings: &Settings,
    ) -> Result<(), ListError> {
        self.entry_high_water_mark = predecessor.with(settings, None, &self.lists)?;
        Ok(())
    }

    /// Loads the blocks of sources, where no other process changes them.
    pub fn load_blocks(&mut self, time: Time) {
        if let Some(directory) = &self.directory {
            self.blocks.load(directory, time);
            self.compile_blocks();
        }
    }

    /// Applies list changes that the predecessor has made since the journal was replayed here, when
    /// it had this length in bytes. Returns a warning if it cannot be read.
    pub fn apply_late_changes(&mut self, journal_length: u64, now: Instant) -> Option<String> {
        let access = &self.lists.access;
        let (journal, kind) = (self.journal.as_ref()?, access.kind()?);
        let changes = match journal.since(kind, journal_length) {
            Ok(changes) if changes.is_empty() => return None,
            Ok(changes) => changes,
            Err(error) => {
                let path = journal.path().display();
                return Some(format!(
                    "{path} cannot be read again: {error}; list changes made during the upgrade \
                     apply after the next reload"
                ));
            }
        };
        let changed = Arc::new(access.with(&changes));
        self.entry_high_water_mark.follow_change(access.len(), changed.len());
        // Peers were loaded by the former list.
        let former = std::mem::replace(&mut self.lists.access, changed);
        self.purge.start(&self.lists.access, former, now);
        None
    }
}

/// While the tracker runs.
impl AccessControl {
    /// Puts lists into force that were `read` for these settings, with the journal as it was
    /// `replayed`. `forced` accepts a list that lost most of its entries. A changed file is added
    /// to the `changed` keys, unless one of its table is there.
    ///
    /// # Errors
    /// [`ListError::Lost`]; nothing has changed then.
    pub fn reconfigure(
        &mut self,
        settings: &Settings,
        mut read: Lists,
        replayed: Option<&ReplayedList>,
        forced: bool,
        in_progress: InProgress,
        changed: &mut Vec<KeyChange>,
    ) -> Result<(), ListError> {
        self.changes.repeat(&mut read);
        self.entry_high_water_mark = match forced {
            true => EntryHighWaterMark::of(&read),
            false => self.entry_high_water_mark.with(settings, Some(&self.lists.blocked), &read)?,
        };
        self.compact_journal(replayed, in_progress);
        let former = self.lists.access.clone();
        self.replace(read, changed);
        self.compile_blocks();
        // Even of an unchanged list, so that a reload repeats a purge that has failed.
        self.purge.start(&self.lists.access, former, Instant::now());
        Ok(())
    }

    /// A reload has ended: the next one finds the changes until now in the journal.
    pub fn reload_ended(&mut self) {
        if self.journal.is_some() {
            self.changes.since_reload.clear();
        }
    }

    /// Call every second with how long each worker has been `stalled`: starts removals of swarms
    /// that are due.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], when a worker does not take its task.
    pub fn tick(
        &mut self,
        orders: &Orders,
        stalled: &[Duration],
        now: Instant,
    ) -> Result<(), WorkerUnresponsive> {
        self.purge.tick(&self.lists.access, orders, stalled, now)
    }

    fn replace(&mut self, read: Lists, changed: &mut Vec<KeyChange>) {
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
                lists.forbidden = Arc::new(PartCounts::new(self.members));
            }
            lists.access = read.access;
            add(&["access.mode", "access.info_hashes", "access.error", "access.files"]);
        }
        if read.blocked != lists.blocked {
            lists.blocked = read.blocked;
            add(&["access.blocked", "access.blocked_file"]);
        }
        let now = EntryHighWaterMark::of(lists);
        log_length("info hashes", before.info_hashes, now.info_hashes, &difference);
        log_length("blocked addresses", before.blocks, now.blocks, "");
    }
}

fn log_length(name: &str, before: usize, now: usize, difference: &str) {
    if before + now > 0 {
        let separator = if difference.is_empty() { "" } else { "; " };
        log::info!(
            "list of {name}: {before} entries before the reload, {now} now{separator}{difference}"
        );
    }
}
