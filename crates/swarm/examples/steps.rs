//! How long single steps take: a shard grows to 10 M peers, lives, and empties again, sweeping
//! after each batch of 64 announces. Processor time of this thread per call, microseconds. A
//! system call to read the clock is in each; preemption and page faults are too.
//!
//! `cargo run --release -p onrush-swarm --example steps`

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use onrush_swarm::{Moment, Shard, ShardBatch};
use population::{BATCH, LIFETIME, Sizes};
use rand::SeedableRng;
use rand::rngs::SmallRng;

#[path = "../benches/population/mod.rs"]
mod population;

fn main() {
    println!("{:<34} {:>8} {:>8} {:>8} {:>8}", "us", "median", "p99", "p99.9", "longest");
    for (name, sizes) in [
        ("5 M swarms, Pareto", Sizes::Pareto(5_000_000)),
        ("two swarms of 5 M", Sizes::Even(2, 5_000_000)),
    ] {
        let mut rng = SmallRng::seed_from_u64(1);
        let peers = population::peers(&sizes.draw(&mut rng), &mut rng);
        let mut shard = population::shard(16_000_000);
        println!("{name}");
        live(&mut shard, &peers, "growing", Moment(0));
        live(&mut shard, &peers[..peers.len() / 4], "living", Moment(600));
        let mut sweeps = Steps::default();
        while shard.totals().peers() > 0 {
            sweeps.take(|| shard.sweep(Moment(600 + LIFETIME + 8), 500));
        }
        sweeps.print("  emptying: sweep of 500");
    }
}

fn live(shard: &mut Shard, peers: &[(u32, u32)], name: &str, now: Moment) {
    let mut batch: ShardBatch<(), ()> = population::batch();
    let (mut serves, mut sweeps) = (Steps::default(), Steps::default());
    for group in peers.chunks(BATCH) {
        batch.clear();
        for &(swarm, peer) in group {
            batch.push_announce(population::announce(swarm, peer), ()).expect("it has room");
        }
        serves.take(|| shard.serve(&mut batch, now));
        sweeps.take(|| shard.sweep(now, 200));
    }
    serves.print(&format!("  {name}: batch of 64"));
    sweeps.print(&format!("  {name}: sweep of 200"));
}

/// Durations of calls.
#[derive(Default)]
struct Steps(Vec<Duration>);

impl Steps {
    fn take<T>(&mut self, call: impl FnOnce() -> T) {
        let start = processor_time();
        black_box(call());
        self.0.push(processor_time() - start);
    }

    fn print(mut self, name: &str) {
        self.0.sort_unstable();
        let at = |part: f64| self.0[((self.0.len() - 1) as f64 * part) as usize].as_nanos() as f64;
        let [median, p99, p999, longest] = [0.5, 0.99, 0.999, 1.0].map(|part| at(part) / 1_000.0);
        println!("{name:<34} {median:>8.1} {p99:>8.1} {p999:>8.1} {longest:>8.1}");
    }
}

/// What this thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}
