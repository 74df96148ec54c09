//! The peers in a file: written while workers run and when they have stopped, read at the next start, by
//! however many workers.
//!
//! | room | what is in it |
//! |---|---|
//! | [`mod@format`] | bytes and what they mean |
//! | [`encode`] | from a walk over a shard to blocks |
//! | [`write`](mod@write) | from blocks to a file that is whole or not there |
//! | [`load`] | from a file to shards, and what becomes of one that is damaged |
//! | [`schedule`] | when one is written |
//!
//! The chore that walks over a running shard is [`chores::dump`](crate::snapshot::dump).

pub mod dump;
pub mod encode;
pub mod format;
pub mod load;
pub mod write;

/// The snapshot's name in the state directory.
pub const FILE: &str = "onrush.snapshot";

#[cfg(test)]
mod tests;
