//! One connection, with TLS or without.

use std::io::{self, BufRead as _, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_net::stream::Streams;
use onrush_net::stream::connect::connect;
use onrush_net::stream::mio::Backend;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

/// A connection that was begun.
pub(crate) struct Connection {
    stream: <Backend as Streams>::Stream,
    tls: Option<Box<ClientConnection>>,
    begun: Instant,
    /// Whether it is open, with its handshake.
    pub(crate) is_open: bool,
    /// The time until it was open, until that is taken.
    pub(crate) took: Option<Duration>,
    /// Requests that [`flush`](Self::flush) sends. Without TLS, `sent` bytes of them have left.
    pub(crate) out: Vec<u8>,
    sent: usize,
    /// Replies, as far as they have not been taken.
    pub(crate) input: Vec<u8>,
    /// Whether the input has ended.
    pub(crate) ended: bool,
    /// Whether it has had a reply.
    pub(crate) is_used: bool,
}

impl Connection {
    /// Begins a connection, whose events have this key.
    pub(crate) fn begin(
        backend: &mut Backend,
        key: u64,
        (source, target): (IpAddr, SocketAddr),
        tls: Option<(&Arc<ClientConfig>, &ServerName<'static>)>,
    ) -> io::Result<Self> {
        let begun = Instant::now();
        let mut stream = connect(Some(source), target)?;
        backend.watch(&mut stream, key)?;
        let client = |(config, name): (&Arc<ClientConfig>, &ServerName<'static>)| {
            let mut client = ClientConnection::new(Arc::clone(config), name.clone())?;
            // Answers wait here for a tracker that reads slowly.
            client.set_buffer_limit(None);
            Ok(Box::new(client))
        };
        Ok(Self {
            stream,
            tls: tls
                .map(client)
                .transpose()
                .map_err(|error: rustls::Error| io::Error::other(error))?,
            begun,
            is_open: false,
            took: None,
            out: Vec::new(),
            sent: 0,
            input: Vec::new(),
            ended: false,
            is_used: false,
        })
    }

    /// Sends what the kernel takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            // Before the end of the handshake they are kept, and leave with its last part.
            tls.writer().write_all(&self.out)?;
            self.out.clear();
            while tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Err(error) if is_temporary(&error) => break,
                    other => other?,
                };
            }
            if !tls.is_handshaking() {
                self.is_now_open();
            }
            return Ok(());
        }
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Err(error) if is_temporary(&error) => return Ok(()),
                other => self.sent += other?,
            }
            self.is_now_open();
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn is_now_open(&mut self) {
        if !self.is_open {
            self.is_open = true;
            self.took = Some(self.begun.elapsed());
        }
    }

    /// Receives what there is. Only with `to_end` it reads on until nothing or the end of the input
    /// is left, which takes a call more: for events that have [ended](onrush_net::stream::Ready).
    /// `space` is memory for the time of this call.
    pub(crate) fn receive(&mut self, space: &mut [u8], to_end: bool) -> io::Result<()> {
        let received = self.receive_into(space, to_end);
        match self.tls {
            // The rest of a handshake, or the alert after a failed one.
            Some(_) => self.flush().and(received),
            None => received,
        }
    }

    fn receive_into(&mut self, space: &mut [u8], to_end: bool) -> io::Result<()> {
        while !self.ended {
            let len = match self.stream.read(space) {
                Err(error) if is_temporary(&error) => break,
                other => other?,
            };
            self.ended = len == 0;
            match &mut self.tls {
                Some(tls) => self.ended |= decrypt(tls, &space[..len], &mut self.input)?,
                None => self.input.extend_from_slice(&space[..len]),
            }
            // An event follows more bytes (epoll(7)).
            if len < space.len() && !to_end {
                break;
            }
        }
        Ok(())
    }

    /// Whether the handshake of TLS has resumed a session.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }
}

/// Appends the plaintext of `bytes` to `input`. Whether it ends with them. rustls alone would read
/// from a stream by 4 KiB.
fn decrypt(tls: &mut ClientConnection, mut bytes: &[u8], input: &mut Vec<u8>) -> io::Result<bool> {
    while !bytes.is_empty() {
        if tls.read_tls(&mut bytes)? == 0 {
            return Ok(true);
        }
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        let (mut left, mut reader) = (state.plaintext_bytes_to_read(), tls.reader());
        while left > 0 {
            let chunk = reader.fill_buf()?;
            input.extend_from_slice(chunk);
            let len = chunk.len();
            reader.consume(len);
            left = left.saturating_sub(len.max(1));
        }
        // Nothing follows the alert `close_notify` (RFC 8446, section 6.1).
        if state.peer_has_closed() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Whether an error says that this host has no port, descriptor or memory left.
pub(crate) fn is_own_limit(error: &io::Error) -> bool {
    use nix::libc::{EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM};
    let own = [EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM];
    error.raw_os_error().is_some_and(|code| own.contains(&code))
}
