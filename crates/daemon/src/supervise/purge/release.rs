//! The peers of removed large swarms, freed in steps.

use onrush_swarm::Shard;

/// Peers freed per step: as many as the longest step of expiry frees.
const PEERS_PER_STEP: usize = 2048;

/// Frees some peers of removed swarms. Returns whether there were any: then the task does nothing
/// else in this step, which would take longer than a step may.
pub(super) fn free_some_peers(shard: &mut Shard) -> bool {
    let pending = shard.release(0);
    if pending {
        shard.release(PEERS_PER_STEP);
    }
    pending
}
