//! The cost of announces, scrapes and sweeps, as a distribution: on a shared machine the lowest
//! tenth shows the cost of the code, the highest the influence of the machine. Processor time of
//! this thread.
//!
//! `cargo run --release -p onrush-lab --bin cost -- [PART OF A NAME [ROUNDS]]`
//!
//! `--test` instead runs everything once over populations of a hundredth of the size.

use onrush_lab::measure::{processor_time, quantile};
use onrush_lab::population::{self, BATCH, LIFETIME, Sizes};
use onrush_swarm::{Moment, Shard, ShardBatch};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const POPULATIONS: [(&str, Sizes); 12] = [
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
    ("1 M swarms, real", Sizes::Real(1_000_000)),
    ("10 M swarms of 1", Sizes::Even(10_000_000, 1)),
];

/// The budget of a sweep.
const SWEEP: usize = 2_000;

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let test = arguments.next_if(|it| it == "--test").is_some();
    let part = arguments.next().unwrap_or_default();
    let default = if test { 1 } else { 2_000 };
    let rounds = arguments.next().map_or(default, |it| it.parse().expect("a number"));
    println!("{:<26} {:>9} {:>9} {:>9} {:>9}", "ns", "lowest", "p10", "median", "p90");
    for (name, sizes) in POPULATIONS.iter().filter(|(name, _)| name.contains(&part)) {
        let mut rng = SmallRng::seed_from_u64(1);
        let sizes = if test { sizes.hundredth() } else { *sizes }.draw(&mut rng);
        let peers = population::peers(&sizes, &mut rng);
        let mut shard = population::shard();
        population::fill(&mut shard, &peers, Moment(0));
        print(name, announces(&mut shard, &peers, rounds));
        if sizes.len() > 1_000 {
            print("  a scrape of ten", scrapes(&mut shard, sizes.len() as u32, rounds));
        }
        if peers.len() > 1_000 {
            print("  a sweep, per peer", sweeps(&mut shard, Moment(60), rounds));
            // These last one pass: the peers do not come back.
            let rounds = rounds.min(peers.len().div_ceil(SWEEP));
            print("  a sweep, all expire", sweeps(&mut shard, Moment(LIFETIME + 38), rounds));
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
            population::refill(batch, turn.by_ref().take(BATCH));
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

/// Nanoseconds per scrape, for each round of 16 scrapes of ten swarms.
fn scrapes(shard: &mut Shard, swarms: u32, rounds: usize) -> Vec<f64> {
    const SCRAPES: usize = 16;
    let mut batch: ShardBatch<(), ()> = ShardBatch::new(0, 10 * SCRAPES, 0);
    let mut turn = (0..swarms).cycle();
    let scrape = |_| {
        batch.clear();
        for swarm in turn.by_ref().take(10 * SCRAPES) {
            // Strides, so that neighbours in a scrape are not neighbours in memory.
            let info_hash = population::info_hash(swarm.wrapping_mul(65_537) % swarms);
            batch.push_scrape(&[info_hash.0], ()).expect("a batch with free space");
        }
        let start = processor_time();
        shard.serve(&mut batch, Moment(30));
        (processor_time() - start).as_nanos() as f64 / SCRAPES as f64
    };
    (0..rounds).map(scrape).collect()
}

/// Nanoseconds per swarm or peer visited.
fn sweeps(shard: &mut Shard, now: Moment, rounds: usize) -> Vec<f64> {
    let sweep = |_| {
        let start = processor_time();
        let swept = shard.sweep(now, SWEEP);
        (processor_time() - start).as_nanos() as f64 / swept.visited.max(1) as f64
    };
    (0..rounds).map(sweep).collect()
}

fn print(name: &str, mut samples: Vec<f64>) {
    samples.sort_unstable_by(f64::total_cmp);
    let at = |share| quantile(&samples, share);
    println!("{name:<26} {:>9.1} {:>9.1} {:>9.1} {:>9.1}", at(0.0), at(0.1), at(0.5), at(0.9));
}
