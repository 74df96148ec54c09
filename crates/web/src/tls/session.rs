//! The server's side of TLS on one connection. rustls has the protocol; the session moves bytes
//! between it and the stream.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::sync::Arc;

use onrush_net::stream::Stream;
use rustls::{HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection};

/// The most plaintext that is encrypted before the stream has taken it: a record (RFC 8446, section
/// 5.1).
const MAX_PLAINTEXT: usize = 16 * 1024;

/// Bytes of the head of a record: type, version, length (RFC 8446, section 5.1).
const HEAD_LEN: usize = 5;

/// Records of input that may have no data: some updates of keys, which clients seldom send.
const MAX_WITHOUT_DATA: usize = 10;

/// Bytes of complete records behind the last data that count as nothing. They may be a part of a
/// message: rustls does not tell, but so few take no more memory than its buffer has anyway.
const MAX_UNCOUNTED: usize = 512;

/// Bytes of data for which one more record may have none.
const DATA_PER_RECORD: usize = 8;

/// Updates of keys that cost as much as a handshake.
const UPDATES_PER_HANDSHAKE: usize = 20;

/// How a handshake has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeEnd {
    Full,
    /// By a ticket of an earlier one.
    Resumed,
    Failed,
}

/// TLS over a stream, which is passed to each call.
pub(crate) struct Session {
    tls: ServerConnection,
    /// Records that the stream has not taken. Output of a handshake may stay in `tls` until the
    /// next write, or until nothing is left to read.
    output: Vec<u8>,
    records: Records,
    /// Bytes received since the last plaintext, or the end of the handshake. Parts of messages that
    /// are no data are among them, which rustls keeps until they are complete.
    received: usize,
    /// Bytes that can be read from `tls`.
    plaintext: usize,
    state: State,
    /// The end of the handshake, until it is taken.
    ended: Option<HandshakeEnd>,
    /// Whether input of the open session had little data for its records: if they are updates of
    /// keys, they cost more than their bytes.
    is_costly: bool,
    /// CPU time of input that was processed, in units of one handshake, until it is taken.
    cost: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    Open,
    /// The client sends nothing more.
    Ended,
    /// By an error of TLS.
    Failed,
}

impl Session {
    pub(crate) fn new(config: &Arc<ServerConfig>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(MAX_PLAINTEXT));
        Ok(Self {
            tls,
            output: Vec::new(),
            records: Records::default(),
            received: 0,
            plaintext: 0,
            state: State::Handshaking,
            ended: None,
            is_costly: false,
            cost: 0,
        })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.state == State::Handshaking
    }

    pub(crate) fn take_handshake(&mut self) -> Option<HandshakeEnd> {
        self.ended.take()
    }

    pub(crate) fn is_costly(&self) -> bool {
        self.is_costly
    }

    pub(crate) fn take_cost(&mut self) -> usize {
        mem::take(&mut self.cost)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn buffered(&self) -> usize {
        self.output.capacity() + self.unread()
    }

    /// Bytes of input that is incomplete or was not read. A few records that are complete and have
    /// no data are none: an update of keys is no part of a request.
    pub(crate) fn unread(&self) -> usize {
        let counts = self.is_handshaking() || self.received > MAX_UNCOUNTED;
        let received = if counts { self.received } else { 0 };
        received.max(self.records.received) + self.plaintext
    }

    /// Takes the first bytes of the client.
    pub(crate) fn receive(&mut self, bytes: &[u8], stream: &mut impl Stream) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Ended {
            self.receive_from(&mut rest)?;
            self.process(stream)?;
        }
        Ok(())
    }

    /// Reads plaintext, as [`Read`] does: interrupted by costly input, so that others come to their
    /// turn.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        stream: &mut impl Stream,
    ) -> io::Result<usize> {
        loop {
            if self.plaintext > 0 {
                let read = self.tls.reader().read(buffer)?;
                self.plaintext -= read;
                return Ok(read);
            }
            match self.state {
                State::Ended | State::Failed => return Ok(0),
                State::Handshaking | State::Open => {}
            }
            match self.receive_from(stream) {
                // A reply cannot be truncated by the end of the requests: no `close_notify` is
                // needed before FIN.
                Ok(0) => self.end(State::Ended),
                Ok(_) => self.process(stream)?,
                // The client waits for what is to be sent; otherwise a reply goes with it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.flush(stream)?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
            if self.is_costly && self.plaintext == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }

    /// Reads records, or parts of them, once.
    fn receive_from(&mut self, input: &mut impl Read) -> io::Result<usize> {
        let received = self.tls.read_tls(&mut Counted { input, records: &mut self.records });
        let received = received.inspect_err(|error| {
            // A message is too long.
            if error.kind() == ErrorKind::InvalidData {
                self.end(State::Failed);
            }
        })?;
        self.received += received;
        Ok(received)
    }

    /// Ends the input.
    fn end(&mut self, state: State) {
        if self.is_handshaking() {
            self.ended = Some(HandshakeEnd::Failed);
        }
        self.state = state;
        (self.records, self.received) = (Records::default(), 0);
    }

    /// Processes what was received.
    fn process(&mut self, stream: &mut impl Stream) -> io::Result<()> {
        let was_handshaking = self.is_handshaking();
        let records = mem::take(&mut self.records.complete);
        let result = self.tls.process_new_packets();
        if was_handshaking && self.has_cost(result.is_err()) {
            self.cost += 1;
        }
        let state = result.map_err(|error| {
            self.end(State::Failed);
            // The alert, as far as it can be sent.
            let _ = self.flush(stream);
            io::Error::new(ErrorKind::InvalidData, error)
        })?;
        self.plaintext = state.plaintext_bytes_to_read();
        let has_ended = was_handshaking && !self.tls.is_handshaking();
        if has_ended {
            self.state = State::Open;
            self.ended = Some(match self.tls.handshake_kind() {
                Some(HandshakeKind::Resumed) => HandshakeEnd::Resumed,
                _ => HandshakeEnd::Full,
            });
        }
        if has_ended || self.plaintext > 0 {
            self.received = 0;
        }
        if !was_handshaking && records > MAX_WITHOUT_DATA + self.plaintext / DATA_PER_RECORD {
            self.is_costly = true;
            self.cost += 1 + records / UPDATES_PER_HANDSHAKE;
        }
        if state.peer_has_closed() {
            self.end(State::Ended);
        }
        Ok(())
    }

    /// Whether the last step of a handshake was a costly one: with a signature, even if a failure
    /// has followed it, or with the key exchange of TLS 1.2.
    fn has_cost(&self, has_failed: bool) -> bool {
        let tls = &self.tls;
        let is_tls_1_2 = tls.protocol_version() == Some(ProtocolVersion::TLSv1_2);
        let has_signed = has_failed || tls.is_handshaking() && tls.wants_write();
        tls.negotiated_cipher_suite().is_some() && (is_tls_1_2 || has_signed)
    }

    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        is_last: bool,
        stream: &mut impl Stream,
    ) -> io::Result<usize> {
        if self.is_blocked() && !self.flush(stream)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = self.tls.writer().write(bytes)?;
        if is_last && taken == bytes.len() {
            self.tls.send_close_notify();
        }
        self.flush(stream)?;
        Ok(taken)
    }

    /// Sends what waits. Whether all of it is sent.
    pub(crate) fn flush(&mut self, stream: &mut impl Stream) -> io::Result<bool> {
        while !self.output.is_empty() {
            match sent(stream.write(&self.output))? {
                Some(0) => return Ok(false),
                Some(sent) => _ = self.output.drain(..sent),
                None => {}
            }
        }
        self.output = Vec::new();
        while self.tls.wants_write() {
            if sent(self.tls.write_tls(stream))? == Some(0) {
                while self.tls.wants_write() {
                    self.tls.write_tls(&mut self.output)?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends `close_notify`, unless that was done, or an alert has ended the session.
    pub(crate) fn finish(&mut self, stream: &mut impl Stream) -> io::Result<()> {
        self.tls.send_close_notify();
        match self.flush(stream)? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// How many bytes a write has taken: 0 if the stream takes none now, `None` if it has to be
/// repeated.
fn sent(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(sent) => Ok(Some(sent)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Some(0)),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// The client's records: rustls keeps the one that is incomplete, and does not tell how long it is.
#[derive(Debug, Default)]
struct Records {
    /// Bytes of the incomplete one that were received.
    received: usize,
    /// The length of its body, as far as that was received.
    body: usize,
    /// How many have become complete since they were last processed.
    complete: usize,
}

impl Records {
    fn advance(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.received < HEAD_LEN {
                if self.received >= HEAD_LEN - size_of::<u16>() {
                    self.body = self.body << 8 | usize::from(*byte);
                }
                self.received += 1;
                bytes = rest;
            } else {
                let taken = bytes.len().min(HEAD_LEN + self.body - self.received);
                self.received += taken;
                bytes = &bytes[taken..];
            }
            if self.received >= HEAD_LEN && self.received == HEAD_LEN + self.body {
                *self = Self { complete: self.complete + 1, ..Self::default() };
            }
        }
    }
}

/// Input that is passed on to rustls.
struct Counted<'a, R> {
    input: &'a mut R,
    records: &'a mut Records,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.records.advance(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_record_counts_with_its_head() {
        let mut bytes = vec![22, 3, 1, 1, 2];
        bytes.extend([0; 258]);
        // A record without a body, and the head of another one.
        bytes.extend([23, 3, 3, 0, 0, 23, 3, 3, 0]);
        for parts in [1, 2, 7, bytes.len()] {
            let mut records = Records::default();
            for (number, part) in bytes.chunks(parts).enumerate() {
                records.advance(part);
                let received = number * parts + part.len();
                if received < 263 {
                    assert_eq!(records.received, received);
                }
            }
            assert_eq!((records.received, records.complete), (4, 2));
        }
    }
}
