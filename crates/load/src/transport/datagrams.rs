//! Datagrams of a side: received in batches, and sent in batches, which the backend groups
//! (UDP_SEGMENT).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;

use onrush_net::bind::{BoundSocket, Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket as _, Waker as _};

use super::stack::Wake;

/// Requested receive buffer in bytes. A side that does not run for a moment on a busy host would
/// otherwise lose datagrams. The kernel clamps it.
const BUFFER: usize = 16 << 20;
/// Bytes of datagrams that wait to be sent.
const BATCH: usize = 1 << 18;

/// A socket on a port of the loopback address.
pub(super) fn socket() -> io::Result<BoundSocket> {
    let buffers = Buffers { receive: BUFFER, send: 0 };
    let bound = bind_client((Ipv4Addr::LOCALHOST, 0).into(), buffers);
    bound.map(|(socket, _)| socket).map_err(io::Error::other)
}

/// Sockets, with their addresses in the same order.
pub(super) fn backend(sockets: Vec<BoundSocket>) -> io::Result<(Backend, Vec<SocketAddr>)> {
    let addresses = sockets.iter().map(BoundSocket::address).collect();
    let options = Options { coalesced: true, ..Options::default() };
    Ok((Backend::new(sockets, options)?, addresses))
}

/// Ends the backend's wait.
pub(super) fn wake(backend: &Backend) -> Wake {
    let waker = backend.waker();
    Box::new(move || waker.wake())
}

/// Datagrams that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Egress {
    bytes: Vec<u8>,
    datagrams: Vec<(Range<usize>, Return)>,
    /// Datagrams so far that the kernel refused.
    pub(super) unsent: u64,
}

impl Egress {
    /// Adds bytes to a peer, in datagrams of `segment` bytes, of which the last may be shorter.
    pub(super) fn push(&mut self, to: &Return, bytes: &[u8], segment: usize) {
        let mut start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        while start < self.bytes.len() {
            let end = self.bytes.len().min(start + segment);
            self.datagrams.push((start..end, *to));
            start = end;
        }
    }

    /// Sends everything, if that is a batch.
    pub(super) fn flush_batch(&mut self, backend: &mut Backend) {
        if self.bytes.len() > BATCH {
            self.flush(backend);
        }
    }

    /// Sends everything.
    pub(super) fn flush(&mut self, backend: &mut Backend) {
        let Self { bytes, datagrams, .. } = &*self;
        let replies =
            datagrams.iter().map(|(range, to)| Reply { bytes: &bytes[range.clone()], to });
        self.unsent += backend.send(replies).unsent;
        self.bytes.clear();
        self.datagrams.clear();
    }
}
