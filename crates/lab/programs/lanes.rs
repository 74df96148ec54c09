//! The cost of a hop between workers, by requests per message: batches travel to another worker and
//! back over the tracker's lanes, and for comparison over wait-free rings, one per pair of workers.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin lanes -- [seconds for each figure]
//! valgrind --tool=callgrind target/release/lanes count KIND REQUESTS MESSAGES
//! ```
//!
//! A message is filled with announces, served by a shard and read, as in the tracker; the same work
//! without a hop (`direct`) is subtracted. Time is CPU time of both threads, including sleeping and
//! waking as in the tracker (a socket worker sleeps in its socket and is woken by an eventfd, a
//! swarm worker parks). `count` runs on one thread without sleeping, for counting instructions.
//!
//! Kinds: `direct`; `lanes`, as the tracker uses them; `rings`, one pair; `rings36`, the same with
//! each side polling 36 rings, as it would have to with 36 workers on the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::Parker;
use onrush_lab::measure::processor_time;
use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{self, Backend};
use onrush_net::{Return, Socket, affinity};
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};
use onrush_tracker::lanes::sleep::SleepFlag;
use onrush_tracker::lanes::wake::{SocketWaker, Waker};
use onrush_tracker::lanes::{Batch, Inbox, Lane, Requests, lanes_to};
use onrush_tracker::scrape_join::Place;

/// Requests per message.
const SIZES: [usize; 6] = [1, 2, 4, 8, 32, 128];
/// The kinds of hops.
const HOPS: [&str; 3] = ["lanes", "rings", "rings36"];
/// The most batches in flight.
const WINDOW: usize = 8;
/// As in a worker's turn.
const PARCELS_PER_TURN: usize = 16;
/// Distinct announces, used in rotation.
const ANNOUNCES: usize = 4096;
const NAP: Duration = Duration::from_millis(50);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["count", kind, requests, messages] => {
            count(kind, number(requests), number(messages) as u64);
        }
        [] => measure(1.0),
        [seconds] => measure(seconds.parse().expect("seconds")),
        _ => eprintln!("usage: lanes [SECONDS] | lanes count KIND REQUESTS MESSAGES"),
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

// The ends of a hop

/// The sending end of one side.
enum Sender {
    Lane(Lane),
    Ring(RingSender),
}

impl Sender {
    #[inline]
    fn send(&mut self, parcel: Batch) {
        let sent = match self {
            Self::Lane(lane) => lane.try_send(parcel).is_ok(),
            Self::Ring(ring) => ring.push(parcel),
        };
        assert!(sent, "has room for all there are");
    }
}

/// The receiving end of one side, where it sleeps.
enum Receiver {
    Requests(Inbox),
    Returns(Inbox),
    Rings(RingReceiver),
}

impl Receiver {
    #[inline]
    fn next(&mut self) -> Option<Batch> {
        match self {
            Self::Requests(inbox) => inbox.request(),
            Self::Returns(inbox) => inbox.returned(),
            Self::Rings(rings) => rings.pop(),
        }
    }

    fn sleep(&self, wait: impl FnOnce()) {
        match self {
            Self::Requests(inbox) | Self::Returns(inbox) => inbox.sleep(wait),
            Self::Rings(all) => {
                all.sleeper.sleep(|| all.rings.iter().any(|ring| !ring.is_empty()), wait);
            }
        }
    }
}

/// A ring of one pair, with the tracker's sleep protocol.
struct RingSender {
    ring: rtrb::Producer<Batch>,
    sleeper: Arc<CachePadded<SleepFlag>>,
    waker: Arc<dyn Waker>,
}

impl RingSender {
    #[inline]
    fn push(&mut self, parcel: Batch) -> bool {
        let sent = self.ring.push(parcel).is_ok();
        if self.sleeper.must_wake() {
            self.waker.wake();
        }
        sent
    }
}

/// All rings to one worker.
struct RingReceiver {
    rings: Vec<rtrb::Consumer<Batch>>,
    next: usize,
    sleeper: Arc<CachePadded<SleepFlag>>,
    /// The other ends of rings that are unused here.
    _idle: Vec<rtrb::Producer<Batch>>,
}

impl RingReceiver {
    #[inline]
    fn pop(&mut self) -> Option<Batch> {
        for _ in 0..self.rings.len() {
            if let Ok(parcel) = self.rings[self.next].pop() {
                return Some(parcel);
            }
            self.next = if self.next + 1 == self.rings.len() { 0 } else { self.next + 1 };
        }
        None
    }
}

fn ring(waker: Arc<dyn Waker>, pairs: usize) -> (Sender, Receiver) {
    let sleeper = Arc::new(CachePadded::new(SleepFlag::new()));
    let (idle, mut rings): (Vec<_>, Vec<_>) =
        (1..pairs).map(|_| rtrb::RingBuffer::new(WINDOW)).unzip();
    let (sender, receiver) = rtrb::RingBuffer::new(WINDOW);
    rings.push(receiver);
    let sender = RingSender { ring: sender, sleeper: sleeper.clone(), waker };
    let receiver = RingReceiver { rings, next: 0, sleeper, _idle: idle };
    (Sender::Ring(sender), Receiver::Rings(receiver))
}

/// The way to the server and the way back.
struct Hop {
    there: Sender,
    work: Receiver,
    back: Sender,
    home: Receiver,
}

impl Hop {
    /// A hop of a kind, with the wakers of its two sides.
    fn new(kind: &str, server: Arc<dyn Waker>, asker: Arc<dyn Waker>) -> Self {
        if kind == "lanes" {
            let (to_server, requests) = lanes_to(server, WINDOW, WINDOW);
            let (to_asker, returns) = lanes_to(asker, WINDOW, WINDOW);
            return Self {
                there: Sender::Lane(to_server.requests),
                work: Receiver::Requests(requests),
                back: Sender::Lane(to_asker.returns),
                home: Receiver::Returns(returns),
            };
        }
        let pairs = kind.strip_prefix("rings").expect("a kind is direct, lanes, rings or ringsN");
        let pairs = if pairs.is_empty() { 1 } else { number(pairs) };
        let ((there, work), (back, home)) = (ring(server, pairs), ring(asker, pairs));
        Self { there, work, back, home }
    }

    /// A hop between sides that never sleep.
    fn awake(kind: &str) -> Self {
        let quiet: Arc<dyn Waker> = Arc::new(Parker::new().unparker().clone());
        Self::new(kind, quiet.clone(), quiet)
    }
}

// The two sides

/// The socket side: fills batches and reads them.
struct Asker {
    announces: Vec<(Announce, Return)>,
    at: usize,
    pool: Vec<Batch>,
    requests: usize,
    replies: u64,
    bytes: u64,
}

impl Asker {
    /// A side that has at most `window` batches in flight.
    fn new(requests: usize, window: usize) -> Self {
        let parcel = || {
            let batch = ShardBatch::new(128, 1024, 64 * 1024);
            Batch::Udp(Box::new(Requests { batch, shard: 0, home: 0 }))
        };
        Self {
            announces: (0..ANNOUNCES).map(announce).collect(),
            at: 0,
            pool: (0..window).map(|_| parcel()).collect(),
            requests,
            replies: 0,
            bytes: 0,
        }
    }

    /// A full batch, if there is an empty one.
    #[inline(never)]
    fn fill(&mut self) -> Option<Batch> {
        let mut parcel = self.pool.pop()?;
        for _ in 0..self.requests {
            let (announce, to) = self.announces[self.at];
            self.at = (self.at + 1) % ANNOUNCES;
            requests_of(&mut parcel).push_announce(announce, to).expect("has room");
        }
        Some(parcel)
    }

    #[inline(never)]
    fn read(&mut self, mut parcel: Batch) {
        for (bytes, to) in requests_of(&mut parcel).replies() {
            self.replies += 1;
            // Reads every line, as copying it to the kernel does.
            self.bytes += bytes.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>();
            self.bytes += u64::from(to.socket());
        }
        requests_of(&mut parcel).clear();
        self.pool.push(parcel);
    }
}

/// The requests of a batch of datagrams, which all batches here are.
fn requests_of(batch: &mut Batch) -> &mut ShardBatch<Return, Place> {
    match batch {
        Batch::Udp(requests) => &mut requests.batch,
        Batch::Web(_) => unreachable!("no front but UDP sends batches here"),
    }
}

/// Peers of a thousand small swarms, four in each.
fn announce(n: usize) -> (Announce, Return) {
    let mut hash = [0; 20];
    hash[..2].copy_from_slice(&((n / 4) as u16).to_be_bytes());
    let [high, low] = (n as u16).to_be_bytes();
    let announce = Announce {
        info_hash: InfoHash(hash),
        endpoint: Endpoint::V4([192, 0, high, low, 26, 225]),
        event: Event::None,
        seeder: n.is_multiple_of(2),
        want: 30,
        transaction_id: TransactionId(n as u32),
    };
    let to = Return::to(([192, 0, high, low], 6881).into(), 0);
    (announce, to)
}

fn shard() -> Shard {
    let settings = ShardSettings {
        peer_lifetime: 3600,
        completed_retention: 3600,
        ..ShardSettings::default()
    };
    Shard::new(settings, [7; 16], 1)
}

#[inline(never)]
fn serve(shard: &mut Shard, parcel: &mut Batch) {
    parcel.serve(shard, Moment(10));
}

// Instructions, on one thread

fn count(kind: &str, requests: usize, messages: u64) {
    let mut asker = Asker::new(requests, WINDOW);
    let mut shard = shard();
    if kind == "direct" {
        for _ in 0..messages {
            let mut parcel = asker.fill().expect("is back");
            serve(&mut shard, &mut parcel);
            asker.read(parcel);
        }
    } else {
        alternate(&mut asker, &mut shard, Hop::awake(kind), messages);
    }
    println!("{} replies, {}", asker.replies, asker.bytes);
}

/// Both sides in turn, a window of messages each.
fn alternate(asker: &mut Asker, shard: &mut Shard, mut hop: Hop, messages: u64) {
    let mut left = messages;
    while left > 0 {
        for _ in 0..left.min(WINDOW as u64) {
            hop.there.send(asker.fill().expect("all are back"));
            left -= 1;
        }
        while let Some(mut parcel) = hop.work.next() {
            serve(shard, &mut parcel);
            hop.back.send(parcel);
        }
        while let Some(parcel) = hop.home.next() {
            asker.read(parcel);
        }
    }
}

// Time, on two threads

/// A waker that counts.
struct Counted<W> {
    waker: W,
    wakes: Arc<AtomicU64>,
}

impl<W: Waker> Waker for Counted<W> {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The result of a run.
#[derive(Clone, Copy, Default)]
struct Seen {
    requests: u64,
    messages: u64,
    wakes: u64,
    asker: Duration,
    server: Duration,
    wall: Duration,
}

impl Seen {
    fn per_request(&self) -> f64 {
        (self.asker + self.server).as_nanos() as f64 / self.requests as f64
    }
}

fn measure(seconds: f64) {
    let cpus = affinity::allowed().expect("affinity can be read");
    let mut places = vec![("one vCPU", cpus[0], cpus[0])];
    if let Some(other) = cpus.get(1) {
        places.push(("two vCPUs", cpus[0], *other));
    }
    if let [first, second, ..] = cpus[..] {
        measure_awake((first, second), Duration::from_secs_f64(seconds / 100.0));
    }
    println!(
        "CPU of both threads. `hop` is what a request costs more than direct, `message` what a \
         message \
         does; `asks`, `serves`: its two sides.\n"
    );
    println!(
        "| where | requests a message | kind | ns a request | hop | message | asks | serves | \
         wakes a message |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (place, asker, server) in places {
        for requests in SIZES {
            let mut runs = [const { Vec::new() }; 4];
            // Kinds alternate, so that other load on the machine affects all alike.
            for _ in 0..3 {
                let time = Duration::from_secs_f64(seconds / 3.0);
                runs[0].push(direct(requests, asker, time));
                for (of_kind, kind) in runs[1..].iter_mut().zip(HOPS) {
                    of_kind.push(asleep(kind, requests, (asker, server), time));
                }
            }
            let medians = runs.map(median);
            for (kind, seen) in ["direct"].iter().chain(&HOPS).zip(medians) {
                print_row(place, requests, kind, &seen, &medians[0]);
            }
        }
    }
}

/// One message at a time between two sides that never sleep: the work of both for it, and the cache
/// lines that travel between the two vCPUs. The best of many short runs, as other load can only
/// lengthen a run.
fn measure_awake(cpus: (usize, usize), time: Duration) {
    println!("One message at a time, no thread sleeps: ns for it there and back, work included.\n");
    println!("A line of cache there and back: {:.0} ns\n", line_there_and_back(cpus, time));
    println!("| requests a message | direct | lanes | rings | rings36 |");
    println!("|---|---|---|---|---|");
    for requests in SIZES {
        let mut best = [f64::INFINITY; 4];
        for _ in 0..30 {
            let hop = |kind| both((requests, 1), cpus, time, Hop::awake(kind), None);
            let runs = [direct(requests, cpus.0, time)].into_iter().chain(HOPS.map(hop));
            for (best, run) in best.iter_mut().zip(runs) {
                *best = best.min(run.wall.as_nanos() as f64 / run.messages as f64);
            }
        }
        let [direct, lanes, rings, rings36] = best;
        println!("| {requests} | {direct:.0} | {lanes:.0} | {rings:.0} | {rings36:.0} |");
    }
    println!();
}

/// Nanoseconds in which two vCPUs pass one cache line to each other and back.
fn line_there_and_back(cpus: (usize, usize), time: Duration) -> f64 {
    let run = || {
        let line = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let theirs = line.clone();
        let other = on_thread(cpus.1, move || {
            loop {
                match theirs.load(Ordering::Acquire) {
                    u64::MAX => return,
                    odd if odd % 2 == 1 => theirs.store(odd + 1, Ordering::Release),
                    _ => {}
                }
            }
        });
        let ours = on_thread(cpus.0, move || {
            let (start, mut passes) = (Instant::now(), 0u64);
            while start.elapsed() < time {
                for _ in 0..16 {
                    line.store(2 * passes + 1, Ordering::Release);
                    while line.load(Ordering::Acquire) % 2 == 1 {}
                    passes += 1;
                }
            }
            line.store(u64::MAX, Ordering::Release);
            start.elapsed().as_nanos() as f64 / passes as f64
        });
        let nanos = ours.join().expect("does not fail");
        other.join().expect("does not fail");
        nanos
    };
    (0..30).map(|_| run()).fold(f64::INFINITY, f64::min)
}

fn median(mut runs: Vec<Seen>) -> Seen {
    runs.sort_by(|a, b| a.per_request().total_cmp(&b.per_request()));
    runs[runs.len() / 2]
}

fn print_row(place: &str, requests: usize, kind: &str, seen: &Seen, direct: &Seen) {
    let each = |time: Duration| time.as_nanos() as f64 / seen.requests as f64;
    let hop = seen.per_request() - direct.per_request();
    println!(
        "| {place} | {requests} | {kind} | {:.0} | {hop:.0} | {:.0} | {:.0} | {:.0} | {:.2} |",
        seen.per_request(),
        hop * requests as f64,
        each(seen.asker),
        each(seen.server),
        seen.wakes as f64 / seen.messages as f64,
    );
}

fn direct(requests: usize, cpu: usize, time: Duration) -> Seen {
    on_thread(cpu, move || {
        let (mut asker, mut shard) = (Asker::new(requests, WINDOW), shard());
        let (start, before) = (Instant::now(), processor_time());
        let mut messages = 0;
        while start.elapsed() < time {
            for _ in 0..WINDOW {
                let mut parcel = asker.fill().expect("is back");
                serve(&mut shard, &mut parcel);
                asker.read(parcel);
            }
            messages += WINDOW as u64;
        }
        Seen {
            requests: asker.replies,
            messages,
            asker: processor_time() - before,
            wall: start.elapsed(),
            ..Seen::default()
        }
    })
    .join()
    .expect("does not fail")
}

/// Both sides sleep as in the tracker.
fn asleep(kind: &str, requests: usize, cpus: (usize, usize), time: Duration) -> Seen {
    let (socket, _) =
        bind_client(([127, 0, 0, 1], 0).into(), Buffers::default()).expect("a socket");
    let socket = Backend::new(vec![socket], mio::Options::default()).expect("a poll");
    let parker = Parker::new();
    let wakes = Arc::new(AtomicU64::new(0));
    let server = Counted { waker: parker.unparker().clone(), wakes: wakes.clone() };
    let asker = Counted { waker: SocketWaker(socket.waker()), wakes: wakes.clone() };
    let hop = Hop::new(kind, Arc::new(server), Arc::new(asker));
    let seen = both((requests, WINDOW), cpus, time, hop, Some((socket, parker)));
    Seen { wakes: wakes.load(Ordering::Relaxed), ..seen }
}

/// Both sides on threads of their own, in turns like workers. Without sleepers neither side sleeps.
fn both(
    (requests, window): (usize, usize),
    cpus: (usize, usize),
    time: Duration,
    Hop { mut there, mut work, mut back, mut home }: Hop,
    sleepers: Option<(Backend, Parker)>,
) -> Seen {
    let (mut socket, parker) = sleepers.unzip();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = on_thread(cpus.1, move || {
        let (mut shard, before) = (shard(), processor_time());
        while !stopped.load(Ordering::Relaxed) {
            let mut busy = false;
            for _ in 0..PARCELS_PER_TURN {
                let Some(mut parcel) = work.next() else { break };
                busy = true;
                serve(&mut shard, &mut parcel);
                back.send(parcel);
            }
            if let (false, Some(parker)) = (busy, &parker) {
                work.sleep(|| parker.park_timeout(NAP));
            }
        }
        processor_time() - before
    });
    let asker = on_thread(cpus.0, move || {
        let (mut asker, mut messages) = (Asker::new(requests, window), 0);
        let (start, before) = (Instant::now(), processor_time());
        while start.elapsed() < time {
            while let Some(parcel) = asker.fill() {
                messages += 1;
                there.send(parcel);
            }
            // All batches are in flight: at least one comes back.
            while asker.pool.is_empty() {
                while let Some(parcel) = home.next() {
                    asker.read(parcel);
                }
                if let (true, Some(socket)) = (asker.pool.is_empty(), &mut socket) {
                    home.sleep(|| socket.wait(NAP).expect("a socket that works"));
                }
            }
        }
        let seen = Seen {
            requests: asker.replies,
            messages,
            asker: processor_time() - before,
            wall: start.elapsed(),
            ..Seen::default()
        };
        // The inbox stays open until the other side has stopped sending.
        (seen, home)
    });
    let (seen, _home) = asker.join().expect("does not fail");
    stop.store(true, Ordering::Relaxed);
    Seen { server: server.join().expect("does not fail"), ..seen }
}

fn on_thread<T: Send + 'static>(
    cpu: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        affinity::pin_current_thread(cpu).expect("the vCPU is allowed");
        work()
    })
}
