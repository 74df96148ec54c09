//! A network within the process, with loss, duplicates, delay and reordering from a seed: a backend
//! for tests and simulations.
//!
//! Time is virtual: a delayed datagram arrives only when the test [advances](Network::advance) the
//! clock. On one thread, all events follow from the seed. On several threads
//! ([`Options::blocking`]), workers wait in real time, and the scheduler decides the order of their
//! sends.
//!
//! Addresses work as on one host that owns all of them: a worker bound to a wildcard address
//! receives all datagrams to its port that no more specific address takes, learns the address they
//! were sent to, and replies from it. Several workers on one address are a group, as with
//! SO_REUSEPORT; a [`Choice`] replaces the kernel's choice among them.
//!
//! All memory is allocated at construction and when workers are bound, so that allocations and
//! instructions counted over this backend belong to the program under test.

#![expect(clippy::disallowed_types, reason = "a lock in place of the kernel's")]

mod state;

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::filter::Filter;
use crate::socket::{Cause, Drops, Received, Reply, Return, Sent, Slot, Socket};
use state::{SLOT_BYTES, State};

/// The faults of the network. The default has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// Probability that a datagram is lost, 0 to 1.
    pub loss: f64,
    /// Probability that a datagram arrives twice, 0 to 1.
    pub duplicates: f64,
    /// The delay of a datagram, uniform over this range. A range of more than one value reorders.
    pub delay: RangeInclusive<Duration>,
    /// Probability that a datagram is delayed by up to twice the longest delay and a millisecond
    /// more, so that later ones overtake it; 0 to 1.
    pub reordering: f64,
}

impl Default for Conditions {
    fn default() -> Self {
        let delay = Duration::ZERO..=Duration::ZERO;
        Self { loss: 0.0, duplicates: 0.0, delay, reordering: 0.0 }
    }
}

/// Capacities of the network and its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most datagrams in flight and in receive buffers, 2 kB each; beyond it sends are
    /// `blocked`.
    pub in_flight: usize,
    /// The most datagrams in one worker's receive buffer; beyond it they are `dropped`.
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

/// Which worker of a group receives a datagram.
#[derive(Clone)]
pub enum Choice {
    /// By a hash of the source address, as the kernel does without a program.
    BySource,
    /// By a function of payload and source, as a steering program does. `None` and numbers without
    /// a worker fall back to [`Choice::BySource`].
    By(Arc<Steer>),
}

/// A function from payload and source to the number of a worker.
pub type Steer = dyn Fn(&[u8], SocketAddr) -> Option<usize> + Send + Sync;

/// Counts of all datagrams so far, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Accepted from workers.
    pub sent: u64,
    /// Put into receive buffers.
    pub delivered: u64,
    /// Lost on the way, by [`Conditions::loss`].
    pub lost: u64,
    /// Duplicated, by [`Conditions::duplicates`].
    pub duplicated: u64,
    /// Dropped because a receive buffer was full.
    pub dropped: u64,
    /// Dropped by a [filter](Socket::set_filter).
    pub filtered: u64,
    /// Sent to an address without a worker.
    pub unreachable: u64,
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

/// State shared by the network and its workers.
struct Shared {
    state: Mutex<State>,
    /// Notified whenever a waiting worker may have a datagram.
    arrived: Condvar,
    options: Options,
}

impl Shared {
    /// The state, also after a test panicked while holding the lock: such a test has failed
    /// already.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Network {
    /// A network with default [`Options`].
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        Self::with_options(seed, conditions, Options::default())
    }

    /// A network with these capacities.
    pub fn with_options(seed: u64, conditions: Conditions, options: Options) -> Self {
        let state = Mutex::new(State::new(seed, conditions, options.in_flight));
        Self { shared: Arc::new(Shared { state, arrived: Condvar::new(), options }) }
    }

    /// One worker at these addresses (port 0: the network picks a free port).
    ///
    /// # Errors
    /// `AddrInUse`.
    pub fn bind(&self, addresses: &[SocketAddr]) -> io::Result<Endpoint> {
        let mut group = self.bind_group(addresses, 1, &Choice::BySource)?;
        Ok(group.pop().expect("one worker"))
    }

    /// A group of workers, each at all of these addresses (port 0: the network picks a free port).
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

    /// Advances the time: datagrams due by then arrive, in order.
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

    /// The outcomes of all datagrams so far.
    pub fn counts(&self) -> DatagramCounts {
        self.shared.state().counts
    }
}

/// One worker's network side. Dropping it unbinds its addresses.
pub struct Endpoint {
    shared: Arc<Shared>,
    worker: usize,
    addresses: Vec<SocketAddr>,
    region: Box<[u8]>,
    slots: Vec<Slot>,
}

impl Endpoint {
    /// The worker's addresses with their ports, in the order of binding, which [`Return::socket`]
    /// counts.
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
        state.workers[self.worker].wake_pending = false;
        Ok(())
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.slots.clear();
        let limit = limit.min(self.slots.capacity());
        let mut state = self.shared.state();
        while self.slots.len() < limit {
            let offset = self.slots.len() * SLOT_BYTES;
            let Some(slot) = state.take(self.worker, &mut self.region, offset) else { break };
            self.slots.push(slot);
        }
        drop(state);
        Ok(Received::new(&self.region, &self.slots))
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let mut sent = Sent::default();
        for reply in replies {
            // The lock is not reserved while the caller's iterator runs.
            let to: &Return = reply.to;
            let from = self.addresses.get(usize::from(to.socket));
            let Some(source) = from.and_then(|from| state::source(*from, to)) else {
                sent.reject(1, Cause::Other);
                continue;
            };
            if self.shared.state().send(source, to.peer(), reply.bytes) {
                sent.datagrams += 1;
                sent.bytes += reply.bytes.len() as u64;
            } else {
                sent.reject(1, Cause::FullBuffer);
            }
        }
        if sent != Sent::default() {
            sent.calls = 1;
            self.shared.arrived.notify_all();
        }
        sent
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        self.shared.state().workers[self.worker].filter = filter.copied();
        Ok(())
    }

    fn dropped(&self) -> Drops {
        self.shared.state().workers[self.worker].dropped
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.state().unbind(self.worker);
    }
}

/// Wakes an [`Endpoint`].
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
    worker: usize,
}

impl crate::socket::Waker for Waker {
    fn wake(&self) {
        self.shared.state().workers[self.worker].wake_pending = true;
        self.shared.arrived.notify_all();
    }
}
