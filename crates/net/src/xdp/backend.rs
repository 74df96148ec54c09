//! A worker's UDP sockets and queues as one backend.
//!
//! A datagram in a frame is one of the UDP socket whose address it was sent to, and a reply to it
//! leaves by the queue that it came from, to the MAC address that it came from. UDP sockets receive
//! what the XDP program passes, and send all other replies: to a token of a UDP socket, longer than
//! the MTU, and of a queue that is closed. Replies to one client that leave by both ways may
//! arrive in another order.
//!
//! The program redirects only frames to this host: for a socket that is bound to all addresses the
//! backend does not know which ones are.
//!
//! A client has no token to reply to: a datagram of a [peer](Backend::with_peers) in a frame shows
//! where requests to it go.

use std::cell::Cell;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use super::frame::{self, Datagram, End, Invalid, Link};
use super::program::SocketMap;
use super::queue::{OpenError, Queue, QueueOptions, SocketSource};
use super::umem::Umem;
use crate::filter::Filter;
use crate::mio::{self, MAX_OTHERS};
use crate::name;
use crate::socket::{
    Buffers, Cause, Drops, QueueCounts, QueueId, QueueReport, Received, Reply, Return, Sent, Slot,
    Socket,
};

/// The most queues of a backend.
pub const MAX_QUEUES: usize = MAX_OTHERS;

/// Every so many batches the UDP sockets come first: a flood of frames does not keep them waiting.
const SOCKETS_FIRST: u32 = 16;
/// The longest sleep while the kernel has not taken all frames to send.
const UNSENT_SLEEP: Duration = Duration::from_millis(1);

/// A worker's UDP sockets and queues.
pub struct Backend {
    sockets: mio::Backend,
    bound: Box<[Bound]>,
    /// The addresses of `bound` in order, each with the number of its first socket.
    by_address: Box<[(SocketAddr, u16)]>,
    /// The peers of a client.
    peers: Box<[Peer]>,
    queues: Box<[Member]>,
    map: SocketMap,
    /// Creates the sockets of queues that are opened later.
    source: Box<dyn SocketSource>,
    /// Datagrams of the current batch of a queue.
    slots: Vec<Slot>,
    /// The most datagrams of a batch.
    batch: usize,
    /// The queue that the next batch begins with, and the batches so far.
    next: usize,
    batches: u32,
    filter: Option<Filter>,
    /// Whether the queues are to be checked, as a second has passed.
    is_due: Cell<bool>,
    /// Whether queues stay closed, as another process has them.
    is_leaving: bool,
}

/// The address of a UDP socket.
struct Bound {
    address: SocketAddr,
    /// The bytes of its IP address.
    ip: [u8; 16],
}

/// A peer that a client sends requests to.
struct Peer {
    /// Its address as a token has it.
    name: [u8; name::MAX_LEN],
    /// The Ethernet header of a frame to it, once known.
    link: Option<Link>,
}

/// A queue, and what it has counted.
struct Member {
    /// `None` while it is closed, to be opened again.
    queue: Option<Queue>,
    options: QueueOptions,
    /// Which one it is. An interface of the same name that is created later lacks the program.
    id: Option<QueueId>,
    /// Frames of the last attempt to open it, for the next one.
    spare: Option<Umem>,
    /// Whether the log has why it cannot be opened.
    is_reported: bool,
    /// In `full`, those of the time before the queue was last opened.
    counts: QueueCounts,
}

impl Backend {
    /// A backend of these sockets and queues, whose places in `map` it fills. A queue without a
    /// [`Queue`] is opened later, as one that has failed. Tokens have the numbers of the sockets.
    ///
    /// # Errors
    /// When there are more than [`MAX_QUEUES`], or `map` lacks the place of one.
    pub fn new(
        sockets: mio::Backend,
        queues: Vec<(QueueOptions, Option<Queue>)>,
        mut map: SocketMap,
    ) -> io::Result<Self> {
        if queues.len() > MAX_QUEUES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut open = queues.iter().filter_map(|(_, queue)| queue.as_ref());
        open.try_for_each(|queue| map.set(queue.options.place, queue.as_fd()))?;
        let batch = queues.iter().map(|(options, _)| options.batch).max().unwrap_or(0);
        let member = |(options, queue): (QueueOptions, Option<Queue>)| {
            let id = queue.as_ref().map(Queue::id).or_else(|| options.id());
            let counts = QueueCounts::default();
            Member { queue, options, id, spare: None, is_reported: false, counts }
        };
        let bound: Box<[Bound]> = sockets.addresses().map(Bound::new).collect();
        let numbered = bound.iter().enumerate();
        let mut by_address: Vec<_> =
            numbered.map(|(number, bound)| (bound.address, number as u16)).collect();
        by_address.sort_unstable();
        by_address.dedup_by_key(|(address, _)| *address);
        Ok(Self {
            bound,
            by_address: by_address.into(),
            peers: Box::default(),
            sockets,
            queues: queues.into_iter().map(member).collect(),
            map,
            source: Box::new(()),
            slots: Vec::with_capacity(batch),
            batch,
            next: 0,
            batches: 0,
            filter: None,
            is_due: Cell::new(true),
            is_leaving: false,
        })
    }

    /// Opens queues later on sockets from `source`, which is told of the open ones.
    #[must_use]
    pub fn with_socket_source(self, source: impl SocketSource + 'static) -> Self {
        self.queues.iter().filter_map(|it| it.queue.as_ref()).for_each(|it| source.opened(it));
        Self { source: Box::new(source), ..self }
    }

    /// Makes it a client of these peers, which one interface reaches: once a datagram of a peer has
    /// arrived in a frame, tokens for it that are no reply's ([`Return::to`]) leave by the queue
    /// whose number is that of the UDP socket modulo the number of queues; before that, by the UDP
    /// socket. The header of the last such frame is used.
    #[must_use]
    pub fn with_peers(mut self, peers: &[SocketAddr]) -> Self {
        let peer = |peer: &SocketAddr| Peer { name: name::encode(*peer).0, link: None };
        self.peers = peers.iter().map(peer).collect();
        self
    }

    /// The state of each queue.
    pub fn queues(&mut self) -> impl Iterator<Item = QueueReport<'_>> {
        self.queues.iter_mut().map(|member| {
            let full = member.dropped();
            let counts = QueueCounts { full, ..member.counts };
            let (frames, free, waiting, missing) = match &mut member.queue {
                Some(Queue { rings, .. }) => {
                    let (frames, free) = (rings.umem.count(), rings.umem.free_count());
                    (frames, free, rings.waiting(), rings.missing())
                }
                None => (0, 0, 0, 0),
            };
            QueueReport {
                interface: &member.options.interface,
                queue: member.options.queue,
                is_open: member.queue.is_some(),
                counts,
                frames,
                free,
                waiting,
                missing,
            }
        })
    }

    /// Closes queues that have failed, and opens closed ones, if a second has passed. The first
    /// call takes over the rings of queues that another process had.
    fn maintain(&mut self) {
        if !self.is_due.take() || self.is_leaving {
            return;
        }
        for member in &mut self.queues {
            member.queue.iter_mut().for_each(Queue::resume);
            match member.queue.as_mut().map(Queue::check) {
                Some(Ok(())) => {}
                Some(Err(error)) => member.close(&error, &mut self.map, &*self.source),
                None => member.open(&mut self.map, &*self.source),
            }
        }
    }

    /// Ends the batch of each queue.
    fn end_batches(&mut self) {
        self.slots.clear();
        self.queues
            .iter_mut()
            .filter_map(|member| member.queue.as_mut())
            .for_each(Queue::end_batch);
    }

    /// Receives up to `limit` datagrams from the queues in turn; returns the number of the one that
    /// has some.
    fn fill(&mut self, limit: usize) -> Option<usize> {
        let count = self.queues.len();
        for _ in 0..count {
            let number = self.next;
            self.next = if number + 1 == count { 0 } else { number + 1 };
            let member = &mut self.queues[number];
            let Some(queue) = &mut member.queue else { continue };
            let acceptor = Acceptor {
                by_address: &self.by_address,
                filter: self.filter.as_ref(),
                queue: number,
            };
            // While no frame is accepted, further ones are read, up to as many as the ring has
            // entries.
            let mut left = queue.options.ring as usize;
            while self.slots.is_empty() && left > 0 {
                let frames = queue.rings.receive(limit, |offset, bytes| {
                    if let Some(slot) = acceptor.accept(bytes, offset, &mut member.counts) {
                        self.slots.push(slot);
                    }
                });
                if frames == 0 {
                    queue.poll_device();
                    break;
                }
                left = left.saturating_sub(frames);
                if self.slots.is_empty() {
                    queue.end_batch();
                }
            }
            if !self.slots.is_empty() {
                member.counts.received += self.slots.len() as u64;
                self.learn();
                return Some(number);
            }
        }
        None
    }

    /// Keeps the next hop of each peer that the current batch is from.
    fn learn(&mut self) {
        for peer in &mut self.peers {
            let from_it = |slot: &&Slot| slot.reply_to.name == peer.name;
            if let Some(slot) = self.slots.iter().rfind(from_it) {
                peer.link = decode(&slot.reply_to.backend).map(|(link, _)| link);
            }
        }
    }
}

impl Bound {
    fn new(address: SocketAddr) -> Self {
        Self { address, ip: name::encode_ip(address.ip()) }
    }
}

impl Member {
    /// Frames that the kernel dropped as the rings were full.
    fn dropped(&self) -> u64 {
        self.counts.full + self.queue.as_ref().map_or(0, Queue::dropped)
    }

    /// Closes the queue, which has failed.
    fn close(&mut self, error: &io::Error, map: &mut SocketMap, source: &dyn SocketSource) {
        let QueueOptions { interface, queue, .. } = &self.options;
        log::warn!(
            "queue {queue} of {interface} has failed ({error}): its requests reach the UDP \
             sockets, and it is opened again as soon as possible"
        );
        self.counts.full = self.dropped();
        self.counts.failures += 1;
        // The kernel does that by itself only with the last copy of the socket.
        let _ = map.unset(self.options.place);
        self.queue = None;
        self.id.into_iter().for_each(|id| source.closed(id));
    }

    /// Tries to open the queue.
    fn open(&mut self, map: &mut SocketMap, source: &dyn SocketSource) {
        let opened = self.try_open(map, source);
        let QueueOptions { interface, queue, .. } = &self.options;
        match &opened {
            Ok(open) => {
                log::info!("queue {queue} of {interface} is open");
                source.opened(open);
            }
            // The process that has it may be ending. Without its interface it stays closed.
            Err(OpenError::Busy(..) | OpenError::NoInterface(_)) => {}
            Err(error) if !mem::replace(&mut self.is_reported, true) => log::warn!("{error}"),
            Err(_) => {}
        }
        self.is_reported &= opened.is_err();
        self.queue = opened.ok();
    }

    fn try_open(
        &mut self,
        map: &mut SocketMap,
        source: &dyn SocketSource,
    ) -> Result<Queue, OpenError> {
        let (options, spare) = (self.options.clone(), &mut self.spare);
        let QueueOptions { interface, queue, place, .. } = &self.options;
        let (index, _) = self.id.ok_or_else(|| OpenError::NoInterface(interface.clone()))?;
        let socket = |options: &QueueOptions| source.socket(options);
        let open = Queue::at(index, options, spare, socket, Duration::ZERO)?;
        map.set(*place, open.as_fd())
            .map_err(|error| OpenError::Other(interface.clone(), *queue, error))?;
        Ok(open)
    }

    /// Adds a reply to the transmit ring; `false` if it has to be sent by a UDP socket.
    fn send(&mut self, link: &Link, socket: &Bound, reply: &Reply<'_>, sent: &mut Sent) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let to = reply.to;
        let peer = peer(to);
        let len = reply.bytes.len();
        if len > frame::max_payload(peer.ip.len(), queue.mtu) {
            return false;
        }
        let ip = if to.has_local { &to.local } else { &socket.ip };
        let port = socket.address.port().to_be_bytes();
        let from = End { ip: &ip[..peer.ip.len()], port };
        let identification = queue.identification;
        let write =
            |bytes: &mut [u8]| frame::write(bytes, link, (from, peer), reply.bytes, identification);
        let mut done = queue.add(write);
        if !done {
            sent.calls += queue.transmit();
            done = queue.add(write);
        }
        if done {
            queue.identification = identification.wrapping_add(1);
            self.counts.sent += 1;
            sent.datagrams += 1;
            sent.bytes += len as u64;
        } else {
            self.counts.blocked += 1;
            sent.reject(1, Cause::FullBuffer);
        }
        true
    }
}

/// The peer of a token.
fn peer(to: &Return) -> End<'_> {
    let ip = if to.name_len == name::V4_LEN { &to.name[4..8] } else { &to.name[8..24] };
    End { ip, port: [to.name[2], to.name[3]] }
}

/// Decides which frames of a queue are datagrams of this worker.
struct Acceptor<'a> {
    by_address: &'a [(SocketAddr, u16)],
    filter: Option<&'a Filter>,
    queue: usize,
}

impl Acceptor<'_> {
    /// The datagram in a frame that begins at `offset`; otherwise counts why it has none.
    #[inline]
    fn accept(&self, bytes: &[u8], offset: u32, counts: &mut QueueCounts) -> Option<Slot> {
        let datagram = match frame::parse(bytes) {
            Ok(datagram) => datagram,
            Err(Invalid::Form) => {
                counts.invalid += 1;
                return None;
            }
            Err(Invalid::Checksum) => {
                counts.checksum += 1;
                return None;
            }
        };
        let Some((socket, is_wildcard)) = self.socket_at(datagram.to) else {
            counts.unserved += 1;
            return None;
        };
        let Datagram { link, source, to, payload } = datagram;
        if self.filter.is_some_and(|filter| !filter.passes(&bytes[payload.clone()], source)) {
            counts.filter += 1;
            return None;
        }
        let mut reply_to = Return::to(source, socket);
        if is_wildcard {
            reply_to = reply_to.from_local(to.ip());
        }
        reply_to.backend = encode(&link, self.queue);
        let (offset, len) = (offset + payload.start as u32, payload.len() as u32);
        Some(Slot { offset, len, source, reply_to })
    }

    /// The number of the UDP socket that a datagram is for, and whether that one has all addresses.
    fn socket_at(&self, to: SocketAddr) -> Option<(u16, bool)> {
        let all = match to.ip() {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        let number = |address| {
            let place = self.by_address.binary_search_by_key(&address, |(address, _)| *address);
            place.ok().map(|place| self.by_address[place].1)
        };
        let (number, is_wildcard) = match number(to) {
            Some(number) => (number, false),
            None => (number(SocketAddr::new(all, to.port()))?, true),
        };
        Some((number, is_wildcard))
    }
}

/// A token's bytes of this backend: the Ethernet header of a reply, and the number of the queue,
/// from 1 on.
fn encode(request: &Link, queue: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    let [own, next_hop] = request.macs;
    bytes[..6].copy_from_slice(&next_hop);
    bytes[6..12].copy_from_slice(&own);
    bytes[12..14].copy_from_slice(&request.tag.to_be_bytes());
    bytes[14..].copy_from_slice(&(queue as u16 + 1).to_be_bytes());
    bytes
}

/// The Ethernet header of a reply and the number of the queue; `None` for a token of a UDP socket.
fn decode(bytes: &[u8; 16]) -> Option<(Link, usize)> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    let queue = u16::from_be_bytes([o, p]).checked_sub(1)?;
    let link =
        Link { macs: [[a, b, c, d, e, f], [g, h, i, j, k, l]], tag: u16::from_be_bytes([m, n]) };
    Some((link, queue.into()))
}

/// The same for a token that is no reply's; `None` while the next hop of its peer is not known.
fn request(peers: &[Peer], to: &Return, queues: usize) -> Option<(Link, usize)> {
    let link = peers.iter().find(|peer| peer.name == to.name)?.link?;
    // All queues send, also where the peer's frames arrive on few.
    Some((link, usize::from(to.socket) % queues))
}

impl Socket for Backend {
    type Waker = mio::Waker;

    fn waker(&self) -> mio::Waker {
        self.sockets.waker()
    }

    fn wait(&mut self, mut timeout: Duration) -> io::Result<()> {
        self.maintain();
        self.end_batches();
        for queue in self.queues.iter_mut().filter_map(|member| member.queue.as_mut()) {
            if queue.rings.waiting() > 0 {
                return Ok(());
            }
            if queue.rings.unsent() > 0 {
                queue.transmit();
                timeout = timeout.min(UNSENT_SLEEP);
            }
        }
        let open = self.queues.iter().filter_map(|member| member.queue.as_ref());
        self.sockets.wait_with(open, timeout)
    }

    fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        self.sockets.wait_for_wake(timeout)
    }

    fn retain_addresses(&mut self, keep: &dyn Fn(SocketAddr) -> bool) {
        self.sockets.retain_addresses(keep);
    }

    fn release(&mut self) {
        self.end_batches();
    }

    fn leave_queues(&mut self, taken: &[QueueId]) {
        self.is_leaving = true;
        for member in &mut self.queues {
            match &member.queue {
                // Without its socket the program passes further frames to the UDP sockets.
                Some(queue) if !taken.contains(&queue.id()) => {
                    let _ = self.map.unset(member.options.place);
                }
                _ => member.queue = None,
            }
        }
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.maintain();
        self.end_batches();
        self.batches = self.batches.wrapping_add(1);
        if self.batches.is_multiple_of(SOCKETS_FIRST) {
            self.sockets.fill(limit)?;
            if !self.sockets.received().is_empty() {
                return Ok(self.sockets.received());
            }
        }
        if let Some(number) = self.fill(limit.min(self.batch))
            && let Some(queue) = &self.queues[number].queue
        {
            return Ok(queue.rings.received(&self.slots));
        }
        self.sockets.receive(limit)
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let Self { sockets, queues, bound, peers, .. } = self;
        let (mut sent, count) = (Sent::default(), queues.len());
        let rest = replies.filter(|reply| {
            let way = decode(&reply.to.backend).or_else(|| request(peers, reply.to, count));
            let Some((link, number)) = way else { return true };
            match (queues.get_mut(number), bound.get(usize::from(reply.to.socket))) {
                (Some(member), Some(socket)) => !member.send(&link, socket, reply, &mut sent),
                _ => true,
            }
        });
        let by_sockets = sockets.send(rest);
        sent += by_sockets;
        for queue in queues.iter_mut().filter_map(|member| member.queue.as_mut()) {
            if queue.has_added {
                sent.calls += queue.transmit();
            }
        }
        sent
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        self.filter = filter.copied();
        self.sockets.set_filter(filter)
    }

    /// A caller that calls this once a second, as the contract asks, makes the backend check its
    /// queues as often.
    fn dropped(&self) -> Drops {
        self.is_due.set(true);
        let mut drops = self.sockets.dropped();
        for member in &self.queues {
            drops.full_buffer += member.dropped();
            drops.checksum += member.counts.checksum;
            drops.filter += member.counts.filter;
        }
        drops
    }

    fn buffers(&self) -> Buffers {
        self.sockets.buffers()
    }

    fn report_queues(&mut self, each: &mut dyn FnMut(QueueReport<'_>)) {
        self.queues().for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_the_way_back() {
        let (own, next_hop) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        // Priority 5, VLAN 7.
        let tag = 0xA007;
        let token = encode(&Link { macs: [own, next_hop], tag }, 3);
        assert_eq!(decode(&token), Some((Link { macs: [next_hop, own], tag }, 3)));
        assert_eq!(decode(&Return::to(([127, 0, 0, 1], 1).into(), 0).backend), None);
    }
}
