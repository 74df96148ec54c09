//! Peers by info hash. A [`Shard`] owns the swarms of its share of the info hashes, and itself has
//! one owner: no locks, no I/O, no clock of its own.
//!
//! | module | contents |
//! |---|---|
//! | [`shard`] | [`Shard`]: serves batches |
//! | [`change_log`] | changes since a reader subscribed, for replicas |
//! | [`sweep`] | removes expired peers and swarms, in bounded steps |
//! | [`removal`] | removes swarms by request, large ones in steps |
//! | [`walk`] | visits every swarm once, in steps |
//! | [`restore`] | stores swarms that a walk has shown |
//! | [`shard_id`] | the shard of an info hash |
//! | [`batch`] | [`ShardBatch`]: requests, and later their replies |
//! | [`totals`] | [`Totals`]: counters of a shard |
//! | [`time`] | [`Moment`]: seconds, passed in by the caller |
//! | `store` | all swarms: by info hash, by place, by idle time |
//! | `index` | from info hashes to places: many small tables |
//! | `steps` | a vector that grows without copying |
//! | `swarm`, `peers` | one swarm and its peers, in a form that depends on their number |
//! | `sample` | selects the peers of a reply |
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
