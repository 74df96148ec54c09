//! A worker that does not keep up. A shard's worker: requests are dropped and counted, no batch is
//! lost, and the tracker recovers once the worker runs again. A socket's worker: what load shedding
//! drops makes room for requests with a connection id.

use std::net::{Ipv4Addr, SocketAddr};

use onrush_net::memory::{Conditions, Endpoint, Network, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::Connect;
use onrush_proto::{Announce, ConnectionId, InfoHash, Scrape, TransactionId};
use onrush_testing::memory_tracker::{
    TRACKER_V4, TestTracker, announce, at, connect, rules, secrets, settings,
};
use onrush_tracker::refusal::Refusal;
use onrush_tracker::shedding::Shedding;

const CLIENT: &str = "198.51.100.1:3000";
const BATCH: usize = 16;
const REQUESTS: usize = 40 * BATCH;

fn world(limits: &str) -> (TestTracker<Endpoint>, Endpoint) {
    let text = format!(
        "[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n\
         [socket]\nbatch = {BATCH}\n[limits]\n{limits}\n"
    );
    TestTracker::with_clients(&text, &[CLIENT.parse().unwrap()])
}

fn send(client: &mut Endpoint, packets: &[Vec<u8>]) {
    let tracker: SocketAddr = TRACKER_V4.parse().unwrap();
    let to = Return::to(tracker, 0);
    client.send(packets.iter().map(|packet| Reply { bytes: packet, to: &to }));
}

fn read(client: &mut Endpoint) -> usize {
    std::iter::from_fn(|| Some(client.receive(64).unwrap().len()).filter(|n| *n > 0)).sum()
}

/// Repeats of three announces and a scrape.
fn packets(connection_id: ConnectionId) -> Vec<Vec<u8>> {
    let packet = |n: usize| {
        let mut bytes = [0; 2048];
        let transaction_id = TransactionId(n as u32);
        let info_hash = InfoHash([n as u8; 20]);
        let len = if n % 4 == 3 {
            Scrape::write(connection_id, transaction_id, &[info_hash; 5], &mut bytes)
        } else {
            Announce { transaction_id, ..announce(connection_id, info_hash) }.write(&mut bytes)
        };
        bytes[..len].to_vec()
    };
    (0..REQUESTS).map(packet).collect()
}

/// Sends all requests while the swarm worker is stalled, then lets it run. Returns the number of
/// replies and of requests refused as busy.
fn overrun(limits: &str) -> (usize, usize, TestTracker<Endpoint>) {
    let (mut world, mut client) = world(limits);
    let packets = packets(connect(&mut world, &mut client, 0, at(1)));
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.workers[0].turn(at(1)).unwrap();
    }
    assert_eq!(read(&mut client), 0, "the swarm worker is stalled");
    world.settle(at(1));
    let answered = read(&mut client);
    let busy = world.summary().refused_for(Refusal::Busy) as usize;
    // All batches are free again: the same requests, sent one batch at a time, all get replies.
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.settle(at(2));
        assert_eq!(read(&mut client), batch.len());
    }
    assert_eq!(world.summary().refused_for(Refusal::Busy) as usize, busy);
    (answered, busy, world)
}

#[test]
fn a_paused_worker_loses_no_replies() {
    let (answered, busy, _) = overrun("batches_in_flight = 32");
    assert_eq!((answered, busy), (REQUESTS, 0));
}

#[test]
fn requests_beyond_the_share_of_batches_are_counted_as_busy() {
    let (answered, busy, world) = overrun("batches_in_flight = 2");
    assert_eq!(answered + busy, REQUESTS, "each request gets a reply or is counted");
    assert_eq!(answered, 2 * BATCH);
    assert_eq!(world.summary().lane_full, 0, "a lane holds the shares of all workers");
}

#[test]
fn scrapes_beyond_the_table_are_counted_as_busy() {
    let (answered, busy, _) = overrun("batches_in_flight = 64\nscrapes_in_flight = 5");
    assert_eq!((answered, busy), (REQUESTS / 4 * 3 + 5, REQUESTS / 4 - 5));
}

/// Requests that arrive one by one are the case in which small messages would fill a lane.
#[test]
fn a_thousand_single_requests_wait_for_a_paused_worker() {
    let (mut world, mut client) = world("batches_in_flight = 32");
    let packets = packets(connect(&mut world, &mut client, 0, at(1)));
    for packet in packets.iter().cycle().take(1_000) {
        send(&mut client, std::slice::from_ref(packet));
        world.workers[0].turn(at(1)).unwrap();
    }
    world.settle(at(1));
    assert_eq!(read(&mut client), 1_000);
    assert_eq!(world.summary().refused_for(Refusal::Busy), 0);
}

/// Scrapes with many hashes have their own limit: a receive batch full of them gets all replies.
#[test]
fn a_batch_of_the_longest_scrapes_gets_all_replies() {
    let text = "[workers]\nplacement = \"colocated\"\ntotal = 1\n";
    let (mut world, mut client) = TestTracker::with_clients(text, &[CLIENT.parse().unwrap()]);
    let id = connect(&mut world, &mut client, 0, at(1));
    let hashes: Vec<_> = (0..74).map(|n| InfoHash([n; 20])).collect();
    let packets: Vec<_> = (0..128)
        .map(|n| {
            let mut bytes = [0; 2048];
            let len = Scrape::write(id, TransactionId(n), &hashes, &mut bytes);
            bytes[..len].to_vec()
        })
        .collect();
    send(&mut client, &packets);
    world.settle(at(1));
    assert_eq!(read(&mut client), 128);
}

/// Sources of a flood.
const FLOODERS: usize = 250;
/// Requests per round beside eight announces with a valid id. The worker receives 64.
const FLOOD: usize = 120;

/// A round's flood.
#[derive(Clone, Copy, PartialEq)]
enum Flood {
    Connects,
    GuessedIds,
    Junk,
}

impl Flood {
    fn datagram(self, number: usize) -> Vec<u8> {
        let mut bytes = vec![0; 98];
        // A linear congruential generator (Knuth): the lowest bits have a short period.
        let random = |n: usize| (n as u64).wrapping_mul(6_364_136_223_846_793_005) >> 20;
        match self {
            Self::Connects => {
                Connect { transaction_id: TransactionId(number as u32) }
                    .write((&mut bytes[..16]).try_into().unwrap());
                bytes.truncate(16);
            }
            Self::GuessedIds => {
                announce(ConnectionId(random(number)), InfoHash([3; 20])).write(&mut bytes);
            }
            Self::Junk => bytes[..16].copy_from_slice(&[number as u8 | 4; 16]),
        }
        bytes
    }
}

/// Floods a worker, with or without load shedding. Returns the shares of announces with a valid id
/// and of the flood's connects that are answered.
fn flooded(flood: Flood, share: Option<f64>) -> (f64, f64) {
    let text = "[workers]\nplacement = \"colocated\"\ntotal = 1\n[socket]\nbatch = 64\n";
    let options = Options { receive_buffer: 128, ..Options::default() };
    let network = Network::with_options(1, Conditions::default(), options);
    let settings = settings(text);
    let mut world = TestTracker::new(&settings, &secrets(1), &network, |endpoint| endpoint);
    let mut client = network.bind(&[CLIENT.parse().unwrap()]).unwrap();
    let sources: Vec<SocketAddr> =
        (0..FLOODERS).map(|n| (Ipv4Addr::new(203, 0, 113, n as u8), 4_000).into()).collect();
    let mut flooders = network.bind(&sources).unwrap();
    let id = connect(&mut world, &mut client, 0, at(1));
    let before = network.counts();
    let shedding = share.map(|share| Shedding::new([9; 16]).with_share(share));
    let side = world.workers[0].socket_side.as_mut().unwrap();
    side.update(&onrush_tracker::rules::Rules { shedding, ..rules(&settings) });
    world.settle(at(1));
    let (mut sent, mut answered, mut connects, mut flooded) = (0, 0, 0, 0);
    for round in 0..400 {
        let packets = packets(id);
        for (number, packet) in packets.iter().step_by(4).take(8).enumerate() {
            send(&mut client, std::slice::from_ref(packet));
            sent += 1;
            for part in 0..FLOOD / 8 {
                let number = (round * FLOOD + number * FLOOD / 8 + part) % 60_000;
                let to = Return::to(TRACKER_V4.parse().unwrap(), (number * 7 % FLOODERS) as u16);
                let bytes = flood.datagram(number);
                flooders.send(std::iter::once(Reply { bytes: &bytes, to: &to }));
                flooded += 1;
            }
        }
        world.workers[0].turn(at(1 + round as u64 / 4)).unwrap();
        answered += read(&mut client);
        connects += read(&mut flooders);
    }
    world.settle(at(101));
    answered += read(&mut client);
    connects += read(&mut flooders);
    let (counts, summary) = (network.counts(), world.summary());
    assert_eq!(
        (sent + flooded) as u64,
        summary.datagrams - 1 + (counts.dropped - before.dropped) + counts.filtered,
        "received, lost and shed are what was sent"
    );
    assert_eq!(counts.filtered > 0, share.is_some());
    (answered as f64 / f64::from(sent), connects as f64 / f64::from(flooded))
}

#[test]
fn with_fewer_connects_requests_with_an_id_find_room() {
    let (announces, connects) = flooded(Flood::Connects, None);
    assert!((0.4..0.65).contains(&announces), "{announces}");
    assert!((0.4..0.6).contains(&connects), "{connects}");
    let (announces, connects) = flooded(Flood::Connects, Some(0.4));
    assert!(announces > 0.99, "{announces}");
    assert!((0.3..0.5).contains(&connects), "{connects}");
}

/// A random id has a valid tag in every second case, and junk is never a request.
#[test]
fn guessed_ids_and_junk_are_shed_without_thinning_connects() {
    let (announces, _) = flooded(Flood::GuessedIds, None);
    assert!(announces < 0.65, "{announces}");
    let (announces, _) = flooded(Flood::GuessedIds, Some(1.0));
    assert!(announces > 0.85, "{announces}");
    let (announces, _) = flooded(Flood::Junk, Some(1.0));
    assert!(announces > 0.99, "{announces}");
}
