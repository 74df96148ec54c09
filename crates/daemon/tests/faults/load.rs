//! The load during a fault: an honest client with 500 requests per second, which connects anew
//! when it gets no replies, as clients do.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;

use crate::harness::client::transaction;
use crate::harness::packets::{connect, error_text, hash, leecher, scrape, seeder, u32_at, u64_at};
use crate::harness::process::TIMEOUT;

/// Length of a tick of the load.
const TICK: Duration = Duration::from_millis(10);
/// Requests per tick.
const REQUESTS: u32 = 5;
/// Ticks without a reply after which the client connects anew.
const SILENT: u32 = 25;
/// Ticks of undisturbed service that count as served again.
const SERVED: usize = 30;
/// Time after the last request in which replies may still arrive.
const LATE: Duration = Duration::from_secs(2);
/// Swarms that the load announces to.
const SWARMS: u32 = 16;

/// The requests sent and the replies received, in a tick or in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

/// A running load.
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    ticks: Receiver<Counts>,
    thread: JoinHandle<Counts>,
}

impl Load {
    /// Starts a load from this source address, and waits until it is served.
    pub(crate) fn start(source: &str, tracker: SocketAddr) -> Self {
        let source = SocketAddr::new(source.parse().unwrap(), 0);
        Self::from(UdpSocket::bind(source).unwrap_or_else(|e| panic!("{source}: {e}")), tracker)
    }

    /// Starts a load from this socket, and waits until it is served.
    pub(crate) fn from(socket: UdpSocket, tracker: SocketAddr) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (sender, ticks) = channel();
        let client = Client { socket, tracker, id: 0, silent: SILENT, next: 0 };
        let thread = thread::spawn({
            let over = over.clone();
            move || client.run(&over, &sender)
        });
        let load = Self { over, ticks, thread };
        load.served_again();
        load
    }

    /// Reads the next tick.
    fn tick(&self) -> Counts {
        self.ticks.recv_timeout(TIMEOUT).expect("the load runs")
    }

    /// Lets this time pass; what was sent and answered in it.
    pub(crate) fn run_for(&self, time: Duration) -> Counts {
        let end = Instant::now() + time;
        self.ticks.try_iter().for_each(drop);
        let mut all = Counts::default();
        while Instant::now() < end {
            all.add(self.tick());
        }
        all
    }

    /// Lets time pass until the condition holds.
    pub(crate) fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is() {
            assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
            self.ticks.try_iter().for_each(drop);
            self.tick();
        }
    }

    /// Waits until requests get replies again without a gap; the time that it took.
    pub(crate) fn served_again(&self) -> Duration {
        let start = Instant::now();
        let mut last = Vec::new();
        self.ticks.try_iter().for_each(drop);
        loop {
            last.push(self.tick());
            let recent = last.iter().rev().take(SERVED);
            let mut all = Counts::default();
            recent.for_each(|tick| all.add(*tick));
            // The replies to the last tick may still be under way.
            if last.len() >= SERVED && all.answered + u64::from(REQUESTS) >= all.sent {
                return start.elapsed();
            }
            assert!(start.elapsed() < TIMEOUT, "not served again within {TIMEOUT:?}: {all:?}");
        }
    }

    /// Ends the load; what it has sent, and what was answered.
    pub(crate) fn end(self) -> Counts {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.answered += other.answered;
    }
}

/// The swarms that the load announces to.
pub(crate) fn swarms() -> Vec<InfoHash> {
    (0..SWARMS).map(hash).collect()
}

/// The client of a load.
struct Client {
    socket: UdpSocket,
    tracker: SocketAddr,
    id: u64,
    /// Ticks since the last reply.
    silent: u32,
    /// The number of the next request.
    next: u32,
}

impl Client {
    fn run(mut self, over: &AtomicBool, ticks: &Sender<Counts>) -> Counts {
        let mut all = Counts::default();
        let mut end = Instant::now();
        while !over.load(Ordering::Relaxed) {
            end += TICK;
            if end < Instant::now() {
                // A load that was held up does not catch up, and receives before it sends again.
                end = Instant::now() + TICK;
            }
            let mut tick = Counts { sent: self.send_requests(), answered: 0 };
            tick.answered = self.receive_until(end);
            self.silent = if tick.answered > 0 { 0 } else { self.silent.saturating_add(1) };
            all.add(tick);
            // The test may have ended.
            let _ = ticks.send(tick);
        }
        let end = Instant::now() + LATE;
        while all.answered < all.sent && Instant::now() < end {
            all.answered += self.receive_until(Instant::now() + TICK);
        }
        all
    }

    /// Sends the requests of a tick; the number that the kernel accepted.
    fn send_requests(&mut self) -> u64 {
        let mut sent = 0;
        let requests = if self.id == 0 { 1 } else { REQUESTS };
        for number in 0..requests {
            self.next = self.next.wrapping_add(1);
            let (next, transaction) = (self.next, transaction());
            let swarm = hash(next / 8 % SWARMS);
            let bytes = match next % 8 {
                _ if number == 0 && self.silent >= SILENT => connect(transaction),
                0 if next % 64 == 0 => connect(transaction),
                0 => scrape(self.id, transaction, &[swarm, hash(next % 7)]),
                1 | 2 => seeder(swarm, 3_001).bytes(self.id, transaction),
                _ => leecher(swarm, 3_002).bytes(self.id, transaction),
            };
            // Without a route or an address there is nothing to send.
            sent += u64::from(self.socket.send_to(&bytes, self.tracker).is_ok());
        }
        sent
    }

    /// Receives replies until then; their number.
    fn receive_until(&mut self, end: Instant) -> u64 {
        let mut answered = 0;
        let mut reply = [0; 4096];
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return answered;
            }
            self.socket.set_read_timeout(Some(rest)).unwrap();
            match self.socket.recv_from(&mut reply) {
                Ok((len, from)) => {
                    assert_eq!(from, self.tracker, "the reply comes from the tracker's address");
                    answered += 1;
                    match u32_at(&reply, 0) {
                        0 => self.id = u64_at(&reply[..len], 8),
                        1 | 2 => {}
                        _ => panic!("an error reply: {}", error_text(&reply[..len])),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
