//! Receiving: from a ready socket's buffer into slots.
//!
//! Where the kernel hands over several datagrams in one piece (UDP_GRO, udp(7)) it tells their
//! length, and the piece is split: each datagram has a slot of its own, as if it had come alone. A piece
//! may hold more than the caller wants at once; the rest stays for the next batch.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::name;
use crate::socket::{Received, Return, Slot};
use crate::sys::message::{Arrived, BURST_BYTES, Calls, Inbound, SLOT_BYTES};

/// Errors in a row that are taken for the network's doing; with more the socket is unusable.
const PATIENCE: usize = 16;

/// Messages of a batch that may be pieces: what a load tester's sockets have at once, and 2 MiB.
const BURSTS: usize = 32;

/// What is left in a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: the next datagram makes it ready again.
    Drained,
    /// Perhaps something: it must be asked again before waiting.
    MayHaveMore,
}

/// A batch of received datagrams.
pub(super) struct Inbox {
    inbound: Inbound,
    /// As long as the batch is large; the first `filled` are valid.
    slots: Box<[Slot]>,
    filled: usize,
    /// Places of `inbound`, and how many of them the batch takes.
    places: usize,
    used: usize,
    calls: Calls,
    /// Whether datagrams may come in one piece.
    coalesced: bool,
    /// What came, as it came, from the first that is not split to the end.
    bursts: VecDeque<Burst>,
    /// Datagrams that came in one piece with others.
    joined: u64,
}

/// Datagrams in one piece.
struct Burst {
    /// All that is left of them.
    rest: Slot,
    /// The length of each but the last.
    segment: u32,
}

impl Inbox {
    /// Room for `batch` datagrams.
    pub(super) fn new(batch: usize, calls: Calls, coalesced: bool) -> Self {
        let nowhere = Return::to(([0, 0, 0, 0], 0).into(), 0);
        let empty = Slot { offset: 0, len: 0, source: nowhere.peer(), reply_to: nowhere };
        let slots = vec![empty; batch].into();
        let (places, bytes, bursts) =
            if coalesced { (BURSTS, BURST_BYTES, BURSTS) } else { (batch, SLOT_BYTES, 0) };
        Self {
            inbound: Inbound::new(places, bytes),
            slots,
            filled: 0,
            places,
            used: 0,
            calls,
            coalesced,
            bursts: VecDeque::with_capacity(bursts),
            joined: 0,
        }
    }

    /// Datagrams that fit.
    pub(super) fn batch(&self) -> usize {
        self.slots.len()
    }

    /// Datagrams so far that came in one piece with others.
    pub(super) fn joined(&self) -> u64 {
        self.joined
    }

    /// Whether something was received that is in no batch yet.
    pub(super) fn has_rest(&self) -> bool {
        !self.bursts.is_empty()
    }

    /// Forgets the batch and begins one of at most `limit` datagrams with what is left over.
    pub(super) fn begin(&mut self, limit: usize) {
        self.filled = 0;
        self.split(limit);
        if self.bursts.is_empty() && self.filled == 0 {
            self.used = 0;
        }
    }

    /// Whether nothing more can be received into a batch of `limit` datagrams.
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

    /// Receives from `socket`, whose number is `number`, until the batch has `limit` datagrams.
    ///
    /// # Errors
    /// When the socket is unusable.
    pub(super) fn fill(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        limit: usize,
    ) -> io::Result<Outcome> {
        // What comes in one piece may be many.
        let room = if self.coalesced { self.places } else { limit } - self.used;
        let mut last = Errno::EIO;
        for _ in 0..PATIENCE {
            match self.inbound.receive(socket.as_fd(), self.used, room, self.calls) {
                Ok(count) => {
                    if self.coalesced {
                        self.accept_bursts(count, number);
                        self.split(limit);
                    } else {
                        self.accept(count, number, socket.reports_local());
                    }
                    // The kernel stops short when there is no more, or at an error that came
                    // meanwhile (recvmmsg(2)): that one rings by itself, and who looks then is
                    // told of the datagrams behind it too.
                    let full = count == room;
                    return Ok(if full { Outcome::MayHaveMore } else { Outcome::Drained });
                }
                Err(Errno::EAGAIN) => return Ok(Outcome::Drained),
                Err(error @ (Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT | Errno::EINVAL)) => {
                    return Err(error.into());
                }
                // Interrupted, or an ICMP error of an earlier reply: asking again clears it.
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    /// Makes slots of the `count` datagrams behind the last place.
    #[inline]
    fn accept(&mut self, count: usize, socket: u16, reports_local: bool) {
        let places = self.used..self.used + count;
        self.used = places.end;
        let (slots, mut filled) = (&mut self.slots, self.filled);
        self.inbound.read(places, reports_local, |offset, arrived| {
            // There are as many slots as places.
            let Some(slot) = slots.get_mut(filled) else { return };
            filled += usize::from(fill_slot(slot, offset, &arrived, socket));
        });
        self.filled = filled;
    }

    /// Keeps the `count` messages behind the last place to be split.
    fn accept_bursts(&mut self, count: usize, socket: u16) {
        let places = self.used..self.used + count;
        self.used = places.end;
        let (bursts, joined) = (&mut self.bursts, &mut self.joined);
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
            bursts.push_back(Burst { rest, segment });
        });
    }

    /// Makes slots of what is to be split until the batch has `limit` datagrams.
    fn split(&mut self, limit: usize) {
        while self.filled < limit {
            let Some(Burst { rest, segment }) = self.bursts.front_mut() else { break };
            let len = rest.len.min(*segment);
            // As long a datagram is cut here as without pieces.
            self.slots[self.filled] = Slot { len: len.min(SLOT_BYTES as u32), ..*rest };
            self.filled += 1;
            rest.offset += len;
            rest.len -= len;
            if rest.len == 0 {
                self.bursts.pop_front();
            }
        }
    }
}

/// Writes what arrived into a slot; `false` for what did not come from a UDP address.
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
