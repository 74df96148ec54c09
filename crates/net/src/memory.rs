//! A network inside the process: loss, duplicates, delay and reordering from a seed; a backend
//! like the others, for tests and simulations.
//!
//! Time is virtual: nothing that is delayed arrives until the test [advances](Network::advance)
//! the clock. Used from one thread, everything that happens follows from the seed. Used from
//! several ([`Options::blocking`]), workers wait for real and only the order of their sends is up
//! to the scheduler.
//!
//! Addresses work as on one host that owns all of them: a worker bound to a wildcard address gets
//! whatever is sent to its port and not bound by name, is told which address that was, and answers from it.
//! Several workers on one address are a group, as with SO_REUSEPORT; a [`Choice`] stands for the
//! kernel's.
//!
//! All memory is taken at construction and when workers are bound, so that allocations and
//! instructions counted over this backend are the program's own.

mod state;

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::socket::{Received, Reply, Return, Sent, Slot, Socket};
use state::{SLOT_BYTES, State};

/// How bad the network is. The default is perfect.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Probability that a datagram is lost, 0 to 1.
    pub loss: f64,
    /// Probability that a datagram arrives twice, 0 to 1.
    pub duplicates: f64,
    /// How long a datagram is under way: evenly spread. A range that is not one value reorders.
    pub delay: RangeInclusive<Duration>,
    /// Probability that a datagram is held back for up to twice the longest delay and a
    /// millisecond, so that later ones overtake it; 0 to 1.
    pub reordering: f64,
}

impl Default for Conditions {
    fn default() -> Self {
        let delay = Duration::ZERO..=Duration::ZERO;
        Self { loss: 0.0, duplicates: 0.0, delay, reordering: 0.0 }
    }
}

/// What the network and its workers have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Datagrams under way and in receive buffers at most, 2 kB each; at that limit sends are
    /// `blocked`.
    pub in_flight: usize,
    /// Datagrams in one worker's receive buffer at most; at that limit they are `dropped`.
    pub receive_buffer: usize,
    /// Datagrams per batch.
    pub batch: usize,
    /// Whether `wait` waits, in real time, for other threads. Otherwise it returns at once.
    pub blocking: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { in_flight: 4096, receive_buffer: 1024, batch: 128, blocking: false }
    }
}

/// Which worker of a group gets a datagram.
#[derive(Clone)]
pub enum Choice {
    /// By a hash of the source address, as the kernel does by itself.
    BySource,
    /// By a function of payload and source, as a steering program does. `None` and numbers that no
    /// worker has fall back to [`Choice::BySource`].
    By(Arc<Steer>),
}

/// A function from payload and source to a worker's number.
pub type Steer = dyn Fn(&[u8], SocketAddr) -> Option<usize> + Send + Sync;

/// What became of all datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Taken from workers.
    pub sent: u64,
    /// Put into receive buffers.
    pub delivered: u64,
    /// Lost on the way, by [`Conditions::loss`].
    pub lost: u64,
    /// Made twice, by [`Conditions::duplicates`].
    pub duplicated: u64,
    /// Dropped as a receive buffer was full.
    pub dropped: u64,
    /// Sent to where nobody is bound.
    pub unreachable: u64,
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

/// What the network and its workers share.
struct Shared {
    state: Mutex<State>,
    /// Rung whenever a worker that waits may have something.
    arrived: Condvar,
    options: Options,
}

impl Shared {
    /// The state. A test that panicked while holding it has failed already.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Network {
    /// A network with default [`Options`].
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        Self::with_options(seed, conditions, Options::default())
    }

    /// A network with this much room.
    pub fn with_options(seed: u64, conditions: Conditions, options: Options) -> Self {
        let state = Mutex::new(State::new(seed, conditions, options.in_flight));
        Self { shared: Arc::new(Shared { state, arrived: Condvar::new(), options }) }
    }

    /// A worker on its own at these addresses (port 0: one is found).
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn bind(&self, addresses: &[SocketAddr]) -> io::Result<Endpoint> {
        let mut group = self.bind_group(addresses, 1, &Choice::BySource)?;
        Ok(group.pop().expect("one worker"))
    }

    /// A group of workers, each at all of these addresses (port 0: one is found).
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn bind_group(
        &self,
        addresses: &[SocketAddr],
        workers: usize,
        choice: &Choice,
    ) -> io::Result<Vec<Endpoint>> {
        let Options { batch, receive_buffer, .. } = self.shared.options;
        let (addresses, numbers) =
            self.shared.state().bind(addresses, workers, choice, receive_buffer)?;
        let endpoint = |worker| Endpoint {
            shared: Arc::clone(&self.shared),
            worker,
            addresses: addresses.clone(),
            region: vec![0; batch * SLOT_BYTES].into(),
            slots: Vec::with_capacity(batch),
        };
        Ok(numbers.map(endpoint).collect())
    }

    /// The virtual time since the network's start.
    pub fn now(&self) -> Duration {
        self.shared.state().now
    }

    /// Lets time pass: what is due by then arrives, in its order.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.state();
        state.now += by;
        state.deliver_due();
        drop(state);
        self.shared.arrived.notify_all();
    }

    /// When the next datagram under way arrives, on the clock of [`now`](Self::now).
    pub fn next_arrival(&self) -> Option<Duration> {
        self.shared.state().next_arrival()
    }

    /// Changes the conditions for what is sent from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.shared.state().conditions = conditions;
    }

    /// What became of all datagrams.
    pub fn counts(&self) -> DatagramCounts {
        self.shared.state().counts
    }
}

/// One worker's side of the network. Dropping it unbinds its addresses.
pub struct Endpoint {
    shared: Arc<Shared>,
    worker: usize,
    addresses: Vec<SocketAddr>,
    region: Box<[u8]>,
    slots: Vec<Slot>,
}

impl Endpoint {
    /// Its addresses with their ports, in the order in which they were given; a
    /// [`Return::socket`] counts them.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Socket for Endpoint {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared), worker: self.worker }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut state = self.shared.state();
        if self.shared.options.blocking {
            let end = Instant::now() + timeout;
            while !state.workers[self.worker].has_cause_to_wake() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.shared.arrived.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        state.workers[self.worker].rung = false;
        Ok(())
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.slots.clear();
        let limit = limit.min(self.slots.capacity());
        let mut state = self.shared.state();
        while self.slots.len() < limit {
            let offset = self.slots.len() * SLOT_BYTES;
            let room = &mut self.region[offset..offset + SLOT_BYTES];
            let Some(taken) = state.take(self.worker, room) else { break };
            self.slots.push(Slot {
                offset: offset as u32,
                len: taken.len as u32,
                source: taken.source,
                reply_to: taken.reply_to,
            });
        }
        drop(state);
        Ok(Received::new(&self.region, &self.slots))
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let mut sent = Sent::default();
        for reply in replies {
            // The lock is not held while the caller's iterator runs.
            let to: &Return = reply.to;
            let Some(&from) = self.addresses.get(usize::from(to.socket)) else {
                sent.failed += 1;
                continue;
            };
            let Some(source) = state::source(from, to) else {
                sent.failed += 1;
                continue;
            };
            if self.shared.state().send(source, to.peer(), reply.bytes) {
                sent.datagrams += 1;
                sent.bytes += reply.bytes.len() as u64;
            } else {
                sent.blocked += 1;
            }
        }
        if sent != Sent::default() {
            sent.calls = 1;
            self.shared.arrived.notify_all();
        }
        sent
    }

    fn dropped(&self) -> u64 {
        self.shared.state().workers[self.worker].dropped
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.state().unbind(self.worker);
    }
}

/// Rings an [`Endpoint`].
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    worker: usize,
}

impl crate::socket::Waker for Waker {
    fn wake(&self) {
        self.shared.state().workers[self.worker].rung = true;
        self.shared.arrived.notify_all();
    }
}
