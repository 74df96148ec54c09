//! A client by WebSocket: its upgrade, its messages, and what it has got.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Instant;

use serde_json::Value;
use tungstenite::handshake::{client::generate_key, derive_accept_key};
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Error, Message};

use crate::check::{Finding, demand, failure, no_time};
use crate::message::shown;
use crate::tcp::target::{Connection, REPLY, Stream, TcpTarget, field};

/// Frames of RFC 6455, section 5.2: the final one of a text, of binary data, a ping.
pub(super) const TEXT: u8 = 0x81;
pub(super) const BINARY: u8 = 0x82;
pub(super) const PING: u8 = 0x89;
/// A text of which more follows, and the rest of it.
pub(super) const BEGIN: u8 = 0x01;
pub(super) const REST: u8 = 0x80;

/// Bytes as a string of as many characters, as ids are in messages.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// A string as JSON.
pub(super) fn json(text: &str) -> String {
    Value::from(text).to_string()
}

/// A random id of ASCII characters.
pub(super) fn random_id() -> String {
    format!("-oR0001-{:012}", rand::random_range(0..1_000_000_000_000_u64))
}

/// The bytes of a frame with the mask 0 (RFC 6455, section 5.3, allows any).
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | len as u8),
        len => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// A message of the tracker.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub(super) text: String,
    /// The same as JSON; null if it is none.
    pub(super) value: Value,
}

impl Received {
    pub(super) fn is_offer(&self) -> bool {
        self.value.get("offer").is_some()
    }

    pub(super) fn is_answer(&self) -> bool {
        self.value.get("answer").is_some()
    }

    fn is_reply(&self) -> bool {
        !self.is_offer() && !self.is_answer()
    }

    /// Seeders and leechers.
    pub(super) fn counts(&self) -> [Option<u64>; 2] {
        ["complete", "incomplete"].map(|key| self.value[key].as_u64())
    }

    /// For a report.
    pub(super) fn shown(&self) -> String {
        shown(self.text.as_bytes())
    }
}

/// How the tracker has ended the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closed {
    /// By a close frame with this code, if it has one.
    Frame(Option<u16>),
    /// Without a close frame.
    Without,
}

/// A client by WebSocket, which leaves its swarms at the end.
#[derive(Debug)]
pub(super) struct Member<'t> {
    target: &'t TcpTarget,
    socket: WebSocket<Stream>,
    /// Its peer id.
    pub(super) id: String,
    joined: Vec<String>,
    /// Messages that were read and nobody has taken.
    queue: VecDeque<Received>,
    /// Payloads of pongs.
    pub(super) pongs: Vec<Vec<u8>>,
    pub(super) closed: Option<Closed>,
}

impl<'t> Member<'t> {
    /// Connects, and checks the reply to the upgrade.
    pub(super) fn connect(target: &'t TcpTarget) -> Result<Self, Finding> {
        let (key, url) = (generate_key(), &target.url);
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n",
            url.announce, url.authority
        );
        let mut connection = target.connect()?;
        connection.send(request.as_bytes());
        let Some((head, fields)) = connection.head()? else {
            return Err(failure("the connection is closed in place of an upgrade"));
        };
        let names = |name, word: &str| {
            field(&fields, name).is_some_and(|it| it.to_ascii_lowercase().contains(word))
        };
        let accept = field(&fields, "sec-websocket-accept");
        let right = head.status == 101
            && names("upgrade", "websocket")
            && names("connection", "upgrade")
            && accept == Some(&derive_accept_key(key.as_bytes()));
        demand(right, || format!("the upgrade fails: {}", shown(fields.as_bytes())))?;
        let Connection { stream, input, .. } = connection;
        let socket = WebSocket::from_partially_read(stream, input, Role::Client, None);
        let (queue, pongs) = (VecDeque::new(), Vec::new());
        Ok(Self { target, socket, id: random_id(), joined: Vec::new(), queue, pongs, closed: None })
    }

    /// Sends bytes as they are.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        // Reading shows a connection that is broken.
        let stream = self.socket.get_mut();
        let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    }

    /// Sends a text.
    pub(super) fn send(&mut self, text: &str) {
        self.write(&frame(TEXT, text.as_bytes()));
    }

    /// The text of an announce to a swarm with these fields, which it leaves at the end.
    pub(super) fn message(&mut self, hash: &str, fields: &str) -> String {
        self.joined.push(hash.to_owned());
        let (hash, id) = (json(hash), json(&self.id));
        format!(r#"{{"action":"announce","info_hash":{hash},"peer_id":{id},{fields}}}"#)
    }

    /// Announces, and returns the reply, which may be a failure.
    pub(super) fn announce(&mut self, hash: &str, fields: &str) -> Result<Received, Finding> {
        let message = self.message(hash, fields);
        self.send(&message);
        self.reply(|reply| reply.value["info_hash"] == hash)
    }

    /// Waits for the first message that is no offer or answer and is one of these.
    pub(super) fn reply(&mut self, is: impl Fn(&Received) -> bool) -> Result<Received, Finding> {
        self.expect("reply", |message| message.is_reply() && is(message))
    }

    /// The reply to a text that is no valid message, which may be ignored: then a pong comes before
    /// it. `None` without a reply.
    pub(super) fn reply_to_bad(&mut self, text: &str) -> Option<Received> {
        self.send(text);
        self.write(&frame(PING, b"x"));
        let until = self.deadline(REPLY);
        while self.pongs.is_empty() && self.queue.is_empty() && self.read(until) {}
        let until = self.deadline(1.0);
        while self.queue.is_empty() && self.read(until) {}
        self.queue.pop_front()
    }

    /// Waits for the first of these messages.
    pub(super) fn expect(
        &mut self,
        what: &str,
        is: impl Fn(&Received) -> bool,
    ) -> Result<Received, Finding> {
        let until = self.target.budget.deadline(REPLY);
        loop {
            if let Some(at) = self.queue.iter().position(&is) {
                return Ok(self.queue.remove(at).expect("it is there"));
            }
            if !self.read(until) {
                let others: Vec<_> = self.queue.iter().map(Received::shown).collect();
                return Err(match self.target.budget.is_over() {
                    true => no_time(),
                    false => {
                        failure(format!("no {what} ({:?}): {}", self.closed, others.join(", ")))
                    }
                });
            }
        }
    }

    /// All of these messages that have come or do so within a timeout.
    pub(super) fn rest(&mut self, is: impl Fn(&Received) -> bool) -> Vec<Received> {
        let until = self.target.budget.deadline(1.0);
        while self.read(until) {}
        let (found, others) = self.queue.drain(..).partition(is);
        self.queue = others;
        Vec::from(found)
    }

    /// Waits for the tracker to end the connection; `None` if it does not.
    pub(super) fn await_end(&mut self) -> Option<Closed> {
        let until = self.target.budget.deadline(REPLY);
        while self.read(until) {}
        self.closed
    }

    /// Waits for this long, and reads what comes.
    pub(super) fn pause(&mut self, timeouts: f64) {
        let until = self.target.budget.deadline(timeouts);
        while self.read(until) {}
    }

    /// Reads once more; whether something came before `until`.
    fn read(&mut self, until: Instant) -> bool {
        while Instant::now() < until && !matches!(self.closed, Some(Closed::Without)) {
            self.socket.get_ref().read_until(until);
            match self.socket.read() {
                Ok(Message::Pong(payload)) => self.pongs.push(payload.to_vec()),
                Ok(Message::Close(close)) => {
                    let code = close.map(|close| close.code.into());
                    self.closed = Some(Closed::Frame(code));
                }
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                    let text = String::from_utf8_lossy(&message.into_data()).into_owned();
                    let value = serde_json::from_str(&text).unwrap_or_default();
                    self.queue.push_back(Received { text, value });
                }
                Ok(_) => {}
                Err(Error::Io(error)) if is_timeout(error.kind()) => continue,
                Err(_) => {
                    self.closed.get_or_insert(Closed::Without);
                    return false;
                }
            }
            return true;
        }
        false
    }

    /// The deadline of a wait of `timeouts` timeouts from now.
    pub(super) fn deadline(&self, timeouts: f64) -> Instant {
        self.target.budget.deadline(timeouts)
    }

    /// Waits for the payload of a pong.
    pub(super) fn await_pong(&mut self) -> Option<Vec<u8>> {
        let until = self.target.budget.deadline(REPLY);
        while self.pongs.is_empty() && self.read(until) {}
        self.pongs.pop()
    }

    /// Whether the tracker ends TCP in time.
    pub(super) fn has_ended(&mut self) -> bool {
        let until = self.target.budget.deadline(REPLY);
        let stream = self.socket.get_mut();
        while Instant::now() < until {
            stream.read_until(until);
            match stream.read(&mut [0; 64]) {
                Ok(1..) => {}
                Err(error) if is_timeout(error.kind()) => {}
                _ => return true,
            }
        }
        false
    }

    /// Ends the connection without a close frame.
    pub(super) fn end(&self) {
        let _ = self.socket.get_ref().tcp().shutdown(Shutdown::Both);
    }

    /// Begins the end of the connection, and returns how the tracker answers.
    pub(super) fn close(&mut self) -> Option<Closed> {
        let _ = self.socket.close(None);
        let _ = self.socket.flush();
        self.await_end()
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Drop for Member<'_> {
    /// Leaves the swarms. Those that it does not leave it leaves with its connection.
    fn drop(&mut self) {
        self.joined.sort_unstable();
        self.joined.dedup();
        for hash in std::mem::take(&mut self.joined) {
            if self.closed.is_some() {
                return;
            }
            let stop = self.message(&hash, r#""event":"stopped","left":0"#);
            self.send(&stop);
            let until = self.target.budget.deadline(1.0);
            let is_reply = |it: &Received| it.is_reply() && it.value["info_hash"] == hash.as_str();
            self.queue.clear();
            while !self.queue.iter().any(is_reply) && self.read(until) {}
        }
    }
}
