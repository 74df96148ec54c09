//! Blocks of sources by the admin API: at once, and across restarts.

use super::blocks::BlockChange;
use super::{AccessControl, ConcurrentWork, Pending, not_recorded};
use crate::effect::{ChangeRecord, Effect, Effects};
use crate::time::Time;
use onrush_control::api::Problem;
use onrush_control::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate};
use onrush_control::caller::Caller;
use onrush_control::request::Responder;

/// A block that is made or removed once that is recorded.
pub(super) struct PlannedBlock {
    change: BlockChange,
    caller: Caller,
    responder: BlockResponder,
}

/// Replies to the request for a block or for its removal.
type BlockResponder = Responder<Result<BlockUpdate, Problem>>;

impl AccessControl {
    /// All blocks.
    pub fn shown_blocks(&self, time: Time) -> BlockList {
        BlockList { lasting: self.is_lasting, blocks: self.blocks.shown(time) }
    }

    /// Blocks sources. Responds when the block is in force, or why it is refused.
    pub fn block(
        &mut self,
        (request, caller): (BlockRequest, Caller),
        responder: BlockResponder,
        concurrent: ConcurrentWork,
        time: Time,
        effects: &mut Effects,
    ) {
        let made = concurrent.permit_change();
        let made = made.and_then(|()| self.blocks.block(request, caller.to_string(), time));
        self.plan(made, caller, responder, time, effects);
    }

    /// Removes a block. Responds with it when it is no longer in force, or why it stays.
    pub fn unblock(
        &mut self,
        (prefix, caller): (&str, Caller),
        responder: BlockResponder,
        concurrent: ConcurrentWork,
        time: Time,
        effects: &mut Effects,
    ) {
        let removed = concurrent.permit_change().and_then(|()| self.blocks.unblock(prefix));
        self.plan(removed, caller, responder, time, effects);
    }

    fn plan(
        &mut self,
        change: Result<BlockChange, Problem>,
        caller: Caller,
        responder: BlockResponder,
        time: Time,
        effects: &mut Effects,
    ) {
        match change {
            Err(error) => effects.reply(responder, Err(error)),
            Ok(change) => {
                let change = Pending::Block(PlannedBlock { change, caller, responder });
                self.record(ChangeRecord::Blocks(self.blocks.all()), change, time, effects);
            }
        }
    }

    /// Puts a change into force that was recorded.
    pub(super) fn finish_block(
        &mut self,
        block: PlannedBlock,
        result: Result<(), String>,
        time: Time,
        effects: &mut Effects,
    ) {
        let PlannedBlock { change, caller, responder } = block;
        if let Err(error) = result {
            self.blocks.revert(change);
            return effects.reply(responder, Err(not_recorded(&error)));
        }
        self.compile_blocks();
        effects.push(Effect::Publish);
        let (blocks, lasting) = (self.blocks.len() as u64, self.is_lasting);
        let (block, replaced) = match self.blocks.changed(&change, time) {
            (Some(block), replaced) => {
                let former = replaced.as_ref().map_or_else(String::new, |former| {
                    format!("; before: {}{}", lasts(former), because(former))
                });
                let (prefix, time, why) = (&block.prefix, lasts(&block), because(&block));
                effects.info(format!("{prefix} blocked by {caller} {time}{why}{former}"));
                (block, replaced)
            }
            (None, Some(removed)) => {
                let BlockEntry { prefix, refused, .. } = &removed;
                effects.info(format!(
                    "{prefix} unblocked by {caller}; it was blocked {}{}; requests refused: \
                     {refused}",
                    lasts(&removed),
                    because(&removed)
                ));
                (removed, None)
            }
            (None, None) => return,
        };
        effects.reply(responder, Ok(BlockUpdate { block, replaced, blocks, lasting }));
    }

    /// Removes blocks that have ended.
    pub(super) fn expire_blocks(
        &mut self,
        concurrent: ConcurrentWork,
        time: Time,
        effects: &mut Effects,
    ) {
        // Once the sockets are released, the file is the successor's.
        if concurrent.is_releasing {
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
        self.record(ChangeRecord::Blocks(self.blocks.all()), Pending::ExpiredBlocks, time, effects);
    }

    /// Makes the set of refused sources from the blocks and from the list in force.
    pub(super) fn compile_blocks(&mut self) {
        self.lists.blocks = self.blocks.compiled(&self.lists.blocked);
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
