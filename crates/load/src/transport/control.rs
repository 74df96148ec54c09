//! The connection between the two processes: messages as lines of JSON over a pair of sockets, one
//! of which is the server's standard input.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};

use serde::{Deserialize, Serialize};

use super::signal::Swarm;
use super::stack::{StackKind, Wake};

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// To the server: listen.
    Start {
        /// The transport.
        stack: StackKind,
        /// Streams of a connection at most.
        streams: u32,
        /// The vCPU that it is pinned to.
        pin: Option<usize>,
        /// The swarm in which descriptions are exchanged; none where they are messages here.
        swarm: Option<Swarm>,
    },
    /// From the server: it listens.
    Ready {
        /// Its address.
        address: SocketAddr,
        /// Its certificate (DER); empty without TLS.
        certificate: Vec<u8>,
    },
    /// To either side: a description of the other one.
    Description {
        /// The number of the connection.
        connection: u32,
        /// The text.
        text: String,
    },
    /// From the server: a connection over WebRTC has ended, which the client would not notice.
    Ended {
        /// The number of the connection.
        connection: u32,
        /// Why.
        reason: String,
    },
    /// To the server: end.
    Finish,
    /// From the server, as its last message.
    Finished {
        /// Writes that it refused.
        refused: u64,
        /// Datagrams that the kernel refused.
        unsent: u64,
    },
}

/// One end.
#[derive(Debug)]
pub(super) struct Control {
    sender: Sender,
    reader: BufReader<UnixStream>,
}

impl Control {
    /// This end of a pair.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        Ok(Self { sender: Sender(stream.try_clone()?), reader: BufReader::new(stream) })
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// When the other process has ended, or sends something else.
    pub(super) fn receive(&mut self) -> io::Result<Message> {
        receive(&mut self.reader)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the other process has ended.
    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.sender.send(message)
    }

    /// Messages that arrive from now on, each with a call of `wake`. The end of the other process
    /// closes the channel.
    pub(super) fn background(self, wake: Wake) -> (Sender, Receiver<Message>) {
        let Self { sender, mut reader } = self;
        let (received, messages) = channel();
        std::thread::spawn(move || {
            while let Ok(message) = receive(&mut reader)
                && received.send(message).is_ok()
            {
                wake();
            }
            drop(received);
            wake();
        });
        (sender, messages)
    }
}

/// Sends messages, while a thread may receive.
#[derive(Debug)]
pub(super) struct Sender(UnixStream);

impl Sender {
    /// Sends a message.
    ///
    /// # Errors
    /// When the other process has ended.
    pub(super) fn send(&mut self, message: &Message) -> io::Result<()> {
        self.0.write_all((serde_json::to_string(message)? + "\n").as_bytes())
    }
}

fn receive(reader: &mut BufReader<UnixStream>) -> io::Result<Message> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}
