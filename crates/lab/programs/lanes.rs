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

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::Parker;
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

// One end of a hop

/// The sending end of one side.
trait Out: Send {
    fn send(&mut self, parcel: Batch);
}

/// The receiving end of one side, where it sleeps.
trait In: Send {
    fn next(&mut self) -> Option<Batch>;
    fn sleep(&self, wait: impl FnOnce());
}

impl Out for Lane {
    fn send(&mut self, parcel: Batch) {
        assert!(self.try_send(parcel).is_ok(), "has room for all there are");
    }
}

/// The two directions of an inbox of the tracker.
struct Work(Inbox);
struct Home(Inbox);

impl In for Work {
    #[inline]
    fn next(&mut self) -> Option<Batch> {
        self.0.request()
    }

    fn sleep(&self, wait: impl FnOnce()) {
        self.0.sleep(wait);
    }
}

impl In for Home {
    #[inline]
    fn next(&mut self) -> Option<Batch> {
        self.0.returned()
    }

    fn sleep(&self, wait: impl FnOnce()) {
        self.0.sleep(wait);
    }
}

/// A ring of one pair, with the tracker's sleep protocol.
struct RingOut {
    ring: rtrb::Producer<Batch>,
    sleeper: Arc<CachePadded<SleepFlag>>,
    bell: Arc<dyn Waker>,
}

/// All rings to one worker.
struct RingIn {
    rings: Vec<rtrb::Consumer<Batch>>,
    next: usize,
    sleeper: Arc<CachePadded<SleepFlag>>,
    /// The other ends of rings that are unused here.
    _idle: Vec<rtrb::Producer<Batch>>,
}

impl Out for RingOut {
    #[inline]
    fn send(&mut self, parcel: Batch) {
        assert!(self.ring.push(parcel).is_ok(), "has room for all there are");
        if self.sleeper.must_wake() {
            self.bell.wake();
        }
    }
}

impl In for RingIn {
    #[inline]
    fn next(&mut self) -> Option<Batch> {
        for _ in 0..self.rings.len() {
            if let Ok(parcel) = self.rings[self.next].pop() {
                return Some(parcel);
            }
            self.next = if self.next + 1 == self.rings.len() { 0 } else { self.next + 1 };
        }
        None
    }

    fn sleep(&self, wait: impl FnOnce()) {
        self.sleeper.sleep(|| self.rings.iter().any(|ring| !ring.is_empty()), wait);
    }
}

fn ring(bell: Arc<dyn Waker>, pairs: usize) -> (RingOut, RingIn) {
    let sleeper = Arc::new(CachePadded::new(SleepFlag::new()));
    let (idle, mut rings): (Vec<_>, Vec<_>) =
        (1..pairs).map(|_| rtrb::RingBuffer::new(WINDOW)).unzip();
    let (sender, receiver) = rtrb::RingBuffer::new(WINDOW);
    rings.push(receiver);
    let out = RingOut { ring: sender, sleeper: sleeper.clone(), bell };
    (out, RingIn { rings, next: 0, sleeper, _idle: idle })
}

fn lane_there(bell: Arc<dyn Waker>) -> (Lane, Work) {
    let (mailboxes, inbox) = lanes_to(bell, WINDOW, WINDOW);
    (mailboxes.requests, Work(inbox))
}

fn lane_home(bell: Arc<dyn Waker>) -> (Lane, Home) {
    let (mailboxes, inbox) = lanes_to(bell, WINDOW, WINDOW);
    (mailboxes.returns, Home(inbox))
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
    fn new(requests: usize) -> Self {
        let parcel = || {
            let batch = ShardBatch::new(128, 1024, 64 * 1024);
            Batch::Udp(Box::new(Requests { batch, shard: 0, home: 0 }))
        };
        Self {
            announces: (0..ANNOUNCES).map(announce).collect(),
            at: 0,
            pool: (0..WINDOW).map(|_| parcel()).collect(),
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
    let quiet: Arc<dyn Waker> = Arc::new(Parker::new().unparker().clone());
    let mut asker = Asker::new(requests);
    let mut shard = shard();
    match kind {
        "direct" => {
            for _ in 0..messages {
                let mut parcel = asker.fill().expect("is back");
                serve(&mut shard, &mut parcel);
                asker.read(parcel);
            }
        }
        "lanes" => {
            let ends = (lane_there(quiet.clone()), lane_home(quiet));
            alternate(&mut asker, &mut shard, ends, messages);
        }
        _ => {
            let pairs = pairs(kind);
            let ends = (ring(quiet.clone(), pairs), ring(quiet, pairs));
            alternate(&mut asker, &mut shard, ends, messages);
        }
    }
    println!("{} replies, {}", asker.replies, asker.bytes);
}

fn pairs(kind: &str) -> usize {
    let tail = kind.strip_prefix("rings").expect("a kind is direct, lanes, rings or ringsN");
    if tail.is_empty() { 1 } else { number(tail) }
}

/// Both sides in turn, a window of messages each.
fn alternate(
    asker: &mut Asker,
    shard: &mut Shard,
    ((mut there, mut work), (mut back, mut home)): ((impl Out, impl In), (impl Out, impl In)),
    messages: u64,
) {
    let mut left = messages;
    while left > 0 {
        for _ in 0..left.min(WINDOW as u64) {
            there.send(asker.fill().expect("all are back"));
            left -= 1;
        }
        while let Some(mut parcel) = work.next() {
            serve(shard, &mut parcel);
            back.send(parcel);
        }
        while let Some(parcel) = home.next() {
            asker.read(parcel);
        }
    }
}

// Time, on two threads

/// A waker that counts.
struct Counted<B> {
    bell: B,
    rings: Arc<AtomicU64>,
}

impl<B: Waker> Waker for Counted<B> {
    fn wake(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.bell.wake();
    }
}

/// The result of a run.
#[derive(Clone, Copy, Default)]
struct Seen {
    requests: u64,
    messages: u64,
    rings: u64,
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
         rings a message |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (place, asker, server) in places {
        for requests in SIZES {
            let mut runs = [const { Vec::new() }; 4];
            // Kinds alternate, so that other load on the machine affects all alike.
            for _ in 0..3 {
                let time = Duration::from_secs_f64(seconds / 3.0);
                runs[0].push(direct(requests, asker, time));
                runs[1].push(over("lanes", requests, (asker, server), time));
                runs[2].push(over("rings", requests, (asker, server), time));
                runs[3].push(over("rings36", requests, (asker, server), time));
            }
            let medians = runs.map(median);
            for (kind, seen) in ["direct", "lanes", "rings", "rings36"].iter().zip(medians) {
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
        let quiet: Arc<dyn Waker> = Arc::new(Parker::new().unparker().clone());
        let mut best = [f64::INFINITY; 4];
        for _ in 0..30 {
            let direct = direct(requests, cpus.0, time);
            let times = [
                direct.wall.as_nanos() as f64 / direct.messages as f64,
                awake(requests, cpus, time, (lane_there(quiet.clone()), lane_home(quiet.clone()))),
                awake(requests, cpus, time, (ring(quiet.clone(), 1), ring(quiet.clone(), 1))),
                awake(requests, cpus, time, (ring(quiet.clone(), 36), ring(quiet.clone(), 36))),
            ];
            best = std::array::from_fn(|kind| best[kind].min(times[kind]));
        }
        let [direct, lanes, rings, rings36] = best;
        println!("| {requests} | {direct:.0} | {lanes:.0} | {rings:.0} | {rings36:.0} |");
    }
    println!();
}

/// Nanoseconds per message.
fn awake(
    requests: usize,
    cpus: (usize, usize),
    time: Duration,
    ends: ((impl Out + 'static, impl In + 'static), (impl Out + 'static, impl In + 'static)),
) -> f64 {
    let ((mut there, mut work), (mut back, mut home)) = ends;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = on_thread(cpus.1, move || {
        let mut shard = shard();
        while !stopped.load(Ordering::Relaxed) {
            if let Some(mut parcel) = work.next() {
                serve(&mut shard, &mut parcel);
                back.send(parcel);
            }
        }
    });
    let asker = on_thread(cpus.0, move || {
        let mut asker = Asker::new(requests);
        let (start, mut messages) = (Instant::now(), 0u32);
        while start.elapsed() < time {
            there.send(asker.fill().expect("is back"));
            let parcel = loop {
                if let Some(parcel) = home.next() {
                    break parcel;
                }
            };
            asker.read(parcel);
            messages += 1;
        }
        start.elapsed().as_nanos() as f64 / f64::from(messages)
    });
    let nanos = asker.join().expect("does not fail");
    stop.store(true, Ordering::Relaxed);
    server.join().expect("does not fail");
    nanos
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
        seen.rings as f64 / seen.messages as f64,
    );
}

fn direct(requests: usize, cpu: usize, time: Duration) -> Seen {
    on_thread(cpu, move || {
        let (mut asker, mut shard) = (Asker::new(requests), shard());
        let (start, before) = (Instant::now(), cpu_time());
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
            asker: cpu_time() - before,
            wall: start.elapsed(),
            ..Seen::default()
        }
    })
    .join()
    .expect("does not fail")
}

fn over(kind: &str, requests: usize, cpus: (usize, usize), time: Duration) -> Seen {
    let (socket, _) =
        bind_client(([127, 0, 0, 1], 0).into(), Buffers::default()).expect("a socket");
    let socket = Backend::new(vec![socket], mio::Options::default()).expect("a poll");
    let parker = Parker::new();
    let rings = Arc::new(AtomicU64::new(0));
    let wake_server: Arc<dyn Waker> =
        Arc::new(Counted { bell: parker.unparker().clone(), rings: rings.clone() });
    let wake_asker: Arc<dyn Waker> =
        Arc::new(Counted { bell: SocketWaker(socket.waker()), rings: rings.clone() });
    let mut seen = match kind {
        "lanes" => {
            let ends = (lane_there(wake_server), lane_home(wake_asker));
            both(requests, cpus, time, ends, (socket, parker))
        }
        _ => {
            let pairs = pairs(kind);
            let ends = (ring(wake_server, pairs), ring(wake_asker, pairs));
            both(requests, cpus, time, ends, (socket, parker))
        }
    };
    seen.rings = rings.load(Ordering::Relaxed);
    seen
}

/// Both sides on threads of their own, in turns like workers.
fn both(
    requests: usize,
    cpus: (usize, usize),
    time: Duration,
    ends: ((impl Out + 'static, impl In + 'static), (impl Out + 'static, impl In + 'static)),
    (mut socket, parker): (Backend, Parker),
) -> Seen {
    let ((mut there, mut work), (mut back, mut home)) = ends;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = on_thread(cpus.1, move || {
        let (mut shard, before) = (shard(), cpu_time());
        while !stopped.load(Ordering::Relaxed) {
            let mut busy = false;
            for _ in 0..PARCELS_PER_TURN {
                let Some(mut parcel) = work.next() else { break };
                busy = true;
                serve(&mut shard, &mut parcel);
                back.send(parcel);
            }
            if !busy {
                work.sleep(|| parker.park_timeout(NAP));
            }
        }
        cpu_time() - before
    });
    let asker = on_thread(cpus.0, move || {
        let (mut asker, mut messages) = (Asker::new(requests), 0);
        let (start, before) = (Instant::now(), cpu_time());
        while start.elapsed() < time {
            let mut busy = false;
            while let Some(parcel) = asker.fill() {
                busy = true;
                messages += 1;
                there.send(parcel);
            }
            while let Some(parcel) = home.next() {
                busy = true;
                asker.read(parcel);
            }
            if !busy {
                home.sleep(|| socket.wait(NAP).expect("a socket that works"));
            }
        }
        // The inbox stays open until the other side has stopped sending.
        (asker.replies, messages, cpu_time() - before, home)
    });
    let (requests, messages, asker, _home) = asker.join().expect("does not fail");
    stop.store(true, Ordering::Relaxed);
    let server = server.join().expect("does not fail");
    Seen { requests, messages, asker, server, ..Seen::default() }
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

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}
