//! Receiving: from a ready socket's buffer into slots.
//!
//! A message that the kernel coalesced from several datagrams (UDP_GRO, udp(7)) comes with their
//! length and is split here: each datagram has a slot of its own, as if it had arrived alone. If a
//! message has more datagrams than the caller wants, the rest stays for the next batch.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::name;
use crate::socket::{Received, Return, Slot};
use crate::sys::message::{Arrived, COALESCED_BYTES, Inbound, SLOT_BYTES};

/// Consecutive errors that are attributed to the network; after more the socket is unusable.
const MAX_ERRORS: usize = 16;

/// Messages of a batch that may be coalesced: as many as a load tester's sockets have at once, 2
/// MiB.
const COALESCED_PLACES: usize = 32;

/// A batch of received datagrams.
pub(super) struct Inbox {
    inbound: Inbound,
    /// One per datagram of a batch; the first `filled` are valid.
    slots: Box<[Slot]>,
    filled: usize,
    /// Places of `inbound`, and the number in use by the batch.
    places: usize,
    used: usize,
    /// Whether messages may be coalesced.
    coalesced: bool,
    /// Received messages that are not fully split yet, in order.
    unsplit: VecDeque<Coalesced>,
    /// Datagrams so far that arrived coalesced with others.
    pub(super) joined: u64,
}

/// A coalesced message.
struct Coalesced {
    /// The part that is not split yet.
    rest: Slot,
    /// The length of each datagram but the last.
    segment: u32,
}

impl Inbox {
    /// Space for `batch` datagrams.
    pub(super) fn new(batch: usize, coalesced: bool) -> Self {
        let nowhere = Return::to(([0, 0, 0, 0], 0).into(), 0);
        let empty = Slot { offset: 0, len: 0, source: nowhere.peer(), reply_to: nowhere };
        let slots = vec![empty; batch].into();
        let (places, bytes, messages) = if coalesced {
            (COALESCED_PLACES, COALESCED_BYTES, COALESCED_PLACES)
        } else {
            (batch, SLOT_BYTES, 0)
        };
        Self {
            inbound: Inbound::new(places, bytes),
            slots,
            filled: 0,
            places,
            used: 0,
            coalesced,
            unsplit: VecDeque::with_capacity(messages),
            joined: 0,
        }
    }

    /// The largest batch, datagrams.
    pub(super) fn batch(&self) -> usize {
        self.slots.len()
    }

    /// Whether a received message is not fully split yet.
    pub(super) fn has_unsplit(&self) -> bool {
        !self.unsplit.is_empty()
    }

    /// Discards the batch and begins one of at most `limit` datagrams with the messages left to
    /// split.
    pub(super) fn begin(&mut self, limit: usize) {
        self.filled = 0;
        self.split(limit);
        if self.unsplit.is_empty() && self.filled == 0 {
            self.used = 0;
        }
    }

    /// Whether a batch of `limit` datagrams is full.
    #[inline]
    pub(super) fn is_full(&self, limit: usize) -> bool {
        match self.coalesced {
            true => self.filled >= limit || self.used >= self.places,
            false => self.used >= limit,
        }
    }

    /// The batch.
    pub(super) fn received(&self) -> Received<'_> {
        Received::new(self.inbound.region(), &self.slots[..self.filled])
    }

    /// Receives from `socket`, number `number`, until the batch has `limit` datagrams. Returns
    /// whether it may have more, so that it is to be received from again before waiting; otherwise
    /// the next datagram makes it ready.
    ///
    /// # Errors
    /// When the socket is unusable.
    pub(super) fn fill(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        limit: usize,
    ) -> io::Result<bool> {
        // A coalesced message may have many datagrams.
        let room = if self.coalesced { self.places } else { limit } - self.used;
        let mut last = Errno::EIO;
        for _ in 0..MAX_ERRORS {
            match self.inbound.receive(socket.as_fd(), self.used, room) {
                Ok(count) => {
                    if self.coalesced {
                        self.accept_coalesced(count, number);
                        self.split(limit);
                    } else {
                        self.accept(count, number, socket.reports_local());
                    }
                    // A short batch means that the socket is empty, or that the call stopped at a
                    // pending error (recvmmsg(2)). Such an error makes the socket ready again, so
                    // the datagrams behind it are not forgotten.
                    return Ok(count == room);
                }
                Err(Errno::EAGAIN) => return Ok(false),
                Err(error @ (Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL)) => {
                    return Err(error.into());
                }
                // Interrupted, or an ICMP error of an earlier reply: the next call clears it.
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// Fills slots for the `count` datagrams behind the last place.
    #[inline]
    fn accept(&mut self, count: usize, socket: u16, reports_local: bool) {
        let places = self.used..self.used + count;
        self.used = places.end;
        let (slots, mut filled) = (&mut self.slots, self.filled);
        self.inbound.read(places, reports_local, |offset, arrived| {
            // The slots are as many as the places.
            let Some(slot) = slots.get_mut(filled) else { return };
            filled += usize::from(fill_slot(slot, offset, &arrived, socket));
        });
        self.filled = filled;
    }

    /// Queues the `count` messages behind the last place for splitting.
    fn accept_coalesced(&mut self, count: usize, socket: u16) {
        let places = self.used..self.used + count;
        self.used = places.end;
        let (unsplit, joined) = (&mut self.unsplit, &mut self.joined);
        let nowhere = Return::to(([0, 0, 0, 0], 0).into(), 0);
        self.inbound.read(places, true, |offset, arrived| {
            let mut rest = Slot { offset: 0, len: 0, source: nowhere.peer(), reply_to: nowhere };
            if !fill_slot(&mut rest, offset, &arrived, socket) {
                return;
            }
            let segment = arrived.segment.map_or(arrived.len, u32::from).max(1);
            if arrived.len > segment {
                *joined += u64::from(arrived.len.div_ceil(segment));
            }
            unsplit.push_back(Coalesced { rest, segment });
        });
    }

    /// Splits queued messages into slots until the batch has `limit` datagrams.
    fn split(&mut self, limit: usize) {
        while self.filled < limit {
            let Some(Coalesced { rest, segment }) = self.unsplit.front_mut() else { break };
            let len = rest.len.min(*segment);
            // A datagram of this length is truncated as without coalescing.
            self.slots[self.filled] = Slot { len: len.min(SLOT_BYTES as u32), ..*rest };
            self.filled += 1;
            rest.offset += len;
            rest.len -= len;
            if rest.len == 0 {
                self.unsplit.pop_front();
            }
        }
    }
}

/// Writes a received datagram into a slot; `false` if its sender is not a UDP address.
#[inline]
fn fill_slot(slot: &mut Slot, offset: u32, arrived: &Arrived<'_>, socket: u16) -> bool {
    // UDP sockets of the two families have no other names.
    let Some(source) = name::decode(arrived.name, arrived.name_len) else { return false };
    slot.offset = offset;
    slot.len = arrived.len;
    slot.source = source;
    slot.reply_to.name = *arrived.name;
    slot.reply_to.name_len = arrived.name_len;
    slot.reply_to.socket = socket;
    slot.reply_to.has_local = arrived.local.is_some();
    if let Some(local) = arrived.local {
        slot.reply_to.local = local;
    }
    true
}
