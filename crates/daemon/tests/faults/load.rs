//! The load during a fault: an honest client with up to 500 requests per second, which connects
//! anew when it gets no replies, as clients do. It waits for the replies to a few requests before
//! it sends the next ones: no buffer overflows while a process gets no CPU time, so that requests
//! and replies can be counted exactly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;

use crate::harness::{
    Client, TIMEOUT, connect, error_text, hash, leecher, scrape, seeder, transaction, u32_at,
    u64_at,
};

/// The shortest time from one round to the next.
const TICK: Duration = Duration::from_millis(10);
/// Requests of a round.
const REQUESTS: usize = 5;
/// Time without a reply after which the client gives up a round and connects anew.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two connects without a reply. Each of them waits in a buffer of a tracker that gets
/// no CPU time: those of 20 s fit in the system's default.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);
/// Answered rounds in a row that count as served again.
const SERVED: u32 = 30;
/// Rounds in a row without a reply that count as not served.
const SILENT: u32 = 5;
/// Swarms that the load announces to.
const SWARMS: u32 = 16;

/// The requests sent and the replies received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

/// A running load.
pub(crate) struct Load {
    shared: Arc<Shared>,
    rounds: Receiver<Round>,
    thread: JoinHandle<LoadClient>,
}

/// State shared by a load and its client.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Requests to be sent at once.
    flood: AtomicU32,
    /// Replies received.
    answered: AtomicU64,
}

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The reply to each request has arrived.
    Answered,
    /// No reply has arrived, not even a late one.
    Silent,
    /// Replies have arrived, but not all; or the client has connected anew.
    Other,
}

impl Load {
    /// Starts a load from this source address, and waits until it is served.
    pub(crate) fn start(source: &str, tracker: SocketAddr) -> Self {
        Self::by(Client::at(source.parse().unwrap(), tracker))
    }

    /// Starts a load by this client, and waits until it is served.
    pub(crate) fn by(client: Client) -> Self {
        let shared = Arc::new(Shared::default());
        let (sender, rounds) = channel();
        let counts = Counts::default();
        let client = LoadClient { client, counts, id: None, next: 0, waiting: Vec::new() };
        let thread = thread::spawn({
            let shared = shared.clone();
            move || client.run(&shared, &sender)
        });
        let load = Self { shared, rounds, thread };
        load.served_again();
        load
    }

    /// Waits for the end of a round.
    fn round(&self) -> Round {
        self.rounds.recv_timeout(TIMEOUT).expect("the load runs")
    }

    /// Lets time pass until the condition holds.
    pub(crate) fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is() {
            assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
            self.rounds.try_iter().for_each(drop);
            self.round();
        }
    }

    /// Waits for so many rounds in a row with this outcome, all of which begin after this call.
    fn in_a_row(&self, number: u32, outcome: Round) {
        let deadline = Instant::now() + TIMEOUT;
        self.rounds.try_iter().for_each(drop);
        // This one began earlier.
        self.round();
        let mut row = 0;
        while row < number {
            assert!(Instant::now() < deadline, "{outcome:?} {row} times within {TIMEOUT:?}");
            row = if self.round() == outcome { row + 1 } else { 0 };
        }
    }

    /// Waits until requests get replies again without a gap.
    pub(crate) fn served_again(&self) {
        self.in_a_row(SERVED, Round::Answered);
    }

    /// Waits until requests get no replies any more.
    pub(crate) fn not_served(&self) {
        self.in_a_row(SILENT, Round::Silent);
    }

    /// Waits for so many replies.
    pub(crate) fn answered(&self, number: u64) {
        let answered = || self.shared.answered.load(Ordering::Relaxed);
        let end = answered() + number;
        self.until("requests are answered", || answered() >= end);
    }

    /// Sends so many requests without waiting for replies.
    pub(crate) fn flood(&self, number: u32) {
        self.shared.flood.store(number, Ordering::Relaxed);
        self.until("the client sends", || self.shared.flood.load(Ordering::Relaxed) == 0);
    }

    /// Ends the load. The client sends nothing more.
    pub(crate) fn end(self) -> LoadClient {
        self.shared.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Ends the load, each request of which has to get its reply.
    pub(crate) fn end_answered(self) {
        let mut client = self.end();
        let deadline = Instant::now() + TIMEOUT;
        while client.counts.answered < client.counts.sent {
            assert!(Instant::now() < deadline, "requests are lost: {:?}", client.counts);
            client.receive(TICK);
        }
        assert_eq!(client.counts.answered, client.counts.sent);
    }
}

/// The swarms that the load announces to.
pub(crate) fn swarms() -> Vec<InfoHash> {
    (0..SWARMS).map(hash).collect()
}

/// The client of a load.
pub(crate) struct LoadClient {
    client: Client,
    counts: Counts,
    /// The connection id, unless the client is to connect.
    id: Option<u64>,
    /// The number of the next request.
    next: u32,
    /// The transactions of this round that have no reply yet.
    waiting: Vec<u32>,
}

impl LoadClient {
    fn run(mut self, shared: &Shared, rounds: &Sender<Round>) -> Self {
        while !shared.over.load(Ordering::Relaxed) {
            let flood = shared.flood.load(Ordering::Relaxed);
            (0..flood).for_each(|_| self.send_request());
            shared.flood.fetch_sub(flood, Ordering::Relaxed);
            let outcome = self.round();
            shared.answered.store(self.counts.answered, Ordering::Relaxed);
            // The test may have ended.
            let _ = rounds.send(outcome);
        }
        self
    }

    /// Sends some requests, and waits for the replies.
    fn round(&mut self) -> Round {
        let (begin, before) = (Instant::now(), self.counts);
        let connects = self.id.is_none();
        let (requests, timeout) =
            if connects { (1, CONNECT_AGAIN) } else { (REQUESTS, REPLY_TIMEOUT) };
        self.waiting.clear();
        (0..requests).for_each(|_| self.send_request());
        let mut complete = self.waiting.len() == requests;
        while !self.waiting.is_empty() && self.receive(timeout) {}
        complete &= self.waiting.is_empty();
        if !complete {
            self.id = None;
        }
        loop {
            let rest = TICK.saturating_sub(begin.elapsed());
            if rest.is_zero() || !self.receive(rest) {
                break;
            }
        }
        match self.counts.answered - before.answered {
            0 => Round::Silent,
            _ if complete && !connects => Round::Answered,
            _ => Round::Other,
        }
    }

    /// Sends the next request, which counts if the kernel accepts it.
    fn send_request(&mut self) {
        self.next = self.next.wrapping_add(1);
        let (next, transaction) = (self.next, transaction());
        let swarm = hash(next / 8 % SWARMS);
        let bytes = match (self.id, next % 8) {
            (None, _) => connect(transaction),
            (_, 0) if next % 64 == 0 => connect(transaction),
            (Some(id), 0) => scrape(id, transaction, &[swarm, hash(next % 7)]),
            (Some(id), 1 | 2) => seeder(swarm, 3_001).bytes(id, transaction),
            (Some(id), _) => leecher(swarm, 3_002).bytes(id, transaction),
        };
        // Without a route or an address there is nothing to send.
        if self.client.try_send(&bytes).is_ok() {
            self.counts.sent += 1;
            self.waiting.push(transaction);
        }
    }

    /// Receives the next reply. Returns whether there was one within this time.
    fn receive(&mut self, time: Duration) -> bool {
        self.client.repeat_after(time);
        let Some(reply) = self.client.next_datagram() else { return false };
        self.counts.answered += 1;
        self.waiting.retain(|transaction| *transaction != u32_at(&reply, 4));
        match u32_at(&reply, 0) {
            0 => {
                // The reply to any of the connects will do.
                if self.id.replace(u64_at(&reply, 8)).is_none() {
                    self.waiting.clear();
                }
            }
            1 | 2 => {}
            _ => panic!("an error reply: {}", error_text(&reply)),
        }
        true
    }

    /// Receives the replies that have arrived; the requests and replies so far.
    pub(crate) fn counts_after_receiving(&mut self) -> Counts {
        while self.receive(TICK) {}
        self.counts
    }
}
