//! Snapshots of the peers: written while the workers run and after they have stopped, loaded at the
//! next start by any number of workers.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@format`] | the bytes of a snapshot |
//! | [`encode`] | blocks from a walk over a shard |
//! | [`write`](mod@write) | a file from blocks |
//! | [`load`] | loading a file into shards; damaged files |

pub mod encode;
pub mod format;
pub mod load;
pub mod write;

/// File name of the snapshot in the state directory.
pub const FILE: &str = "onrush.snapshot";

#[cfg(test)]
mod tests;
