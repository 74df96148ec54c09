//! A worker that does not keep up. A shard's worker: requests are dropped and counted, no batch is
//! lost, and the tracker recovers once the worker runs again. A socket's worker: the datagrams that
//! the kernel's filter drops make room for requests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use onrush_net::filter::Filter;
use onrush_net::memory::{Conditions, Endpoint, Network, Options, Waker};
use onrush_net::{Drops, Received, Reply, Return, Sent, Socket};
use onrush_proto::{Announce, Connect, ConnectionId, InfoHash, Scrape, TransactionId};
use onrush_testing::memory_tracker::{
    TRACKER_V4, TestTracker, announce, at, connect, rules, secrets, settings,
};
use onrush_tracker::metrics::REPLIES;
use onrush_tracker::refusal::Refusal;
use onrush_tracker::rules::Rules;

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

/// The number of replies that have arrived, by action: connects, announces, scrapes, errors.
fn read(client: &mut Endpoint) -> [usize; REPLIES.len()] {
    let mut actions = [0; REPLIES.len()];
    loop {
        let received = client.receive(64).unwrap();
        if received.is_empty() {
            return actions;
        }
        received.iter().for_each(|(reply, _)| actions[usize::from(reply[3])] += 1);
    }
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

/// Sends all requests while the swarm worker is stalled, then lets it run. Returns the numbers of
/// announces and scrapes answered, and of requests refused as busy.
fn overrun(limits: &str) -> ([usize; 2], usize, TestTracker<Endpoint>) {
    let (mut world, mut client) = world(limits);
    let packets = packets(connect(&mut world, &mut client, 0, at(1)));
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.workers[0].turn(at(1)).unwrap();
    }
    assert_eq!(read(&mut client), [0; 4], "the swarm worker is stalled");
    world.settle(at(1));
    let [0, announces, scrapes, 0] = read(&mut client) else { panic!("only these were sent") };
    let busy = world.summary().refused_for(Refusal::Busy) as usize;
    // All batches are free again: the same requests, sent one batch at a time, all get replies.
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.settle(at(2));
        assert_eq!(read(&mut client), [0, batch.len() / 4 * 3, batch.len() / 4, 0]);
    }
    assert_eq!(world.summary().refused_for(Refusal::Busy) as usize, busy);
    ([announces, scrapes], busy, world)
}

#[test]
fn a_paused_worker_loses_no_replies() {
    let (answered, busy, _) = overrun("batches_in_flight = 32");
    assert_eq!((answered, busy), ([REQUESTS / 4 * 3, REQUESTS / 4], 0));
}

#[test]
fn requests_beyond_the_share_of_batches_are_counted_as_busy() {
    let (answered, busy, world) = overrun("batches_in_flight = 2");
    assert_eq!(answered, [2 * BATCH / 4 * 3, 2 * BATCH / 4]);
    assert_eq!(busy, REQUESTS - 2 * BATCH, "each request gets a reply or is counted");
    assert_eq!(world.summary().lane_full, 0, "a lane holds the shares of all workers");
}

#[test]
fn scrapes_beyond_the_table_are_counted_as_busy() {
    let (answered, busy, _) = overrun("batches_in_flight = 64\nscrapes_in_flight = 5");
    assert_eq!((answered, busy), ([REQUESTS / 4 * 3, 5], REQUESTS / 4 - 5));
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
    assert_eq!(read(&mut client), [0, 750, 250, 0]);
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
    assert_eq!(read(&mut client), [0, 0, 128, 0]);
}

/// Sources of a flood.
const FLOODERS: usize = 250;
/// Announces with a valid id in each of as many rounds, and requests of the flood beside them.
const ANNOUNCES: usize = 8;
const FLOOD: usize = 120;
const ROUNDS: usize = 400;
/// Datagrams that the worker receives in a round, and datagrams that its buffer holds.
const CAPACITY: usize = 64;
const BUFFER: usize = 128;

/// The requests of a flood.
#[derive(Clone, Copy, PartialEq)]
enum Flood {
    Connects,
    GuessedIds,
    /// Guesses by an attacker who has seen a valid id, and uses its tag.
    TaggedIds,
    Junk,
}

impl Flood {
    fn datagram(self, number: usize, valid: ConnectionId) -> Vec<u8> {
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
            Self::TaggedIds => {
                let id = random(number) & !3 | valid.0 & 3;
                announce(ConnectionId(id), InfoHash([3; 20])).write(&mut bytes);
            }
            Self::Junk => bytes[..16].copy_from_slice(&[number as u8 | 4; 16]),
        }
        bytes
    }
}

/// A network on which one worker can be flooded.
fn flooded_network() -> Network {
    let options = Options { receive_buffer: BUFFER, ..Options::default() };
    Network::with_options(1, Conditions::default(), options)
}

/// A tracker with one worker, which receives [`CAPACITY`] datagrams in a turn.
fn one_worker() -> String {
    let workers = "[workers]\nplacement = \"colocated\"\ntotal = 1\n";
    format!("{workers}[socket]\nbatch = {CAPACITY}\n")
}

/// Result of a flood and of the announces beside it.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Announces with a valid id that got a reply.
    announces: usize,
    /// Connects of the flood that got one.
    connects: usize,
    /// Datagrams that the filter has dropped.
    filtered: u64,
    /// Datagrams that the full buffer has dropped.
    lost: u64,
}

/// Floods a worker, with the kernel's filter or without.
fn flood(flood: Flood, kernel_filter: bool) -> Outcome {
    let (network, settings) = (flooded_network(), settings(&one_worker()));
    let mut world = TestTracker::new(&settings, &secrets(1), &network, |endpoint| endpoint);
    let mut client = network.bind(&[CLIENT.parse().unwrap()]).unwrap();
    let sources: Vec<SocketAddr> =
        (0..FLOODERS).map(|n| (Ipv4Addr::new(203, 0, 113, n as u8), 4_000).into()).collect();
    let mut flooders = network.bind(&sources).unwrap();
    let id = connect(&mut world, &mut client, 0, at(1));
    let side = world.workers[0].socket_side.as_mut().unwrap();
    side.update(&Rules { kernel_filter, ..rules(&settings) });
    world.settle(at(1));
    let (mut announces, mut connects) = (0, 0);
    let mut count = |client: &mut Endpoint, flooders: &mut Endpoint| {
        let ([0, answered, 0, 0], [more, 0, 0, 0]) = (read(client), read(flooders)) else {
            panic!("replies to announces of the client and to connects of the flood only");
        };
        (announces, connects) = (announces + answered, connects + more);
    };
    for round in 0..ROUNDS {
        let packets = packets(id);
        for (number, packet) in packets.iter().step_by(4).take(ANNOUNCES).enumerate() {
            send(&mut client, std::slice::from_ref(packet));
            for part in 0..FLOOD / ANNOUNCES {
                let number = (round * FLOOD + number * FLOOD / ANNOUNCES + part) % 60_000;
                let to = Return::to(TRACKER_V4.parse().unwrap(), (number * 7 % FLOODERS) as u16);
                let bytes = flood.datagram(number, id);
                flooders.send(std::iter::once(Reply { bytes: &bytes, to: &to }));
            }
        }
        world.workers[0].turn(at(1 + round as u64 / 4)).unwrap();
        count(&mut client, &mut flooders);
    }
    world.settle(at(101));
    count(&mut client, &mut flooders);
    let (counts, sum) = (network.counts(), world.summary());
    let received = sum.datagrams - 1;
    assert_eq!(
        (ROUNDS * (ANNOUNCES + FLOOD)) as u64,
        received + counts.dropped + counts.filtered,
        "received, lost and filtered are what was sent"
    );
    assert_eq!((sum.kernel_drops, sum.kernel_shed), (counts.dropped, counts.filtered));
    Outcome { announces, connects, filtered: counts.filtered, lost: counts.dropped }
}

/// All datagrams of the flood.
const FLOODED: usize = ROUNDS * FLOOD;
/// Datagrams that the worker receives in all rounds without a filter. Its buffer is full from the
/// first round to the last. One in sixteen is an announce with a valid id.
const RECEIVED: usize = (ROUNDS - 1) * CAPACITY + BUFFER;
const UNFILTERED: Outcome = Outcome {
    announces: RECEIVED / 16,
    connects: 0,
    filtered: 0,
    lost: (ROUNDS * ANNOUNCES + FLOODED - RECEIVED) as u64,
};

/// In a flood of connects the filter costs newcomers nothing.
#[test]
fn no_connect_is_filtered() {
    let expected = Outcome { connects: RECEIVED / 16 * 15, ..UNFILTERED };
    assert_eq!(flood(Flood::Connects, false), expected);
    assert_eq!(flood(Flood::Connects, true), expected);
}

/// Half of the random ids have a valid tag, and junk is never a request.
#[test]
fn guessed_ids_and_junk_are_filtered() {
    assert_eq!(flood(Flood::GuessedIds, false), UNFILTERED);
    let guesses = flood(Flood::GuessedIds, true);
    let filtered = 23_993;
    let lost = UNFILTERED.lost - filtered;
    assert_eq!(guesses, Outcome { announces: 3_128, connects: 0, filtered, lost });
    let junk = flood(Flood::Junk, true);
    let (announces, filtered) = (ROUNDS * ANNOUNCES, FLOODED as u64);
    assert_eq!(junk, Outcome { announces, connects: 0, filtered, lost: 0 });
}

/// docs/PROMISES.md promises nothing about this flood.
#[test]
fn guessed_ids_with_a_valid_tag_are_not_filtered() {
    assert_eq!(flood(Flood::TaggedIds, true), UNFILTERED);
}

/// Peers are loaded, or another process has the socket, before a worker's first turn.
#[test]
fn drops_before_the_first_turn_are_not_counted() {
    let (network, settings) = (flooded_network(), settings(&one_worker()));
    let mut world = TestTracker::new(&settings, &secrets(1), &network, |endpoint| endpoint);
    let mut client = network.bind(&[CLIENT.parse().unwrap()]).unwrap();
    let junk = vec![Flood::Junk.datagram(1, ConnectionId(0)); 3 * BUFFER];
    let mut counted = |second| {
        send(&mut client, &junk);
        world.settle(at(second));
        world.workers[0].metrics.kernel_drops.get()
    };
    assert_eq!((counted(1), counted(2)), (0, 2 * BUFFER as u64));
}

/// A worker with several kernel sockets, of which one refuses a filter after others have taken it.
struct Refusing(Endpoint);

impl Socket for Refusing {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.wait(timeout)
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.0.receive(limit)
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        self.0.send(replies)
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        self.0.set_filter(filter)?;
        if filter.is_none() { Ok(()) } else { Err(io::Error::from_raw_os_error(ENOMEM)) }
    }

    fn dropped(&self) -> Drops {
        self.0.dropped()
    }
}

const ENOMEM: i32 = 12;

/// The supervisor's reaction: `a_refused_filter_is_warned_of_once_and_tried_again_after_minutes`.
#[test]
fn a_refused_filter_is_reported_and_removed_from_every_socket() {
    let (network, settings) = (flooded_network(), settings(&one_worker()));
    let mut world = TestTracker::new(&settings, &secrets(1), &network, Refusing);
    let mut client = network.bind(&[CLIENT.parse().unwrap()]).unwrap();
    world.settle(at(1));
    let refusal = |world: &TestTracker<Refusing>| {
        let error = world.workers[0].metrics.filter_refusal.get();
        error.and_then(|error| error.raw_os_error())
    };
    assert_eq!(refusal(&world), None);
    let mut update = |kernel_filter| {
        let side = world.workers[0].socket_side.as_mut().unwrap();
        side.update(&Rules { kernel_filter, ..rules(&settings) });
        world.settle(at(2));
        send(&mut client, &[Flood::Junk.datagram(1, ConnectionId(0))]);
        world.settle(at(2));
        (refusal(&world), world.summary().datagrams)
    };
    assert_eq!(update(true), (Some(ENOMEM), 0));
    assert_eq!(update(false), (None, 1), "junk is received, so that no filter is left");
}
