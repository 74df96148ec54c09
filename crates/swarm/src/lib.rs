//! Who is in which swarm. A [`Shard`] owns the swarms of its share of the info hashes and has
//! one owner itself: no locks, no I/O, no clock of its own.
//!
//! | room | what is in it |
//! |---|---|
//! | [`shard`] | [`Shard`]: serve a batch |
//! | [`sweep`] | forgetting what has expired, in steps |
//! | [`removal`] | forgetting whole swarms, large ones in pieces |
//! | [`walk`] | meeting every swarm once, in pieces |
//! | [`restore`] | putting back what a walk has shown |
//! | [`shard_id`] | which shard an info hash belongs to |
//! | [`batch`] | [`ShardBatch`]: requests on their way in, replies on their way out |
//! | [`totals`] | [`Totals`]: what a shard holds and has done |
//! | [`time`] | [`Moment`]: seconds, passed in by the caller |
//! | `store` | all swarms: found by name, by place, by how long they have been idle |
//! | `index` | from info hashes to places: many small tables |
//! | `steps` | a vector that grows without copying |
//! | `swarm`, `peers` | one swarm and who is in it, in as few bytes as their number allows |
//! | `sample` | who is handed out |
//! | `keys` | keyed hashing |
#![forbid(unsafe_code)]

pub mod batch;
pub mod change_log;
mod index;
mod keys;
mod peers;
pub mod removal;
pub mod restore;
mod sample;
pub mod shard;
pub mod shard_id;
mod steps;
mod store;
mod swarm;
pub mod sweep;
pub mod time;
pub mod totals;
pub mod walk;

pub use batch::{Announce, Full, ShardBatch};
pub use change_log::{Change, ChangeKind, ChangeReader, Interest, Lost};
pub use restore::Restored;
pub use shard::{PeerView, Shard, ShardSettings, SwarmView};
pub use shard_id::ShardMap;
pub use sweep::{SwarmsByFamily, Swept};
pub use time::Moment;
pub use totals::Totals;
pub use walk::{SwarmSummary, Verdict, Visitor};
