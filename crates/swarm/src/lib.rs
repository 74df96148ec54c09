//! Who is in which swarm. A [`Shard`] owns the swarms of its share of the info hashes and has
//! one owner itself: no locks, no I/O, no clock of its own.
//!
//! | room | what is in it |
//! |---|---|
//! | [`shard`] | [`Shard`]: serve a batch, sweep what has expired |
//! | [`shard_id`] | which shard an info hash belongs to |
//! | [`batch`] | [`ShardBatch`]: requests on their way in, replies on their way out |
//! | [`totals`] | [`Totals`]: what a shard holds and has done |
//! | [`time`] | [`Moment`]: seconds, passed in by the caller |
#![forbid(unsafe_code)]

pub mod batch;
pub mod shard;
pub mod shard_id;
pub mod time;
pub mod totals;

pub use batch::{Announce, Full, ShardBatch};
pub use shard::{Shard, ShardSettings, Swept};
pub use shard_id::ShardMap;
pub use time::Moment;
pub use totals::Totals;
