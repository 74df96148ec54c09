//! The kernel's connections as a backend of streams: accept4 and edge-triggered epoll by mio.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use ::mio::event::Event;
use ::mio::net::{TcpListener, TcpStream};
use ::mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use socket2::SockRef;

use super::{Ready, Stream, Streams, listen};
use crate::mio::Waker;

/// Events taken from the kernel at once; more take more waits.
const EVENTS: usize = 1024;

/// The bit of tokens that are no key of a stream.
const NO_KEY: usize = 1 << (usize::BITS - 1);

/// The waker's token; listeners have their numbers and [`NO_KEY`].
const WAKER: Token = Token(usize::MAX);

/// One worker's listeners and connections. Timeouts are rounded up to whole milliseconds.
pub struct Backend {
    poll: Poll,
    events: Events,
    /// The events of the last wait that were not returned yet.
    ready: VecDeque<Ready>,
    listeners: Vec<TcpListener>,
    waker: Waker,
}

impl Backend {
    /// A backend of these nonblocking listeners.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(listeners: Vec<std::net::TcpListener>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners: Vec<_> = listeners.into_iter().map(TcpListener::from_std).collect();
        for (number, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(number | NO_KEY), Interest::READABLE)?;
        }
        Ok(Self {
            waker: Waker::new(poll.registry(), WAKER)?,
            poll,
            events: Events::with_capacity(EVENTS),
            ready: VecDeque::with_capacity(EVENTS),
            listeners,
        })
    }

    /// As [`wait`](Streams::wait), with a timeout that is not rounded: for load tests that send by
    /// a schedule. It takes two calls of the kernel.
    ///
    /// # Errors
    /// As [`wait`](Streams::wait).
    pub fn wait_exactly(&mut self, timeout: Duration) -> io::Result<()> {
        let mut poll = [PollFd::new(self.poll.registry().as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut poll, Some(timeout.into()), None) {
            Ok(_) | Err(Errno::EINTR) => self.wait(Duration::ZERO),
            Err(error) => Err(error.into()),
        }
    }
}

impl Streams for Backend {
    type Stream = TcpStream;
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.ready.clear();
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            match event.token() {
                WAKER => self.waker.rearm(),
                Token(token) if token & NO_KEY != 0 => {
                    self.ready.push_back(Ready::Listener(token & !NO_KEY));
                }
                Token(key) => self.ready.push_back(of_stream(key as u64, event)),
            }
        }
        Ok(())
    }

    fn ready(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let listener = &self.listeners[listener];
        loop {
            match listener.accept() {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn accept_queue(&self) -> usize {
        self.listeners.iter().map(|listener| listen::accept_queue(listener.as_fd())).sum()
    }

    fn address(&self, listener: usize) -> io::Result<SocketAddr> {
        self.listeners[listener].local_addr()
    }

    fn watch(&mut self, stream: &mut TcpStream, key: u64) -> io::Result<()> {
        let token = usize::try_from(key).ok().filter(|token| token & NO_KEY == 0);
        let token = Token(token.ok_or(io::ErrorKind::InvalidInput)?);
        self.poll.registry().register(stream, token, Interest::READABLE | Interest::WRITABLE)
    }
}

/// The event of a stream.
fn of_stream(key: u64, event: &Event) -> Ready {
    let failed = event.is_error();
    let ended = event.is_read_closed() || failed;
    Ready::Stream {
        key,
        readable: event.is_readable() || ended,
        writable: event.is_writable() || event.is_write_closed() || failed,
        ended,
    }
}

/// Whether accept(2) was interrupted, or returned an error of the new connection or the network
/// that it came by (accept(2), "Error handling").
fn concerns_one_connection(error: &io::Error) -> bool {
    use libc::{ECONNABORTED, EINTR, ENETDOWN, ENETUNREACH, ENONET, ENOPROTOOPT, EPROTO};
    use libc::{EHOSTDOWN, EHOSTUNREACH};
    let skipped = [
        [EINTR, ECONNABORTED, EPROTO],
        [ENETDOWN, ENETUNREACH, ENONET],
        [ENOPROTOOPT, EHOSTDOWN, EHOSTUNREACH],
    ];
    error.raw_os_error().is_some_and(|code| skipped.as_flattened().contains(&code))
}

impl Stream for TcpStream {
    fn write_last(&mut self, bytes: &[u8]) -> io::Result<usize> {
        SockRef::from(&*self).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_one_connection_are_skipped() {
        for (code, skipped) in [
            (libc::ECONNABORTED, true),
            (libc::EINTR, true),
            (libc::EPROTO, true),
            (libc::EMFILE, false),
            (libc::ENFILE, false),
            (libc::ENOBUFS, false),
            (libc::ENOMEM, false),
            (libc::EBADF, false),
        ] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(concerns_one_connection(&error), skipped, "{error}");
        }
    }
}
