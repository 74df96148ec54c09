//! Work over whole shards, done in steps between turns (see [`crate::orders::Chore`]).
//!
//! What a chore finds goes into a channel that nobody waits at: whoever asked looks there from time to time, so
//! that a worker neither takes a lock nor wakes anybody.

pub mod dump;
pub mod forget;
pub mod look_up;
pub mod purge;
pub mod tally;
pub mod top;

use onrush_swarm::Shard;

/// Peers of large swarms that are let go in a step once their swarm is forgotten: as many as the longest step of
/// expiry forgets.
const LET_GO: usize = 2048;

/// A step that lets peers of forgotten swarms go, where there are some; whether it was one. Otherwise the chore's own
/// work is done: one or the other, so that a step is no longer than either.
fn lets_go(shard: &mut Shard) -> bool {
    let some = shard.release(0);
    if some {
        shard.release(LET_GO);
    }
    some
}
