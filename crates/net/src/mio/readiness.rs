//! Which sockets may have datagrams, and sleeping until one does.
//!
//! A server has few sockets, which are polled in turn: a receive call that finds nothing costs no
//! more than asking the kernel for readiness, and a call that finds a datagram saves that question.
//! Only a sleeping worker is in the kernel's wait queues (poll(2)). A permanently registered socket
//! (epoll) would have its wait queue callback run for every datagram sent and received
//! (docs/decisions/0013).
//!
//! A load tester has a thousand sockets, which are registered, edge-triggered: a socket that became
//! readable stays in a queue until a receive call returns less than it asked for. While the queue
//! has sockets, `wait` returns at once, after looking (without blocking) for others that became
//! readable. `receive` looks as well, for callers that never wait. The queue serves its sockets in
//! turn.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::mio::unix::SourceFd;
use ::mio::{Events, Interest, Poll, Registry, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use crate::bind::BoundSocket;

/// The most sockets that are polled in turn.
const MAX_POLLED: usize = 4;

/// The most descriptors of another kind that are polled beside the sockets.
pub(crate) const MAX_OTHERS: usize = 32;

/// The waker's token; sockets have their numbers.
const WAKER: Token = Token(usize::MAX);

/// Readiness events taken from the kernel at once; more ready sockets take more calls.
const EVENTS: usize = 256;

/// Decides which socket to receive from next.
pub(super) struct Readiness {
    poll: Poll,
    events: Events,
    /// Wakes this backend.
    pub(super) waker: Waker,
    /// Whether `receive` saw the waker's event while looking for readiness.
    woken: bool,
    sockets: Sockets,
    /// For each socket, whether it is excluded.
    pub(super) excluded: Box<[bool]>,
}

/// How ready sockets are found.
enum Sockets {
    /// Polling in turn: `next` is the next socket, and `left` of `count` sockets are still to be
    /// polled in this batch.
    Polled { next: u16, left: u16, count: u16 },
    /// Readiness events. `fresh` is whether the kernel was asked since the last batch.
    Registered { ready: Ready, fresh: bool },
}

impl Readiness {
    /// For these sockets; a socket's number is its place.
    pub(super) fn new(sockets: &[BoundSocket]) -> io::Result<Self> {
        let poll = Poll::new()?;
        let polled = sockets.len() <= MAX_POLLED;
        if !polled {
            for (number, socket) in sockets.iter().enumerate() {
                let fd = socket.as_fd().as_raw_fd();
                poll.registry().register(&mut SourceFd(&fd), Token(number), Interest::READABLE)?;
            }
        }
        Ok(Self {
            waker: Waker::new(poll.registry(), WAKER)?,
            poll,
            events: Events::with_capacity(EVENTS),
            woken: false,
            excluded: vec![false; sockets.len()].into(),
            sockets: match polled {
                true => Sockets::Polled { next: 0, left: 0, count: sockets.len() as u16 },
                // Datagrams that arrived earlier cause no event: every socket is tried once.
                false => Sockets::Registered { ready: Ready::all(sockets.len()), fresh: false },
            },
        })
    }

    /// Sleeps until a socket may have a datagram, the waker wakes it, or `timeout` elapses.
    pub(super) fn wait(&mut self, sockets: &[BoundSocket], timeout: Duration) -> io::Result<()> {
        match &self.sockets {
            Sockets::Polled { .. } => {
                if sleep::<{ MAX_POLLED + 1 }>(&self.poll, fds(sockets), timeout)? {
                    self.poll_events(Duration::ZERO)?;
                }
            }
            Sockets::Registered { ready, .. } => {
                let at_once = self.woken || !ready.is_empty();
                // epoll_wait counts in milliseconds: a shorter wait is spent in ppoll.
                let precise = !timeout.subsec_nanos().is_multiple_of(1_000_000);
                if precise && !at_once {
                    sleep::<1>(&self.poll, fds(&[]), timeout)?;
                }
                self.poll_events(if at_once || precise { Duration::ZERO } else { timeout })?;
            }
        }
        self.woken = false;
        Ok(())
    }

    /// As [`wait`](Self::wait), and returns as well when one of `others` is readable.
    pub(super) fn wait_with<'f, F: AsFd + 'f>(
        &mut self,
        sockets: &[BoundSocket],
        others: impl Iterator<Item = &'f F>,
        timeout: Duration,
    ) -> io::Result<()> {
        let (sockets, at_once) = match &self.sockets {
            Sockets::Polled { .. } => (sockets, false),
            Sockets::Registered { ready, .. } => (&[][..], self.woken || !ready.is_empty()),
        };
        if !at_once {
            let all = fds(sockets).chain(others.map(|other| other.as_fd()));
            sleep::<{ MAX_POLLED + MAX_OTHERS + 1 }>(&self.poll, all, timeout)?;
        }
        self.poll_events(Duration::ZERO)?;
        self.woken = false;
        Ok(())
    }

    /// Sleeps until the waker wakes it or `timeout` elapses.
    pub(super) fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        if !self.woken {
            self.poll_events(timeout)?;
        }
        self.woken = false;
        Ok(())
    }

    /// Begins a batch.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        match &mut self.sockets {
            Sockets::Polled { left, count, .. } => *left = *count,
            Sockets::Registered { ready, fresh } => {
                // The caller did not wait: an empty batch must still mean that nothing is
                // available, and a socket that is never empty must not hide the others. A queued
                // socket has filled a batch, so this call is one per many datagrams.
                if !*fresh && (ready.is_empty() || ready.queued.len() > 1) {
                    self.poll_events(Duration::ZERO)?;
                }
                if let Sockets::Registered { fresh, .. } = &mut self.sockets {
                    *fresh = false;
                }
            }
        }
        Ok(())
    }

    /// The next socket to receive from for this batch.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u16> {
        loop {
            let number = self.take_any()?;
            if !self.excluded[usize::from(number)] {
                return Some(number);
            }
        }
    }

    #[inline]
    fn take_any(&mut self) -> Option<u16> {
        match &mut self.sockets {
            Sockets::Polled { next, left, count } => {
                *left = left.checked_sub(1)?;
                let this = *next;
                *next = if this + 1 == *count { 0 } else { this + 1 };
                Some(this)
            }
            Sockets::Registered { ready, .. } => ready.take(),
        }
    }

    /// Marks a socket that may have more datagrams.
    #[inline]
    pub(super) fn requeue(&mut self, number: u16) {
        match &mut self.sockets {
            // Each socket has one turn per batch, and the next batch begins with the next socket.
            Sockets::Polled { .. } => {}
            Sockets::Registered { ready, .. } => ready.add(number),
        }
    }

    /// Takes readiness events from the kernel.
    fn poll_events(&mut self, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match (event.token(), &mut self.sockets) {
                (WAKER, _) => {
                    self.waker.rearm();
                    self.woken = true;
                }
                (Token(number), Sockets::Registered { ready, .. }) => ready.add(number as u16),
                (Token(_), Sockets::Polled { .. }) => {}
            }
        }
        if let Sockets::Registered { fresh, .. } = &mut self.sockets {
            *fresh = true;
        }
        Ok(())
    }
}

fn fds(sockets: &[BoundSocket]) -> impl Iterator<Item = BorrowedFd<'_>> {
    sockets.iter().map(AsFd::as_fd)
}

/// Sleeps until one of the first `N - 1` of `fds`, or `poll`, is readable. Returns whether `poll`
/// is; an interrupted sleep ends early.
fn sleep<'f, const N: usize>(
    poll: &'f Poll,
    mut fds: impl Iterator<Item = BorrowedFd<'f>>,
    timeout: Duration,
) -> io::Result<bool> {
    let mut count = 0;
    let mut all: [PollFd<'_>; N] = std::array::from_fn(|n| {
        let fd = if n + 1 < N { fds.next() } else { None };
        count += usize::from(fd.is_some());
        PollFd::new(fd.unwrap_or_else(|| poll.registry().as_fd()), PollFlags::POLLIN)
    });
    match nix::poll::ppoll(&mut all[..=count], Some(timeout.into()), None) {
        Ok(_) => Ok(all[count].any().unwrap_or(true)),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Wakes a backend on mio, of datagrams or of [streams](crate::stream::mio). Only the first wake-up
/// since the backend last woke costs a system call.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

/// State shared by a backend and its wakers.
#[derive(Debug)]
struct Shared {
    /// Whether a wake-up is pending that the backend has not seen.
    wake_pending: AtomicBool,
    waker: ::mio::Waker,
}

impl Waker {
    /// The waker of a backend, whose event has this token.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let waker = ::mio::Waker::new(registry, token)?;
        Ok(Self { shared: Arc::new(Shared { wake_pending: AtomicBool::new(false), waker }) })
    }

    /// The backend has seen the event: the next wake-up causes another one.
    pub(crate) fn rearm(&self) {
        self.shared.wake_pending.swap(false, Ordering::AcqRel);
    }
}

impl crate::socket::Waker for Waker {
    fn wake(&self) {
        // If the flag is set, this wake-up is part of an earlier one: the backend clears the flag
        // when it sees the event of the earlier one, and then also sees all writes before this
        // call.
        if !self.shared.wake_pending.swap(true, Ordering::AcqRel) {
            // It fails only when the counter is full, and then the backend wakes anyway.
            let _ = self.shared.waker.wake();
        }
    }
}

/// The sockets that may have datagrams, each at most once, in turn.
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

    /// The next socket.
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
