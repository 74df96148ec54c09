//! Expiry keeps up with 50 million peers in one shard, however they are distributed: the work due
//! in a second is done within the turns of that second, and every entry is visited within the
//! period.
//!
//! The schedule is the worker's. A shard of 2 million entries, swept in a 25th of the period,
//! represents one of 50 million: the same work is due per second and per turn. The cost with all 50
//! million is in docs/benchmarks/expiry.md.

use std::time::Duration;

use onrush_swarm::{Moment, Totals};
use onrush_testing::population::{LIFETIME, Population, is_empty};
use onrush_tracker::clock::Now;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::worker::SwarmSide;

/// Number of peers, or of idle swarms.
const SIZE: u32 = 2_000_000;
/// A 25th of the two-minute period of the configuration.
const PERIOD: Duration = Duration::from_millis(4_800);
/// Turns per second under full load: a full turn takes at most 1.5 ms.
const TURNS: usize = 666;

#[test]
fn two_million_peers_in_one_swarm() {
    keeps_up(Population::Together);
}

#[test]
fn two_million_swarms_of_one_peer() {
    keeps_up(Population::Alone);
}

#[test]
fn two_million_idle_swarms() {
    keeps_up(Population::Idle);
}

fn keeps_up(population: Population) {
    let shard = population.shard(SIZE);
    let entries = |totals: Totals| totals.peers() + totals.idle_swarms;
    let stored = entries(shard.totals());
    let mut side = SwarmSide::new(0, shard, PERIOD);
    let metrics = WorkerMetrics::default();
    let pass = PERIOD.as_secs() as u32 + 1;
    for second in 0..2 * pass {
        assert!(
            run_second(&mut side, second, &metrics),
            "{population:?}: backlog in second {second}"
        );
    }
    assert_eq!(entries(side.shard.totals()), stored, "no entry has expired yet");

    // A worker that has not run until now has a pass in backlog, and removal takes time as steps
    // stay short. Under full load it may take three passes.
    let over = LIFETIME + 16;
    let gone = (over..=over + 3 * pass).find(|second| {
        run_second(&mut side, *second, &metrics);
        is_empty(&side.shard)
    });
    let totals = side.shard.totals();
    assert!(gone.is_some_and(|gone| gone > over), "{population:?}: {gone:?}, {totals:?}");
    side.shard.check();
}

/// Runs the turns of one second; whether the work that was due is done.
fn run_second(side: &mut SwarmSide, second: u32, metrics: &WorkerMetrics) -> bool {
    let now = Now { moment: Moment(second), unix: 1_800_000_000 + u64::from(second) };
    (0..TURNS).any(|_| !side.maintain(now, metrics))
}
