//! Streams within the process, with partial reads and writes, full buffers and late events from a
//! seed: a backend for tests and simulations.
//!
//! The test connects clients and reads and writes for them. [`Backend::wait`](Streams::wait) always
//! returns at once. On one thread, all events follow from the seed. Faults are those of the
//! server's side; clients meet only the capacity of a connection.
//!
//! The backend is as strict as the contract allows: without [`repeats`](Conditions::repeats) an
//! event comes only after `None` or `WouldBlock`, a reset discards all that was not read, and the
//! last wait's events of a dropped stream are still returned.

#![expect(clippy::disallowed_types, reason = "a lock in place of the kernel's")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Ready, Streams};

/// The faults of the network. The default has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Probability that a read of the server returns a part of what it could, 0 to 1.
    pub short_reads: f64,
    /// Probability that a write of the server takes a part of what it could, 0 to 1.
    pub short_writes: f64,
    /// Probability that a wait leaves an event to the next one, 0 to below 1.
    pub stalls: f64,
    /// Probability that input of the server causes an event though the last one was not used up, as
    /// the kernel's does, 0 to 1.
    pub repeats: f64,
    /// The most unread bytes in each direction of a connection, at least 1.
    pub capacity: usize,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { short_reads: 0.0, short_writes: 0.0, stalls: 0.0, repeats: 0.0, capacity: 65_536 }
    }
}

/// The network. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

/// One worker's listeners and connections. Dropping it resets the connections that it has not
/// accepted.
pub struct Backend {
    state: Arc<Mutex<State>>,
    /// The numbers of its listeners in the network.
    listeners: Range<usize>,
    ready: VecDeque<Ready>,
}

/// Names a listener to [`Network::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener(usize);

/// One end of a connection, nonblocking. Dropping it closes it.
pub struct End<const SIDE: usize> {
    state: Arc<Mutex<State>>,
    connection: u64,
}

/// The server's end of a connection.
pub type Stream = End<SERVER>;
/// The client's end of a connection.
pub type Client = End<CLIENT>;

const SERVER: usize = 0;
const CLIENT: usize = 1;

impl Network {
    /// A network without listeners.
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        let state = State {
            conditions,
            rng: SmallRng::seed_from_u64(seed),
            listeners: Vec::new(),
            connections: BTreeMap::new(),
            next: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A worker with `count` listeners.
    pub fn listen(&self, count: usize) -> Backend {
        let listeners = &mut lock(&self.state).listeners;
        let first = listeners.len();
        let queue = || Queue { waiting: VecDeque::new(), is_awaited: true, is_closed: false };
        listeners.extend((0..count).map(|_| queue()));
        let listeners = first..first + count;
        Backend { state: Arc::clone(&self.state), listeners, ready: VecDeque::new() }
    }

    /// Connects a client; at a listener whose backend was dropped, its connection is reset.
    pub fn connect(&self, listener: Listener, from: SocketAddr) -> Client {
        let connection = lock(&self.state).connect(listener.0, from);
        End { state: Arc::clone(&self.state), connection }
    }
}

impl Backend {
    /// The name of one of its listeners.
    ///
    /// # Panics
    /// When there is no such listener.
    pub fn listener(&self, number: usize) -> Listener {
        assert!(number < self.listeners.len(), "no listener {number}");
        Listener(self.listeners.start + number)
    }
}

impl Streams for Backend {
    type Stream = Stream;
    /// No wait blocks.
    type Waker = fn();

    fn waker(&self) -> fn() {
        || ()
    }

    fn wait(&mut self, _timeout: Duration) -> io::Result<()> {
        self.ready.clear();
        lock(&self.state).collect(&self.listeners, &mut self.ready);
        Ok(())
    }

    fn ready(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<(Stream, SocketAddr)>> {
        let state = &mut *lock(&self.state);
        let queue = &mut state.listeners[self.listener(listener).0];
        let Some(connection) = queue.waiting.pop_front() else {
            queue.is_awaited = true;
            return Ok(None);
        };
        let from = state.connections[&connection].from;
        Ok(Some((End { state: Arc::clone(&self.state), connection }, from)))
    }

    fn accept_queue(&self) -> usize {
        let state = lock(&self.state);
        self.listeners.clone().map(|number| state.listeners[number].waiting.len()).sum()
    }

    /// 192.0.2.1, with the number of the listener in the network as the port.
    fn address(&self, listener: usize) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([192, 0, 2, 1], self.listener(listener).0 as u16)))
    }

    fn watch(&mut self, stream: &mut Stream, key: u64) -> io::Result<()> {
        lock(&self.state).connection(stream.connection).key = Some(key);
        Ok(())
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        for listener in self.listeners.clone() {
            state.listeners[listener].is_closed = true;
            for connection in std::mem::take(&mut state.listeners[listener].waiting) {
                state.connection(connection).reset();
                state.close(connection, SERVER);
            }
        }
    }
}

impl<const SIDE: usize> End<SIDE> {
    /// Ends the output: the other end reads what was written before, then the end.
    ///
    /// # Errors
    /// When the connection was reset.
    pub fn finish(&mut self) -> io::Result<()> {
        let mut state = lock(&self.state);
        let connection = state.connection(self.connection);
        if connection.is_reset {
            return Err(ErrorKind::NotConnected.into());
        }
        connection.sides[1 - SIDE].has_ended = true;
        Ok(())
    }

    /// Closes the connection by a reset.
    pub fn reset(self) {
        lock(&self.state).connection(self.connection).reset();
    }
}

impl super::Stream for Stream {
    fn finish(&mut self) -> io::Result<()> {
        self.finish()
    }
}

impl<const SIDE: usize> Read for End<SIDE> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        lock(&self.state).read(self.connection, SIDE, buffer)
    }
}

impl<const SIDE: usize> Write for End<SIDE> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.state).write(self.connection, SIDE, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<const SIDE: usize> Drop for End<SIDE> {
    fn drop(&mut self) {
        lock(&self.state).close(self.connection, SIDE);
    }
}

/// The state, also after a test panicked while holding the lock.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything behind the network's lock.
struct State {
    conditions: Conditions,
    rng: SmallRng,
    listeners: Vec<Queue>,
    /// By number, in the order of connecting, until both ends are closed.
    connections: BTreeMap<u64, Connection>,
    /// The number of the next connection.
    next: u64,
}

/// A listener's connections that were not accepted.
struct Queue {
    waiting: VecDeque<u64>,
    /// Whether `accept` has returned `None` since the last event.
    is_awaited: bool,
    /// Whether its backend was dropped.
    is_closed: bool,
}

struct Connection {
    listener: usize,
    from: SocketAddr,
    /// The key of its events, while they are reported.
    key: Option<u64>,
    is_reset: bool,
    /// Those of the server and the client.
    sides: [Side; 2],
}

struct Side {
    /// Bytes from the other end that this one has not read.
    input: VecDeque<u8>,
    /// Whether the other end writes no more.
    has_ended: bool,
    /// Whether a read has returned `WouldBlock` since the last event.
    awaits_input: bool,
    /// Whether a write has returned `WouldBlock` since the last event.
    awaits_room: bool,
    is_closed: bool,
}

impl Connection {
    fn reset(&mut self) {
        self.is_reset = true;
        for side in &mut self.sides {
            side.input.clear();
            (side.awaits_input, side.awaits_room) = (true, true);
        }
    }

    /// Whether the server's end has to be reported as readable and as writable.
    fn events(&self, capacity: usize) -> (bool, bool) {
        let [server, client] = &self.sides;
        let readable = !server.input.is_empty() || server.has_ended || self.is_reset;
        let writable = client.input.len() < capacity || client.is_closed || self.is_reset;
        (readable && server.awaits_input, writable && server.awaits_room)
    }
}

impl State {
    fn connection(&mut self, number: u64) -> &mut Connection {
        self.connections.get_mut(&number).expect("an end is open")
    }

    fn connect(&mut self, listener: usize, from: SocketAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        let side = || Side {
            input: VecDeque::new(),
            has_ended: false,
            awaits_input: true,
            awaits_room: true,
            is_closed: false,
        };
        let sides = [side(), side()];
        let connection = Connection { listener, from, key: None, is_reset: false, sides };
        self.connections.insert(number, connection);
        let queue = &mut self.listeners[listener];
        if queue.is_closed {
            self.connection(number).reset();
            self.close(number, SERVER);
        } else {
            queue.waiting.push_back(number);
        }
        number
    }

    /// Appends the events of these listeners and their connections to `ready`.
    fn collect(&mut self, listeners: &Range<usize>, ready: &mut VecDeque<Ready>) {
        let Self { conditions, rng, .. } = self;
        for (number, queue) in self.listeners[listeners.clone()].iter_mut().enumerate() {
            let is_due = queue.is_awaited && !queue.waiting.is_empty();
            if is_due && !happens(rng, conditions.stalls) {
                queue.is_awaited = false;
                ready.push_back(Ready::Listener(number));
            }
        }
        for connection in self.connections.values_mut() {
            let Some(key) = connection.key.filter(|_| listeners.contains(&connection.listener))
            else {
                continue;
            };
            let (readable, writable) = connection.events(conditions.capacity);
            if (readable || writable) && !happens(rng, conditions.stalls) {
                let side = &mut connection.sides[SERVER];
                side.awaits_input &= !readable;
                side.awaits_room &= !writable;
                let ended = side.has_ended || connection.is_reset;
                ready.push_back(Ready::Stream { key, readable, writable, ended });
            }
        }
    }

    fn read(&mut self, number: u64, side: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let short = if side == SERVER { self.conditions.short_reads } else { 0.0 };
        let connection = self.connections.get_mut(&number).expect("an end is open");
        let own = &mut connection.sides[side];
        if connection.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        } else if own.input.is_empty() && !own.has_ended {
            own.awaits_input = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = part(&mut self.rng, own.input.len().min(buffer.len()), short);
        own.input.read_exact(&mut buffer[..len])?;
        Ok(len)
    }

    fn write(&mut self, number: u64, side: usize, bytes: &[u8]) -> io::Result<usize> {
        let short = if side == SERVER { self.conditions.short_writes } else { 0.0 };
        let connection = self.connections.get_mut(&number).expect("an end is open");
        let other = &mut connection.sides[1 - side];
        let room = self.conditions.capacity.saturating_sub(other.input.len());
        if connection.is_reset {
            return Err(ErrorKind::ConnectionReset.into());
        } else if other.has_ended {
            return Err(ErrorKind::BrokenPipe.into());
        } else if other.is_closed {
            // The bytes leave this end; the reset is the reply to them.
            connection.reset();
            return Ok(bytes.len());
        } else if room == 0 {
            connection.sides[side].awaits_room = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let len = part(&mut self.rng, room.min(bytes.len()), short);
        other.input.extend(&bytes[..len]);
        other.awaits_input |= side == CLIENT && happens(&mut self.rng, self.conditions.repeats);
        Ok(len)
    }

    /// Closes an end. Unread input makes it a reset, as in the kernel.
    fn close(&mut self, number: u64, side: usize) {
        let connection = self.connection(number);
        if !connection.sides[side].input.is_empty() {
            connection.reset();
        }
        if side == SERVER {
            connection.key = None;
        }
        connection.sides[side].is_closed = true;
        connection.sides[1 - side].has_ended = true;
        if connection.sides[1 - side].is_closed {
            self.connections.remove(&number);
        }
    }
}

/// Whether an event of this probability occurs. A certain outcome draws no random number.
fn happens(rng: &mut SmallRng, probability: f64) -> bool {
    probability > 0.0 && rng.random_bool(probability.min(1.0))
}

/// With this probability a part of `len`, at least 1; otherwise `len`.
fn part(rng: &mut SmallRng, len: usize, probability: f64) -> usize {
    if len > 1 && happens(rng, probability) { rng.random_range(1..len) } else { len }
}
