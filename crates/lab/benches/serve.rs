//! The cost of requests in a shard: announces by the size of their swarm and in random order in
//! large populations, scrapes, and sweeps per peer that stays and per peer that expires.
//!
//! `cargo bench -p onrush-lab --bench serve`; `-- --test` runs everything once, in populations of a
//! hundredth.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use nix::time::{ClockId, clock_gettime};
use onrush_lab::population::{self, BATCH, LIFETIME, Sizes};
use onrush_swarm::{Moment, Shard, ShardBatch};
use rand::SeedableRng;
use rand::rngs::SmallRng;

criterion_group!(benches, by_size, cold, scrape, sweep, expire);
criterion_main!(benches);

/// The budget of a sweep.
const BUDGET: usize = 512;

/// One swarm, whose peers announce again in random order.
fn by_size(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("announce in a swarm of");
    group.throughput(Throughput::Elements(BATCH as u64));
    for size in [1, 2, 10, 100, 10_000, 1_000_000] {
        let (mut shard, peers) = filled(&Sizes::Even(1, some(size)));
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
        ("of two", Sizes::Even(some(1_000_000), 2)),
        ("Pareto", Sizes::Pareto(some(1_000_000))),
        ("classic", Sizes::Classic(some(1_000_000), some(2_000_000))),
        ("real", Sizes::Real(some(1_000_000))),
    ] {
        let (mut shard, peers) = filled(&sizes);
        let mut turn = peers.iter().cycle();
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| announce(&mut shard, &mut turn, rounds));
        });
    }
    group.finish();
}

/// Scrapes of ten in one batch, of swarms that are not in a cache.
fn scrape(criterion: &mut Criterion) {
    const SCRAPES: usize = 16;
    let swarms = some(1_000_000);
    let (mut shard, _) = filled(&Sizes::Classic(swarms, 2 * swarms));
    let mut turn = (0..swarms).cycle();
    let mut batch: ShardBatch<(), ()> = ShardBatch::new(0, 10 * SCRAPES, 0);
    let mut group = criterion.benchmark_group("scrape");
    group.throughput(Throughput::Elements(SCRAPES as u64)).sample_size(20);
    group.bench_function("of ten in a million swarms, classic", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut taken = Duration::ZERO;
            for _ in 0..rounds {
                batch.clear();
                for swarm in turn.by_ref().take(10 * SCRAPES) {
                    // Strides, so that neighbours in a scrape are not neighbours in memory.
                    let info_hash = population::info_hash(swarm.wrapping_mul(65_537) % swarms);
                    batch.push_scrape(&[info_hash.0], ()).expect("a batch with free space");
                }
                let start = processor_time();
                shard.serve(black_box(&mut batch), Moment(30));
                taken += processor_time() - start;
            }
            taken
        });
    });
    group.finish();
}

/// Populations for sweeps.
fn swept() -> [(&'static str, Sizes); 3] {
    [
        ("Pareto", Sizes::Pareto(some(1_000_000))),
        ("real", Sizes::Real(some(1_000_000))),
        ("ten of 100,000", Sizes::Even(10, some(100_000))),
    ]
}

/// No peer expires.
fn sweep(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep, no peer expires");
    group.throughput(Throughput::Elements(BUDGET as u64));
    for (name, sizes) in swept() {
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

/// All peers expire. Adding them again is not measured.
fn expire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sweep, all peers expire");
    group.throughput(Throughput::Elements(BUDGET as u64)).sample_size(10);
    group.measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(500));
    for (name, sizes) in swept() {
        let (mut shard, peers) = filled(&sizes);
        let mut joined = Moment(0);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut taken = Duration::ZERO;
                for _ in 0..rounds {
                    let late = joined.after(LIFETIME + 8);
                    let start = processor_time();
                    let swept = black_box(shard.sweep(late, BUDGET));
                    taken += processor_time() - start;
                    assert!(swept.visited > 0, "there were peers to visit");
                    if shard.totals().peers() == 0 {
                        joined = late;
                        population::fill(&mut shard, &peers, joined);
                    }
                }
                taken
            });
        });
    }
    group.finish();
}

/// This many; a hundredth of large numbers for a test run.
fn some(number: u32) -> u32 {
    let once = std::env::args().any(|argument| argument == "--test");
    if once && number > 1_000 { number / 100 } else { number }
}

fn filled(sizes: &Sizes) -> (Shard, Vec<(u32, u32)>) {
    let mut rng = SmallRng::seed_from_u64(1);
    let peers = population::peers(&sizes.draw(&mut rng), &mut rng);
    let mut shard = population::shard(10_000_000);
    population::fill(&mut shard, &peers, Moment(0));
    (shard, peers)
}

/// The processor time of batches of announces, without filling them. `turn` continues from call to
/// call, so that every peer announces before any announces again.
fn announce<'a>(
    shard: &mut Shard,
    turn: &mut impl Iterator<Item = &'a (u32, u32)>,
    rounds: u64,
) -> Duration {
    // Reading the clock is a system call: once per several batches.
    let mut batches: [_; 16] = std::array::from_fn(|_| population::batch());
    let mut taken = Duration::ZERO;
    let mut left = rounds as usize;
    while left > 0 {
        let batches = &mut batches[..left.min(16)];
        left -= batches.len();
        for batch in &mut *batches {
            batch.clear();
            for &(swarm, peer) in turn.take(BATCH) {
                batch
                    .push_announce(population::announce(swarm, peer), ())
                    .expect("a batch with free space");
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

/// The processor time of this thread: on a shared machine, wall time means little.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}
