//! The state of the network: bound addresses, datagrams in flight, and the random sequence.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Choice, Conditions, DatagramCounts};
use crate::filter::Filter;
use crate::name;
use crate::socket::{Drops, Return, Slot};

/// Bytes kept of a datagram, as in the other backends.
pub(super) const SLOT_BYTES: usize = 2048;

/// The first port assigned for port 0 (RFC 6335, section 6: the dynamic ports).
const FIRST_DYNAMIC_PORT: u16 = 49_152;

/// Everything behind the network's lock.
pub(super) struct State {
    pub(super) now: Duration,
    pub(super) conditions: Conditions,
    pub(super) counts: DatagramCounts,
    pub(super) workers: Vec<Worker>,
    /// Hashed without a random key: the instructions of a run are the same each time.
    groups: HashMap<SocketAddr, Group, BuildHasherDefault<DefaultHasher>>,
    in_flight: BinaryHeap<Reverse<Flight>>,
    sequence: u64,
    next_port: u16,
    frames: Frames,
    rng: SmallRng,
}

/// One worker's receive buffer.
pub(super) struct Worker {
    inbox: VecDeque<Datagram>,
    pub(super) wake_pending: bool,
    pub(super) filter: Option<Filter>,
    pub(super) dropped: Drops,
}

impl Worker {
    /// Whether `wait` has to return.
    pub(super) fn has_cause_to_wake(&self) -> bool {
        self.wake_pending || !self.inbox.is_empty()
    }
}

/// The workers at one address.
struct Group {
    /// The numbers of the workers.
    members: Vec<usize>,
    /// The number of this socket within each of them.
    socket: u16,
    choice: Choice,
}

/// A datagram in a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Datagram {
    frame: u32,
    source: SocketAddr,
    target: SocketAddr,
    /// The receiver's socket, once delivered.
    socket: u16,
}

/// A datagram in flight. Ordered by due time, then by the order of sending.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due: Duration,
    sequence: u64,
    datagram: Datagram,
}

impl State {
    /// An empty network with room for `in_flight` datagrams.
    pub(super) fn new(seed: u64, conditions: Conditions, in_flight: usize) -> Self {
        Self {
            now: Duration::ZERO,
            conditions,
            counts: DatagramCounts::default(),
            workers: Vec::new(),
            groups: HashMap::default(),
            in_flight: BinaryHeap::with_capacity(in_flight),
            sequence: 0,
            next_port: FIRST_DYNAMIC_PORT,
            frames: Frames::new(in_flight),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Adds workers at all of `addresses`; returns these with their ports, and the workers'
    /// numbers.
    pub(super) fn bind(
        &mut self,
        addresses: &[SocketAddr],
        workers: usize,
        choice: &Choice,
        receive_buffer: usize,
    ) -> io::Result<(Vec<SocketAddr>, Range<usize>)> {
        let addresses: Vec<_> = addresses.iter().map(|&address| self.with_port(address)).collect();
        if addresses.iter().any(|address| self.groups.contains_key(address)) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let first = self.workers.len();
        let numbers = first..first + workers;
        self.workers.extend(numbers.clone().map(|_| Worker {
            inbox: VecDeque::with_capacity(receive_buffer),
            wake_pending: false,
            filter: None,
            dropped: Drops::default(),
        }));
        for (socket, &address) in addresses.iter().enumerate() {
            let members = numbers.clone().collect();
            let group = Group { members, socket: socket as u16, choice: choice.clone() };
            self.groups.insert(address, group);
        }
        Ok((addresses, numbers))
    }

    /// Removes a worker from all of its groups. As in the kernel, the last member takes its number.
    pub(super) fn unbind(&mut self, worker: usize) {
        self.groups.retain(|_, group| {
            if let Some(place) = group.members.iter().position(|&member| member == worker) {
                group.members.swap_remove(place);
            }
            !group.members.is_empty()
        });
        let inbox = std::mem::take(&mut self.workers[worker].inbox);
        for datagram in inbox {
            self.frames.free(datagram.frame);
        }
    }

    /// The address; a port of 0 is replaced by a free port.
    fn with_port(&mut self, mut address: SocketAddr) -> SocketAddr {
        if address.port() == 0 {
            let wildcard = address.ip().is_unspecified();
            for _ in FIRST_DYNAMIC_PORT..=u16::MAX {
                let port = self.next_port;
                self.next_port = port.checked_add(1).unwrap_or(FIRST_DYNAMIC_PORT);
                address.set_port(port);
                let clashes = |other: &SocketAddr| {
                    let same =
                        wildcard || other.ip().is_unspecified() || other.ip() == address.ip();
                    other.port() == port && same
                };
                if !self.groups.keys().any(clashes) {
                    break;
                }
            }
            // If all ports clash, so does the last one: bind refuses an equal address; otherwise
            // the more specific address receives the datagrams for both.
        }
        address
    }

    /// Sends a datagram; `false` when the network is at its capacity.
    pub(super) fn send(&mut self, source: SocketAddr, target: SocketAddr, bytes: &[u8]) -> bool {
        if self.frames.free.is_empty() {
            return false;
        }
        self.counts.sent += 1;
        if self.happens(self.conditions.loss) {
            self.counts.lost += 1;
            return true;
        }
        self.transport(source, target, bytes);
        if self.happens(self.conditions.duplicates) && self.transport(source, target, bytes) {
            self.counts.duplicated += 1;
        }
        true
    }

    /// Puts a datagram in flight, or delivers it when the delay is zero.
    fn transport(&mut self, source: SocketAddr, target: SocketAddr, bytes: &[u8]) -> bool {
        let Some(frame) = self.frames.fill(bytes) else { return false };
        let datagram = Datagram { frame, source, target, socket: 0 };
        let delay = self.delay();
        if delay.is_zero() {
            self.deliver(datagram);
        } else {
            self.sequence += 1;
            let due = self.now + delay;
            self.in_flight.push(Reverse(Flight { due, sequence: self.sequence, datagram }));
        }
        true
    }

    /// The delay of the next datagram.
    fn delay(&mut self) -> Duration {
        let (shortest, longest) = (*self.conditions.delay.start(), *self.conditions.delay.end());
        let mut delay = self.up_to(shortest, longest);
        if self.happens(self.conditions.reordering) {
            delay += self.up_to(Duration::from_micros(1), 2 * longest + Duration::from_millis(1));
        }
        delay
    }

    /// Whether an event of this probability occurs. A certain outcome draws no random number.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability.min(1.0))
    }

    /// A random duration in this range, in whole nanoseconds.
    fn up_to(&mut self, shortest: Duration, longest: Duration) -> Duration {
        if longest <= shortest {
            return shortest;
        }
        let span = u64::try_from((longest - shortest).as_nanos()).unwrap_or(u64::MAX);
        shortest + Duration::from_nanos(self.rng.random_range(0..=span))
    }

    /// When the next datagram in flight is due.
    pub(super) fn next_arrival(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse(flight)| flight.due)
    }

    /// Delivers the datagrams that are due.
    pub(super) fn deliver_due(&mut self) {
        while self.next_arrival().is_some_and(|due| due <= self.now) {
            let Some(Reverse(flight)) = self.in_flight.pop() else { break };
            self.deliver(flight.datagram);
        }
    }

    /// Puts a datagram into the receive buffer of its worker.
    fn deliver(&mut self, mut datagram: Datagram) {
        let target = datagram.target;
        let wildcard = SocketAddr::new(unspecified(target.ip()), target.port());
        let Some(group) = self.groups.get(&target).or_else(|| self.groups.get(&wildcard)) else {
            self.counts.unreachable += 1;
            self.frames.free(datagram.frame);
            return;
        };
        let worker = group.pick(self.frames.bytes(datagram.frame), datagram.source);
        datagram.socket = group.socket;
        let worker = &mut self.workers[worker];
        let payload = self.frames.bytes(datagram.frame);
        let counts = &mut self.counts;
        let dropped = &mut worker.dropped;
        if worker.filter.is_some_and(|filter| !filter.passes(payload, datagram.source)) {
            dropped.filter += 1;
            counts.filtered += 1;
            self.frames.free(datagram.frame);
        } else if worker.inbox.len() == worker.inbox.capacity() {
            dropped.full_buffer += 1;
            counts.dropped += 1;
            self.frames.free(datagram.frame);
        } else {
            worker.inbox.push_back(datagram);
            counts.delivered += 1;
        }
    }

    /// Takes a datagram out of a worker's receive buffer and copies its bytes into `region` from
    /// `offset` on.
    pub(super) fn take(&mut self, worker: usize, region: &mut [u8], offset: usize) -> Option<Slot> {
        let datagram = self.workers[worker].inbox.pop_front()?;
        let bytes = self.frames.bytes(datagram.frame);
        let len = bytes.len();
        region[offset..offset + len].copy_from_slice(bytes);
        self.frames.free(datagram.frame);
        let mut reply_to = Return::to(datagram.source, datagram.socket);
        // As on a real host, only a wildcard bind learns the local address.
        if !self.groups.contains_key(&datagram.target) {
            reply_to.local = name::encode_ip(datagram.target.ip());
            reply_to.has_local = true;
        }
        Some(Slot { offset: offset as u32, len: len as u32, source: datagram.source, reply_to })
    }
}

impl Group {
    /// The number of the worker that receives a datagram.
    fn pick(&self, payload: &[u8], source: SocketAddr) -> usize {
        let wanted = match &self.choice {
            Choice::BySource => None,
            Choice::By(steer) => steer(payload, source),
        };
        match wanted.and_then(|number| self.members.get(number)) {
            Some(&worker) => worker,
            None => self.members[spread(source, self.members.len())],
        }
    }
}

/// The source address of a reply: the socket's own, else the one that the request was sent to, else
/// loopback. `None` when its family differs from the peer's.
pub(super) fn source(bound: SocketAddr, to: &Return) -> Option<SocketAddr> {
    let ip = match (bound.ip(), to.local()) {
        (ip, _) if !ip.is_unspecified() => ip,
        (_, Some(local)) => local,
        (IpAddr::V4(_), None) => Ipv4Addr::LOCALHOST.into(),
        (IpAddr::V6(_), None) => Ipv6Addr::LOCALHOST.into(),
    };
    let source = SocketAddr::new(ip, bound.port());
    (source.is_ipv4() == to.peer().is_ipv4()).then_some(source)
}

/// The wildcard address of the same family.
fn unspecified(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A number below `len` from an address, equal in every run.
fn spread(source: SocketAddr, len: usize) -> usize {
    let (name, _) = name::encode(source);
    // FNV-1a over port and address; its upper half picks the number.
    let hash = name[2..].iter().fold(0xCBF2_9CE4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (((hash >> 32) * len as u64) >> 32) as usize
}

/// The memory of all datagrams.
struct Frames {
    bytes: Box<[u8]>,
    lens: Box<[u16]>,
    free: Vec<u32>,
}

impl Frames {
    fn new(count: usize) -> Self {
        let bytes = vec![0; count * SLOT_BYTES].into();
        Self { bytes, lens: vec![0; count].into(), free: (0..count as u32).rev().collect() }
    }

    /// A frame with a copy of `bytes`, truncated to the frame's size.
    fn fill(&mut self, bytes: &[u8]) -> Option<u32> {
        let frame = self.free.pop()?;
        let bytes = &bytes[..bytes.len().min(SLOT_BYTES)];
        let start = frame as usize * SLOT_BYTES;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.lens[frame as usize] = bytes.len() as u16;
        Some(frame)
    }

    fn bytes(&self, frame: u32) -> &[u8] {
        let start = frame as usize * SLOT_BYTES;
        &self.bytes[start..start + usize::from(self.lens[frame as usize])]
    }

    fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }
}
