//! The four scenarios of the Torrust tracker's repository benchmark, for shards behind lanes and
//! for concurrent maps: the time to add one torrent, to update one torrent in parallel, to add many
//! in parallel and to update many in parallel.
//!
//! The work is the same for each: store the endpoint, maintain the counts of seeders and leechers,
//! write a reply with as many other peers. Every table uses a keyed hash: the maps std's
//! SipHash-1-3 (the B-tree needs none), our shards their own. Each round runs all contenders in
//! turn; the table shows medians.
//!
//! `cargo bench -p onrush-lab --bench repository`; `-- --test` runs everything once with little
//! work.

use std::time::Duration;

use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::Announce;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use maps::{Aquatic, Dash, Direct, ParkingLot, StdTree};
use ours::{Lanes, Own};

mod maps;
mod ours;
mod swarm;

/// Peers wanted.
const WANT: u16 = 50;
/// Requests per batch by default: a receive batch for one shard under load.
const BATCH: usize = 32;
/// Peers of the one torrent that is updated.
const MEMBERS: u32 = 1_000;
const ROUNDS: usize = 5;
const THREADS: [usize; 3] = [1, 2, 4];

/// A store of peers.
trait Place {
    /// Serves each part on a thread of its own, all at once.
    fn serve(&mut self, parts: &[Vec<Announce>], pace: Pace) -> Outcome;
}

/// The arrival of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Each after the reply to the previous one.
    OneByOne,
    /// As fast as they are accepted.
    Flowing,
}

/// The cost of a part of the work.
#[derive(Clone, Copy, Default)]
struct Outcome {
    wall: Duration,
    /// Processor time of all threads.
    processor: Duration,
    /// Bytes of all replies, to verify that all contenders did the same work.
    reply_bytes: u64,
}

/// A contender: a name, and a constructor for a number of client threads.
type Contender = (&'static str, fn(usize) -> Box<dyn Place>);

const CONTENDERS: [Contender; 8] = [
    ("std RwLock, BTreeMap", |_| Box::new(Direct::<StdTree>::default())),
    ("parking_lot RwLock, HashMap", |_| Box::new(Direct::<ParkingLot>::default())),
    ("DashMap", |_| Box::new(Direct::<Dash>::default())),
    (
        "aquatic's way: 16 locked shards of locked swarms",
        |_| Box::new(Direct::<Aquatic>::default()),
    ),
    ("onrush, each thread its own shard", |threads| Box::new(Own::new(threads))),
    ("onrush, lanes, 32 a message", |threads| Box::new(Lanes::new(threads, BATCH))),
    ("onrush, lanes, 8 a message", |threads| Box::new(Lanes::new(threads, 8))),
    ("onrush, lanes, 1 a message", |threads| Box::new(Lanes::new(threads, 1))),
];

/// A scenario.
struct Scenario {
    name: &'static str,
    /// The peers stored beforehand.
    before: Vec<Announce>,
    requests: Vec<Announce>,
    /// Bytes of each reply.
    reply_len: u64,
    pace: Pace,
    threads: &'static [usize],
}

fn main() {
    let once = std::env::args().any(|argument| argument == "--test");
    let (rounds, scale) = if once { (1, 100) } else { (ROUNDS, 1) };
    for scenario in scenarios(scale) {
        println!("\n### {}: {} requests\n", scenario.name, scenario.requests.len());
        let columns: Vec<String> = scenario.threads.iter().map(|n| format!(" {n} |")).collect();
        println!("| asking threads | {}", columns.concat().trim_start());
        println!("|---|{}", "---:|".repeat(columns.len()));
        let measured: Vec<_> =
            scenario.threads.iter().map(|threads| measure(&scenario, *threads, rounds)).collect();
        for (number, (name, _)) in CONTENDERS.iter().enumerate() {
            let cells: Vec<String> = measured
                .iter()
                .map(|of| format!(" {:.0} / {:.0} |", of[number].0, of[number].1))
                .collect();
            println!("| {name} |{}", cells.concat());
        }
    }
    println!("\nns per request: on the wall / of processor time, all threads together");
}

fn scenarios(scale: u32) -> [Scenario; 4] {
    let mut rng = SmallRng::seed_from_u64(1);
    let swarms = 400_000 / scale;
    let alone: Vec<_> = (0..swarms).map(|swarm| announce(swarm, 0)).collect();
    let two: Vec<_> = (0..2 * swarms).map(|number| announce(number / 2, number % 2)).collect();
    let members: Vec<_> = (0..MEMBERS).map(|peer| announce(0, peer)).collect();
    // Seeders get no seeders; leechers get as many peers from all.
    let leechers: Vec<_> = members.iter().copied().filter(|member| !member.seeder).collect();
    let updates = (0..swarms).map(|_| leechers[rng.random_range(0..leechers.len())]).collect();
    let mut shuffled = two.clone();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, rng.random_range(0..=at));
    }
    let (head, row) = (20, 6);
    let adding = |name, requests, pace, threads| Scenario {
        name,
        before: Vec::new(),
        requests,
        reply_len: head,
        pace,
        threads,
    };
    let few = alone[..(20_000 / scale) as usize].to_vec();
    [
        adding("Add one torrent, then the next", few, Pace::OneByOne, &[1]),
        Scenario {
            name: "Update one torrent of 1,000 peers in parallel",
            before: members,
            requests: updates,
            reply_len: head + u64::from(WANT) * row,
            pace: Pace::Flowing,
            threads: &THREADS,
        },
        adding("Add many torrents in parallel", alone, Pace::Flowing, &THREADS),
        Scenario {
            name: "Update many torrents of two peers in parallel",
            before: two,
            requests: shuffled,
            reply_len: head + row,
            pace: Pace::Flowing,
            threads: &THREADS,
        },
    ]
}

/// Nanoseconds per request, wall and processor, for each contender: medians.
fn measure(scenario: &Scenario, threads: usize, rounds: usize) -> Vec<(f64, f64)> {
    let part = scenario.requests.len().div_ceil(threads);
    let parts: Vec<Vec<_>> = scenario.requests.chunks(part).map(<[_]>::to_vec).collect();
    let before = vec![scenario.before.clone()];
    let mut samples = vec![(Vec::new(), Vec::new()); CONTENDERS.len()];
    for _ in 0..rounds {
        for ((name, make), (walls, processors)) in CONTENDERS.iter().zip(&mut samples) {
            let mut place = make(threads);
            place.serve(&before, Pace::Flowing);
            let outcome = place.serve(&parts, scenario.pace);
            let requests = scenario.requests.len() as u64;
            let expected = requests * scenario.reply_len;
            assert_eq!(outcome.reply_bytes, expected, "{name} in {}", scenario.name);
            walls.push(outcome.wall.as_nanos() as f64 / requests as f64);
            processors.push(outcome.processor.as_nanos() as f64 / requests as f64);
        }
    }
    samples.into_iter().map(|(walls, processors)| (median(walls), median(processors))).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The announce of a peer. Every third peer is a seeder, except the first.
fn announce(swarm: u32, peer: u32) -> Announce {
    let [a, b, c, d] = peer.wrapping_mul(0x9E37_79B1).to_be_bytes();
    Announce {
        info_hash: InfoHash(SmallRng::seed_from_u64(swarm.into()).random()),
        endpoint: Endpoint::V4([a, b, c, d, 0x1A, 0xE1]),
        event: Event::None,
        seeder: peer % 3 == 2,
        want: WANT,
        transaction_id: TransactionId(peer),
    }
}
