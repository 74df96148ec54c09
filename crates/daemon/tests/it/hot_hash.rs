//! An info hash that gets half of all announces, on four colocated workers: its worker is
//! overloaded, steering to that worker backs off, and announces of all other info hashes get
//! replies. Real sockets, the kernel's steering and its drops; the test schedules the turns of the
//! workers, one of [`CAPACITY`] datagrams in each round, so that the capacity of a worker does not
//! depend on the machine. A second is [`ROUNDS`] rounds. No request is repeated.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use onrush::effect::SteeringChange;
use onrush::overload::load::WorkerLoad;
use onrush::overload::steering_backoff::SteeringBackoff;
use onrush_net::bind::{Address, Buffers, Options, bind_group};
use onrush_net::mio;
use onrush_net::steering::{Function, Steering};
use onrush_proto::InfoHash;
use onrush_testing::memory_tracker::{at, rules, secrets, settings};
use onrush_tracker::assemble::{assemble, shard_map};
use onrush_tracker::worker::Worker;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{leecher, packets, u32_at, u64_at};

const WORKERS: usize = 4;
/// Datagrams that a worker receives in a round; 320 for all four.
const CAPACITY: usize = 80;
/// Each client sends one announce per round, every other one for the hot hash: 125 of them are
/// steered to one worker.
const CLIENTS: usize = 200;
/// Rounds in a second.
const ROUNDS: usize = 20;
/// Swarms beside the hot one.
const SWARMS: usize = 1_000;
/// Marks transaction ids of announces for the hot hash.
const HOT: u32 = 1 << 31;

#[test]
fn a_hot_info_hash_costs_others_less_than_one_percent() {
    let mut tracker = Tracker::new();
    let mut backoff = SteeringBackoff::new(WORKERS);
    let mut withdrawals = 0;
    for second in 1..=120 {
        tracker.second(second);
        for change in backoff.observe(&tracker.loads(), at(second).moment) {
            if let SteeringChange::Withdraw(worker) = change {
                assert_eq!(worker, tracker.hot_worker, "the overloaded worker is withdrawn");
                withdrawals += 1;
            }
            change.apply(&mut tracker.steering).unwrap();
        }
    }
    tracker.drain(121);
    assert!(withdrawals > 1, "steering was restored and withdrawn: {withdrawals}");
    assert_eq!(tracker.steering.withdrawn(), [tracker.hot_worker as u16]);
    assert_only_the_hot_worker_dropped(&tracker);
    let [hot, others] = tracker.lost();
    println!("lost of the hot hash {hot:.4}, of the others {others:.4}, {withdrawals} withdrawals");
    assert!(others < 0.01, "{others} of {:?}", tracker.sent);
}

/// The control of the test above: without the back-off the hot worker keeps dropping requests for
/// the hot hash and for every other hash that is steered to it.
#[test]
fn without_steering_backoff_other_hashes_lose_replies() {
    let mut tracker = Tracker::new();
    for second in 1..=10 {
        tracker.second(second);
    }
    tracker.drain(11);
    assert_only_the_hot_worker_dropped(&tracker);
    let [hot, others] = tracker.lost();
    assert!(hot > 0.25, "the hot worker gets 1.5 times its capacity: {hot}");
    assert!(others > 0.05, "a quarter of the others is steered to the hot worker: {others}");
}

fn assert_only_the_hot_worker_dropped(tracker: &Tracker) {
    for (worker, drops) in tracker.drops().into_iter().enumerate() {
        assert_eq!(drops > 0, worker == tracker.hot_worker, "worker {worker} dropped {drops}");
    }
}

/// Four workers on real sockets, and their clients.
struct Tracker {
    workers: Vec<Worker<mio::Backend>>,
    steering: Steering,
    /// Datagrams that each worker had received and lost before this second.
    counted: Vec<(u64, u64)>,
    /// The worker that owns the hot hash.
    hot_worker: usize,
    address: SocketAddr,
    clients: Vec<UdpSocket>,
    hashes: Vec<InfoHash>,
    rng: SmallRng,
    /// Announces sent and answered: for the hot hash, and for others.
    sent: [u64; 2],
    answered: [u64; 2],
}

impl Tracker {
    fn new() -> Self {
        let text = format!(
            "[workers]\nplacement = \"colocated\"\ntotal = {WORKERS}\n\
             [socket]\nbatch = {CAPACITY}\n"
        );
        let (settings, secrets) = (settings(&text), secrets(3));
        let address = Address { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        // Holds a few hundred small datagrams.
        let buffers = Buffers { receive: 128 * 1024, send: 0 };
        let options = Options { workers: WORKERS, buffers, probe: true };
        let group = bind_group(&[address], &options).unwrap();
        let map = shard_map(settings.placement.shards(), &secrets);
        // Steering as in the daemon: the info hash is at byte 16.
        let (multipliers, buckets) = (map.key(), map.shards());
        let function = Function { offset: 16, multipliers, min_len: 36, buckets };
        let (steering, notices) = Steering::attach(function, &group);
        assert!(notices.is_empty(), "{notices:?}");
        let address = group.addresses[0];
        let options = mio::Options { batch: CAPACITY, ..mio::Options::default() };
        let backend = |sockets| mio::Backend::new(sockets, options).unwrap();
        let sockets = group.workers.into_iter().map(backend).collect();
        let mut rng = SmallRng::seed_from_u64(5);
        let hashes: Vec<_> = (0..=SWARMS).map(|_| InfoHash(rng.random())).collect();
        Self {
            workers: assemble(&settings.workers(), &secrets, sockets, &rules(&settings)),
            steering,
            counted: vec![(0, 0); WORKERS],
            hot_worker: map.shard_of(&hashes[0]),
            address,
            clients: (0..CLIENTS).map(|_| client()).collect(),
            hashes,
            rng,
            sent: [0; 2],
            answered: [0; 2],
        }
    }

    /// Every client announces, round by round.
    fn second(&mut self, second: u64) {
        let id = self.connect(second);
        for round in 0..ROUNDS {
            for client in 0..CLIENTS {
                let hot = (client + round).is_multiple_of(2);
                self.announce(client, id, hot);
            }
            self.turn(second);
            self.count_replies();
        }
    }

    /// Rounds without requests, until every reply is sent.
    fn drain(&mut self, second: u64) {
        while self.turn(second) {}
        self.count_replies();
    }

    /// Every worker takes one turn. Returns whether any worker was busy.
    fn turn(&mut self, second: u64) -> bool {
        let turn =
            |worker: &mut Worker<_>| worker.turn(at(second)).expect("a turn without socket errors");
        self.workers.iter_mut().fold(false, |busy, worker| turn(worker) | busy)
    }

    /// A connection id, valid for all clients, as they share an address.
    fn connect(&mut self, second: u64) -> u64 {
        let client = client();
        client.send_to(&packets::connect(0), self.address).unwrap();
        let mut buffer = [0; 16];
        // Replies to other requests may be queued before the reply to the connect.
        for _ in 0..100 {
            self.turn(second);
            if let Some(reply) = receive(&client, &mut buffer) {
                assert_eq!((reply.len(), u32_at(reply, 0)), (16, 0), "a connect response");
                return u64_at(reply, 8);
            }
        }
        panic!("no reply to a connect");
    }

    fn announce(&mut self, client: usize, id: u64, hot: bool) {
        let number = if hot { 0 } else { self.rng.random_range(1..=SWARMS) };
        let mark = if hot { HOT } else { 0 };
        let request = leecher(self.hashes[number], 1_025 + client as u16).want(10);
        let request = request.bytes(id, mark | client as u32);
        self.clients[client].send_to(&request, self.address).unwrap();
        self.sent[usize::from(!hot)] += 1;
    }

    fn count_replies(&mut self) {
        let mut buffer = [0; 2048];
        for client in &self.clients {
            while let Some(reply) = receive(client, &mut buffer) {
                assert_eq!(u32_at(reply, 0), 1, "an announce response: {reply:02x?}");
                self.answered[usize::from(u32_at(reply, 4) & HOT == 0)] += 1;
            }
        }
    }

    /// The share of announces without a reply: for the hot hash, and for others.
    fn lost(&self) -> [f64; 2] {
        [0, 1].map(|kind| {
            let (sent, answered) = (self.sent[kind], self.answered[kind]);
            assert!(sent > 0 && answered <= sent, "{answered} of {sent}");
            (sent - answered) as f64 / sent as f64
        })
    }

    /// Datagrams that the kernel has dropped at each worker.
    fn drops(&self) -> Vec<u64> {
        self.workers.iter().map(|worker| worker.metrics.kernel_drops.get()).collect()
    }

    /// The workers' loads since the previous call: here nothing but lack of room causes drops, and
    /// only at workers that receive all the time.
    fn loads(&mut self) -> Vec<WorkerLoad> {
        let received = self.workers.iter().map(|worker| worker.metrics.incoming.v4.datagrams.get());
        let counts: Vec<_> = received.zip(self.drops()).collect();
        let before = std::mem::replace(&mut self.counted, counts);
        let load = |(now, before): (&(u64, u64), (u64, u64))| {
            let (received, lost) = (now.0 - before.0, now.1 - before.1);
            WorkerLoad { received, lost, is_busy: lost > 0 }
        };
        self.counted.iter().zip(before).map(load).collect()
    }
}

fn client() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The next datagram, if one has arrived.
fn receive<'a>(client: &UdpSocket, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    match client.recv(buffer) {
        Ok(len) => Some(&buffer[..len]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}
