//! Blocks of sources by the admin API: at once, and across restarts. The caller sends the lists to
//! the workers after each change.

use super::blocks::Time;
use super::{AccessControl, InProgress};
use onrush_control::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate};
use onrush_control::caller::Caller;
use onrush_control::request::BlockError;

impl AccessControl {
    /// All blocks.
    pub fn shown_blocks(&self, time: Time) -> BlockList {
        BlockList { lasting: self.blocks.is_lasting(), blocks: self.blocks.shown(time) }
    }

    /// Blocks sources. The block is on disk before it is in force.
    ///
    /// # Errors
    /// [`BlockError`]; nothing has changed then.
    pub fn block(
        &mut self,
        request: BlockRequest,
        caller: Caller,
        in_progress: InProgress,
        time: Time,
    ) -> Result<BlockUpdate, BlockError> {
        refuse_if_final(in_progress)?;
        let (block, replaced) = self.blocks.block(request, caller.to_string(), time)?;
        self.compile_blocks();
        let former = replaced.as_ref().map_or_else(String::new, |former| {
            format!("; before: {}{}", lasts(former), because(former))
        });
        log::info!(
            "{} blocked by {caller} {}{}{former}",
            block.prefix,
            lasts(&block),
            because(&block)
        );
        let (blocks, lasting) = (self.blocks.len() as u64, self.blocks.is_lasting());
        Ok(BlockUpdate { block, replaced, blocks, lasting })
    }

    /// Removes a block, and returns it.
    ///
    /// # Errors
    /// [`BlockError`]; nothing has changed then.
    pub fn unblock(
        &mut self,
        prefix: &str,
        caller: Caller,
        in_progress: InProgress,
        time: Time,
    ) -> Result<BlockEntry, BlockError> {
        refuse_if_final(in_progress)?;
        let removed = self.blocks.unblock(prefix, time)?;
        self.compile_blocks();
        let BlockEntry { prefix, refused, .. } = &removed;
        log::info!(
            "{prefix} unblocked by {caller}; it was blocked {}{}; requests refused: {refused}",
            lasts(&removed),
            because(&removed)
        );
        Ok(removed)
    }

    /// Call once a second: removes blocks that have ended. Returns whether there were any.
    pub fn expire_blocks(&mut self, in_progress: InProgress, time: Time) -> bool {
        // Once the sockets are released, the file is the successor's.
        if in_progress.is_final {
            return false;
        }
        let expired = self.blocks.expire(time);
        if expired.is_empty() {
            return false;
        }
        self.compile_blocks();
        let refused: u64 = expired.iter().map(|block| block.refused).sum();
        match expired.as_slice() {
            [block] => log::info!(
                "{} is no longer blocked: its {} s have ended{}; requests refused: {refused}",
                block.prefix,
                block.seconds.unwrap_or_default(),
                because(block)
            ),
            many => log::info!("{} blocks have ended; requests refused: {refused}", many.len()),
        }
        if let Err(error) = self.blocks.write() {
            log::warn!("blocks that have ended stay in the file until the next change: {error}");
        }
        true
    }

    /// Makes the set of refused sources from the blocks and from the list in force.
    pub(super) fn compile_blocks(&mut self) {
        self.lists.blocks = self.blocks.compiled(&self.lists.blocked);
    }
}

fn refuse_if_final(in_progress: InProgress) -> Result<(), BlockError> {
    if in_progress.is_final { Err(BlockError::Upgrading) } else { Ok(()) }
}

/// How long a block lasts: `for 7200 s`.
fn lasts(block: &BlockEntry) -> String {
    match block.seconds {
        Some(seconds) => format!("for {seconds} s"),
        None => "until it is unblocked".to_owned(),
    }
}

/// The reason of a block, if it has one. In quotes, which escape characters that change the
/// direction of text in a terminal.
fn because(block: &BlockEntry) -> String {
    if block.reason.is_empty() { String::new() } else { format!(" ({:?})", block.reason) }
}
