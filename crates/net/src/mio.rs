//! The reference backend: readiness and wake-ups by mio on every Unix; on Linux batches by
//! `recvmmsg` and `sendmmsg`, and replies to one client grouped by UDP_SEGMENT.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod filter_program;
mod inbox;
mod outbox;
mod readiness;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::bind::BoundSocket;
use crate::counters::{self, Wrapping};
use crate::filter::Filter;
use crate::socket::{Received, Reply, Sent, Socket};
use crate::sys::message::Calls;
use inbox::{Inbox, ReceiveOutcome};
use outbox::Outbox;
use readiness::Readiness;

pub use outbox::Segmentation;
pub use readiness::Waker;

/// Options of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Datagrams per batch, clamped to 1 to 1024 (the kernel's limit per call). Each takes about
    /// 2.3 kB of memory.
    pub batch: usize,
    /// Whether each datagram takes a system call of its own, as on systems without `recvmmsg`. On
    /// Linux this serves to test that path.
    pub portable: bool,
    /// Whether replies to one client are grouped (Linux, not with `portable`).
    pub segmentation: bool,
    /// Whether the kernel may coalesce datagrams that one sender sent in one call (UDP_GRO, Linux);
    /// each still arrives in a slot of its own. Saves a client the cost of each datagram, or, over
    /// loopback, its sender. Takes 2 MiB, and a dropped coalesced message counts as one datagram in
    /// [`Socket::dropped`].
    pub coalesced: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { batch: 128, portable: false, segmentation: true, coalesced: false }
    }
}

/// One worker's sockets.
pub struct Backend {
    sockets: Vec<BoundSocket>,
    readiness: Readiness,
    inbox: Inbox,
    outbox: Outbox,
    drops: std::cell::RefCell<Vec<Wrapping>>,
}

impl Backend {
    /// A backend of these sockets; a socket's number ([`Return::socket`](crate::Return::socket)) is
    /// its place in the list.
    ///
    /// # Errors
    /// When the process has no descriptors left, or the list is longer than 65,536.
    pub fn new(sockets: Vec<BoundSocket>, options: Options) -> io::Result<Self> {
        if sockets.len() > usize::from(u16::MAX) + 1 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let batch = options.batch.clamp(1, 1024);
        let calls = calls(options.portable);
        let segmentation = options.segmentation && calls != Calls::Single;
        let coalesced = options.coalesced && coalesce(&sockets);
        Ok(Self {
            readiness: Readiness::new(&sockets)?,
            inbox: Inbox::new(batch, calls, coalesced),
            outbox: Outbox::new(batch, sockets.len(), calls, segmentation),
            drops: sockets.iter().map(dropped_so_far).collect::<Vec<_>>().into(),
            sockets,
        })
    }

    /// Counters of the grouping of replies.
    pub fn segmentation(&self) -> Segmentation {
        self.outbox.segmentation()
    }

    /// Datagrams so far that arrived coalesced with others (see [`Options::coalesced`]).
    pub fn joined(&self) -> u64 {
        self.inbox.joined()
    }
}

/// The drop counter of a socket when this backend receives it. Drops before that, of a socket that
/// systemd or another process opened long ago, are not counted.
fn dropped_so_far(socket: &BoundSocket) -> Wrapping {
    Wrapping::since(counters::socket_drops(socket.as_fd()).unwrap_or(0))
}

impl Socket for Backend {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.readiness.waker()
    }

    /// Timeouts are in nanoseconds on Linux, and rounded up to milliseconds elsewhere.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.inbox.has_unsplit() {
            return Ok(());
        }
        self.readiness.wait(&self.sockets, timeout)
    }

    fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        self.readiness.wait_for_wake(timeout)
    }

    fn retain_addresses(&mut self, keep: &dyn Fn(SocketAddr) -> bool) {
        for (number, socket) in self.sockets.iter().enumerate() {
            if !keep(socket.address()) {
                self.readiness.exclude(number);
            }
        }
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        let limit = limit.min(self.inbox.batch());
        self.inbox.begin(limit);
        if self.inbox.has_unsplit() {
            return Ok(self.inbox.received());
        }
        self.readiness.begin()?;
        while !self.inbox.is_full(limit) {
            let Some(number) = self.readiness.take() else { break };
            let socket = &self.sockets[usize::from(number)];
            match self.inbox.fill(socket, number, limit)? {
                ReceiveOutcome::Drained => {}
                ReceiveOutcome::MayHaveMore => self.readiness.requeue(number),
            }
        }
        Ok(self.inbox.received())
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        self.outbox.send(&self.sockets, replies)
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return self.sockets.iter().try_for_each(|socket| filter_program::set(socket, filter));
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        return if filter.is_none() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) };
    }

    fn dropped(&self) -> u64 {
        let mut drops = self.drops.borrow_mut();
        // A system without drop counters reports zero.
        let count = |(socket, drops): (&BoundSocket, &mut Wrapping)| {
            counters::socket_drops(socket.as_fd()).map_or(0, |now| drops.update(now))
        };
        self.sockets.iter().zip(drops.iter_mut()).map(count).sum()
    }
}

/// Enables UDP_GRO; returns whether any socket supports it. Messages are split whether or not the
/// kernel coalesces on their socket.
fn coalesce(sockets: &[BoundSocket]) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let set = |socket: &BoundSocket| {
            crate::sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1).is_ok()
        };
        // Set on every socket, whatever the result on the others.
        sockets.iter().filter(|socket| set(socket)).count() > 0
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = sockets;
        false
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
