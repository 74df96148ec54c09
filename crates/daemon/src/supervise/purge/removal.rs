//! Removal of swarms from a shard, as background tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use onrush_proto::InfoHash;
use onrush_swarm::{Moment, Shard, Verdict};

use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms visited per step. Each takes a lookup in the list with cache misses, and a removal takes
/// as long again, with up to 128 peers to be subtracted from the totals.
const VISITED: usize = 128;
/// Swarms looked up by name per step: each may exist, with up to 128 peers to be subtracted from
/// the totals.
const LOOKED_UP: usize = 64;
/// Peers of removed large swarms freed per step: as many as the longest step of expiry frees.
const FREED: usize = 2048;

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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crossbeam_channel::unbounded;
    use onrush_proto::{Endpoint, Event, TransactionId};
    use onrush_swarm::{Announce, ShardBatch, ShardSettings};

    use super::*;
    use onrush_config::settings::{Access, Listed};

    const NOW: Now = Now { moment: Moment(5), unix: 5 };

    /// A shard with this number of swarms, each of one peer.
    fn shard(swarms: u32) -> Shard {
        let settings = ShardSettings {
            interval: 1800,
            interval_jitter_percent: 5,
            peer_lifetime: 3600,
            completed_retention: 0,
            max_peers: 10_000,
            max_idle_swarms: 0,
        };
        let mut shard = Shard::new(settings, [1; 16], 1);
        for number in 0..swarms {
            let announce = Announce {
                info_hash: hash(number),
                endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 6881),
                event: Event::Started,
                seeder: false,
                want: 0,
                transaction_id: TransactionId(number),
            };
            let mut batch = ShardBatch::<(), ()>::new(1, 1, 64);
            batch.push_announce(announce, ()).unwrap();
            shard.serve(&mut batch, NOW.moment);
        }
        shard
    }

    fn hash(number: u32) -> InfoHash {
        let mut hash = [7; 20];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    }

    fn denied(numbers: impl Iterator<Item = u32>) -> Arc<AccessList> {
        let listed = Listed { hashes: numbers.map(hash).collect(), file: None };
        Arc::new(onrush_store::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap())
    }

    #[test]
    fn removal_takes_several_steps_and_sends_the_number() {
        let mut shard = shard(1_000);
        let (result, results) = unbounded();
        let mut task = remove_forbidden(denied((0..1_000).step_by(4)), Arc::default(), result);
        let steps = 1 + std::iter::from_fn(|| task.step(&mut shard, NOW).then_some(())).count();
        assert_eq!(steps, 1_000usize.div_ceil(VISITED));
        assert_eq!((results.try_recv(), shard.totals().swarms), (Ok(250), 750));
    }

    #[test]
    fn a_superseded_task_stops_without_a_result() {
        let mut shard = shard(1_000);
        let (result, results) = unbounded();
        let superseded = Arc::new(AtomicBool::new(false));
        let mut task = remove_forbidden(denied(0..1_000), superseded.clone(), result);
        assert!(task.step(&mut shard, NOW));
        superseded.store(true, Ordering::Relaxed);
        assert!(!task.step(&mut shard, NOW));
        assert_eq!(shard.totals().swarms as usize, 1_000 - VISITED);
        assert!(results.is_empty());
    }
}
