//! Runs a fixed number of turns of one load worker over the in-process network, for counting its
//! instructions per reply. The other side replies correctly and lists up to 30 peers.
//!
//! ```text
//! cargo build --release -p onrush-lab --bin request_instructions
//! valgrind --tool=callgrind --toggle-collect='instructions::turn' \
//!     target/release/request_instructions classic
//! ```
//!
//! Callgrind collects the instructions of the worker's turns and of the in-process network within
//! them; divide by the number of replies printed here. callgrind_annotate (`--inclusive=yes`) shows
//! the network's own part as its `receive` and `send`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use onrush_load::check::Strictness;
use onrush_load::generator::flight::Nanos;
use onrush_load::generator::{Generator, Pace, Settings, Window};
use onrush_load::plan::population::{Addresses, Population};
use onrush_load::plan::{Plan, Profile, profile::Swarms};
use onrush_load::sources::routes;
use onrush_net::memory::{Endpoint, Network};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};
use onrush_proto::{Announce, ConnectionId, Family, InfoHash, Request, scrape};

/// The only connection id.
const ID: ConnectionId = ConnectionId(1);
/// Few swarms, so that the population's tables are built quickly under callgrind.
const SWARMS: u32 = 20_000;
/// Source addresses.
const SOURCES: u8 = 8;
/// The most peers listed.
const PEERS: usize = 30;
/// Requests in flight.
const IN_FLIGHT: usize = 256;
/// Turns that are counted.
const TURNS: usize = 400;

/// Space for any reply.
type Room = [u8; scrape::HEAD_LEN + scrape::COUNTS_LEN * scrape::MAX_HASHES];

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let profile = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["classic"] => Profile::classic(),
        ["real"] => Profile { v6: 0.0, ..Profile::real() },
        _ => bail!("usage: instructions classic|real"),
    };
    let target: SocketAddr = "10.0.0.1:6969".parse()?;
    let sources: Vec<IpAddr> = (1..=SOURCES).map(|n| [10, 0, 1, n].into()).collect();
    let addresses = Addresses::new(&sources);
    let targets = [target];
    let ways = (0..SOURCES)
        .flat_map(|n| routes(&addresses, &targets, Family::V4, n.into(), n.into()))
        .collect();
    let swarms = Swarms { count: SWARMS, ..profile.swarms };
    let plan = Plan::new(profile, Population::new(&swarms, 0.0, addresses, 1, false), 1);
    let network = Network::new(1, Default::default());
    let mut tracker = Tracker::new(network.bind(&targets)?, &plan);
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let window = Window { start: 0, end: Nanos::MAX / 2 };
    let mut worker = Generator::new(network.bind(&bound)?, &plan, ways, settings(), window);
    for _ in 0..TURNS {
        turn(&mut worker, &network)?;
        tracker.answer_all()?;
        network.advance(Duration::from_micros(100));
    }
    let tally = worker.tally();
    let right: u64 = tally.kinds.iter().map(|kind| kind.right).sum();
    let wrong = tally.wrong(true);
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

fn settings() -> Settings {
    Settings {
        pace: Pace::InFlight(IN_FLIGHT),
        limit: IN_FLIGHT,
        burst: 32,
        group: true,
        timeout: 1_000_000_000,
        v6: 0.0,
        strictness: Strictness { strangers: false, sample: 8 },
        strict: false,
        seed: 1,
        worker: 0,
        workers: 1,
    }
}

/// Replies correctly, as if all peers of the plan had announced.
struct Tracker {
    host: Endpoint,
    peers: HashMap<InfoHash, Swarm>,
    rooms: Box<[Room]>,
    ways: Vec<(usize, Return)>,
}

#[derive(Default)]
struct Swarm {
    peers: Vec<[u8; 6]>,
    seeders: u32,
}

impl Tracker {
    fn new(host: Endpoint, plan: &Plan) -> Self {
        let population = &plan.population;
        let mut peers: HashMap<InfoHash, Swarm> = HashMap::new();
        for peer in 0..population.peers(Family::V4) {
            let member = population.member(Family::V4, peer);
            let ip = population.addresses().get(Family::V4, population.address(Family::V4, peer));
            let wire = onrush_proto::Endpoint::new(ip, population.port(&member));
            let swarm = peers.entry(population.info_hash(member.swarm)).or_default();
            swarm.peers.extend(wire.as_bytes().first_chunk::<6>());
        }
        // At least one peer of each kind, so that the announcer is counted.
        peers.values_mut().for_each(|swarm| swarm.seeders = swarm.peers.len() as u32 / 2);
        Self {
            host,
            peers,
            rooms: vec![[0; size_of::<Room>()]; 64].into(),
            ways: Vec::with_capacity(64),
        }
    }

    /// Answers the waiting requests.
    fn answer_all(&mut self) -> anyhow::Result<()> {
        loop {
            self.ways.clear();
            let batch = self.host.receive(self.rooms.len())?;
            if batch.is_empty() {
                return Ok(());
            }
            for (datagram, slot) in batch.iter() {
                let source = slot.source.ip();
                let len = answer(&self.peers, datagram, source, &mut self.rooms[self.ways.len()]);
                if len > 0 {
                    self.ways.push((len, slot.reply_to));
                }
            }
            let replies = self.ways.iter().zip(&self.rooms);
            self.host.send(replies.map(|((len, to), bytes)| Reply { bytes: &bytes[..*len], to }));
        }
    }
}

/// Writes the reply and returns its length; 0 for no reply.
fn answer(
    swarms: &HashMap<InfoHash, Swarm>,
    datagram: &[u8],
    source: IpAddr,
    into: &mut Room,
) -> usize {
    match Request::parse(datagram) {
        Ok(Request::Connect(connect)) => {
            let reply =
                ConnectResponse { transaction_id: connect.transaction_id, connection_id: ID };
            reply.write(into.first_chunk_mut().expect("room for any reply"));
            RESPONSE_LEN
        }
        Ok(Request::Announce(asked)) if asked.connection_id == ID => {
            announce(&swarms[&asked.info_hash], &asked, source, into)
        }
        Ok(Request::Scrape(request)) if request.connection_id == ID => {
            scrape::write_head(
                request.transaction_id,
                into.first_chunk_mut().expect("room for any reply"),
            );
            let len = scrape::HEAD_LEN + scrape::COUNTS_LEN * request.info_hashes().len();
            into[scrape::HEAD_LEN..len].fill(0);
            len
        }
        _ => 0,
    }
}

/// Counts the announcer among its own kind, and lists others.
fn announce(swarm: &Swarm, asked: &Announce<'_>, source: IpAddr, into: &mut Room) -> usize {
    let all = swarm.peers.len() as u32;
    let seeders = match (asked.left == 0, swarm.seeders) {
        (true, 0) => 1,
        (false, some) if some == all => all - 1,
        (_, some) => some,
    };
    let head = AnnounceHead {
        transaction_id: asked.transaction_id,
        interval: 1800,
        leechers: all - seeders,
        seeders,
    };
    head.write(into.first_chunk_mut().expect("room for any reply"));
    let want = if asked.num_want < 0 { PEERS } else { (asked.num_want as usize).min(PEERS) };
    let own = onrush_proto::Endpoint::new(source, asked.port);
    let mut len = HEAD_LEN;
    for peer in swarm.peers.iter().filter(|peer| own.as_bytes() != peer.as_slice()).take(want) {
        into[len..len + peer.len()].copy_from_slice(peer);
        len += peer.len();
    }
    len
}
