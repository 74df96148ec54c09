//! The messages between the two processes of a handoff: JSON behind its length (u32, big endian),
//! on a Unix socket. The descriptors of a handoff follow its message, section by section.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use onrush_config::reload::ShownValues;
use onrush_net::descriptors;
use onrush_store::lists::EntryHighWaterMark;
use onrush_store::snapshot::load::Unread;
use serde::{Deserialize, Serialize};

/// The version of this protocol. Processes of different versions do not upgrade each other.
pub const PROTOCOL: u32 = 7;

/// Bytes of a write at most, for which the kernel waits once: a timeout applies to each wait.
const MAX_WRITE: usize = 16 << 10;

/// Upper bound of a message, bytes.
const MAX_LEN: usize = 1 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Successor: describe the handoff without starting it.
    Inspect,
    /// Successor: start a handoff.
    Request {
        /// Its protocol version.
        protocol: u32,
        /// Its build.
        version: String,
    },
    /// Predecessor: the handoff. After a [`Request`](Self::Request), descriptors follow.
    Handoff(Handoff),
    /// Predecessor: no handoff, and why.
    Refusal(String),
    /// Successor: send the peers.
    Accept {
        /// For each address of the handoff whether the successor serves it too.
        keeps: Vec<bool>,
    },
    /// Predecessor: the peers follow, as a snapshot.
    Dump {
        /// How many peers it stores, and no more than its `limits.peers`. The snapshot may have
        /// more: some are replaced or stop while the others are sent.
        peers: u64,
    },
    /// Successor: the peers are loaded, and it could serve at once.
    Ready,
    /// Predecessor: it has stopped receiving.
    Release {
        /// Interval commitment to honour.
        commitment: IntervalCommitment,
    },
    /// Successor: it serves from now on.
    Acquired,
}

/// The description of all that a handoff contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Its build.
    pub version: String,
    /// Its process id.
    pub process: u32,
    /// The descriptors that follow.
    pub sections: Vec<Section>,
    /// Whether a service manager has opened the sockets, and so decides on the addresses.
    pub passed: bool,
    /// The multipliers by which the kernel steers.
    pub shard_key: [u32; 5],
    /// The addresses of its admin server: one, or none.
    pub admin: Vec<SocketAddr>,
    /// State that may have changed since it began to serve; `None` unless a handoff was requested.
    pub current: Option<Current>,
}

/// The part of a handoff that changes while a process serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Interval commitment to honour.
    pub commitment: IntervalCommitment,
    /// The snapshot that was not loaded and must not be overwritten, if so. It may be readable now.
    pub unread: Option<Box<Unread>>,
    /// The most entries of each list: a file that the successor reads may be incomplete.
    pub list_entries: EntryHighWaterMark,
    /// Its configuration, for the log of the successor.
    #[serde(default)]
    pub values: ShownValues,
}

/// Descriptors of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Their kind.
    pub kind: SectionKind,
    /// How many there are.
    pub count: usize,
}

/// The kind of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SectionKind {
    /// The UDP sockets of an address, in the order of their group.
    Udp(SocketAddr),
    /// The lock of the state directory.
    Lock,
    /// The control socket.
    Control,
}

/// Clients were sent a longer interval: until they have announced again, their peers must not
/// expire. A successor and a restarted tracker keep the commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalCommitment {
    /// Lower bound of the peer lifetime, seconds.
    pub lifetime: u32,
    /// Seconds from now until the last of these clients is due.
    pub seconds: u32,
}

impl IntervalCommitment {
    /// The commitment that includes both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            lifetime: self.lifetime.max(other.lifetime),
            seconds: self.seconds.max(other.seconds),
        }
    }
}

impl Handoff {
    /// The UDP addresses that it serves, and the number of sockets of each.
    pub fn addresses(&self) -> impl Iterator<Item = (SocketAddr, usize)> {
        self.sections.iter().filter_map(|section| match section.kind {
            SectionKind::Udp(address) => Some((address, section.count)),
            SectionKind::Lock | SectionKind::Control => None,
        })
    }

    /// Whether the predecessor's admin server may occupy `address`, so that the address is free
    /// once it has exited.
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

/// Sends the descriptors of all sections, in their order.
///
/// # Errors
/// When the peer has closed the connection, or the write timeout of the stream expires.
pub fn send_descriptors<'a>(
    stream: &UnixStream,
    sections: impl Iterator<Item = &'a Vec<OwnedFd>>,
) -> io::Result<()> {
    let all: Vec<BorrowedFd<'_>> = sections.flatten().map(AsFd::as_fd).collect();
    all.chunks(descriptors::MAX_DESCRIPTORS).try_for_each(|chunk| descriptors::send(stream, chunk))
}

/// Receives the descriptors of these sections.
///
/// # Errors
/// When the peer has closed the connection or sends too few, or this process may not open as many.
pub fn receive_descriptors(
    stream: &UnixStream,
    sections: &[Section],
) -> io::Result<Vec<(SectionKind, Vec<OwnedFd>)>> {
    let wanted = sections.iter().map(|section| section.count).sum();
    let mut all = Vec::new();
    while all.len() < wanted {
        let descriptors = descriptors::receive(stream)?;
        if descriptors.is_empty() {
            return Err(io::Error::other("fewer descriptors arrived than the handoff names"));
        }
        all.extend(descriptors);
    }
    let mut all = all.into_iter();
    let take = |section: &Section| (section.kind, all.by_ref().take(section.count).collect());
    Ok(sections.iter().map(take).collect())
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
mod tests {
    use super::*;
    use std::fs::File;
    use std::iter::repeat;
    use std::net::Shutdown;
    use std::path::PathBuf;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    /// A message that takes longer is not cut off.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn handoff(admin: &[&str]) -> Handoff {
        Handoff {
            version: "0.1.0".into(),
            process: 77,
            sections: vec![
                Section { kind: SectionKind::Udp("127.0.0.1:6969".parse().unwrap()), count: 3 },
                Section { kind: SectionKind::Udp("[::1]:6969".parse().unwrap()), count: 2 },
                Section { kind: SectionKind::Lock, count: 2 },
                Section { kind: SectionKind::Control, count: 1 },
            ],
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
                list_entries: EntryHighWaterMark {
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
    fn descriptors_arrive_in_their_sections() {
        let (here, there) = UnixStream::pair().unwrap();
        let open = |count: usize| -> Vec<OwnedFd> {
            (0..count).map(|_| OwnedFd::from(File::open("/dev/null").unwrap())).collect()
        };
        // More than fit into one message.
        let counts = [200, 0, 1, 100];
        let sent = counts.map(open);
        send_descriptors(&here, sent.iter()).unwrap();
        let section = |count| Section { kind: SectionKind::Lock, count };
        let received = receive_descriptors(&there, &counts.map(section)).unwrap();
        assert_eq!(received.iter().map(|(_, of)| of.len()).collect::<Vec<_>>(), counts);
        drop(here);
        assert!(receive_descriptors(&there, &[section(1)]).is_err());
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
