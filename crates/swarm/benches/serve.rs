//! What an announce costs a shard, by the size of its swarm and in a large population out of
//! order; and what a sweep costs per peer.
//!
//! `cargo bench -p onrush-swarm`; `-- --test` runs everything once.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::time::{ClockId, clock_gettime};
use onrush_swarm::{Moment, Shard};
use population::{BATCH, Sizes};
use rand::SeedableRng;
use rand::rngs::SmallRng;

#[path = "population/mod.rs"]
mod population;

criterion_group!(benches, by_size, cold, sweep);
criterion_main!(benches);

/// One swarm, whose peers announce again in random order.
fn by_size(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("announce in a swarm of");
    group.throughput(Throughput::Elements(BATCH as u64));
    for size in [1, 2, 10, 100, 10_000, 1_000_000] {
        let (mut shard, peers) = filled(&Sizes::Even(1, size));
        let mut turn = peers.iter().cycle();
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter_custom(|rounds| announce(&mut shard, &mut turn, rounds));
        });
    }
    group.finish();
}

/// A million swarms and two million peers, of which nothing is in a cache.
fn cold(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("announce in a million swarms");
    group.throughput(Throughput::Elements(BATCH as u64)).sample_size(20);
    for (name, sizes) in [
        ("of two", Sizes::Even(1_000_000, 2)),
        ("Pareto", Sizes::Pareto(1_000_000)),
        ("classic", Sizes::Classic(1_000_000, 2_000_000)),
    ] {
        let (mut shard, peers) = filled(&sizes);
        let mut turn = peers.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| announce(&mut shard, &mut turn, rounds));
        });
    }
    group.finish();
}

/// Everybody is looked at and stays.
fn sweep(criterion: &mut Criterion) {
    const BUDGET: usize = 512;
    let mut group = criterion.benchmark_group("sweep");
    group.throughput(Throughput::Elements(BUDGET as u64));
    for (name, sizes) in
        [("Pareto", Sizes::Pareto(1_000_000)), ("ten of 100,000", Sizes::Even(10, 100_000))]
    {
        let (mut shard, _) = filled(&sizes);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let start = processor_time();
                for _ in 0..rounds {
                    black_box(shard.sweep(Moment(60), BUDGET));
                }
                processor_time() - start
            });
        });
    }
    group.finish();
}

fn filled(sizes: &Sizes) -> (Shard, Vec<(u32, u32)>) {
    let mut rng = SmallRng::seed_from_u64(1);
    let peers = population::peers(&sizes.draw(&mut rng), &mut rng);
    let mut shard = population::shard(10_000_000);
    population::fill(&mut shard, &peers, Moment(0));
    (shard, peers)
}

/// The processor time that batches of announces take, without filling them. `turn` goes on from
/// call to call, so that nobody comes again before everybody else.
fn announce<'a>(
    shard: &mut Shard,
    turn: &mut impl Iterator<Item = &'a (u32, u32)>,
    rounds: u64,
) -> Duration {
    // Reading the clock is a system call: one for several batches.
    let mut batches: [_; 16] = std::array::from_fn(|_| population::batch());
    let mut taken = Duration::ZERO;
    let mut left = rounds as usize;
    while left > 0 {
        let batches = &mut batches[..left.min(16)];
        left -= batches.len();
        for batch in &mut *batches {
            batch.clear();
            for &(swarm, peer) in turn.take(BATCH) {
                batch.push_announce(population::announce(swarm, peer), ()).expect("it has room");
            }
        }
        let start = processor_time();
        for batch in &mut *batches {
            shard.serve(black_box(batch), Moment(30));
        }
        taken += processor_time() - start;
    }
    taken
}

/// What this thread has used: on a machine that does other things too, time on the wall tells little.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}
