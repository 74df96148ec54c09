//! What a transport does for a side: one thread's connections, each with many streams.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

/// A transport.
#[derive(AsRefStr, ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum StackKind {
    /// TCP, with streams as frames.
    Tcp,
    /// TLS 1.3 over TCP, with streams as frames.
    Tls,
    /// QUIC with bidirectional streams.
    Quic,
    /// WebRTC with data channels.
    Webrtc,
}

/// Ends a side's wait, from another thread.
pub(crate) type Wake = Box<dyn Fn() + Send>;

/// A side's connections. Connections have numbers: the client chooses them, the server counts
/// those that it accepts. A stream opens when it is first written to. Nothing blocks but `wait`.
pub(crate) trait Stack {
    /// A handle that ends `wait`, also the next one.
    fn wake(&self) -> io::Result<Wake>;

    /// Waits for input or room, or until `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Receives a part of what has arrived, so that neither writing nor acknowledgements wait for
    /// long, and does what is due by the timers of connections. Where there is more, the next wait
    /// does not block.
    fn receive(&mut self, now: Instant, arrivals: &mut Arrivals) -> io::Result<()>;

    /// Begins to establish a connection from the client.
    fn connect(&mut self, connection: u32, now: Instant) -> io::Result<()>;

    /// Writes all bytes to a stream, or none: `false` where there is no room, or no connection.
    fn send(&mut self, connection: u32, stream: u32, bytes: &[u8]) -> bool;

    /// Hands what was written to the kernel.
    fn flush(&mut self, now: Instant) -> io::Result<()>;

    /// When `receive` is due without input.
    fn timeout(&self) -> Option<Instant>;

    /// Descriptions of connections for the other side, which have to be passed on: with WebRTC it
    /// is not possible to connect to an address.
    fn descriptions(&mut self) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// Takes a description of the other side.
    fn describe(&mut self, connection: u32, text: &str, now: Instant) -> Result<(), String> {
        let _ = (text, now);
        Err(format!("a description of connection {connection} without WebRTC"))
    }

    /// Datagrams so far that the kernel refused to send.
    fn unsent(&self) -> u64 {
        0
    }
}

/// The wait until `at`, in whole milliseconds as epoll counts them, so that all transports wake as
/// often; `idle` at most.
pub(crate) fn wait_until(at: Option<Instant>, now: Instant, idle: Duration) -> Duration {
    let exact = at.map_or(idle, |at| at.saturating_duration_since(now).min(idle));
    Duration::from_millis(exact.as_nanos().div_ceil(1_000_000) as u64)
}

/// What a side has received in one turn.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Connections that are established.
    pub(crate) opened: Vec<u32>,
    /// Connections that have ended, with the reason.
    pub(crate) closed: Vec<(u32, String)>,
    bytes: Vec<u8>,
    chunks: Vec<(u32, u32, Range<usize>)>,
}

impl Arrivals {
    /// Adds bytes of a stream.
    pub(crate) fn push(&mut self, connection: u32, stream: u32, bytes: &[u8]) {
        self.push_with(connection, stream, bytes.len(), |space| space.copy_from_slice(bytes));
    }

    /// Adds `length` bytes of a stream, which `write` writes.
    pub(crate) fn push_with(
        &mut self,
        connection: u32,
        stream: u32,
        length: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        write(&mut self.bytes[start..]);
        self.chunks.push((connection, stream, start..start + length));
    }

    /// Connection, stream and bytes, in the order of arrival.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u32, u32, &[u8])> {
        self.chunks
            .iter()
            .map(|(connection, stream, range)| (*connection, *stream, &self.bytes[range.clone()]))
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.opened.clear();
        self.closed.clear();
        self.chunks.clear();
        self.bytes.clear();
    }
}
