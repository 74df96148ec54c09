//! A fixed number of requests through a whole tracker on one thread, over the in-process network,
//! for counting instructions: `scripts/count-instructions` runs it under callgrind.
//!
//! `instructions KIND REQUESTS`: KIND is `connect`, `announce` (30 peers in each reply) or `scrape`
//! (of ten), and `split-announce` for the way over the lanes. `echo-KIND` does what the network and
//! this program need for the same datagrams, with nobody between: its cost is to be subtracted.

#![forbid(unsafe_code)]

#[path = "../tests/world/mod.rs"]
mod world;

use std::net::SocketAddr;

use onrush_net::memory::{Choice, Conditions, Endpoint, Network, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{Announce, Connect, ConnectionId, InfoHash, PeerId, Scrape, TransactionId};
use world::{TRACKER_V4, World, announce, at, connect, secrets, settings};

/// Source addresses; each is in every swarm.
const CLIENTS: usize = 62;
const SWARMS: u8 = 64;
/// Datagrams per turn: a batch under load.
const BATCH: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, requests] = &arguments[..] else {
        eprintln!("usage: instructions [echo-|split-]connect|announce|scrape REQUESTS");
        std::process::exit(2);
    };
    let requests: usize = requests.parse().expect("REQUESTS is a number");
    match kind.strip_prefix("echo-") {
        Some(kind) => echo(kind, requests),
        None => serve(kind, requests),
    }
}

/// Everything, tracker included.
fn serve(kind: &str, requests: usize) {
    let (network, mut clients) = network();
    let text = match kind.starts_with("split-") {
        true => "[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n",
        false => "[workers]\nplacement = \"colocated\"\ntotal = 1\n",
    };
    let text = format!("{text}[announce]\nmax_peers_v4 = 30\n[socket]\nbatch = {BATCH}\n");
    let mut world = World::new(&settings(&text), &secrets(1), &network, |endpoint| endpoint);
    let ids: Vec<_> = (0..CLIENTS)
        .map(|client| connect(&mut world, &mut clients, client as u16, at(10)))
        .collect();
    let kind = kind.trim_start_matches("split-");
    populate(&mut world, &mut clients, &ids);
    let packets = packets(kind, &ids);
    let mut answers = 0;
    for batch in (0..requests).step_by(BATCH) {
        send(&mut clients, &packets, batch, BATCH.min(requests - batch));
        world.settle(at(10));
        answers += read(&mut clients);
    }
    assert_eq!(answers, requests, "every request is answered");
}

/// The same datagrams and replies of the same length, with nobody between.
fn echo(kind: &str, requests: usize) {
    let (network, mut clients) = network();
    let address: SocketAddr = TRACKER_V4.parse().expect("an address");
    let mut tracker = network.bind_group(&[address], 1, &Choice::BySource).expect("is free");
    let tracker = &mut tracker[0];
    let packets = packets(kind, &vec![ConnectionId(1); CLIENTS]);
    let reply = match kind {
        "connect" => vec![0; 16],
        "announce" => vec![0; 20 + 30 * 6],
        _ => vec![0; 8 + 10 * 12],
    };
    let mut returns = Vec::with_capacity(BATCH);
    let mut answers = 0;
    for batch in (0..requests).step_by(BATCH) {
        send(&mut clients, &packets, batch, BATCH.min(requests - batch));
        returns
            .extend(tracker.receive(BATCH).expect("works").iter().map(|(_, slot)| slot.reply_to));
        tracker.send(returns.iter().map(|to| Reply { bytes: &reply, to }));
        returns.clear();
        // The tracker looks twice: the second time there is nothing.
        assert!(tracker.receive(BATCH).expect("works").is_empty());
        answers += read(&mut clients);
    }
    assert_eq!(answers, requests, "every request is echoed");
}

fn network() -> (Network, Endpoint) {
    let options = Options { batch: BATCH, ..Options::default() };
    let network = Network::with_options(1, Conditions::default(), options);
    let addresses: Vec<SocketAddr> =
        (1..=CLIENTS).map(|n| SocketAddr::from(([198, 51, 100, n as u8], 3000))).collect();
    let clients = network.bind(&addresses).expect("are free");
    (network, clients)
}

fn to_tracker(client: usize) -> Return {
    Return::to(TRACKER_V4.parse().expect("an address"), client as u16)
}

/// Every client joins every swarm.
fn populate(world: &mut World<Endpoint>, clients: &mut Endpoint, ids: &[ConnectionId]) {
    let packets = packets("announce", ids);
    for batch in (0..packets.len()).step_by(BATCH) {
        send(clients, &packets, batch, BATCH.min(packets.len() - batch));
        world.settle(at(10));
        read(clients);
    }
}

/// The client that sends each packet, and the packet.
fn packets(kind: &str, ids: &[ConnectionId]) -> Vec<(Return, Vec<u8>)> {
    let mut packets = Vec::new();
    for swarm in 0..SWARMS {
        for (client, id) in ids.iter().enumerate() {
            packets.push((to_tracker(client), packet(kind, swarm, client as u8, *id)));
        }
    }
    packets
}

fn packet(kind: &str, swarm: u8, client: u8, connection_id: ConnectionId) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let transaction_id = TransactionId(u32::from(swarm));
    let len = match kind {
        "connect" => {
            Connect { transaction_id }.write(bytes.first_chunk_mut().expect("is long enough"));
            16
        }
        "scrape" => {
            let hashes: Vec<_> = (0..10).map(|n| InfoHash([(swarm + n) % SWARMS; 20])).collect();
            Scrape::write(connection_id, transaction_id, &hashes, &mut bytes)
        }
        _ => Announce {
            transaction_id,
            peer_id: PeerId([client; 20]),
            left: u64::from(client % 2),
            num_want: 30,
            ..announce(connection_id, InfoHash([swarm; 20]))
        }
        .write(&mut bytes),
    };
    bytes[..len].to_vec()
}

fn send(clients: &mut Endpoint, packets: &[(Return, Vec<u8>)], first: usize, count: usize) {
    let batch = (first..first + count).map(|number| &packets[number % packets.len()]);
    clients.send(batch.map(|(to, bytes)| Reply { bytes, to }));
}

fn read(clients: &mut Endpoint) -> usize {
    let mut answers = 0;
    loop {
        match clients.receive(BATCH).expect("works").len() {
            0 => return answers,
            some => answers += some,
        }
    }
}
