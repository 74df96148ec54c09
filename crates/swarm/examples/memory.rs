//! What peers cost: growth of resident memory over an idle process, for several populations,
//! and what is given back when all have expired. Each population has a process of its own.
//!
//! `cargo run --release -p onrush-swarm --example memory`

use std::time::Instant;

use onrush_swarm::Moment;
use population::{LIFETIME, Sizes};
use rand::SeedableRng;
use rand::rngs::SmallRng;

#[path = "../benches/population/mod.rs"]
mod population;

/// Name, sizes, and the ceiling on peers, which decides on the number of tables in the index.
const POPULATIONS: [(&str, Sizes, u64); 8] = [
    // 16384 tables: 10 M swarms are 610 in each, of 1024 places.
    ("10 M swarms of one peer", Sizes::Even(10_000_000, 1), 16_000_000),
    // 8192 tables that have just doubled to 2048 places.
    ("7.6 M swarms of one peer, index at its worst", Sizes::Even(7_600_000, 1), 8_000_000),
    // 8192 tables that are about to double.
    ("7.0 M swarms of one peer, index at its best", Sizes::Even(7_000_000, 1), 8_000_000),
    ("1 M swarms, Pareto, about 2 M peers", Sizes::Pareto(1_000_000), 16_000_000),
    (
        "classic profile of 1 M swarms and 2 M peers",
        Sizes::Classic(1_000_000, 2_000_000),
        16_000_000,
    ),
    ("200 swarms of 30,000 peers", Sizes::Even(200, 30_000), 16_000_000),
    ("200 swarms of 50,000 peers", Sizes::Even(200, 50_000), 16_000_000),
    ("200 swarms of 70,000 peers", Sizes::Even(200, 70_000), 16_000_000),
];

fn main() {
    if let Some(number) = std::env::args().nth(1) {
        measure(number.parse().expect("the number of a population"));
        return;
    }
    println!("{:<46} {:>11} {:>11} {:>11} {:>11}", "", "per swarm", "per peer", "left", "ns/peer");
    for number in 0..POPULATIONS.len() {
        let program = std::env::current_exe().expect("the name of this program");
        let done = std::process::Command::new(program).arg(number.to_string()).status();
        assert!(done.expect("this program starts").success());
    }
}

fn measure(number: usize) {
    let (name, sizes, max_peers) = &POPULATIONS[number];
    let mut rng = SmallRng::seed_from_u64(1);
    let sizes = sizes.draw(&mut rng);
    let peers = population::peers(&sizes, &mut rng);
    let idle = resident();
    let mut shard = population::shard(*max_peers);
    let start = Instant::now();
    population::fill(&mut shard, &peers, Moment(0));
    let nanos = start.elapsed().as_nanos() as f64 / peers.len() as f64;
    let grown = (resident() - idle) as f64;
    let totals = shard.totals();
    assert_eq!(totals.peers(), peers.len() as u64);

    shard.sweep(Moment(LIFETIME + 8), usize::MAX);
    assert_eq!(shard.totals().peers(), 0);
    shard.sweep(Moment(LIFETIME + 8), usize::MAX);
    let left = resident().saturating_sub(idle);
    println!(
        "{name:<46} {:>9.1} B {:>9.2} B {:>7} KiB {nanos:>11.0}",
        grown / totals.swarms as f64,
        grown / totals.peers() as f64,
        left / 1024,
    );
}

/// Bytes of this process that are in memory (proc(5), /proc/pid/statm: pages).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages: usize = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a number");
    pages * 4096
}
