//! Which sockets may have datagrams, and sleeping until one has.
//!
//! A server has few sockets. Each is simply asked in turn: a receive call that finds nothing costs no
//! more than asking the kernel for readiness, and one that finds something saves that call. Only
//! who sleeps is in the kernel's lists of waiters, for as long as it sleeps (poll(2)): a socket
//! that is registered for good (epoll) has its waiter called for every datagram sent and received
//! (docs/decisions/0013).
//!
//! A load tester has a thousand sockets. Those are registered, edge-triggered: a socket that became readable
//! is remembered in a queue until a receive call comes back with less than it asked for. While the
//! queue has sockets, `wait` returns at once. It still looks (without blocking) for others that
//! became readable, and so does `receive` for who never waits; the queue gives each its turn.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::bind::BoundSocket;

/// Sockets up to which each is asked in turn.
const FEW: usize = 4;

/// The waker's token; sockets have their numbers.
const WAKER: Token = Token(usize::MAX);

/// Readiness events taken from the kernel at once; more sockets than this just take more calls.
const EVENTS: usize = 256;

/// Knows whom to ask.
pub(super) struct Readiness {
    poll: Poll,
    events: Events,
    waker: Waker,
    /// Whether the waker's event was seen while looking for readiness in `receive`.
    woken: bool,
    sockets: Sockets,
    /// For each socket whether it is not to be asked.
    passed_over: Box<[bool]>,
}

/// How sockets are found that have something.
enum Sockets {
    /// They are asked. `next` is whose turn it is, `left` how many have not had theirs in this
    /// batch, of `count`.
    Asked { next: u16, left: u16, count: u16 },
    /// The kernel tells. `fresh` is whether it was asked since the last batch.
    Told { ready: Ready, fresh: bool },
}

impl Readiness {
    /// For these sockets, whose numbers are their places.
    pub(super) fn new(sockets: &[BoundSocket]) -> io::Result<Self> {
        let poll = Poll::new()?;
        let few = sockets.len() <= FEW;
        if !few {
            for (number, socket) in sockets.iter().enumerate() {
                let fd = socket.as_fd().as_raw_fd();
                poll.registry().register(&mut SourceFd(&fd), Token(number), Interest::READABLE)?;
            }
        }
        let waker = Waker {
            bell: Arc::new(Bell {
                rung: AtomicBool::new(false),
                waker: ::mio::Waker::new(poll.registry(), WAKER)?,
            }),
        };
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            waker,
            woken: false,
            passed_over: vec![false; sockets.len()].into(),
            sockets: match few {
                true => Sockets::Asked { next: 0, left: 0, count: sockets.len() as u16 },
                // What arrived before has made no edge: look at every socket once.
                false => Sockets::Told { ready: Ready::all(sockets.len()), fresh: false },
            },
        })
    }

    /// Rings.
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Sleeps until a socket may have something, the waker was rung or `timeout` has passed.
    pub(super) fn wait(&mut self, sockets: &[BoundSocket], timeout: Duration) -> io::Result<()> {
        match &self.sockets {
            Sockets::Asked { .. } => {
                if sleep(&self.poll, sockets, timeout)? {
                    self.look(Duration::ZERO)?;
                }
            }
            Sockets::Told { ready, .. } => {
                let at_once = self.woken || !ready.is_empty();
                self.look(if at_once { Duration::ZERO } else { timeout })?;
            }
        }
        self.woken = false;
        Ok(())
    }

    /// Sleeps until the waker was rung or `timeout` has passed.
    pub(super) fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.woken {
            self.look(timeout)?;
        }
        self.woken = false;
        Ok(())
    }

    /// Never asks this socket again.
    pub(super) fn pass_over(&mut self, number: usize) {
        if let Some(passed) = self.passed_over.get_mut(number) {
            *passed = true;
        }
    }

    /// Begins a batch.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        match &mut self.sockets {
            Sockets::Asked { left, count, .. } => *left = *count,
            Sockets::Told { ready, fresh } => {
                // The caller did not wait: an empty batch must still mean that nothing is there,
                // and a socket that is never empty must not keep the others from being seen. Who
                // is queued has filled a batch, so that this call is one for many datagrams.
                if !*fresh && (ready.is_empty() || ready.queued.len() > 1) {
                    self.look(Duration::ZERO)?;
                }
                if let Sockets::Told { fresh, .. } = &mut self.sockets {
                    *fresh = false;
                }
            }
        }
        Ok(())
    }

    /// The socket to ask next for this batch.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u16> {
        loop {
            let number = self.take_any()?;
            if !self.passed_over[usize::from(number)] {
                return Some(number);
            }
        }
    }

    #[inline]
    fn take_any(&mut self) -> Option<u16> {
        match &mut self.sockets {
            Sockets::Asked { next, left, count } => {
                *left = left.checked_sub(1)?;
                let this = *next;
                *next = if this + 1 == *count { 0 } else { this + 1 };
                Some(this)
            }
            Sockets::Told { ready, .. } => ready.take(),
        }
    }

    /// There may be more in a socket that was asked.
    #[inline]
    pub(super) fn put_back(&mut self, number: u16) {
        match &mut self.sockets {
            // Each has one turn in a batch, and the next batch begins with the next one.
            Sockets::Asked { .. } => {}
            Sockets::Told { ready, .. } => ready.add(number),
        }
    }

    /// Takes readiness events from the kernel.
    fn look(&mut self, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match (event.token(), &mut self.sockets) {
                (WAKER, _) => {
                    self.waker.bell.rung.swap(false, Ordering::AcqRel);
                    self.woken = true;
                }
                (Token(number), Sockets::Told { ready, .. }) => ready.add(number as u16),
                (Token(_), Sockets::Asked { .. }) => {}
            }
        }
        if let Sockets::Told { fresh, .. } = &mut self.sockets {
            *fresh = true;
        }
        Ok(())
    }
}

/// Sleeps until one of few `sockets`, or the waker's `poll`, is readable; returns whether this is.
fn sleep(poll: &Poll, sockets: &[BoundSocket], timeout: Duration) -> io::Result<bool> {
    let mut fds: [PollFd<'_>; FEW + 1] = std::array::from_fn(|n| {
        let fd = sockets.get(n).map_or(poll.registry().as_fd(), AsFd::as_fd);
        PollFd::new(fd, PollFlags::POLLIN)
    });
    // Never too early: who waits for a moment would find that it has not come.
    let timeout = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    let fds = &mut fds[..=sockets.len()];
    match nix::poll::poll(fds, timeout) {
        Ok(_) => Ok(fds[sockets.len()].any().unwrap_or(true)),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Rings a [`Backend`](super::Backend). Only the first ring since the backend last woke costs a
/// system call.
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
