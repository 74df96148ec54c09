//! The duration of single steps: a shard grows to 10 M peers, is used, and empties again, with a
//! sweep after each batch of 64 announces. Processor time of this thread per call, microseconds.
//!
//! A virtual machine attributes time to the thread in which something else had the processor. So
//! each population is replayed by several processes, step by step the same, and the shortest time
//! of each step counts: a step that is long every time is the program's. The number of steps that
//! were long in one replay but not in all is printed beside it; the first line shows steps of plain
//! counting, which cannot be long.
//!
//! `cargo run --release -p onrush-lab [--features jemalloc|mimalloc] --bin steps -- [PEERS]`

use std::hint::black_box;
use std::io::Write;
use std::process::Command;

use onrush_lab::allocator;
use onrush_lab::measure::{processor_time, quantile};
use onrush_lab::population::{self, BATCH, LIFETIME, Sizes};
use onrush_swarm::{Moment, Shard, ShardBatch};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const REPLAYS: usize = 3;
/// The sweep budget of a worker's turn.
const SWEEP: usize = 256;
/// Above this a step is long, nanoseconds.
const LONG: u32 = 200_000;
/// Announces timed one by one.
const SINGLE: usize = 1_000_000;

const POPULATIONS: [&str; 3] = ["plain counting", "swarms, Pareto", "two large swarms"];
const PHASES: [&str; 7] = [
    "  growing: batch of 64",
    "  growing: sweep of 256",
    "  growing: one announce",
    "  living: batch of 64",
    "  living: sweep of 256",
    "  emptying: sweep of 256",
    "  counting for 50 us",
];

/// The phase of each step, and its duration, nanoseconds.
type Step = (u8, u32);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let peers = arguments.first().map_or(10_000_000, |it| it.parse().expect("a number of peers"));
    if let Some(number) = arguments.get(1) {
        return replay(number.parse().expect("the number of a population"), peers);
    }
    println!("allocator: {}; microseconds of {REPLAYS} replays", allocator::NAME);
    println!(
        "{:<26} {:>8} {:>7} {:>7} {:>7} {:>8} | {:>7} {:>9}",
        "", "steps", "median", "p99", "p99.9", "longest", "> 200", "in a run"
    );
    for (number, name) in POPULATIONS.iter().enumerate() {
        println!("{name}");
        let replays: Vec<_> = (0..REPLAYS).map(|_| run(number, peers)).collect();
        print(&replays);
    }
}

/// The steps of one replay, run by a process of its own.
fn run(number: usize, peers: u32) -> Vec<Step> {
    let program = std::env::current_exe().expect("the name of this program");
    let mut command = Command::new(program);
    let output =
        command.args([peers.to_string(), number.to_string()]).output().expect("run the child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let step =
        |bytes: &[u8]| (bytes[0], u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]));
    output.stdout.chunks_exact(5).map(step).collect()
}

fn print(replays: &[Vec<Step>]) {
    let steps = replays[0].len();
    assert!(replays.iter().all(|replay| replay.len() == steps), "replays are the same");
    for (phase, name) in PHASES.iter().enumerate() {
        let of_phase = (0..steps).filter(|&at| usize::from(replays[0][at].0) == phase);
        let times = |at: usize| replays.iter().map(move |replay| replay[at].1);
        let mut least: Vec<u32> =
            of_phase.clone().map(|at| times(at).min().expect("there are some")).collect();
        if least.is_empty() {
            continue;
        }
        let long_once = of_phase.flat_map(times).filter(|&time| time > LONG).count();
        least.sort_unstable();
        let at = |share| f64::from(quantile(&least, share)) / 1_000.0;
        println!(
            "{name:<26} {:>8} {:>7.1} {:>7.1} {:>7.1} {:>8.1} | {:>7} {:>9.1}",
            least.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            least.iter().filter(|&&time| time > LONG).count(),
            long_once as f64 / replays.len() as f64,
        );
    }
}

/// Runs a population and writes the duration of each step.
fn replay(number: usize, peers: u32) {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut steps = Steps(Vec::with_capacity(4 * peers as usize / BATCH + 2 * SINGLE));
    match number {
        0 => count(&mut steps),
        1 => live(&mut steps, &Sizes::Pareto(peers / 2).draw(&mut rng), &mut rng),
        _ => live(&mut steps, &Sizes::Even(2, peers / 2).draw(&mut rng), &mut rng),
    }
    let mut out = std::io::stdout().lock();
    for (phase, nanos) in steps.0 {
        let [a, b, c, d] = nanos.to_le_bytes();
        out.write_all(&[phase, a, b, c, d]).expect("the pipe is open");
    }
}

fn count(steps: &mut Steps) {
    for _ in 0..100_000 {
        steps.take(6, || (0..60_000u64).fold(0, |sum, number| black_box(sum ^ number)));
    }
}

fn live(steps: &mut Steps, sizes: &[u32], rng: &mut SmallRng) {
    let peers = population::peers(sizes, rng);
    let mut shard = population::shard(16_000_000);
    // The last ones singly.
    let (most, single) = peers.split_at(peers.len().saturating_sub(SINGLE));
    serve(steps, &mut shard, most, (BATCH, 0), Moment(0));
    serve(steps, &mut shard, single, (1, 2), Moment(0));
    serve(steps, &mut shard, &peers[..peers.len() / 4], (BATCH, 3), Moment(600));
    let end = Moment(600 + LIFETIME + 8);
    while shard.totals().peers() > 0 {
        steps.take(5, || shard.sweep(end, SWEEP));
    }
    // One pass more, for the tables.
    while !steps.take(5, || shard.sweep(end, SWEEP)).pass_finished {}
}

/// Serves announces, so many at a time.
fn serve(
    steps: &mut Steps,
    shard: &mut Shard,
    peers: &[(u32, u32)],
    (at_a_time, phase): (usize, u8),
    now: Moment,
) {
    let mut batch: ShardBatch<(), ()> = population::batch();
    for (number, group) in peers.chunks(at_a_time).enumerate() {
        population::refill(&mut batch, group);
        steps.take(phase, || shard.serve(&mut batch, now));
        if at_a_time > 1 || number.is_multiple_of(BATCH) {
            steps.take(if phase == 3 { 4 } else { 1 }, || shard.sweep(now, SWEEP));
        }
    }
}

/// The duration of each call, in order.
struct Steps(Vec<Step>);

impl Steps {
    fn take<T>(&mut self, phase: u8, call: impl FnOnce() -> T) -> T {
        let start = processor_time();
        let result = black_box(call());
        let taken = (processor_time() - start).as_nanos();
        self.0.push((phase, u32::try_from(taken).unwrap_or(u32::MAX)));
        result
    }
}
