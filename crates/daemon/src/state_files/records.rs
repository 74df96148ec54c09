//! The records of what clients of the admin API have changed, written before a change is in force.

use std::path::Path;

use crate::effect::ChangeRecord;
use onrush_store::blocks::{Block, BlockFile};
use onrush_store::lists::journal::{Journal, ReplayedList};

/// The journal of the list and the file of blocks, in a state directory.
#[derive(Debug)]
pub struct Records {
    /// Changes of the list of info hashes.
    pub journal: Journal,
    blocks: BlockFile,
}

impl Records {
    /// In this directory.
    pub(super) fn new(directory: &Path) -> Self {
        Self { journal: Journal::new(directory), blocks: BlockFile::new(directory) }
    }

    /// The blocks of a former process at `unix`, seconds since 1970. Logs an error if the file
    /// cannot be used.
    pub fn load_blocks(&self, unix: u64) -> Vec<Block> {
        let (blocks, error) = self.blocks.load(unix);
        if let Some(error) = error {
            log::error!("{error}");
        }
        if !blocks.is_empty() {
            log::info!("blocks of sources loaded: {}", blocks.len());
        }
        blocks
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When the file cannot be written: a sentence that names it. Its contents are unchanged then.
    pub fn write(&self, record: &ChangeRecord) -> Result<(), String> {
        let (path, result) = match record {
            ChangeRecord::ListChanges(kind, changes) => {
                (self.journal.path(), self.journal.append(*kind, changes))
            }
            ChangeRecord::Blocks(blocks) => (self.blocks.path(), self.blocks.write(blocks)),
        };
        result.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// Rewrites the journal without changes that the files of the list contain.
    pub fn compact(&self, replayed: &ReplayedList) {
        if let Some(warning) = self.journal.compact_or_warn(replayed) {
            log::warn!("{warning}");
        }
    }
}
