//! The duration of a worker's turns at full load: 10 M peers are stored, a third of them has
//! expired and is being swept, and in each turn 128 announces wait in a real socket on loopback.
//! Processor time of this thread per turn: receiving, serving, sending, sweeping, and the kernel's
//! share of these.
//!
//! `cargo run --release -p onrush-lab --features jemalloc --bin turns -- [PEERS [TURNS]]`: the
//! feature picks the daemon's allocator.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_lab::measure::{processor_time, quantile};
use onrush_net::bind::{Address, Buffers, Options, bind_group};
use onrush_net::mio::{self, Backend};
use onrush_proto::{
    Announce, Connect, ConnectionId, Endpoint, Event, Family, InfoHash, Response, TransactionId,
};
use onrush_swarm::{Moment, Shard, ShardBatch};
use onrush_testing::memory_tracker::{announce, secrets, settings};
use onrush_tracker::assemble::assemble;
use onrush_tracker::clock::Now;
use onrush_tracker::worker::Worker;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Datagrams in a turn, each from a socket of its own, so that no replies are grouped.
const BATCH: usize = 128;
/// The lifetime of peers, seconds.
const LIFETIME: u32 = 3_600;
/// A second of the worker's time: about as many turns as under full load.
const TURNS_PER_SECOND: u64 = 1_000;
/// Half of the peers are in swarms of about 1,000, the others in swarms of about two.
const LARGE: u32 = 1_000;
/// The target, and the duration of a long turn.
const TARGET: Duration = Duration::from_micros(1_500);

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse::<u32>().expect("a number"));
    let peers = arguments.next().unwrap_or(10_000_000);
    let turns = u64::from(arguments.next().unwrap_or(100_000));
    let text = format!(
        "[workers]\nplacement = \"colocated\"\ntotal = 1\n[socket]\nbatch = {BATCH}\n\
         [announce]\ninterval = 1800\npeer_lifetime = {LIFETIME}\n[limits]\npeers = 20000000\n"
    );
    let settings = settings(&text);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let address = Address { address: loopback, optional: false };
    let buffers =
        Buffers { receive: settings.socket.receive_buffer, send: settings.socket.send_buffer };
    let group = bind_group(&[address], &Options { workers: 1, buffers, probe: true })
        .expect("loopback is there");
    let tracker = group.addresses[0];
    let options = mio::Options { batch: BATCH, ..mio::Options::default() };
    let sockets = group
        .workers
        .into_iter()
        .map(|sockets| Backend::new(sockets, options).expect("descriptors are left"))
        .collect();
    let lists = onrush_store::lists::load(&settings, &mut || {}).unwrap();
    let mut workers = assemble(&settings.workers(), &secrets(1), sockets, &settings.rules(&lists));
    let worker = &mut workers[0];

    let filled = Instant::now();
    fill(&mut worker.swarm_side.as_mut().expect("a colocated worker").shard, peers);
    println!("filled with {peers} peers in {:.1} s", filled.elapsed().as_secs_f64());
    let mut load = Load::new(tracker, peers);
    load.connect(worker);
    // Warms up tables and buffers.
    measure(worker, &mut load, 0, 2_000);
    let times = measure(worker, &mut load, 2_000, turns);
    print(&times, worker);
}

/// Prints the quantiles of sorted times.
fn print(times: &[Duration], worker: &Worker<Backend>) {
    let totals = worker.swarm_side.as_ref().expect("a colocated worker").shard.totals();
    println!("{} turns, {} peers left, {} expired", times.len(), totals.peers(), totals.expired);
    for (name, share) in
        [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("longest", 1.0)]
    {
        println!("{name:<8} {:>9.1} us", quantile(times, share).as_nanos() as f64 / 1_000.0);
    }
    let long = times.iter().filter(|time| **time > TARGET).count();
    println!("{long} over {} us", TARGET.as_micros());
}

/// Turns with a full socket each; returns their durations, sorted.
fn measure(worker: &mut Worker<Backend>, load: &mut Load, first: u64, turns: u64) -> Vec<Duration> {
    let mut times = Vec::with_capacity(turns as usize);
    let mut answered = 0;
    for turn in first..first + turns {
        load.send();
        let now = now(turn);
        let start = processor_time();
        worker.turn(now).expect("the socket works");
        times.push(processor_time() - start);
        answered += load.drain();
    }
    assert!(answered >= turns * BATCH as u64 * 99 / 100, "only {answered} answers");
    times.sort_unstable();
    times
}

/// The peers were stored over a lifetime; now a third of them has expired.
fn now(turn: u64) -> Now {
    let seconds = LIFETIME + LIFETIME / 3 + (turn / TURNS_PER_SECOND) as u32;
    Now { moment: Moment(seconds), unix: 1_800_000_000 }
}

/// Stores peers, spread over a lifetime.
fn fill(shard: &mut Shard, peers: u32) {
    let mut rng = SmallRng::seed_from_u64(2);
    let mut batch: ShardBatch<(), ()> = ShardBatch::new(64, 0, 64 * 512);
    for number in 0..peers {
        let announce = onrush_swarm::Announce {
            info_hash: swarm(rng.random_range(0..peers), peers),
            endpoint: Endpoint::V4(rng.random()),
            event: Event::Started,
            seeder: number.is_multiple_of(3),
            want: 0,
            transaction_id: TransactionId(0),
        };
        batch.push_announce(announce, ()).expect("a batch with free space");
        if number % 64 == 63 || number + 1 == peers {
            let moment = u64::from(number) * u64::from(LIFETIME) / u64::from(peers);
            shard.serve(&mut batch, Moment(moment as u32));
            batch.clear();
        }
    }
}

/// The swarm of a peer: a large one for every second peer.
fn swarm(peer: u32, peers: u32) -> InfoHash {
    let number = if peer < peers / 2 { peer / LARGE } else { peer / 2 };
    InfoHash(SmallRng::seed_from_u64(number.into()).random())
}

/// The clients: 128 sockets.
struct Load {
    sockets: Vec<UdpSocket>,
    id: ConnectionId,
    peers: u32,
    rng: SmallRng,
}

impl Load {
    fn new(tracker: SocketAddr, peers: u32) -> Self {
        let socket = |_| {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is left");
            socket.connect(tracker).expect("connect to the tracker");
            socket.set_nonblocking(true).expect("sockets can");
            socket
        };
        let sockets = (0..BATCH).map(socket).collect();
        Self { sockets, id: ConnectionId(0), peers, rng: SmallRng::seed_from_u64(3) }
    }

    fn connect(&mut self, worker: &mut Worker<Backend>) {
        let mut bytes = [0; 64];
        Connect { transaction_id: TransactionId(1) }
            .write(bytes.first_chunk_mut().expect("a buffer for a request"));
        self.sockets[0].send(&bytes[..16]).expect("send a connect");
        let deadline = Instant::now() + Duration::from_secs(10);
        let len = loop {
            worker.turn(now(0)).expect("the socket works");
            match self.sockets[0].recv(&mut bytes) {
                Ok(len) => break len,
                Err(error) => assert!(Instant::now() < deadline, "no answer: {error}"),
            }
        };
        match Response::parse(&bytes[..len], Family::V4) {
            Ok(Response::Connect(response)) => self.id = response.connection_id,
            other => panic!("{other:?}"),
        }
    }

    /// One announce from each socket, of a random peer.
    fn send(&mut self) {
        let mut bytes = [0; 128];
        for socket in &self.sockets {
            let info_hash = swarm(self.rng.random_range(0..self.peers), self.peers);
            let port = self.rng.random_range(1_024..=u16::MAX);
            let left = u64::from(port % 3);
            let announce = Announce { port, left, ..announce(self.id, info_hash) };
            let len = announce.write(&mut bytes);
            socket.send(&bytes[..len]).expect("send a request");
        }
    }

    /// Receives all replies; returns their number.
    fn drain(&mut self) -> u64 {
        let mut bytes = [0; 2048];
        let mut answers = 0;
        for socket in &self.sockets {
            while socket.recv(&mut bytes).is_ok() {
                answers += 1;
            }
        }
        answers
    }
}
