//! The reference backend: readiness and wake-ups by mio on every Unix; on Linux batches by
//! `recvmmsg` and `sendmmsg`, and replies to one client grouped by UDP_SEGMENT.
//!
//! Readiness is edge-triggered: a socket that became readable is remembered in a queue until a
//! receive call comes back with less than it asked for. While the queue has sockets, `wait`
//! returns at once. It still looks (without blocking) for others that became readable, and so does
//! `receive` for who never waits; the queue gives each its turn.

mod inbox;
mod outbox;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};

use crate::bind::BoundSocket;
use crate::counters::{self, Wrapping};
use crate::socket::{Received, Reply, Sent, Socket};
use crate::sys::message::Calls;
use inbox::{Inbox, Outcome};
use outbox::Outbox;

pub use outbox::Segmentation;

/// The waker's token; sockets have their numbers.
const WAKER: Token = Token(usize::MAX);

/// Readiness events taken from the kernel at once; more sockets than this just take more calls.
const EVENTS: usize = 256;

/// How the backend works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Datagrams per batch: 1 to 1024 (the kernel's own limit per call), others are brought into
    /// that range. Each takes about 2.3 kB of memory.
    pub batch: usize,
    /// Whether each datagram gets a system call of its own, as on systems without `recvmmsg`: the
    /// only way there, and a way to test it on Linux.
    pub portable: bool,
    /// Whether replies to one client are grouped (Linux, not with `portable`).
    pub segmentation: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { batch: 128, portable: false, segmentation: true }
    }
}

/// One worker's sockets.
pub struct Backend {
    poll: Poll,
    events: Events,
    waker: Waker,
    sockets: Vec<BoundSocket>,
    ready: Ready,
    /// Whether the waker's event was seen while looking for readiness in `receive`.
    woken: bool,
    /// Whether readiness was looked for since the last empty batch.
    fresh: bool,
    inbox: Inbox,
    outbox: Outbox,
    drops: std::cell::RefCell<Vec<Wrapping>>,
}

impl Backend {
    /// A backend of these sockets, whose numbers ([`Return::socket`](crate::Return::socket)) are
    /// their places in the list.
    ///
    /// # Errors
    /// When the system has no descriptors left, or the list is longer than 65,536.
    pub fn new(sockets: Vec<BoundSocket>, options: Options) -> io::Result<Self> {
        if sockets.len() > usize::from(u16::MAX) + 1 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let poll = Poll::new()?;
        for (number, socket) in sockets.iter().enumerate() {
            let fd = socket.as_fd().as_raw_fd();
            poll.registry().register(&mut SourceFd(&fd), Token(number), Interest::READABLE)?;
        }
        let waker = Waker {
            bell: Arc::new(Bell {
                rung: AtomicBool::new(false),
                waker: ::mio::Waker::new(poll.registry(), WAKER)?,
            }),
        };
        let batch = options.batch.clamp(1, 1024);
        let calls = calls(options.portable);
        let segmentation = options.segmentation && calls != Calls::Single;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            waker,
            // What arrived before has made no edge: look at every socket once.
            ready: Ready::all(sockets.len()),
            woken: false,
            fresh: false,
            inbox: Inbox::new(batch, calls),
            outbox: Outbox::new(batch, sockets.len(), calls, segmentation),
            drops: vec![Wrapping::default(); sockets.len()].into(),
            sockets,
        })
    }

    /// The sockets, in the order of their numbers.
    pub fn sockets(&self) -> &[BoundSocket] {
        &self.sockets
    }

    /// How grouping of replies went so far.
    pub fn segmentation(&self) -> Segmentation {
        self.outbox.segmentation()
    }

    /// Takes readiness events from the kernel.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match event.token() {
                WAKER => {
                    self.waker.bell.rung.swap(false, Ordering::AcqRel);
                    self.woken = true;
                }
                Token(number) => self.ready.add(number as u16),
            }
        }
        self.fresh = true;
        Ok(())
    }
}

impl Socket for Backend {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Timeouts are rounded up to milliseconds.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let at_once = self.woken || !self.ready.is_empty();
        self.look(Some(if at_once { Duration::ZERO } else { timeout }))?;
        self.woken = false;
        Ok(())
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        let limit = limit.min(self.inbox.batch());
        if !self.fresh && (self.ready.is_empty() || self.sockets.len() > 1) {
            // The caller did not wait: an empty batch must still mean that nothing is there, and a
            // socket that is never empty must not keep the others from being seen. Who is queued
            // has filled a batch, so that this call is one for many datagrams.
            self.look(Some(Duration::ZERO))?;
        }
        self.fresh = false;
        self.inbox.clear();
        while self.inbox.used() < limit {
            let Some(number) = self.ready.take() else { break };
            let socket = &self.sockets[usize::from(number)];
            match self.inbox.fill(socket, number, limit)? {
                Outcome::Drained => {}
                Outcome::MayHaveMore => self.ready.add(number),
            }
        }
        Ok(self.inbox.received())
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        self.outbox.send(&self.sockets, replies)
    }

    fn dropped(&self) -> u64 {
        let mut drops = self.drops.borrow_mut();
        // A system that does not count drops shows none.
        let count = |(socket, drops): (&BoundSocket, &mut Wrapping)| {
            counters::socket_drops(socket.as_fd()).map_or(0, |now| drops.update(now))
        };
        self.sockets.iter().zip(drops.iter_mut()).map(count).sum()
    }
}

/// Rings a [`Backend`]. Only the first ring since the backend last woke costs a system call.
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Bell>,
}

/// What a backend and its wakers share.
#[derive(Debug)]
struct Bell {
    /// Whether a ring is on its way that the backend has not seen.
    rung: AtomicBool,
    waker: ::mio::Waker,
}

impl crate::socket::Waker for Waker {
    fn wake(&self) {
        // A ring that finds the flag set is part of the earlier one: the backend clears the flag
        // when it sees that one's event, and by doing so sees what was done before this ring.
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            // It can fail only for a full counter, when the backend is bound to wake anyway.
            let _ = self.bell.waker.wake();
        }
    }
}

/// The sockets that may have datagrams, each once, in turn.
struct Ready {
    queue: VecDeque<u16>,
    queued: Box<[bool]>,
}

impl Ready {
    /// All of `sockets` sockets.
    fn all(sockets: usize) -> Self {
        let mut queue = VecDeque::with_capacity(sockets);
        queue.extend((0..sockets).map(|number| number as u16));
        Self { queue, queued: vec![true; sockets].into() }
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Queues a socket behind the others, unless it is queued.
    fn add(&mut self, number: u16) {
        if let Some(queued) = self.queued.get_mut(usize::from(number))
            && !std::mem::replace(queued, true)
        {
            self.queue.push_back(number);
        }
    }

    /// The socket whose turn it is.
    fn take(&mut self) -> Option<u16> {
        let number = self.queue.pop_front()?;
        self.queued[usize::from(number)] = false;
        Some(number)
    }
}

/// How this system makes its calls.
fn calls(portable: bool) -> Calls {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !portable {
        return Calls::Many;
    }
    let _ = portable;
    Calls::Single
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_sockets_take_turns_and_queue_once() {
        let mut ready = Ready::all(3);
        assert_eq!(ready.take(), Some(0));
        ready.add(0);
        ready.add(0);
        ready.add(2);
        assert_eq!(
            [ready.take(), ready.take(), ready.take(), ready.take()],
            [Some(1), Some(2), Some(0), None]
        );
        assert!(ready.is_empty());
    }
}
