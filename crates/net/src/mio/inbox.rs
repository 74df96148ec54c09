//! Receiving: from a ready socket's buffer into slots.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::bind::BoundSocket;
use crate::name;
use crate::socket::{Received, Return, Slot};
use crate::sys::message::{Calls, Inbound, SLOT_BYTES};

/// Errors in a row that are taken for the network's doing; with more the socket is unusable.
const PATIENCE: usize = 16;

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
    /// Places of `inbound` that the batch takes.
    used: usize,
    calls: Calls,
}

impl Inbox {
    /// Room for `batch` datagrams.
    pub(super) fn new(batch: usize, calls: Calls) -> Self {
        let nowhere = Return::to(([0, 0, 0, 0], 0).into(), 0);
        let empty = Slot { offset: 0, len: 0, source: nowhere.peer(), reply_to: nowhere };
        let slots = vec![empty; batch].into();
        Self { inbound: Inbound::new(batch), slots, filled: 0, used: 0, calls }
    }

    /// Datagrams that fit.
    pub(super) fn batch(&self) -> usize {
        self.slots.len()
    }

    /// Places of the batch that are taken.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Forgets the batch.
    pub(super) fn clear(&mut self) {
        self.filled = 0;
        self.used = 0;
    }

    /// The batch.
    pub(super) fn received(&self) -> Received<'_> {
        Received::new(self.inbound.region(), &self.slots[..self.filled])
    }

    /// Receives from `socket`, whose number is `number`, until `limit` places are taken.
    ///
    /// # Errors
    /// When the socket is unusable.
    pub(super) fn fill(
        &mut self,
        socket: &BoundSocket,
        number: u16,
        limit: usize,
    ) -> io::Result<Outcome> {
        let room = limit - self.used;
        let mut last = Errno::EIO;
        for _ in 0..PATIENCE {
            match self.inbound.receive(socket.as_fd(), self.used, room, self.calls) {
                Ok(count) => {
                    self.accept(count, number, socket.tells_local());
                    // The kernel stops short only when there is no more.
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
    fn accept(&mut self, count: usize, socket: u16, tells_local: bool) {
        let places = self.used..self.used + count;
        self.used = places.end;
        let mut slots = self.slots[self.filled..].iter_mut();
        let mut filled = self.filled;
        self.inbound.read(places, tells_local, |place, arrived| {
            // UDP sockets of the two families have no other names.
            let Some(source) = name::decode(arrived.name, arrived.name_len) else { return };
            // There are as many slots as places.
            let Some(slot) = slots.next() else { return };
            slot.offset = (place * SLOT_BYTES) as u32;
            slot.len = arrived.len;
            slot.source = source;
            slot.reply_to.name = *arrived.name;
            slot.reply_to.name_len = arrived.name_len;
            slot.reply_to.socket = socket;
            slot.reply_to.has_local = arrived.local.is_some();
            if let Some(local) = arrived.local {
                slot.reply_to.local = local;
            }
            filled += 1;
        });
        self.filled = filled;
    }
}
