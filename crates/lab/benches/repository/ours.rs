//! Shards with one owner each: called by their own thread, or over the tracker's lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crossbeam_utils::sync::Parker;
use nix::time::{ClockId, clock_gettime};
use onrush_net::Return;
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardMap, ShardSettings};
use onrush_tracker::lanes::{Batch, Inbox, Mailbox, Requests, lanes_to};
use onrush_tracker::sorter::Sorter;

use super::{BATCH, Outcome, Pace, Place};

/// The most batches in flight of a client thread, the default of `limits.batches_in_flight`.
const PARCELS: usize = 64;
const NOW: Moment = Moment(60);

/// Measures from the moment when all threads are ready.
struct Stopwatch {
    wall: Instant,
    processor: Duration,
}

impl Stopwatch {
    /// Waits at the barrier, then starts.
    fn start(barrier: &Barrier) -> Self {
        let processor = processor_time();
        let wall = Instant::now();
        barrier.wait();
        Self { wall, processor }
    }

    /// Records the end of the work.
    fn stop(&self, reply_bytes: u64) -> Outcome {
        let processor = processor_time() - self.processor;
        Outcome { wall: self.wall.elapsed(), processor, reply_bytes }
    }
}

/// Measures `serve` with a thread for each piece of work. `serve` returns the bytes of its replies.
pub(crate) fn in_parallel<W: Send>(work: Vec<W>, serve: impl Fn(W) -> u64 + Sync) -> Outcome {
    let barrier = &Barrier::new(work.len() + 1);
    let serve = &serve;
    thread::scope(|scope| {
        let start = |piece| {
            scope.spawn(move || {
                barrier.wait();
                serve(piece)
            })
        };
        let threads: Vec<_> = work.into_iter().map(start).collect();
        let stopwatch = Stopwatch::start(barrier);
        stopwatch.stop(join(threads))
    })
}

/// Waits for the threads. Returns the sum of their results.
fn join(threads: Vec<ScopedJoinHandle<'_, u64>>) -> u64 {
    threads.into_iter().map(|thread| thread.join().expect("a thread without panics")).sum()
}

/// Every thread owns a shard and gets the requests for it, as with perfect steering.
pub(crate) struct Own {
    shards: Vec<Shard>,
    map: ShardMap,
}

impl Own {
    /// The number of threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { shards: shards(threads), map: map(threads) }
    }
}

impl Place for Own {
    fn serve(&mut self, parts: &[Vec<Announce>], pace: Pace) -> Outcome {
        let mut steered = vec![Vec::new(); self.shards.len()];
        for announce in parts.iter().flatten() {
            steered[self.map.shard_of(&announce.info_hash)].push(*announce);
        }
        let batch = if pace == Pace::OneByOne { 1 } else { BATCH };
        let work = self.shards.iter_mut().zip(&steered).collect();
        in_parallel(work, |(shard, part)| serve_own(shard, part, batch))
    }
}

fn serve_own(shard: &mut Shard, part: &[Announce], size: usize) -> u64 {
    let mut batch: ShardBatch<Return, ()> = ShardBatch::new(size, 0, size * 1_232);
    let to = to();
    let mut bytes = 0;
    for group in part.chunks(size) {
        batch.clear();
        for announce in group {
            batch.push_announce(*announce, to).expect("there is room");
        }
        shard.serve(&mut batch, NOW);
        bytes += batch.replies().map(|(reply, _)| reply.len() as u64).sum::<u64>();
    }
    bytes
}

/// Client threads fill batches for shards that other threads own, through the tracker's sorter and
/// lanes.
pub(crate) struct Lanes {
    shards: Vec<Shard>,
    /// Requests per message.
    size: usize,
}

impl Lanes {
    /// This many client threads, with a shard's thread for every two.
    pub(crate) fn new(threads: usize, size: usize) -> Self {
        Self { shards: shards((threads / 2).max(1)), size }
    }
}

impl Place for Lanes {
    fn serve(&mut self, parts: &[Vec<Announce>], pace: Pace) -> Outcome {
        let size = if pace == Pace::OneByOne { 1 } else { self.size };
        let owners = self.shards.len();
        let map = map(owners);
        let threads = parts.len() + owners;
        let mut parkers: Vec<Parker> = (0..threads).map(|_| Parker::new()).collect();
        let lanes = parkers.iter().map(|parker| {
            let unparker = parker.unparker().clone();
            lanes_to(Arc::new(move || unparker.unpark()), parts.len() * PARCELS, PARCELS)
        });
        let (mailboxes, mut inboxes): (Vec<Mailbox>, Vec<Inbox>) = lanes.unzip();
        let (barrier, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
        let common = (&mailboxes[..], &barrier, &stop);
        thread::scope(|scope| {
            for shard in self.shards.iter_mut().rev() {
                let own = (inboxes.pop().expect("its own"), parkers.pop().expect("its own"));
                scope.spawn(move || {
                    let (mailboxes, barrier, stop) = common;
                    barrier.wait();
                    serve_lane(shard, &own.0, &own.1, mailboxes, stop);
                });
            }
            let asking: Vec<_> = (0..).zip(parts).zip(inboxes.into_iter().zip(parkers)).collect();
            let asking: Vec<_> = asking
                .into_iter()
                .map(|((home, part), (inbox, parker))| {
                    let (mailboxes, barrier, _) = common;
                    scope.spawn(move || {
                        let sorter = Sorter::new(home, owners, PARCELS, size);
                        let mut asker =
                            Asker { sorter, mailboxes, map, inbox, parker, bytes: 0, out: 0 };
                        barrier.wait();
                        asker.ask(part, size, pace)
                    })
                })
                .collect();
            let stopwatch = Stopwatch::start(&barrier);
            let outcome = stopwatch.stop(join(asking));
            stop.store(true, Ordering::Release);
            mailboxes.iter().for_each(|way| way.requests.wake());
            outcome
        })
    }
}

/// The work of a swarm worker's thread.
fn serve_lane(
    shard: &mut Shard,
    inbox: &Inbox,
    parker: &Parker,
    mailboxes: &[Mailbox],
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Acquire) {
        let mut busy = false;
        while let Some(mut parcel) = inbox.request() {
            busy = true;
            let home = parcel.serve(shard, NOW);
            assert!(
                mailboxes[home].returns.try_send(parcel).is_ok(),
                "there is room for all at home"
            );
        }
        if !busy {
            inbox.sleep(|| parker.park_timeout(Duration::from_millis(250)));
        }
    }
}

/// The work of a socket worker's thread.
struct Asker<'a> {
    sorter: Sorter<Return>,
    mailboxes: &'a [Mailbox],
    map: ShardMap,
    inbox: Inbox,
    parker: Parker,
    /// Bytes of all replies.
    bytes: u64,
    /// Batches in flight.
    out: usize,
}

impl Asker<'_> {
    fn ask(&mut self, part: &[Announce], size: usize, pace: Pace) -> u64 {
        let to = to();
        for batch in part.chunks(size) {
            for announce in batch {
                let shard = self.map.shard_of(&announce.info_hash);
                while self.sorter.announce(shard, announce, &to).is_err() {
                    // All of the shard's batches are in flight; a tracker would drop the request.
                    self.send();
                    self.await_one();
                }
            }
            self.send();
            self.welcome();
            while pace == Pace::OneByOne && self.out > 0 {
                self.await_one();
            }
        }
        // While many batches of a shard are in flight the last one stays open.
        loop {
            self.send();
            if self.out == 0 {
                return self.bytes;
            }
            self.await_one();
        }
    }

    fn send(&mut self) {
        while let Some(parcel) = self.sorter.take(None) {
            self.out += 1;
            let owner = self.mailboxes.len() - self.map.shards() as usize + parcel.shard;
            assert!(
                self.mailboxes[owner].requests.try_send(Batch::Udp(parcel)).is_ok(),
                "there is room for all"
            );
        }
    }

    /// Sleeps until a batch has returned.
    fn await_one(&mut self) {
        while !self.welcome() && self.out > 0 {
            self.inbox.sleep(|| self.parker.park_timeout(Duration::from_millis(250)));
        }
    }

    /// Receives returned batches.
    fn welcome(&mut self) -> bool {
        let mut any = false;
        while let Some(Batch::Udp(parcel)) = self.inbox.returned() {
            any = true;
            self.read(parcel);
        }
        any
    }

    fn read(&mut self, parcel: Box<Requests<Return>>) {
        self.bytes += parcel.batch.replies().map(|(reply, _)| reply.len() as u64).sum::<u64>();
        self.out -= 1;
        self.sorter.recycle(parcel);
    }
}

fn shards(number: usize) -> Vec<Shard> {
    let settings = ShardSettings::default();
    (0..number).map(|at| Shard::new(settings, *b"a key to compare", at as u64)).collect()
}

fn map(shards: usize) -> ShardMap {
    ShardMap::new([0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1], shards as u16)
}

fn to() -> Return {
    Return::to("192.0.2.1:6881".parse().expect("an address"), 0)
}

/// The processor time of this process.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("Linux has this clock").into()
}
