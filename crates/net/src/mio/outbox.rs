//! Sending: replies sorted by socket, those to one client grouped, the rest one message each.
//!
//! Replies are taken in rounds of at most one batch. Each reply either joins the *group* of an
//! earlier reply to the same client or begins one. A group of several goes out as one message that
//! the kernel cuts into datagrams of one size (UDP_SEGMENT, udp(7)), so a group takes replies of
//! the size of its first; a shorter one may be its last; a longer one begins another
//! group. Groups leave in the order of their first replies, which keeps the order for each client.

use std::mem;
use std::ops::Range;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::name;
use crate::socket::{Reply, Return, Sent};
use crate::sys::message::{Calls, Outbound};

/// Datagrams in a group at most (UDP_MAX_SEGMENTS was 64 before it became 128).
const MAX_SEGMENTS: u16 = 64;

/// Bytes in a group at most: what fits one IPv4 datagram.
const MAX_BYTES: usize = 65_507;

/// Refusals by the device in a row after which a socket's replies are not grouped any more.
const MAX_REFUSALS: u8 = 4;

/// Places of the index of clients; a power of two.
const INDEX: usize = 512;

/// No reply, no group.
const NONE: u16 = u16::MAX;

/// How grouping of replies went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Groups that went out as one message.
    pub groups: u64,
    /// Datagrams in them.
    pub datagrams: u64,
    /// Groups that the kernel refused as such; their datagrams were sent one by one.
    pub refused: u64,
    /// Sockets that no longer group, for the kernel refused repeatedly.
    pub off: u64,
    /// Times that a reply was larger than its path, so that it and what was left of its round
    /// might leave in fragments.
    pub fragmented: u64,
}

/// Where replies wait for the end of their round.
pub(super) struct Outbox {
    /// Empty between calls; its memory serves every round.
    round: Vec<Reply<'static>>,
    /// For each reply of the round the next one of its group.
    next: Box<[u16]>,
    /// The round's groups.
    groups: Vec<Group>,
    /// By a hash of the client: its last group, perhaps. Stale entries are harmless, as a match is
    /// checked against the group itself.
    index: Box<[u16; INDEX]>,
    lanes: Box<[Lane]>,
    /// Sockets with groups in this round.
    touched: Vec<u16>,
    outbound: Outbound,
    /// The group of each message.
    messages: Vec<u16>,
    /// A message of its own for what could not go out as a group.
    spare: Outbound,
    /// Whether the socket that is being sent from may send in fragments for the rest of its round.
    fragments: bool,
    calls: Calls,
    capacity: usize,
    count: Segmentation,
}

/// Replies to one client.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Distinguishes clients, mostly.
    key: u64,
    /// Bytes in all.
    bytes: u32,
    /// Bytes of its first reply, and of all but the last.
    segment: u32,
    /// First reply, which says where all go.
    first: u16,
    /// Last reply.
    last: u16,
    /// Replies.
    count: u16,
    /// Whether it takes more.
    open: bool,
    /// The socket's next group.
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

/// A socket's groups in this round, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Lane {
    first: u16,
    last: u16,
    segmentation: bool,
    refusals: u8,
}

impl Lane {
    /// A group was refused for this reason; whether that was once too often.
    ///
    /// EIO speaks of the device (no checksum offload, IPsec). EINVAL and EMSGSIZE may speak of one
    /// client's path, whose MTU is small, and no client may switch grouping off for all.
    fn stops_grouping(&mut self, error: Errno) -> bool {
        // What is already grouped in this round may be refused many times more.
        self.refusals = self.refusals.saturating_add(u8::from(error == Errno::EIO));
        let stops = self.segmentation && self.refusals >= MAX_REFUSALS;
        self.segmentation &= !stops;
        stops
    }
}

impl Outbox {
    /// For `sockets` sockets and rounds of at most `capacity` replies.
    pub(super) fn new(capacity: usize, sockets: usize, calls: Calls, segmentation: bool) -> Self {
        let lane = Lane { first: NONE, last: NONE, segmentation, refusals: 0 };
        Self {
            round: Vec::with_capacity(capacity),
            next: vec![NONE; capacity].into(),
            groups: Vec::with_capacity(capacity),
            index: Box::new([0; INDEX]),
            lanes: vec![lane; sockets].into(),
            touched: Vec::with_capacity(capacity.min(sockets)),
            outbound: Outbound::new(capacity),
            messages: Vec::with_capacity(capacity),
            spare: Outbound::new(1),
            fragments: false,
            calls,
            capacity,
            count: Segmentation::default(),
        }
    }

    /// How grouping went.
    pub(super) fn segmentation(&self) -> Segmentation {
        self.count
    }

    /// Sends all of `replies`.
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
            let lane = usize::from(reply.to.socket);
            if lane >= self.lanes.len() {
                // Another backend's token.
                sent.failed += 1;
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

    /// Forgets a round that a panic of the caller's iterator has left behind.
    #[cold]
    fn abandon(&mut self) {
        for number in self.touched.drain(..) {
            self.lanes[usize::from(number)].first = NONE;
        }
        self.groups.clear();
    }

    /// Adds a reply to a group, if it is the client's and takes it.
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

    /// Begins a group with the reply that is number `this` of the round.
    #[inline]
    fn begin(&mut self, key: u64, this: usize, reply: &Reply<'_>) {
        let (this, at) = (this as u16, self.groups.len() as u16);
        let len = reply.bytes.len();
        let lane = &mut self.lanes[usize::from(reply.to.socket)];
        self.groups.push(Group {
            key,
            bytes: len as u32,
            segment: len as u32,
            first: this,
            last: this,
            count: 1,
            open: lane.segmentation && len > 0 && len <= MAX_BYTES,
            next: NONE,
        });
        self.index[place(key)] = at;
        if lane.first == NONE {
            lane.first = at;
            self.touched.push(reply.to.socket);
        } else {
            self.groups[usize::from(lane.last)].next = at;
        }
        lane.last = at;
    }

    /// Sends the round, socket by socket.
    fn flush(&mut self, sockets: &[BoundSocket], round: &[Reply<'_>], sent: &mut Sent) {
        while let Some(number) = self.touched.pop() {
            let lane = &mut self.lanes[usize::from(number)];
            let first = mem::replace(&mut lane.first, NONE);
            let whole = self.lay_out(round, first);
            let socket = &sockets[usize::from(number)];
            self.transmit(socket, number, round, (whole, sent));
            if mem::take(&mut self.fragments) {
                socket.set_fragments(false);
            }
        }
        self.groups.clear();
    }

    /// Makes messages of the groups from `group` on; returns what they are together.
    fn lay_out(&mut self, round: &[Reply<'_>], mut group: u16) -> Tally {
        self.outbound.clear();
        self.messages.clear();
        let mut whole = Tally::default();
        while let Some(this) = self.groups.get(usize::from(group)) {
            whole.add(this);
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
        whole
    }

    /// Hands the messages, which are `whole` together, to the kernel.
    fn transmit(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        round: &[Reply<'_>],
        (whole, sent): (Tally, &mut Sent),
    ) {
        let (mut done, all) = (0, self.messages.len());
        while done < all {
            sent.calls += 1;
            // SAFETY: `round` borrows every reply that `lay_out` has just put into messages.
            // Reason: the kernel reads replies where they were written, in others' memory.
            let result = unsafe { self.outbound.send(socket.as_fd(), done, self.calls) };
            match result {
                Ok(count) => {
                    let full = count == all;
                    let tally = if full { whole } else { self.tally(done..done + count) };
                    self.count_sent(&tally, number, sent);
                    done += count;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    // A full buffer does not empty within this call: the rest would only cost
                    // a system call each (docs/decisions/0010).
                    sent.blocked += self.tally(done..all).datagrams;
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

    /// What some of the messages are together.
    fn tally(&self, messages: Range<usize>) -> Tally {
        let mut tally = Tally::default();
        for &at in &self.messages[messages] {
            tally.add(&self.groups[usize::from(at)]);
        }
        tally
    }

    /// Counts messages that went out.
    fn count_sent(&mut self, tally: &Tally, number: u16, sent: &mut Sent) {
        sent.datagrams += tally.datagrams;
        sent.bytes += tally.bytes;
        if tally.groups > 0 {
            self.count.groups += tally.groups;
            self.count.datagrams += tally.grouped;
            self.lanes[usize::from(number)].refusals = 0;
        }
    }

    /// The kernel did not take a message: counts it, or sends its replies one by one when it may be
    /// the grouping that was refused (no checksum offload on the way, datagrams larger than the
    /// way's MTU; udp(7)).
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
            sent.failed += u64::from(group.count);
            return;
        }
        self.count.refused += 1;
        self.count.off += u64::from(self.lanes[usize::from(number)].stops_grouping(error));
        let mut reply = group.first;
        while reply != NONE {
            self.send_alone(socket, &round[usize::from(reply)], sent);
            reply = self.next[usize::from(reply)];
        }
    }

    /// Sends one reply in a call of its own.
    fn send_alone(&mut self, socket: &BoundSocket, reply: &Reply<'_>, sent: &mut Sent) {
        self.spare.clear();
        self.spare.push(reply.to, reply.bytes, None);
        loop {
            sent.calls += 1;
            // SAFETY: `reply` borrows the only bytes and the only name in the message.
            // Reason: as in `transmit`.
            match unsafe { self.spare.send(socket.as_fd(), 0, self.calls) } {
                Ok(_) => {
                    sent.datagrams += 1;
                    sent.bytes += reply.bytes.len() as u64;
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EMSGSIZE) if self.allow_fragments(socket) => continue,
                Err(Errno::EAGAIN) => sent.blocked += 1,
                Err(_) => sent.failed += 1,
            }
            return;
        }
    }

    /// A reply is larger than its path: lets the rest of the socket's round leave in fragments.
    /// Once for all, since a path's MTU is what anybody's ICMP says, and what that costs must not
    /// grow with the number of replies (docs/decisions/0014). Whether it is news.
    #[cold]
    fn allow_fragments(&mut self, socket: &BoundSocket) -> bool {
        let news = !self.fragments && socket.set_fragments(true);
        self.fragments |= news;
        self.count.fragmented += u64::from(news);
        news
    }
}

/// The memory of an empty vector for another lifetime's replies: the standard library collects in
/// place, so nothing is allocated (a conformance test holds it to that).
fn with_lifetime<'a>(mut round: Vec<Reply<'_>>) -> Vec<Reply<'a>> {
    round.clear();
    round.into_iter().map(|_| unreachable!("it is empty")).collect()
}

/// A number for a client: its port and address, folded.
#[inline]
fn key(to: &Return) -> u64 {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&to.name[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    // The first word has an IPv6 name's flow label where an IPv4 name has the address.
    match to.name_len {
        name::V4_LEN => word(0),
        _ => word(0) ^ word(8).rotate_left(7) ^ word(16).rotate_left(31),
    }
}

/// The key's place in the index.
#[inline]
fn place(key: u64) -> usize {
    // Fibonacci hashing: the golden ratio's multiple, the upper bits.
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

    fn lane() -> Lane {
        Lane { first: NONE, last: NONE, segmentation: true, refusals: 0 }
    }

    #[test]
    fn a_device_that_refuses_every_group_is_asked_four_times() {
        let mut lane = lane();
        let stops: Vec<_> = (0..300).map(|_| lane.stops_grouping(Errno::EIO)).collect();
        assert_eq!(stops.iter().position(|stops| *stops), Some(3));
        assert_eq!(stops.iter().filter(|stops| **stops).count(), 1, "said once");
        assert!(!lane.segmentation);
    }

    #[test]
    fn a_clients_path_does_not_switch_grouping_off() {
        let mut lane = lane();
        for error in [Errno::EINVAL, Errno::EMSGSIZE].repeat(300) {
            assert!(!lane.stops_grouping(error));
        }
        assert!(lane.segmentation);
    }

    /// The kernel says EIO where a way transforms packets (IPsec), which is hard to come by: so it
    /// is put into its mouth.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_that_the_device_refuses_leaves_one_by_one() {
        let bind = || {
            let any = "127.0.0.1:0".parse().unwrap();
            crate::bind::bind_client(any, crate::bind::Buffers::default()).unwrap().0
        };
        let (sockets, client) = ([bind()], bind());
        let to = Return::to(client.address(), 0);
        let round = [b"one", b"two"].map(|bytes| Reply { bytes, to: &to });
        let arrived = || {
            let mut bytes = [0; 8];
            let len = client.as_udp().recv(&mut bytes).unwrap();
            bytes[..len].to_vec()
        };
        let mut outbox = Outbox::new(8, 1, Calls::Many, true);
        let mut sent = Sent::default();
        for refusals in 1..=u64::from(MAX_REFUSALS) {
            outbox.begin(key(&to), 0, &round[0]);
            assert!(outbox.join(0, &round[..1], &round[1]));
            outbox.next[1] = NONE;
            outbox.refuse(&sockets[0], 0, &round, (0, Errno::EIO), &mut sent);
            outbox.abandon();
            assert_eq!((sent.datagrams, sent.failed), (2 * refusals, 0));
            assert_eq!([arrived(), arrived()], [b"one", b"two"]);
            let count = outbox.segmentation();
            let off = u64::from(refusals == u64::from(MAX_REFUSALS));
            assert_eq!((count.refused, count.off), (refusals, off));
        }
        assert_eq!(outbox.send(&sockets, round.into_iter()).datagrams, 2);
        assert_eq!([arrived(), arrived()], [b"one", b"two"]);
        assert_eq!(outbox.segmentation().groups, 0, "it has stopped grouping");
    }
}
