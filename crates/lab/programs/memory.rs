//! The memory cost of peers: growth of resident memory over an idle process, for several
//! populations, and the memory freed when all peers have expired. Each population has a process of
//! its own, which receives it in pieces, so that the process's memory holds nothing but the shard.
//!
//! `cargo run --release -p onrush-lab [--features jemalloc] --bin memory -- [NUMBER]`

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onrush_lab::allocator::{self, resident};
use onrush_lab::population::{self, BATCH, LIFETIME, Sizes};
use onrush_swarm::{Moment, Shard};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Names and sizes.
const POPULATIONS: [(&str, Sizes); 9] = [
    ("10 M swarms of one peer", Sizes::Even(10_000_000, 1)),
    // The load of the index hardly matters, as its tables double one after the other: 8.0 M to 12.0
    // M is most of a doubling.
    ("8.0 M swarms of one peer", Sizes::Even(8_000_000, 1)),
    ("9.0 M swarms of one peer", Sizes::Even(9_000_000, 1)),
    ("12.0 M swarms of one peer", Sizes::Even(12_000_000, 1)),
    ("1 M swarms, Pareto, about 2 M peers", Sizes::Pareto(1_000_000)),
    ("classic profile of 1 M swarms and 2 M peers", Sizes::Classic(1_000_000, 2_000_000)),
    ("200 swarms of 30,000 peers", Sizes::Even(200, 30_000)),
    ("200 swarms of 50,000 peers", Sizes::Even(200, 50_000)),
    ("200 swarms of 70,000 peers", Sizes::Even(200, 70_000)),
];

/// The sweep budget of a worker's turn.
const SWEEP: usize = 256;
/// Time for the allocator to return memory after the last peer has expired.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The argument that starts the measured process.
const CHILD: &str = "--child";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("the number of a population");
    match arguments[..] {
        [CHILD, at] => measure(number(at)),
        [at] => start(number(at)),
        _ => {
            println!("allocator: {}; KiB but for bytes per swarm and per peer", allocator::NAME);
            let heads =
                ["per swarm", "per peer", "idle", "tables", "peak", "expired", "later", "after s"];
            row("", heads.map(String::from));
            (0..POPULATIONS.len()).for_each(start);
        }
    }
}

/// Draws a population and sends it to a process.
fn start(number: usize) {
    let (_, sizes) = &POPULATIONS[number];
    let mut rng = SmallRng::seed_from_u64(1);
    let sizes = sizes.draw(&mut rng);
    let peers = population::peers(&sizes, &mut rng);
    let program = std::env::current_exe().expect("the name of this program");
    let mut command = Command::new(program);
    let mut child = command
        .args([CHILD, &number.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("this program starts");
    let mut pipe = child.stdin.take().expect("a pipe to the child");
    for group in peers.chunks(BATCH) {
        let mut bytes = [0; BATCH * 8];
        for (slot, (swarm, peer)) in bytes.chunks_exact_mut(8).zip(group) {
            slot[..4].copy_from_slice(&swarm.to_le_bytes());
            slot[4..].copy_from_slice(&peer.to_le_bytes());
        }
        pipe.write_all(&bytes[..group.len() * 8]).expect("the pipe is open");
    }
    drop(pipe);
    assert!(child.wait().expect("wait for the child").success());
}

fn measure(number: usize) {
    let (name, _) = &POPULATIONS[number];
    let idle = resident();
    let mut shard = population::shard();
    let tables = resident() - idle;
    let peers = fill(&mut shard);
    let peak = resident();
    let grown = (peak - idle) as f64;
    let totals = shard.totals();
    assert_eq!(totals.peers(), peers);

    // Until a pass has found no peer, and so the tables of the index have shrunk as well.
    let mut empty = false;
    loop {
        let swept = shard.sweep(Moment(LIFETIME + 16), SWEEP);
        if swept.pass_finished && empty {
            break;
        }
        empty |= swept.pass_finished && shard.totals().peers() == 0;
    }
    let expired = resident();
    let start = Instant::now();
    let enough = (idle + tables) * 5 / 4;
    while resident() > enough && start.elapsed() < TIMEOUT {
        #[expect(
            clippy::disallowed_methods,
            reason = "an allocator returns memory without an event"
        )]
        std::thread::sleep(Duration::from_millis(100));
    }
    let [per_swarm, per_peer] = [totals.swarms, totals.peers()].map(|count| grown / count as f64);
    let [idle, tables, peak, expired, later] =
        [idle, tables, peak, expired, resident()].map(|bytes| (bytes / 1024).to_string());
    let (per_swarm, per_peer) = (format!("{per_swarm:.1}"), format!("{per_peer:.2}"));
    let seconds = format!("{:.1}", start.elapsed().as_secs_f64());
    row(name, [per_swarm, per_peer, idle, tables, peak, expired, later, seconds]);
}

fn row(name: &str, cells: [String; 8]) {
    println!("{name:<44}{}", cells.map(|cell| format!(" {cell:>9}")).concat());
}

/// Serves the announces that arrive through the pipe; returns their number.
fn fill(shard: &mut Shard) -> u64 {
    let mut batch = population::batch();
    let mut pipe = std::io::stdin().lock();
    let mut peers = 0;
    loop {
        let mut bytes = [0; BATCH * 8];
        let mut read = 0;
        while read < bytes.len() {
            match pipe.read(&mut bytes[read..]).expect("the pipe works") {
                0 => break,
                more => read += more,
            }
        }
        batch.clear();
        for slot in bytes[..read].chunks_exact(8) {
            let number = |at: usize| {
                u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]])
            };
            let announce = population::announce(number(0), number(4));
            batch.push_announce(announce, ()).expect("a batch with free space");
            peers += 1;
        }
        shard.serve(&mut batch, Moment(0));
        if read < bytes.len() {
            return peers;
        }
    }
}
