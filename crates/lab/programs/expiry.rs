//! The cost of expiry with 50 million peers, or swarms, in one shard: two minutes before any peer
//! expires, then the time until all have. Processor time of this thread per step of the worker's
//! own schedule; each step includes a system call to read the clock, preemption and page faults.
//!
//! `cargo run --release -p onrush-lab --bin expiry [MILLIONS]`: needs 4 GiB of memory for 50.

use std::time::Duration;

use onrush_lab::measure::{processor_time, quantile};
use onrush_swarm::Moment;
use onrush_testing::population::{LIFETIME, Population, is_empty};
use onrush_tracker::clock::Now;
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::worker::SwarmSide;

/// As the tracker sets it for peers with a lifetime of 40 minutes.
const PERIOD: Duration = Duration::from_secs(120);
/// Turns per second under full load: a full turn takes 1.5 ms at most.
const TURNS: usize = 666;

fn main() {
    let millions = std::env::args().nth(1).map_or(50, |text| text.parse().expect("MILLIONS"));
    println!("{millions} M in one shard, a pass in {} s\n", PERIOD.as_secs());
    println!("| | seconds | steps | median step | p99.9 | longest | in all | share of a vCPU |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for population in Population::ALL {
        let mut side = SwarmSide::new(0, population.shard(millions * 1_000_000), PERIOD);
        let pass = PERIOD.as_secs() as u32;
        run(&mut side, 0, |_, second| second == pass).print(population, "stay");
        // Second by second, so that no backlog builds up.
        run(&mut side, pass, |_, second| second == LIFETIME + 16 - pass);
        run(&mut side, LIFETIME + 16, |side, _| is_empty(&side.shard)).print(population, "go");
    }
}

/// Runs the steps of each second from `start` on until `end` returns true.
fn run(side: &mut SwarmSide, start: u32, end: impl Fn(&SwarmSide, u32) -> bool) -> Steps {
    let metrics = WorkerMetrics::default();
    let mut steps = Steps::default();
    while !end(side, steps.seconds) {
        let second = start + steps.seconds;
        let now = Now { moment: Moment(second), unix: 1_800_000_000 + u64::from(second) };
        for _ in 0..TURNS {
            let before = processor_time();
            let more = side.maintain(now, &metrics);
            steps.taken.push(processor_time() - before);
            if !more {
                break;
            }
        }
        steps.seconds += 1;
    }
    steps
}

#[derive(Default)]
struct Steps {
    seconds: u32,
    taken: Vec<Duration>,
}

impl Steps {
    fn print(mut self, population: Population, what: &str) {
        self.taken.sort_unstable();
        let micros = |share| quantile(&self.taken, share).as_nanos() as f64 / 1_000.0;
        let all: Duration = self.taken.iter().sum();
        println!(
            "| {population:?}, all {what} | {} | {} | {:.1} us | {:.1} us | {:.1} us | {:.2} s | \
             {:.2} % |",
            self.seconds,
            self.taken.len(),
            micros(0.5),
            micros(0.999),
            micros(1.0),
            all.as_secs_f64(),
            all.as_secs_f64() / f64::from(self.seconds) * 100.0,
        );
    }
}
