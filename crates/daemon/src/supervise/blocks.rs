//! Blocks of sources by the admin API: at once, and across restarts.

use std::time::Instant;

use super::Supervisor;
use crate::blocks::Time;
use onrush_control::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate};
use onrush_control::caller::Caller;
use onrush_control::request::BlockError;

impl Supervisor {
    /// All blocks.
    pub(super) fn blocks(&self) -> BlockList {
        let blocks = &self.tracker.blocks;
        BlockList { lasting: blocks.is_lasting(), blocks: blocks.shown(self.time(Instant::now())) }
    }

    /// Blocks sources. The block is on disk before it is in force.
    pub(super) fn block(
        &mut self,
        request: BlockRequest,
        caller: Caller,
    ) -> Result<BlockUpdate, BlockError> {
        self.refuse_if_final()?;
        let time = self.time(Instant::now());
        let blocks = &mut self.tracker.blocks;
        let (block, replaced) = blocks.block(request, caller.to_string(), time)?;
        let (number, lasting) = (blocks.len() as u64, blocks.is_lasting());
        self.apply_blocks();
        let former = replaced.as_ref().map_or_else(String::new, |former| {
            format!("; before: {}{}", lasts(former), because(former))
        });
        log::info!(
            "{} blocked by {caller} {}{}{former}",
            block.prefix,
            lasts(&block),
            because(&block)
        );
        Ok(BlockUpdate { block, replaced, blocks: number, lasting })
    }

    /// Removes a block.
    pub(super) fn unblock(
        &mut self,
        prefix: &str,
        caller: Caller,
    ) -> Result<BlockEntry, BlockError> {
        self.refuse_if_final()?;
        let removed = self.tracker.blocks.unblock(prefix, self.time(Instant::now()))?;
        self.apply_blocks();
        let BlockEntry { prefix, refused, .. } = &removed;
        log::info!(
            "{prefix} unblocked by {caller}; it was blocked {}{}; requests refused: {refused}",
            lasts(&removed),
            because(&removed)
        );
        Ok(removed)
    }

    /// Once a second: removes blocks that have ended.
    pub(super) fn expire_blocks(&mut self, now: Instant) {
        // Once the sockets are released, the file is the successor's.
        if self.upgrade.is_final {
            return;
        }
        let time = self.time(now);
        let expired = self.tracker.blocks.expire(time);
        if expired.is_empty() {
            return;
        }
        self.apply_blocks();
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
        if let Err(error) = self.tracker.blocks.write() {
            log::warn!("blocks that have ended stay in the file until the next change: {error}");
        }
    }

    /// Sends the blocks in force to the workers.
    fn apply_blocks(&mut self) {
        self.compile_blocks();
        self.publish_rules();
    }

    /// Makes the set of refused sources from the blocks and from the list in force.
    pub(super) fn compile_blocks(&mut self) {
        let lists = &mut self.tracker.lists;
        lists.blocks = self.tracker.blocks.compiled(&lists.blocked);
    }

    fn refuse_if_final(&self) -> Result<(), BlockError> {
        if self.upgrade.is_final { Err(BlockError::Upgrading) } else { Ok(()) }
    }

    fn time(&self, now: Instant) -> Time {
        Time { now, unix: self.tracker.clock.now().unix }
    }
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
