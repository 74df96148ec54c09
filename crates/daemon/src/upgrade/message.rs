//! The messages between the two processes of an upgrade: JSON behind its length (u32, big endian),
//! on a Unix socket.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use onrush_config::reload::ShownValues;
use onrush_store::lists::MostEntries;
use onrush_store::snapshot::load::Unread;
use serde::{Deserialize, Serialize};

use crate::overload::IntervalCommitment;

/// The version of this protocol. Processes of different versions do not upgrade each other.
pub const PROTOCOL: u32 = 6;

/// Bytes of a write at most, for which the kernel waits once: a timeout applies to each wait.
const MAX_WRITE: usize = 16 << 10;

/// Upper bound of a message, bytes.
const MAX_LEN: usize = 1 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Incoming: describe the handoff without starting it.
    Inspect,
    /// Incoming: start a handoff.
    Request {
        /// Its protocol version.
        protocol: u32,
        /// Its build.
        version: String,
    },
    /// Outgoing: the handoff. After a [`Request`](Self::Request), descriptors follow.
    Handoff(Handoff),
    /// Outgoing: no handoff, and why.
    Refusal(String),
    /// Incoming: send the peers.
    Accept {
        /// For each address of the handoff whether the new process serves it too.
        keeps: Vec<bool>,
    },
    /// Outgoing: the peers follow, as a snapshot.
    Dump {
        /// How many peers it stores, and no more than its `limits.peers`. The snapshot may have
        /// more: some are replaced or stop while the others are sent.
        peers: u64,
    },
    /// Incoming: the peers are loaded, and it could serve at once.
    Ready,
    /// Outgoing: it has stopped receiving.
    Release {
        /// What the new process has to keep of intervals sent.
        commitment: IntervalCommitment,
    },
    /// Incoming: it serves from now on.
    Acquired,
}

/// What the outgoing process hands over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Its build.
    pub version: String,
    /// Its process id.
    pub process: u32,
    /// The addresses that it serves.
    pub addresses: Vec<SocketAddr>,
    /// The number of sockets of each address. Their descriptors follow, address by address, in the
    /// order of their group.
    pub sockets: Vec<usize>,
    /// Whether a service manager has opened the sockets, and so decides on the addresses.
    pub passed: bool,
    /// The multipliers by which the kernel steers.
    pub shard_key: [u32; 5],
    /// The addresses of its admin server: one, or none.
    pub admin: Vec<SocketAddr>,
    /// What may have changed since it began to serve; `None` unless a handoff was requested.
    pub current: Option<Current>,
}

/// The part of a handoff that changes while a process serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// What the new process has to keep of intervals sent so far.
    pub commitment: IntervalCommitment,
    /// The snapshot that was not loaded and must not be overwritten, if so. It may be readable now.
    pub unread: Option<Box<Unread>>,
    /// The most entries of each list: a file that the new process reads may be incomplete.
    pub list_entries: MostEntries,
    /// Its configuration, for the log of the new process.
    #[serde(default)]
    pub values: ShownValues,
}

impl Handoff {
    /// Whether the outgoing process's admin server may occupy `address`, so that the address is
    /// free once it has exited.
    pub fn may_hold_admin(&self, address: SocketAddr) -> bool {
        self.admin.iter().any(|other| {
            let (one, other_ip) = (address.ip().to_canonical(), other.ip().to_canonical());
            let any = one.is_unspecified() || other_ip.is_unspecified();
            other.port() == address.port() && (any || one == other_ip)
        })
    }
}

impl Message {
    /// Its bytes on the stream.
    ///
    /// # Errors
    /// When it has no JSON form, which no message lacks.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&text);
        Ok(bytes)
    }

    /// Reads the next message, and not a byte beyond it.
    ///
    /// # Errors
    /// When the bytes cannot be read, or are not a message.
    pub fn decode(mut from: impl Read) -> io::Result<Self> {
        let len = u32::from_be_bytes(read_array(&mut from)?) as usize;
        if len > MAX_LEN {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
        }
        let mut text = vec![0; len];
        from.read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Sends a message.
///
/// # Errors
/// When the peer has closed the connection, or the write timeout of the stream expires.
pub fn send(mut stream: &UnixStream, message: &Message) -> io::Result<()> {
    stream.write_all(&message.encode()?)
}

/// Receives the next message, within `limit` as a whole: a peer that sends byte by byte cannot
/// prolong it.
///
/// # Errors
/// When the peer has closed the connection or is too slow, or the message is malformed.
pub fn receive(stream: &UnixStream, limit: Duration) -> io::Result<Message> {
    let timeout = stream.read_timeout()?;
    let message = Message::decode(UntilDeadline::new(stream, limit));
    stream.set_read_timeout(timeout)?;
    message
}

/// Reads or writes a stream until a deadline, and changes its timeouts. A timeout of the stream
/// alone would begin anew with every byte that arrives or leaves.
pub struct UntilDeadline<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl<'a> UntilDeadline<'a> {
    /// For `limit` from now on.
    pub fn new(stream: &'a UnixStream, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    /// The time that is left, but not more than a timeout.
    fn left(&self, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(too_slow());
        }
        Ok(Some(timeout.map_or(left, |timeout| left.min(timeout))))
    }
}

impl Read for UntilDeadline<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left(None)?)?;
        self.stream.read(bytes).map_err(timed_out)
    }
}

impl Write for UntilDeadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left(self.stream.write_timeout()?)?)?;
        self.stream.write(&bytes[..bytes.len().min(MAX_WRITE)]).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other process is too slow")
}

/// The kernel reports the timeout of a blocking socket as that of one that does not block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { too_slow() } else { error }
}

/// Reads an array of bytes.
///
/// # Errors
/// When the stream ends before it is complete, or cannot be read.
pub fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The error of a message out of order.
pub fn unexpected(message: &Message) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected message {message:?}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::iter::repeat;
    use std::net::Shutdown;
    use std::path::PathBuf;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    /// A message that takes longer is not cut off.
    const DEADLINE: Duration = Duration::from_secs(60);

    pub(crate) fn handoff(admin: &[&str]) -> Handoff {
        Handoff {
            version: "0.1.0".into(),
            process: 77,
            addresses: vec!["127.0.0.1:6969".parse().unwrap(), "[::1]:6969".parse().unwrap()],
            sockets: vec![3, 2],
            passed: true,
            shard_key: [1, 2, 3, 4, u32::MAX],
            admin: admin.iter().map(|address| address.parse().unwrap()).collect(),
            current: Some(Current {
                commitment: IntervalCommitment { lifetime: 7200, seconds: 3780 },
                unread: Some(Box::new(Unread {
                    path: PathBuf::new(),
                    cause: "Is a directory".into(),
                    partly: true,
                })),
                list_entries: MostEntries {
                    kind: Some("deny".into()),
                    info_hashes: 1_000_000,
                    blocks: 7,
                },
                values: [("announce.interval".into(), "1800".into())].into(),
            }),
        }
    }

    #[test]
    fn messages_arrive_as_sent_and_malformed_ones_are_errors() {
        let (here, there) = UnixStream::pair().unwrap();
        let messages = [
            Message::Request { protocol: PROTOCOL, version: "x".into() },
            Message::Handoff(handoff(&["127.0.0.1:6970"])),
            Message::Refusal("no".into()),
            Message::Accept { keeps: vec![true, false] },
            Message::Dump { peers: u64::MAX },
            Message::Release { commitment: IntervalCommitment { lifetime: 7200, seconds: 0 } },
            Message::Acquired,
        ];
        messages.iter().for_each(|message| send(&here, message).unwrap());
        (&here).write_all(b"\0\0\0\x03").and_then(|()| (&here).write_all(b"\"?\"")).unwrap();
        (&here).write_all(&u32::MAX.to_be_bytes()).unwrap();
        let receive = || receive(&there, DEADLINE);
        messages.iter().for_each(|message| assert_eq!(receive().unwrap(), *message));
        assert!(receive().is_err() && receive().is_err());
    }

    #[test]
    fn a_message_that_arrives_byte_by_byte_is_cut_off() {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (over, ended) = channel::<()>();
        thread::scope(|scope| {
            // Every byte arrives before a timeout per read expires.
            scope.spawn(move || {
                let mut bytes = (MAX_LEN as u32).to_be_bytes().into_iter().chain(repeat(b' '));
                while ended.recv_timeout(Duration::from_millis(10))
                    == Err(RecvTimeoutError::Timeout)
                {
                    (&here).write_all(&[bytes.next().unwrap()]).unwrap();
                }
            });
            let began = Instant::now();
            let cut_off = receive(&there, Duration::from_millis(200)).unwrap_err();
            assert_eq!(cut_off.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
            drop(over);
        });
        assert_eq!(there.read_timeout().unwrap(), Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_reader_that_reads_slowly_is_cut_off() {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let (over, ended) = channel::<()>();
        thread::scope(|scope| {
            // A part is read before a timeout per write expires.
            scope.spawn(move || {
                while ended.recv_timeout(Duration::from_millis(10))
                    == Err(RecvTimeoutError::Timeout)
                {
                    let _some = (&there).read(&mut [0; 4_096]).unwrap();
                }
            });
            let (began, bytes) = (Instant::now(), [0; 64 << 10]);
            let mut to = UntilDeadline::new(&here, Duration::from_millis(200));
            let mut written = Ok(());
            while written.is_ok() && began.elapsed() < DEADLINE {
                written = to.write_all(&bytes);
            }
            // Otherwise a reader that has read everything waits for more.
            here.shutdown(Shutdown::Both).unwrap();
            drop(over);
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn an_admin_address_is_occupied_by_itself_or_a_wildcard_of_its_port() {
        for (admin, address, may) in [
            (&["127.0.0.1:6970"][..], "127.0.0.1:6970", true),
            (&["127.0.0.1:6970"], "127.0.0.1:6971", false),
            (&["127.0.0.1:6970"], "127.0.0.2:6970", false),
            (&["127.0.0.1:6970"], "0.0.0.0:6970", true),
            (&["[::]:6970"], "127.0.0.1:6970", true),
            (&["[::ffff:127.0.0.1]:6970"], "127.0.0.1:6970", true),
            (&[], "127.0.0.1:6970", false),
        ] {
            let held = handoff(admin).may_hold_admin(address.parse().unwrap());
            assert_eq!(held, may, "{admin:?} {address}");
        }
    }
}
