//! Peers by info hash. A [`Shard`] owns the swarms of its share of the info hashes, and itself has
//! one owner: no locks, no I/O, no clock of its own.
//!
//! | module | contents |
//! |---|---|
//! | [`shard`] | [`Shard`]: serves batches; sweeps, walks, removal, restore and the change log |
//! | [`shard_id`] | the shard of an info hash |
//! | [`batch`] | [`ShardBatch`]: requests, and later their replies |
//! | [`sources`] | fair shares: limits of what one source occupies |
//! | [`totals`] | [`Totals`]: counters of a shard |
//! | [`time`] | [`Moment`]: seconds, passed in by the caller |
//! | `store` | all swarms: by info hash, by place, by idle time |
//! | `completions` | which sources have completed which swarms lately |
//! | `index` | from info hashes to places: many small tables |
//! | `steps` | a vector that grows without copying |
//! | `swarm`, `peers` | one swarm and its peers, in a form that depends on their number |
//! | `sample` | selects the peers of a reply |
//! | `keys` | keyed hashing |

#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]

pub mod batch;
mod completions;
mod index;
mod keys;
mod peers;
mod sample;
pub mod shard;
pub mod shard_id;
pub mod sources;
mod steps;
mod store;
mod swarm;
pub mod time;
pub mod totals;

pub use batch::{Announce, Full, ShardBatch};
pub use shard::change_log::{ChangeKind, ChangeReader, Interest, Lost, ShardChange};
pub use shard::restore::Restored;
pub use shard::sweep::{SwarmsByFamily, Swept};
pub use shard::walk::{SwarmSummary, Verdict, Visitor};
pub use shard::{PeerView, Shard, ShardSettings, SwarmView};
pub use shard_id::ShardMap;
pub use sources::{SourceLimits, SourceSet};
pub use time::Moment;
pub use totals::Totals;
