//! The contract of a backend of streams as types; the rules are in the [crate] documentation.

pub mod connect;
pub mod listen;
pub mod memory;
pub mod mio;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::socket::Waker;

/// One worker's listeners and accepted connections.
pub trait Streams {
    /// An accepted connection.
    type Stream: Stream;

    /// Ends this backend's [`wait`](Streams::wait) from another thread.
    type Waker: Waker;

    /// A handle that wakes this backend.
    fn waker(&self) -> Self::Waker;

    /// Blocks until something is ready, the waker wakes this backend, or `timeout` elapses (zero:
    /// does not block). Forgets the events that [`ready`](Self::ready) has not returned.
    ///
    /// # Errors
    /// Only what makes the backend unusable; an interrupted call is a spurious return.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// The next event of the last wait.
    fn ready(&mut self) -> Option<Ready>;

    /// Accepts a connection from a listener, by its place in the list that the backend was made
    /// with; `None` if no connection waits. Also returns the client's address.
    ///
    /// # Errors
    /// Errors of the process or the host: no descriptors or memory left (EMFILE, ENFILE,
    /// ENOBUFS, ENOMEM). No event repeats it: the caller has to try again later. Connections that
    /// failed while they waited (ECONNABORTED) are skipped.
    ///
    /// # Panics
    /// When there is no such listener.
    fn accept(&mut self, listener: usize) -> io::Result<Option<(Self::Stream, SocketAddr)>>;

    /// How many connections wait to be accepted, at all listeners together.
    fn accept_queue(&self) -> usize;

    /// The address of a listener.
    ///
    /// # Errors
    /// Only if the listener is broken.
    ///
    /// # Panics
    /// When there is no such listener.
    fn address(&self, listener: usize) -> io::Result<SocketAddr>;

    /// From now on reports events of the stream with `key`, below 2^63. Once per stream.
    ///
    /// # Errors
    /// When the system has no memory left, or the key is too large.
    fn watch(&mut self, stream: &mut Self::Stream, key: u64) -> io::Result<()>;
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// This listener has a connection.
    Listener(usize),
    /// A [watched](Streams::watch) stream is ready.
    Stream {
        /// Its key.
        key: u64,
        /// It has input, its input has ended, or the connection has failed.
        readable: bool,
        /// It takes output, or the connection has failed.
        writable: bool,
        /// Its input ends behind what can be read, or the connection has failed: no further event
        /// follows a read that does not reach the end.
        ended: bool,
    },
}

/// An accepted connection, nonblocking. Dropping it closes it.
pub trait Stream: io::Read + io::Write {
    /// Writes bytes as [`write`](io::Write::write) does. They are the last ones, and
    /// [`finish`](Self::finish) follows: one segment may have both.
    ///
    /// # Errors
    /// As those of writing.
    fn write_last(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    /// Ends the output: the client reads what was written before, then the end. Input can still be
    /// read.
    ///
    /// # Errors
    /// When the connection has failed.
    fn finish(&mut self) -> io::Result<()>;
}

/// Whether an error of [`accept`](Streams::accept) is that the process or the host has no
/// descriptor left: closing a connection helps.
pub fn has_no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
