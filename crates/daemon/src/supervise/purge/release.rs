//! Peers of large swarms, released in pieces once their swarm is removed.

use onrush_swarm::Shard;

/// Peers of large swarms that are let go in a step once their swarm is forgotten: as many as the longest step of
/// expiry forgets.
const LET_GO: usize = 2048;

/// A step that lets peers of forgotten swarms go, where there are some; whether it was one. Otherwise the chore's own
/// work is done: one or the other, so that a step is no longer than either.
pub(super) fn lets_go(shard: &mut Shard) -> bool {
    let some = shard.release(0);
    if some {
        shard.release(LET_GO);
    }
    some
}
