//! The cost of announces and sweeps, as a distribution: on a shared machine the lowest tenth shows
//! the cost of the code, the highest the influence of the machine. Processor time of this thread.
//!
//! `cargo run --release -p onrush-lab --bin cost [PART OF A NAME [ROUNDS]]`

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use onrush_lab::population::{self, BATCH, Sizes};
use onrush_swarm::{Moment, Shard};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const POPULATIONS: [(&str, Sizes); 11] = [
    ("one swarm of 1", Sizes::Even(1, 1)),
    ("one swarm of 2", Sizes::Even(1, 2)),
    ("one swarm of 10", Sizes::Even(1, 10)),
    ("one swarm of 31", Sizes::Even(1, 31)),
    ("one swarm of 100", Sizes::Even(1, 100)),
    ("one swarm of 10,000", Sizes::Even(1, 10_000)),
    ("one swarm of 1,000,000", Sizes::Even(1, 1_000_000)),
    ("1 M swarms of 2", Sizes::Even(1_000_000, 2)),
    ("1 M swarms, Pareto", Sizes::Pareto(1_000_000)),
    ("1 M swarms, classic", Sizes::Classic(1_000_000, 2_000_000)),
    ("10 M swarms of 1", Sizes::Even(10_000_000, 1)),
];

fn main() {
    let part = std::env::args().nth(1).unwrap_or_default();
    let rounds = std::env::args().nth(2).map_or(2_000, |it| it.parse().expect("a number"));
    println!("{:<26} {:>9} {:>9} {:>9} {:>9}", "ns", "lowest", "p10", "median", "p90");
    for (name, sizes) in POPULATIONS.iter().filter(|(name, _)| name.contains(&part)) {
        let mut rng = SmallRng::seed_from_u64(1);
        let peers = population::peers(&sizes.draw(&mut rng), &mut rng);
        let mut shard = population::shard(16_000_000);
        population::fill(&mut shard, &peers, Moment(0));
        print(name, announces(&mut shard, &peers, rounds));
        if peers.len() > 1_000 {
            print("  a sweep, per peer", sweeps(&mut shard, rounds));
        }
    }
}

/// Nanoseconds per announce, for each round of 16 batches.
fn announces(shard: &mut Shard, peers: &[(u32, u32)], rounds: usize) -> Vec<f64> {
    let mut batches: [_; 16] = std::array::from_fn(|_| population::batch());
    let mut turn = peers.iter().cycle();
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        for batch in &mut batches {
            batch.clear();
            for &(swarm, peer) in turn.by_ref().take(BATCH) {
                batch
                    .push_announce(population::announce(swarm, peer), ())
                    .expect("a batch with free space");
            }
        }
        let start = processor_time();
        for batch in &mut batches {
            shard.serve(batch, Moment(30));
        }
        let taken = processor_time() - start;
        samples.push(taken.as_nanos() as f64 / (16 * BATCH) as f64);
    }
    samples
}

/// Nanoseconds per swarm or peer visited.
fn sweeps(shard: &mut Shard, rounds: usize) -> Vec<f64> {
    let sweep = |_| {
        let start = processor_time();
        let swept = shard.sweep(Moment(60), 2_000);
        (processor_time() - start).as_nanos() as f64 / swept.visited as f64
    };
    (0..rounds).map(sweep).collect()
}

fn print(name: &str, mut samples: Vec<f64>) {
    samples.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize];
    println!("{name:<26} {:>9.1} {:>9.1} {:>9.1} {:>9.1}", at(0.0), at(0.1), at(0.5), at(0.9));
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}
