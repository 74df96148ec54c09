//! The open connections of a worker: their places, their limits, and when they time out.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv6Addr};

use onrush_net::stream::Stream;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::lanes::Ticket;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::metrics::WebCounters;

use crate::connection::{Connection, Rank};
use crate::service::{self, Carrier};

/// Connections that are chosen at once to be closed for others.
const CHOSEN: usize = 64;

/// The place of a connection: its slot, and the number of the slot's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn of_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }

    pub(crate) fn of(ticket: Ticket) -> Self {
        Self { slot: ticket.slot, generation: ticket.generation }
    }

    /// The ticket of the connection, without the number of a request.
    pub(crate) fn ticket(self) -> Ticket {
        Ticket { slot: self.slot, generation: self.generation, sequence: 0 }
    }
}

struct Slot<S> {
    generation: u32,
    connection: Option<Connection<S>>,
    /// The source that it is counted for; a proxy is none.
    source: Option<IpAddr>,
    /// The carrier of its requests when it was last updated.
    carrier: Carrier,
    /// Bytes that it buffers, as added to the sum.
    buffered: usize,
    /// Whether it lingers, and no longer counts as one of its source.
    lingers: bool,
}

/// Connections to close for others, the first one last, with the rank that each had when they were
/// chosen: a look at all connections for each would take long.
#[derive(Debug, Default)]
struct Chosen(Vec<(Key, Rank)>);

impl Chosen {
    /// The next of the connections that have a rank.
    fn next<S: Stream>(
        &mut self,
        table: &mut Table<S>,
        rank_of: impl Fn(&Connection<S>) -> Option<Rank>,
    ) -> Option<Key> {
        let Self(keys) = self;
        for has_chosen in [false, true] {
            while let Some((key, rank)) = keys.pop() {
                if table.get(key).is_some_and(|it| rank_of(it) == Some(rank)) {
                    return Some(key);
                }
            }
            if has_chosen {
                break;
            }
            let slots = table.slots.iter().zip(0..);
            keys.extend(slots.filter_map(|(slot, number)| {
                let rank = slot.connection.as_ref().and_then(&rank_of)?;
                Some((Key { slot: number, generation: slot.generation }, rank))
            }));
            // Of the same rank, the one with the most memory comes first, and a handshake in
            // progress with its little memory last.
            let buffered = |key: &Key| table.slots[key.slot as usize].buffered;
            keys.sort_unstable_by_key(|(key, rank)| (*rank, Reverse(buffered(key)), key.slot));
            keys.truncate(CHOSEN);
            keys.reverse();
        }
        None
    }
}

/// The open connections.
pub(crate) struct Table<S> {
    slots: Vec<Slot<S>>,
    /// The deadline of each slot, apart: all are read once a second.
    deadlines: Vec<u32>,
    free: Vec<u32>,
    by_source: HashMap<IpAddr, usize>,
    /// Connections that linger, and some that did, in order.
    lingering: VecDeque<Key>,
    /// How many linger.
    lingering_count: usize,
    idle: Chosen,
    /// The second in which no connection was idle.
    no_idle_in: Option<u32>,
    slow: Chosen,
    connections: usize,
    per_source: usize,
    /// Open connections, by what they carry their requests over.
    open: [usize; 4],
}

impl<S: Stream> Table<S> {
    pub(crate) fn new(limits: &WebLimits) -> Self {
        Self {
            slots: Vec::new(),
            deadlines: Vec::new(),
            free: Vec::new(),
            by_source: HashMap::new(),
            lingering: VecDeque::new(),
            lingering_count: 0,
            idle: Chosen::default(),
            no_idle_in: None,
            slow: Chosen::default(),
            connections: limits.connections,
            per_source: limits.connections_per_source,
            open: [0; 4],
        }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many are open and do not linger.
    pub(crate) fn serving(&self) -> usize {
        self.len() - self.lingering_count
    }

    /// Sets the gauges of open connections.
    pub(crate) fn show_open(&self, counters: &WebCounters) {
        let gauges = [&counters.open, &counters.https_open, &counters.ws_open, &counters.wss_open];
        gauges.iter().zip(self.open).for_each(|(gauge, open)| gauge.set(open as u64));
    }

    /// Whether a source may open another connection.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admit(&self, client: IpAddr) -> Result<(), CloseCause> {
        match self.by_source.get(&source_of(client)) {
            Some(open) if *open >= self.per_source => Err(CloseCause::SourceLimit),
            _ => Ok(()),
        }
    }

    /// Whether all places are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.connections
    }

    /// The idle connection that may be closed first. After `None`, further calls in this second
    /// return `None`.
    pub(crate) fn first_idle(&mut self, second: u32) -> Option<Key> {
        if self.no_idle_in == Some(second) {
            return None;
        }
        let mut idle = mem::take(&mut self.idle);
        let key = idle.next(self, Connection::idle_rank);
        self.idle = idle;
        self.no_idle_in = key.is_none().then_some(second);
        key
    }

    /// The connection that is closed first where memory is scarce.
    pub(crate) fn slowest(&mut self) -> Option<Key> {
        let mut slow = mem::take(&mut self.slow);
        let key = slow.next(self, Connection::slow_rank);
        self.slow = slow;
        key
    }

    /// Adds a connection, which counts for a client.
    pub(crate) fn insert(&mut self, connection: Connection<S>, client: Option<IpAddr>) -> Key {
        let carrier = connection.carrier();
        self.open[carrier.index()] += 1;
        let deadline = connection.deadline();
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                connection: None,
                source: None,
                carrier,
                buffered: 0,
                lingers: false,
            });
            self.deadlines.push(u32::MAX);
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[number as usize];
        // Keys of streams are below 2^63.
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        slot.connection = Some(connection);
        slot.carrier = carrier;
        self.deadlines[number as usize] = deadline;
        let key = Key { slot: number, generation: slot.generation };
        if let Some(client) = client {
            self.count(key, client);
        }
        key
    }

    /// Counts a connection for its client.
    pub(crate) fn count(&mut self, key: Key, client: IpAddr) {
        // It may have been counted before its peer became a proxy.
        self.release_source(key);
        let source = source_of(client);
        *self.by_source.entry(source).or_default() += 1;
        self.slots[key.slot as usize].source = Some(source);
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Connection<S>> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        slot.connection.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Takes over the deadline of a connection and what it carries requests over, and adds what it
    /// buffers to the sum.
    pub(crate) fn update(&mut self, key: Key, buffered: &mut usize) {
        let slot = &mut self.slots[key.slot as usize];
        if let Some(connection) = &slot.connection {
            self.deadlines[key.slot as usize] = connection.deadline();
            *buffered = *buffered - slot.buffered + connection.buffered();
            slot.buffered = connection.buffered();
            let carrier = connection.carrier();
            self.open[slot.carrier.index()] -= 1;
            self.open[carrier.index()] += 1;
            slot.carrier = carrier;
        }
    }

    /// Closes a connection.
    pub(crate) fn close(
        &mut self,
        key: Key,
        cause: CloseCause,
        buffered: &mut usize,
        counters: &WebCounters,
    ) {
        let slot = &mut self.slots[key.slot as usize];
        let Some(mut connection) = slot.connection.take() else { return };
        match connection.transport.is_handshaking() {
            true => counters.failed_handshakes.add(1),
            // A client cannot tell an end without it from an attack (RFC 8446, section 6.1).
            false => connection.transport.end_tls(),
        }
        *buffered -= mem::take(&mut slot.buffered);
        self.open[slot.carrier.index()] -= 1;
        if connection.is_in_flight() {
            service::abandoned(counters, connection.carrier());
        }
        self.deadlines[key.slot as usize] = u32::MAX;
        self.free.push(key.slot);
        counters.closed[cause as usize].add(1);
        if mem::take(&mut slot.lingers) {
            self.lingering_count -= 1;
        } else {
            self.release_source(key);
        }
    }

    /// Notes that a connection lingers: its source may open another one.
    pub(crate) fn linger(&mut self, key: Key) {
        if !mem::replace(&mut self.slots[key.slot as usize].lingers, true) {
            self.lingering_count += 1;
            self.lingering.push_back(key);
            self.release_source(key);
        }
    }

    /// The connection that has lingered longest.
    pub(crate) fn longest_lingering(&mut self) -> Option<(Key, &mut Connection<S>)> {
        while let Some(key) = self.lingering.pop_front() {
            if self.get(key).is_some() {
                return self.get(key).map(|connection| (key, connection));
            }
        }
        None
    }

    fn release_source(&mut self, key: Key) {
        if let Some(source) = self.slots[key.slot as usize].source.take()
            && let Some(open) = self.by_source.get_mut(&source)
        {
            *open -= 1;
            if *open == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// The connections whose deadline is over, added to `keys`.
    pub(crate) fn expired(&mut self, second: u32, keys: &mut Vec<Key>) {
        while let Some(first) = self.lingering.front().copied()
            && self.get(first).is_none()
        {
            self.lingering.pop_front();
        }
        let over = self.deadlines.iter().zip(0..).filter(|(deadline, _)| **deadline <= second);
        keys.extend(over.map(|(_, slot)| self.key_of(slot)));
    }

    /// All open connections.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let open = |slot: &u32| self.slots[*slot as usize].connection.is_some();
        (0..self.slots.len() as u32).filter(open).map(|slot| self.key_of(slot)).collect()
    }

    fn key_of(&self, slot: u32) -> Key {
        Key { slot, generation: self.slots[slot as usize].generation }
    }
}

/// Whose connections are counted together: an IPv4 address, or the /64 of an IPv6 address.
fn source_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}
