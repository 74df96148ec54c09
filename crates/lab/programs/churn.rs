//! Allocators under churn: two threads with a shard each, in which swarms are created, become
//! popular and are removed, while peers start, stop, announce again and expire. At the end all
//! peers expire.
//!
//! `cargo run --release -p onrush-lab [--features jemalloc|mimalloc] --bin churn -- [ANNOUNCES]`
//! (per thread). Prints processor time per announce with its share of the sweep, memory at the end
//! of each phase, and the steps of over 0.2 ms.

use std::hint::black_box;
use std::time::{Duration, Instant};

use onrush_lab::allocator::{self, resident};
use onrush_lab::measure::processor_time;
use onrush_lab::population::{self, BATCH, LIFETIME};
use onrush_proto::Event;
use onrush_swarm::{Moment, Shard};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const THREADS: usize = 2;
/// The most recent announcers, per thread: these announce again and stop.
const KNOWN: usize = 1 << 20;
/// Popular swarms at a time, per thread.
const POPULAR: u32 = 64;
/// Announces after which the oldest popular swarm is replaced.
const FASHION: u64 = 20_000;
/// Announces per second of the shard's time, so that about 4 M peers live per thread.
const PER_SECOND: u64 = 2_500;
const SWEEP: usize = 256;
const LONG: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let argument = std::env::args().nth(1);
    let announces: u64 = argument.map_or(12_000_000, |it| it.parse().expect("a number"));
    let idle = resident();
    let (lives, peak, churned) = std::thread::scope(|scope| {
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(THREADS + 1));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let barrier = barrier.clone();
                scope.spawn(move || {
                    let mut life = Life::new(number as u64);
                    barrier.wait();
                    barrier.wait();
                    life.announce(announces);
                    barrier.wait();
                    barrier.wait();
                    life.expire();
                    life
                })
            })
            .collect();
        barrier.wait();
        let own = resident() - idle;
        barrier.wait();
        barrier.wait();
        let churned = resident();
        barrier.wait();
        let lives: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread without panics"))
            .collect();
        (lives, own, churned)
    });
    print(&lives, idle + peak, churned);
}

/// `base`: the memory of an idle process, and of this program's own data.
fn print(lives: &[Life], base: usize, churned: usize) {
    let expired = resident();
    let start = Instant::now();
    while resident() > base * 5 / 4 && start.elapsed() < PATIENCE {
        #[expect(
            clippy::disallowed_methods,
            reason = "an allocator returns memory without an event"
        )]
        std::thread::sleep(Duration::from_millis(100));
    }
    let announces: u64 = lives.iter().map(|life| life.announces).sum();
    let peers: u64 = lives.iter().map(|life| life.peers).sum();
    let busy: Duration = lives.iter().map(|life| life.busy).sum();
    let long: usize = lives.iter().map(|life| life.long).sum();
    let longest = lives.iter().map(|life| life.longest).max().unwrap_or_default();
    let steps: usize = lives.iter().map(|life| life.steps).sum();
    let mib = |bytes: usize| bytes as f64 / 1_048_576.0;
    println!(
        "{:<9} {:>6.0} ns per announce",
        allocator::NAME,
        busy.as_nanos() as f64 / announces as f64
    );
    println!("  {peers} peers live: {:.2} bytes each", (churned - base) as f64 / peers as f64);
    println!(
        "  MiB: {:.1} before, {:.1} with peers, {:.1} when all have expired, {:.1} after {:.1} s",
        mib(base),
        mib(churned),
        mib(expired),
        mib(resident()),
        start.elapsed().as_secs_f64()
    );
    println!("  steps: {long} of {steps} over 0.2 ms, the longest {longest:?}");
}

/// One thread's shard and its clients.
struct Life {
    shard: Shard,
    rng: SmallRng,
    known: Vec<(u32, u32)>,
    announces: u64,
    peers: u64,
    busy: Duration,
    longest: Duration,
    long: usize,
    steps: usize,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            shard: population::shard(16_000_000),
            rng: SmallRng::seed_from_u64(seed),
            known: vec![(1, 1); KNOWN],
            announces: 0,
            peers: 0,
            busy: Duration::ZERO,
            longest: Duration::ZERO,
            long: 0,
            steps: 0,
        }
    }

    fn announce(&mut self, announces: u64) {
        let mut batch = population::batch();
        while self.announces < announces {
            let now = self.now();
            batch.clear();
            for _ in 0..BATCH {
                let (swarm, peer, event) = self.next();
                let announce =
                    onrush_swarm::Announce { event, ..population::announce(swarm, peer) };
                batch.push_announce(announce, ()).expect("a batch with free space");
            }
            self.announces += BATCH as u64;
            self.step(|shard| shard.serve(&mut batch, now));
            self.step(|shard| shard.sweep(now, SWEEP));
        }
        self.peers = self.shard.totals().peers();
    }

    /// Of ten announces, five are repeated, one is a stop, two are new peers of a popular swarm,
    /// and two of another one.
    fn next(&mut self) -> (u32, u32, Event) {
        let slot = self.rng.random_range(0..KNOWN);
        match self.rng.random_range(0..10) {
            0 => {
                let (swarm, peer) = self.known[slot];
                (swarm, peer, Event::Stopped)
            }
            1..6 => {
                let (swarm, peer) = self.known[slot];
                (swarm, peer, Event::None)
            }
            kind => {
                let swarm = match kind {
                    6 | 7 => {
                        let fashion = (self.announces / FASHION) as u32;
                        (1 << 31) + fashion + self.rng.random_range(0..POPULAR)
                    }
                    // Two peers each, on average.
                    _ => (self.announces / 10) as u32 + self.rng.random_range(0..100_000),
                };
                let new = (swarm, self.rng.random());
                self.known[slot] = new;
                (new.0, new.1, Event::Started)
            }
        }
    }

    /// Sweeps until no peer is left, and one pass more.
    fn expire(&mut self) {
        let end = Moment(self.now().0 + LIFETIME + 8);
        while self.shard.totals().peers() > 0 {
            self.step(|shard| shard.sweep(end, SWEEP));
        }
        let mut finished = 0;
        while finished < 2 {
            let mut swept = None;
            self.step(|shard| swept = Some(shard.sweep(end, SWEEP)));
            finished += usize::from(swept.is_some_and(|swept| swept.pass_finished));
        }
    }

    fn now(&self) -> Moment {
        Moment((self.announces / PER_SECOND) as u32)
    }

    fn step<T>(&mut self, step: impl FnOnce(&mut Shard) -> T) {
        let start = processor_time();
        black_box(step(&mut self.shard));
        let taken = processor_time() - start;
        self.busy += taken;
        self.longest = self.longest.max(taken);
        self.long += usize::from(taken > LONG);
        self.steps += 1;
    }
}
