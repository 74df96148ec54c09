//! Removal of swarms from a shard, as background tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Moment, Shard, Verdict};

use crate::effect::Removal;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::orders::{Orders, WorkerUnresponsive};

/// Swarms visited per step. Each takes a lookup in the list with cache misses, and a removal takes
/// as long again, with up to 128 peers to be subtracted from the totals.
const VISITED: usize = 128;
/// Swarms looked up by name per step: each may exist, with up to 128 peers to be subtracted from
/// the totals.
const LOOKED_UP: usize = 64;
/// Peers of removed large swarms freed per step: as many as the longest step of expiry frees.
const FREED: usize = 2048;

/// Starts a removal of swarms on every shard. Each sends the number of swarms that it has removed.
///
/// # Errors
/// [`WorkerUnresponsive`], when a worker does not take its task.
pub fn start(
    removal: &Removal,
    orders: &Orders,
    removed: &Sender<u64>,
) -> Result<(), WorkerUnresponsive> {
    orders.run_on_every_shard(|_| match removal {
        Removal::Named(hashes) => Box::new(remove_named(hashes.clone(), removed.clone())),
        Removal::Forbidden { list, superseded } => {
            Box::new(remove_forbidden(list.clone(), superseded.clone(), removed.clone()))
        }
    })
}

/// A task that removes the swarms that `access` does not permit, then sends their number. It stops
/// without a result once `superseded` is set: another list is in force.
pub fn remove_forbidden(
    access: Arc<AccessList>,
    superseded: Arc<AtomicBool>,
    result: Sender<u64>,
) -> impl ShardTask {
    let mut begun = false;
    let mut step = removal(result, move |shard, now, removed| {
        if !begun {
            begun = true;
            shard.begin_walk();
        }
        shard.walk(now, VISITED, |swarm| {
            if access.permits(swarm.info_hash) {
                return Verdict::Keep;
            }
            *removed += 1;
            Verdict::Remove
        })
    });
    move |shard: &mut Shard, now: Now| !superseded.load(Ordering::Relaxed) && step(shard, now)
}

/// A task that removes the swarms of these info hashes, then sends the number of those that
/// existed.
pub fn remove_named(info_hashes: Arc<[InfoHash]>, result: Sender<u64>) -> impl ShardTask {
    let mut done = 0;
    removal(result, move |shard, now, removed| {
        let to = (done + LOOKED_UP).min(info_hashes.len());
        let named = &info_hashes[done..to];
        *removed += named.iter().filter(|info_hash| shard.remove(info_hash, now)).count() as u64;
        done = to;
        done < info_hashes.len()
    })
}

/// The steps of a removal. `remove_some` removes some swarms, adds their number to the one that is
/// sent in the end, and returns whether there may be more.
fn removal(
    result: Sender<u64>,
    mut remove_some: impl FnMut(&mut Shard, Moment, &mut u64) -> bool + Send,
) -> impl FnMut(&mut Shard, Now) -> bool + Send {
    let (mut more, mut removed) = (true, 0);
    move |shard, now| {
        // Then nothing else is done in this step, which would take longer than a step may.
        if shard.release(0) {
            shard.release(FREED);
            return true;
        }
        more = more && remove_some(shard, now.moment, &mut removed);
        if more || shard.release(0) {
            return true;
        }
        // The receiver is dropped when the process ends.
        let _ = result.send(removed);
        false
    }
}
