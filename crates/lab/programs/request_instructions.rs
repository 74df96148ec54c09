//! Runs a fixed number of turns of one load worker over the in-process network, for counting its
//! instructions per reply. The other side is a tracker that knows all peers and lists up to 30.
//!
//! ```text
//! cargo build --release -p onrush-lab --bin request_instructions
//! valgrind --tool=callgrind --toggle-collect='request_instructions::turn' \
//!     target/release/request_instructions classic
//! ```
//!
//! Callgrind collects the instructions of the worker's turns and of the in-process network within
//! them; divide by the number of replies printed here. callgrind_annotate (`--inclusive=yes`) shows
//! the network's own part as its `receive` and `send`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use onrush_lab::population::{BATCH, batch};
use onrush_load::generator::flight::Nanos;
use onrush_load::generator::{Generator, LoadSettings, Pace, Window};
use onrush_load::plan::population::{Addresses, Population};
use onrush_load::plan::{Plan, Profile, profile::Swarms};
use onrush_load::sources::routes;
use onrush_net::memory::{Endpoint, Network};
use onrush_proto::{Event, Family, TransactionId};
use onrush_swarm::{Announce, Shard};
use onrush_testing::memory_tracker::{TRACKER_V4, TestTracker, at, secrets, settings as config};

/// Few swarms, so that the population's tables are built quickly under callgrind.
const SWARMS: u32 = 20_000;
/// Source addresses.
const SOURCES: u8 = 8;
/// The tracker, which lists 30 peers at most.
const TRACKER: &str =
    "[workers]\nplacement = \"colocated\"\ntotal = 1\n[announce]\nmax_peers_v4 = 30\n";
/// Requests in flight.
const IN_FLIGHT: usize = 256;
/// Turns that are counted.
const TURNS: usize = 400;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let profile = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["classic"] => Profile::classic(),
        ["real"] => Profile { v6: 0.0, ..Profile::real() },
        _ => bail!("usage: request_instructions classic|real"),
    };
    let target: SocketAddr = TRACKER_V4.parse()?;
    let sources: Vec<IpAddr> = (1..=SOURCES).map(|n| [10, 0, 1, n].into()).collect();
    let addresses = Addresses::new(&sources);
    let targets = [target];
    let ways = (0..SOURCES)
        .flat_map(|n| routes(&addresses, &targets, Family::V4, n.into(), n.into()))
        .collect();
    let swarms = Swarms { count: SWARMS, ..profile.swarms };
    let plan = Plan::new(profile, Population::new(&swarms, 0.0, addresses, 1, false), 1);
    let network = Network::new(1, Default::default());
    let mut tracker = TestTracker::new(&config(TRACKER), &secrets(1), &network, |socket| socket);
    let swarm_side = tracker.workers[0].swarm_side.as_mut().expect("a colocated worker");
    fill(&mut swarm_side.shard, &plan.population);
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let window = Window { start: 0, end: Nanos::MAX / 2 };
    let settings = LoadSettings { pace: Pace::InFlight(IN_FLIGHT), ..LoadSettings::default() };
    let mut worker = Generator::new(network.bind(&bound)?, &plan, ways, settings, 0, window);
    for _ in 0..TURNS {
        turn(&mut worker, &network)?;
        tracker.settle(at(10));
        network.advance(Duration::from_micros(100));
    }
    let tally = worker.tally();
    let right: u64 = tally.kinds.iter().map(|kind| kind.right).sum();
    let wrong: u64 = tally.findings.iter().map(|found| found.count).sum();
    println!("{right} right replies, {} peers, {} checked", tally.peers, tally.peers_checked);
    if wrong > 0 {
        bail!("{wrong} wrong replies: {:?}", tally.findings);
    }
    Ok(())
}

/// The function that is counted.
#[inline(never)]
fn turn(worker: &mut Generator<'_, Endpoint>, network: &Network) -> anyhow::Result<()> {
    worker.turn(&|| network.now().as_nanos() as Nanos).context("the in-process network")?;
    Ok(())
}

/// Serves an announce of each peer of the population, as if all had announced before.
fn fill(shard: &mut Shard, peers: &Population) {
    let mut batch = batch();
    let numbers: Vec<u32> = (0..peers.peers(Family::V4)).collect();
    for group in numbers.chunks(BATCH) {
        batch.clear();
        for &number in group {
            let member = peers.member(Family::V4, number);
            let ip = peers.addresses.get(Family::V4, peers.address(Family::V4, number));
            let announce = Announce {
                info_hash: peers.info_hash(member.swarm),
                endpoint: onrush_proto::Endpoint::new(ip, peers.port(&member)),
                event: Event::None,
                seeder: number.is_multiple_of(2),
                want: 0,
                transaction_id: TransactionId(number),
            };
            batch.push_announce(announce, ()).expect("a batch with free space");
        }
        shard.serve(&mut batch, at(10).moment);
    }
}
