//! Results gathered from all shards and workers of a running tracker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_net::memory::Endpoint;
use onrush_proto::InfoHash;
use onrush_swarm::Shard;
use onrush_testing::memory_tracker::{COLOCATED, SPLIT, TestTracker, at};
use onrush_tracker::clock::Now;
use onrush_tracker::gather::ResultMissing;
use onrush_tracker::orders::Orders;

/// Swarms in each shard: several steps of a walk.
const SWARMS: u64 = 400;

fn world(placement: &str) -> (TestTracker<Endpoint>, Orders) {
    let (mut world, _) = TestTracker::with_clients(placement, &[]);
    let sides = world.workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
    for side in sides {
        for number in 0..SWARMS {
            let hash = InfoHash(std::array::from_fn(|at| number.to_be_bytes()[at % 8]));
            side.shard.restore_idle(hash, 1, 0, at(1).moment);
        }
    }
    let workers = &world.workers;
    let orders = Orders::new(&workers[0].mailboxes, workers.len(), workers[0].owners.clone());
    (world, orders)
}

#[test]
fn every_shard_and_every_worker_answers_once() {
    for placement in [SPLIT, COLOCATED] {
        let (mut world, orders) = world(placement);
        let numbered = |number| {
            let mut steps = 0;
            move |_: &mut Shard, _: Now| {
                steps += 1;
                (steps > number).then_some(number)
            }
        };
        let mut numbers = orders.gather(numbered).unwrap();
        let mut third = orders.gather_from_shard(2, |_, _| Some("third")).unwrap();
        let mut walked = orders.gather_walk(|| 0, |swarms, _| *swarms += 1).unwrap();
        let mut paused = orders.pause().unwrap();
        assert_eq!(numbers.poll(), Ok(None), "{placement}");
        world.settle(at(1));
        let mut numbers = numbers.poll().unwrap().expect("all answers");
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2], "{placement}");
        assert_eq!(third.poll(), Ok(Some(vec!["third"])), "{placement}");
        assert_eq!(walked.poll(), Ok(Some(vec![SWARMS; 3])), "{placement}");
        let workers = paused.poll().unwrap().map(|paused| paused.len());
        assert_eq!(workers, Some(orders.workers()), "{placement}");
    }
}

#[test]
fn a_walk_ends_when_its_gather_is_dropped() {
    let (mut world, orders) = world(COLOCATED);
    let visited = Arc::new(AtomicU64::new(0));
    let visit = move |count: &mut Arc<AtomicU64>, _: &_| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let walked = orders.gather_walk(|| visited.clone(), visit).unwrap();
    world.workers[0].turn(at(1)).unwrap();
    drop(walked);
    world.settle(at(1));
    let visited = visited.load(Ordering::Relaxed);
    assert!((1..SWARMS).contains(&visited), "{visited} swarms of the first shard");
}

#[test]
fn a_worker_that_ends_without_an_answer_is_an_error() {
    let (world, orders) = world(COLOCATED);
    let mut first = orders.gather(|_| |_: &mut Shard, _: Now| Some(())).unwrap();
    let second = orders.gather(|_| |_: &mut Shard, _: Now| Some(())).unwrap();
    // With their lanes.
    drop((world, orders));
    assert_eq!(first.poll(), Err(ResultMissing));
    let waited = second.wait_by(|results| results.recv_timeout(Duration::from_secs(60)));
    assert_eq!(waited, Err(ResultMissing));
}
