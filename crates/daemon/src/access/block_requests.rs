//! Blocks of sources by the admin API: at once, and across restarts.

use super::blocks::BlockChange;
use super::{AccessControl, InProgress, Pending};
use crate::effect::{Effect, Effects, Record, RecordError};
use crate::time::Time;
use onrush_control::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate};
use onrush_control::caller::Caller;
use onrush_control::request::{BlockError, Responder};

/// A block that is made or removed once that is recorded.
pub(super) struct PlannedBlock {
    change: BlockChange,
    caller: Caller,
    responder: BlockResponder,
}

/// Replies to the request for a block or for its removal.
enum BlockResponder {
    Block(Responder<Result<BlockUpdate, BlockError>>),
    Unblock(Responder<Result<BlockEntry, BlockError>>),
}

impl BlockResponder {
    fn refuse(self, error: BlockError, effects: &mut Effects) {
        match self {
            Self::Block(responder) => effects.reply(responder, Err(error)),
            Self::Unblock(responder) => effects.reply(responder, Err(error)),
        }
    }
}

impl AccessControl {
    /// All blocks.
    pub fn shown_blocks(&self, time: Time) -> BlockList {
        BlockList { lasting: self.is_lasting, blocks: self.blocks.shown(time) }
    }

    /// Blocks sources. Responds when the block is in force, or why it is refused.
    pub fn block(
        &mut self,
        (request, caller): (BlockRequest, Caller),
        responder: Responder<Result<BlockUpdate, BlockError>>,
        in_progress: InProgress,
        time: Time,
        effects: &mut Effects,
    ) {
        let made = refuse_if_final(in_progress)
            .and_then(|()| self.blocks.block(request, caller.to_string(), time));
        self.plan(made, caller, BlockResponder::Block(responder), time, effects);
    }

    /// Removes a block. Responds with it when it is no longer in force, or why it stays.
    pub fn unblock(
        &mut self,
        (prefix, caller): (&str, Caller),
        responder: Responder<Result<BlockEntry, BlockError>>,
        in_progress: InProgress,
        time: Time,
        effects: &mut Effects,
    ) {
        let removed = refuse_if_final(in_progress).and_then(|()| self.blocks.unblock(prefix));
        self.plan(removed, caller, BlockResponder::Unblock(responder), time, effects);
    }

    fn plan(
        &mut self,
        change: Result<BlockChange, BlockError>,
        caller: Caller,
        responder: BlockResponder,
        time: Time,
        effects: &mut Effects,
    ) {
        match change {
            Err(error) => responder.refuse(error, effects),
            Ok(change) => {
                let change = Pending::Block(PlannedBlock { change, caller, responder });
                self.record(Record::Blocks(self.blocks.all()), change, time, effects);
            }
        }
    }

    /// Puts a change into force that was recorded.
    pub(super) fn finish_block(
        &mut self,
        block: PlannedBlock,
        result: Result<(), RecordError>,
        time: Time,
        effects: &mut Effects,
    ) {
        let PlannedBlock { change, caller, responder } = block;
        if let Err(RecordError { path, error }) = result {
            self.blocks.revert(change);
            let path = path.display().to_string();
            return responder.refuse(BlockError::File { path, error }, effects);
        }
        self.compile_blocks();
        effects.push(Effect::Publish);
        let (blocks, lasting) = (self.blocks.len() as u64, self.is_lasting);
        match (self.blocks.changed(&change, time), responder) {
            ((Some(block), replaced), BlockResponder::Block(responder)) => {
                let former = replaced.as_ref().map_or_else(String::new, |former| {
                    format!("; before: {}{}", lasts(former), because(former))
                });
                let BlockEntry { prefix, .. } = &block;
                effects.info(format!(
                    "{prefix} blocked by {caller} {}{}{former}",
                    lasts(&block),
                    because(&block)
                ));
                effects.reply(responder, Ok(BlockUpdate { block, replaced, blocks, lasting }));
            }
            ((_, Some(removed)), BlockResponder::Unblock(responder)) => {
                let BlockEntry { prefix, refused, .. } = &removed;
                effects.info(format!(
                    "{prefix} unblocked by {caller}; it was blocked {}{}; requests refused: \
                     {refused}",
                    lasts(&removed),
                    because(&removed)
                ));
                effects.reply(responder, Ok(removed));
            }
            _ => {}
        }
    }

    /// Removes blocks that have ended.
    pub(super) fn expire_blocks(
        &mut self,
        in_progress: InProgress,
        time: Time,
        effects: &mut Effects,
    ) {
        // Once the sockets are released, the file is the successor's.
        if in_progress.is_final {
            return;
        }
        let expired = self.blocks.expire(time);
        if expired.is_empty() {
            return;
        }
        self.compile_blocks();
        effects.push(Effect::Publish);
        let refused: u64 = expired.iter().map(|block| block.refused).sum();
        effects.info(match expired.as_slice() {
            [block] => format!(
                "{} is no longer blocked: its {} s have ended{}; requests refused: {refused}",
                block.prefix,
                block.seconds.unwrap_or_default(),
                because(block)
            ),
            many => format!("{} blocks have ended; requests refused: {refused}", many.len()),
        });
        self.record(Record::Blocks(self.blocks.all()), Pending::ExpiredBlocks, time, effects);
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
