//! The reference backend: readiness and wake-ups by mio, batches by `recvmmsg` and `sendmmsg`, and
//! replies to one client grouped by UDP_SEGMENT.

pub mod drops;
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
use crate::socket::{Buffers, Drops, Received, Reply, Sent, Socket};
use drops::DropReasons;
use inbox::Inbox;
use outbox::Outbox;
use readiness::Readiness;

pub use outbox::Segmentation;
pub(crate) use readiness::MAX_OTHERS;
pub use readiness::Waker;

/// Options of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Datagrams per batch, clamped to 1 to 1024 (the kernel's limit per call). Each takes about
    /// 2.3 kB of memory.
    pub batch: usize,
    /// Whether replies to one client are grouped.
    pub segmentation: bool,
    /// Whether the kernel may coalesce datagrams that one sender sent in one call (UDP_GRO); each
    /// still arrives in a slot of its own. Saves a client the cost of each datagram, or, over
    /// loopback, its sender. Takes 2 MiB, and a dropped coalesced message counts as one datagram in
    /// [`Socket::dropped`].
    pub coalesced: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { batch: 128, segmentation: true, coalesced: false }
    }
}

/// One worker's sockets.
pub struct Backend {
    sockets: Vec<BoundSocket>,
    readiness: Readiness,
    inbox: Inbox,
    outbox: Outbox,
    drops: std::cell::RefCell<Vec<Wrapping>>,
    /// Where the reasons of drops are attributed, and this backend's number there.
    reasons: Option<(DropReasons, usize)>,
    /// Whether a socket has a filter.
    has_filter: bool,
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
        let coalesced = options.coalesced && coalesce(&sockets);
        Ok(Self {
            readiness: Readiness::new(&sockets)?,
            inbox: Inbox::new(batch, coalesced),
            outbox: Outbox::new(batch, sockets.len(), options.segmentation),
            drops: sockets.iter().map(dropped_so_far).collect::<Vec<_>>().into(),
            sockets,
            reasons: None,
            has_filter: false,
        })
    }

    /// Attributes drops to their reasons, together with the other backends that share `reasons`.
    /// Without this call every drop counts as one by a full buffer. [`Socket::dropped`] then has to
    /// be called once a second, and reports a drop a second later or more.
    #[must_use]
    pub fn with_drop_reasons(mut self, reasons: &DropReasons) -> Self {
        self.reasons = Some((reasons.clone(), reasons.add_backend()));
        self
    }

    /// Counters of the grouping of replies.
    pub fn segmentation(&self) -> Segmentation {
        self.outbox.count
    }

    /// The addresses of its sockets, by their numbers.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().map(BoundSocket::address)
    }

    /// As [`Socket::wait`], and returns as well when one of `others` is readable.
    pub(crate) fn wait_with<'f, F: AsFd + 'f>(
        &mut self,
        others: impl Iterator<Item = &'f F>,
        timeout: Duration,
    ) -> io::Result<()> {
        if self.inbox.has_unsplit() {
            return Ok(());
        }
        self.readiness.wait_with(&self.sockets, others, timeout)
    }

    /// Receives a batch of at most `limit` datagrams.
    #[inline]
    pub(crate) fn fill(&mut self, limit: usize) -> io::Result<()> {
        let limit = limit.min(self.inbox.batch());
        self.inbox.begin(limit);
        if self.inbox.has_unsplit() {
            return Ok(());
        }
        self.readiness.begin()?;
        while !self.inbox.is_full(limit) {
            let Some(number) = self.readiness.take() else { break };
            let socket = &self.sockets[usize::from(number)];
            if self.inbox.fill(socket, number, limit)? {
                self.readiness.requeue(number);
            }
        }
        Ok(())
    }

    /// The batch that the last [`fill`](Self::fill) has received.
    #[inline]
    pub(crate) fn received(&self) -> Received<'_> {
        self.inbox.received()
    }

    /// Datagrams so far that arrived coalesced with others (see [`Options::coalesced`]).
    pub fn joined(&self) -> u64 {
        self.inbox.joined
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
        self.readiness.waker.clone()
    }

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
        for (socket, excluded) in self.sockets.iter().zip(&mut self.readiness.excluded) {
            *excluded |= !keep(socket.address());
        }
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.fill(limit)?;
        Ok(self.received())
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        self.outbox.send(&self.sockets, replies)
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        for socket in &self.sockets {
            filter_program::set(socket, filter)?;
            self.has_filter |= filter.is_some();
        }
        self.has_filter = filter.is_some();
        Ok(())
    }

    fn dropped(&self) -> Drops {
        let mut drops = self.drops.borrow_mut();
        // A kernel without drop counters reports zero.
        let count = |(socket, drops): (&BoundSocket, &mut Wrapping)| {
            counters::socket_drops(socket.as_fd()).map_or(0, |now| drops.update(now))
        };
        let all = self.sockets.iter().zip(drops.iter_mut()).map(count).sum();
        match &self.reasons {
            Some((reasons, own)) => reasons.report(*own, all, self.has_filter),
            None => Drops { full_buffer: all, ..Drops::default() },
        }
    }

    fn buffers(&self) -> Buffers {
        let sizes = self.sockets.iter().filter_map(|socket| socket.buffers().ok());
        sizes.fold(Buffers::default(), |sum, size| Buffers {
            receive: sum.receive + size.receive,
            send: sum.send + size.send,
        })
    }
}

/// Enables UDP_GRO; returns whether any socket supports it. Messages are split whether or not the
/// kernel coalesces on their socket.
fn coalesce(sockets: &[BoundSocket]) -> bool {
    let set = |socket: &BoundSocket| {
        crate::sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &1).is_ok()
    };
    // Set on every socket, whatever the result on the others.
    sockets.iter().filter(|socket| set(socket)).count() > 0
}
