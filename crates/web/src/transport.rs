//! The stream of a connection, with TLS over it or without.

use std::io::{self, Read};
use std::sync::Arc;

use onrush_net::stream::Stream;
use rustls::ServerConfig;

use crate::tls::session::{HandshakeEnd, Session};

/// A stream, over which TLS may begin.
pub(crate) struct Transport<S> {
    pub(crate) stream: S,
    session: Option<Box<Session>>,
}

impl<S: Stream> Transport<S> {
    /// A stream without TLS.
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, session: None }
    }

    /// Begins TLS; the client's side of it begins with `received`, which was read before.
    ///
    /// # Errors
    /// As those of reading.
    pub(crate) fn start_tls(
        &mut self,
        config: &Arc<ServerConfig>,
        received: &[u8],
    ) -> io::Result<()> {
        let session = self.session.insert(Box::new(Session::new(config)?));
        session.receive(received, &mut self.stream)
    }

    /// Whether a TLS handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// The end of a TLS handshake, once.
    pub(crate) fn take_handshake(&mut self) -> Option<HandshakeEnd> {
        self.session.as_mut()?.take_handshake()
    }

    /// Whether input may cost more than its bytes.
    pub(crate) fn is_costly(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_costly())
    }

    /// CPU time of input since the last call, in units of one handshake.
    pub(crate) fn take_cost(&mut self) -> usize {
        self.session.as_mut().map_or(0, |session| session.take_cost())
    }

    /// Bytes of TLS records that are incomplete or not sent, and of input that was not read.
    pub(crate) fn buffered(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.buffered())
    }

    /// Bytes of received TLS records that are incomplete, and of input that was not read.
    pub(crate) fn unread(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.unread())
    }

    /// Whether output of TLS waits until the stream takes it.
    pub(crate) fn is_blocked(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_blocked())
    }

    /// Writes bytes, as [`io::Write`] does. If they are the last ones, TLS ends with them.
    pub(crate) fn write(&mut self, bytes: &[u8], is_last: bool) -> io::Result<usize> {
        match &mut self.session {
            None if is_last => self.stream.write_last(bytes),
            None => self.stream.write(bytes),
            Some(session) => session.write(bytes, is_last, &mut self.stream),
        }
    }

    /// Sends what waits in TLS. Whether all of it is sent.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.session {
            None => Ok(true),
            Some(session) => session.flush(&mut self.stream),
        }
    }

    /// Ends TLS by `close_notify`, as far as the stream takes it, unless that was done.
    pub(crate) fn end_tls(&mut self) {
        if let Some(session) = &mut self.session {
            let _ = session.finish(&mut self.stream);
        }
    }

    /// Ends the output: by `close_notify` where there is TLS (RFC 8446, section 6.1), and by FIN.
    ///
    /// # Errors
    /// `WouldBlock` if the stream does not take the former; otherwise when the connection has
    /// failed.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            session.finish(&mut self.stream)?;
        }
        self.stream.finish()
    }
}

impl<S: Stream> Read for Transport<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(buffer),
            Some(session) => session.read(buffer, &mut self.stream),
        }
    }
}
