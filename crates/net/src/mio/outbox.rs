//! Sending: replies sorted by socket; replies to one client are grouped, the others are one message
//! each.
//!
//! Replies are processed in rounds of at most one batch. Each reply either joins the *group* of an
//! earlier reply to the same client or begins one. A group of several is sent as one message that
//! the kernel splits into datagrams of one size (UDP_SEGMENT, udp(7)): a group accepts replies of
//! the size of its first one; a shorter one may be its last; a longer one begins another group.
//! Groups are sent in the order of their first replies, which keeps the order for each client.

use std::mem;
use std::ops::Range;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::name;
use crate::socket::{Cause, Reply, Return, Sent};
use crate::sys::message::Outbound;

/// The most datagrams in a group (UDP_MAX_SEGMENTS was 64 before it became 128).
const MAX_SEGMENTS: u16 = 64;

/// The most bytes in a group: the payload of one IPv4 datagram.
const MAX_BYTES: usize = 65_507;

/// Consecutive refusals by the device after which a socket stops grouping.
const MAX_REFUSALS: u8 = 4;

/// Entries in the index of clients; a power of two.
const INDEX: usize = 512;

/// No reply, no group.
const NONE: u16 = u16::MAX;

/// Counters of the grouping of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Groups that were sent as one message.
    pub groups: u64,
    /// Datagrams in them.
    pub datagrams: u64,
    /// Groups that the kernel refused; their datagrams were sent one by one.
    pub refused: u64,
    /// Sockets that stopped grouping after repeated refusals.
    pub off: u64,
    /// Rounds in which a reply exceeded its path's MTU, so that it and the rest of its round could
    /// be sent in fragments.
    pub fragmented: u64,
}

/// Replies of the current round, and its groups.
pub(super) struct Outbox {
    /// Empty between calls; every round reuses its memory.
    round: Vec<Reply<'static>>,
    /// For each reply of the round, the next one of its group.
    next: Box<[u16]>,
    /// The round's groups.
    groups: Vec<Group>,
    /// By a hash of the client: a candidate for its last group. A stale entry does no harm, as a
    /// match is checked against the group itself.
    index: Box<[u16; INDEX]>,
    queues: Box<[SocketQueue]>,
    /// Sockets with groups in this round.
    touched: Vec<u16>,
    outbound: Outbound,
    /// The group of each message.
    messages: Vec<u16>,
    /// One message, for replies whose group was refused.
    spare: Outbound,
    /// Whether the socket may send fragments for the rest of its round.
    fragments: bool,
    capacity: usize,
    pub(super) count: Segmentation,
}

/// Replies to one client.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Identifies the client, with few collisions.
    key: u64,
    /// The sum of its replies, bytes.
    bytes: u32,
    /// The length of its first reply, and of all but the last.
    segment: u32,
    /// Its first reply, whose destination holds for all.
    first: u16,
    /// Its last reply.
    last: u16,
    /// The number of its replies.
    count: u16,
    /// Whether it accepts more replies.
    open: bool,
    /// The next group of the same socket.
    next: u16,
}

/// Sums over groups.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    datagrams: u64,
    bytes: u64,
    /// Groups of several datagrams.
    groups: u64,
    /// Datagrams in these.
    grouped: u64,
}

impl Tally {
    #[inline]
    fn add(&mut self, group: &Group) {
        self.datagrams += u64::from(group.count);
        self.bytes += u64::from(group.bytes);
        if group.count > 1 {
            self.groups += 1;
            self.grouped += u64::from(group.count);
        }
    }
}

/// A socket's groups in this round, and whether it groups at all.
#[derive(Clone, Copy, Debug)]
struct SocketQueue {
    first: u16,
    last: u16,
    segmentation: bool,
    refusals: u8,
}

impl SocketQueue {
    /// Records a refused group; returns whether the socket stops grouping with it.
    ///
    /// EIO concerns the device (no checksum offload, IPsec). EINVAL and EMSGSIZE may concern the
    /// path of one client, whose MTU is small; no client may disable grouping for the others.
    fn stops_grouping(&mut self, error: Errno) -> bool {
        // The groups that this round still has may be refused as well.
        self.refusals = self.refusals.saturating_add(u8::from(error == Errno::EIO));
        let stops = self.segmentation && self.refusals >= MAX_REFUSALS;
        self.segmentation &= !stops;
        stops
    }
}

impl Outbox {
    /// For `sockets` sockets and rounds of at most `capacity` replies.
    pub(super) fn new(capacity: usize, sockets: usize, segmentation: bool) -> Self {
        let queue = SocketQueue { first: NONE, last: NONE, segmentation, refusals: 0 };
        Self {
            round: Vec::with_capacity(capacity),
            next: vec![NONE; capacity].into(),
            groups: Vec::with_capacity(capacity),
            index: Box::new([0; INDEX]),
            queues: vec![queue; sockets].into(),
            touched: Vec::with_capacity(capacity.min(sockets)),
            outbound: Outbound::new(capacity),
            messages: Vec::with_capacity(capacity),
            spare: Outbound::new(1),
            fragments: false,
            capacity,
            count: Segmentation::default(),
        }
    }

    /// Sends all `replies`.
    pub(super) fn send<'b>(
        &mut self,
        sockets: &[BoundSocket],
        replies: impl Iterator<Item = Reply<'b>>,
    ) -> Sent {
        let mut sent = Sent::default();
        if !self.groups.is_empty() {
            self.abandon();
        }
        let mut round = with_lifetime(mem::take(&mut self.round));
        for reply in replies {
            let queue = usize::from(reply.to.socket);
            if queue >= self.queues.len() {
                // A token of another backend.
                sent.reject(1, Cause::Other);
                continue;
            }
            let key = key(reply.to);
            let at = self.index[place(key)];
            let joined = match self.groups.get(usize::from(at)) {
                Some(group) if group.key == key && group.open => self.join(at, &round, &reply),
                _ => false,
            };
            if !joined {
                self.begin(key, round.len(), &reply);
            }
            self.next[round.len()] = NONE;
            round.push(reply);
            if round.len() == self.capacity {
                self.flush(sockets, &round, &mut sent);
                round.clear();
            }
        }
        if !round.is_empty() {
            self.flush(sockets, &round, &mut sent);
        }
        self.round = with_lifetime(round);
        sent
    }

    /// Discards a round that a panic in the caller's iterator has left behind.
    #[cold]
    fn abandon(&mut self) {
        for number in self.touched.drain(..) {
            self.queues[usize::from(number)].first = NONE;
        }
        self.groups.clear();
    }

    /// Adds a reply to a group, if it goes to the group's client and the group accepts it.
    #[inline(never)]
    fn join(&mut self, at: u16, round: &[Reply<'_>], reply: &Reply<'_>) -> bool {
        let group = &mut self.groups[usize::from(at)];
        let len = reply.bytes.len();
        if len > group.segment as usize
            || len == 0
            || group.bytes as usize + len > MAX_BYTES
            || !same_client(round[usize::from(group.first)].to, reply.to)
        {
            return false;
        }
        let this = round.len() as u16;
        self.next[usize::from(group.last)] = this;
        group.last = this;
        group.bytes += len as u32;
        group.count += 1;
        group.open = len == group.segment as usize && group.count < MAX_SEGMENTS;
        true
    }

    /// Begins a group with reply number `this` of the round.
    #[inline]
    fn begin(&mut self, key: u64, this: usize, reply: &Reply<'_>) {
        let (this, at) = (this as u16, self.groups.len() as u16);
        let len = reply.bytes.len();
        let queue = &mut self.queues[usize::from(reply.to.socket)];
        self.groups.push(Group {
            key,
            bytes: len as u32,
            segment: len as u32,
            first: this,
            last: this,
            count: 1,
            open: queue.segmentation && len > 0 && len <= MAX_BYTES,
            next: NONE,
        });
        self.index[place(key)] = at;
        if queue.first == NONE {
            queue.first = at;
            self.touched.push(reply.to.socket);
        } else {
            self.groups[usize::from(queue.last)].next = at;
        }
        queue.last = at;
    }

    /// Sends the round, socket by socket.
    fn flush(&mut self, sockets: &[BoundSocket], round: &[Reply<'_>], sent: &mut Sent) {
        while let Some(number) = self.touched.pop() {
            let queue = &mut self.queues[usize::from(number)];
            let first = mem::replace(&mut queue.first, NONE);
            let total = self.lay_out(round, first);
            let socket = &sockets[usize::from(number)];
            self.transmit(socket, number, round, (total, sent));
            if mem::take(&mut self.fragments) {
                socket.set_fragments(false);
            }
        }
        self.groups.clear();
    }

    /// Builds messages from the groups starting at `group`; returns their sum.
    fn lay_out(&mut self, round: &[Reply<'_>], mut group: u16) -> Tally {
        self.outbound.clear();
        self.messages.clear();
        let mut total = Tally::default();
        while let Some(this) = self.groups.get(usize::from(group)) {
            total.add(this);
            let first = &round[usize::from(this.first)];
            let segment = (this.count > 1).then_some(this.segment as u16);
            self.outbound.push(first.to, first.bytes, segment);
            let mut reply = self.next[usize::from(this.first)];
            while reply != NONE {
                self.outbound.add(round[usize::from(reply)].bytes);
                reply = self.next[usize::from(reply)];
            }
            self.messages.push(group);
            group = this.next;
        }
        total
    }

    /// Passes the messages, whose sum is `total`, to the kernel.
    fn transmit(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        round: &[Reply<'_>],
        (total, sent): (Tally, &mut Sent),
    ) {
        let (mut done, all) = (0, self.messages.len());
        while done < all {
            sent.calls += 1;
            // SAFETY: `round` borrows every reply that `lay_out` has just put into messages.
            // Reason: the kernel reads replies from the batches they were written into.
            let result = unsafe { self.outbound.send(socket.as_fd(), done) };
            match result {
                Ok(count) => {
                    let full = count == all;
                    let tally = if full { total } else { self.tally(done..done + count) };
                    self.count_sent(&tally, number, sent);
                    done += count;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    // A full buffer does not drain within this call: further attempts would only
                    // cost a system call each (docs/decisions/0010).
                    sent.reject(self.tally(done..all).datagrams, Cause::FullBuffer);
                    return;
                }
                Err(Errno::EMSGSIZE) if self.allow_fragments(socket) => {}
                Err(error) => {
                    self.refuse(socket, number, round, (self.messages[done], error), sent);
                    done += 1;
                }
            }
        }
    }

    /// The sum of some of the messages.
    fn tally(&self, messages: Range<usize>) -> Tally {
        let mut tally = Tally::default();
        for &at in &self.messages[messages] {
            tally.add(&self.groups[usize::from(at)]);
        }
        tally
    }

    /// Counts sent messages.
    fn count_sent(&mut self, tally: &Tally, number: u16, sent: &mut Sent) {
        sent.datagrams += tally.datagrams;
        sent.bytes += tally.bytes;
        if tally.groups > 0 {
            self.count.groups += tally.groups;
            self.count.datagrams += tally.grouped;
            self.queues[usize::from(number)].refusals = 0;
        }
    }

    /// Handles a message that the kernel refused: counts it as failed, or sends its replies one by
    /// one if the cause may be the grouping (no checksum offload on the path, datagrams larger than
    /// the path's MTU; udp(7)).
    #[cold]
    fn refuse(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        round: &[Reply<'_>],
        (at, error): (u16, Errno),
        sent: &mut Sent,
    ) {
        let group = self.groups[usize::from(at)];
        if group.count == 1 || !matches!(error, Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE) {
            sent.reject(group.count.into(), Cause::of(error));
            return;
        }
        self.count.refused += 1;
        self.count.off += u64::from(self.queues[usize::from(number)].stops_grouping(error));
        let mut reply = group.first;
        while reply != NONE {
            self.send_alone(socket, &round[usize::from(reply)], sent);
            reply = self.next[usize::from(reply)];
        }
    }

    /// Sends one reply as a message of its own.
    fn send_alone(&mut self, socket: &BoundSocket, reply: &Reply<'_>, sent: &mut Sent) {
        self.spare.clear();
        self.spare.push(reply.to, reply.bytes, None);
        loop {
            sent.calls += 1;
            // SAFETY: `reply` borrows the only bytes and the only name in the message.
            // Reason: as in `transmit`.
            match unsafe { self.spare.send(socket.as_fd(), 0) } {
                Ok(_) => {
                    sent.datagrams += 1;
                    sent.bytes += reply.bytes.len() as u64;
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EMSGSIZE) if self.allow_fragments(socket) => continue,
                Err(error) => sent.reject(1, Cause::of(error)),
            }
            return;
        }
    }

    /// Handles a reply larger than its path's MTU: the rest of the socket's round may be sent in
    /// fragments. Once per round, because any host can send ICMP messages that lower a path's MTU,
    /// and their cost must not grow with the number of replies (docs/decisions/0014). Returns
    /// whether fragments were enabled by this call.
    #[cold]
    fn allow_fragments(&mut self, socket: &BoundSocket) -> bool {
        let news = !self.fragments && socket.set_fragments(true);
        self.fragments |= news;
        self.count.fragmented += u64::from(news);
        news
    }
}

/// Reuses the memory of an empty vector for replies of another lifetime: the standard library
/// collects in place, so nothing is allocated (a conformance test checks this).
fn with_lifetime<'a>(mut round: Vec<Reply<'_>>) -> Vec<Reply<'a>> {
    round.clear();
    round.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A number that identifies a client: its port and address, folded.
#[inline]
fn key(to: &Return) -> u64 {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&to.name[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    // Offset 4 is the address in an IPv4 name, but the flow label in an IPv6 name.
    match to.name_len {
        name::V4_LEN => word(0),
        _ => word(0) ^ word(8).rotate_left(7) ^ word(16).rotate_left(31),
    }
}

/// The entry of a key in the index.
#[inline]
fn place(key: u64) -> usize {
    // Fibonacci hashing: the upper bits of a multiple of the golden ratio.
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - INDEX.trailing_zeros())) as usize
}

/// Whether two replies may share a message: same client, same local address, same socket.
#[inline]
fn same_client(a: &Return, b: &Return) -> bool {
    let len = usize::from(a.name_len);
    a.socket == b.socket
        && a.name_len == b.name_len
        && a.name[..len] == b.name[..len]
        && a.has_local == b.has_local
        && (!a.has_local || a.local == b.local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> SocketQueue {
        SocketQueue { first: NONE, last: NONE, segmentation: true, refusals: 0 }
    }

    fn socket() -> BoundSocket {
        let any = "127.0.0.1:0".parse().unwrap();
        crate::bind::bind_client(any, crate::bind::Buffers::default()).unwrap().0
    }

    #[test]
    fn grouping_stops_after_four_refusals_by_the_device() {
        let mut queue = queue();
        let stops: Vec<_> = (0..300).map(|_| queue.stops_grouping(Errno::EIO)).collect();
        assert_eq!(stops.iter().position(|stops| *stops), Some(3));
        assert_eq!(stops.iter().filter(|stops| **stops).count(), 1, "reported once");
        assert!(!queue.segmentation);
    }

    #[test]
    fn a_clients_path_does_not_disable_grouping() {
        let mut queue = queue();
        for error in [Errno::EINVAL, Errno::EMSGSIZE].repeat(300) {
            assert!(!queue.stops_grouping(error));
        }
        assert!(queue.segmentation);
    }

    #[test]
    fn refusals_are_counted_by_cause() {
        let to = Return::to("127.0.0.1:9".parse().unwrap(), 0);
        let mut outbox = Outbox::new(8, 1, true);
        for (error, cause) in [
            (Errno::EPERM, Cause::Permission),
            (Errno::ENETUNREACH, Cause::Unreachable),
            (Errno::ENOBUFS, Cause::NoBuffers),
            (Errno::EMSGSIZE, Cause::TooLong),
            (Errno::EDESTADDRREQ, Cause::Other),
        ] {
            let socket = socket();
            let (mut sent, mut expected) = (Sent::default(), Sent::default());
            let reply = Reply { bytes: b"reply", to: &to };
            outbox.begin(key(&to), 0, &reply);
            outbox.refuse(&socket, 0, &[reply], (0, error), &mut sent);
            outbox.abandon();
            expected.reject(1, cause);
            assert_eq!(sent, expected, "{error}");
            assert_eq!(expected.causes[cause as usize], 1);
        }
    }

    /// EIO comes from paths that transform packets (IPsec), which a test cannot easily set up: the
    /// test passes the error in.
    #[test]
    fn a_group_that_the_device_refuses_is_sent_one_by_one() {
        let (sockets, client) = ([socket()], socket());
        let to = Return::to(client.address(), 0);
        let round = [b"one", b"two"].map(|bytes| Reply { bytes, to: &to });
        let arrived = || {
            let mut bytes = [0; 8];
            let len = client.as_udp().recv(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        let mut outbox = Outbox::new(8, 1, true);
        let mut sent = Sent::default();
        for refusals in 1..=u64::from(MAX_REFUSALS) {
            outbox.begin(key(&to), 0, &round[0]);
            assert!(outbox.join(0, &round[..1], &round[1]));
            outbox.next[1] = NONE;
            outbox.refuse(&sockets[0], 0, &round, (0, Errno::EIO), &mut sent);
            outbox.abandon();
            assert_eq!((sent.datagrams, sent.failed()), (2 * refusals, 0));
            assert_eq!([arrived(), arrived()], [b"one", b"two"]);
            let count = outbox.count;
            let off = u64::from(refusals == u64::from(MAX_REFUSALS));
            assert_eq!((count.refused, count.off), (refusals, off));
        }
        assert_eq!(outbox.send(&sockets, round.into_iter()).datagrams, 2);
        assert_eq!([arrived(), arrived()], [b"one", b"two"]);
        assert_eq!(outbox.count.groups, 0, "grouping has stopped");
    }
}
