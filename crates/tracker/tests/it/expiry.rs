//! Expiry keeps up with 50 million peers in one shard, however they are spread: what is due in a
//! second is done in the turns of a second, and everything is looked at within the period.
//!
//! The schedule is the worker's own. A shard of 2 million stands for a 25th of one of 50 million
//! that is swept in a 25th of the time: what is due in a second, and in a turn, is the same. What
//! it costs with all 50 million is in docs/benchmarks/expiry.md, by examples/expiry.rs.

use std::time::Duration;

use onrush_swarm::Moment;
use onrush_testing::population::{LIFETIME, Population, is_empty};
use onrush_tracker::clock::Now;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::worker::SwarmSide;

/// Peers, or idle swarms.
const SIZE: u32 = 2_000_000;
/// A 25th of the two minutes that placement asks for.
const PERIOD: Duration = Duration::from_millis(4_800);
/// Turns in a second under full load: a full one takes 1.5 ms at most.
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
    let mut side = SwarmSide::new(0, population.shard(SIZE), PERIOD);
    let metrics = WorkerMetrics::default();
    let pass = PERIOD.as_secs() as u32 + 1;
    for second in 0..2 * pass {
        assert!(pays(&mut side, second, &metrics), "{population:?}: debts in second {second}");
    }
    let totals = side.shard.totals();
    assert_eq!(totals.peers() + totals.idle_swarms, u64::from(SIZE), "nothing has expired yet");

    // A worker that was away until now owes a pass, and forgetting takes its time: steps stay
    // short. At full load all by itself it may take three passes.
    let over = LIFETIME + 8;
    let gone = (over..=over + 3 * pass).find(|second| {
        pays(&mut side, *second, &metrics);
        is_empty(&side.shard)
    });
    let totals = side.shard.totals();
    assert!(gone.is_some_and(|gone| gone > over), "{population:?}: {gone:?}, {totals:?}");
    side.shard.check();
}

/// Lets a second of turns go by; whether what was due is done.
fn pays(side: &mut SwarmSide, second: u32, metrics: &WorkerMetrics) -> bool {
    let now = Now { moment: Moment(second), unix: 1_800_000_000 + u64::from(second) };
    (0..TURNS).any(|_| !side.maintain(now, metrics))
}
