//! The messages between the two processes of a handoff: JSON behind its length (u32, big endian).
//! The descriptors of a handoff follow its message, section by section.

use std::io::{self, Read};
use std::net::SocketAddr;

use onrush_config::PassedKinds;
use onrush_config::reload::ShownValues;
use onrush_net::QueueId;
use onrush_store::lists::shrinkage::EntryHighWaterMark;
use onrush_store::snapshot::load::Unread;
use onrush_tracker::running::Scheme;
use serde::{Deserialize, Serialize};

/// The version of this protocol. Processes of different versions do not upgrade each other.
pub const PROTOCOL: u32 = 11;

/// Upper bound of a message, bytes.
pub(crate) const MAX_LEN: usize = 1 << 20;

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
        /// The sections whose addresses the successor serves too, and whose queues it takes.
        keeps: Vec<SectionKind>,
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
    /// The kinds of sockets that a service manager has opened, and so decides on their addresses.
    pub passed: PassedKinds,
    /// The multipliers by which the kernel steers.
    pub shard_key: [u32; 5],
    /// The addresses of its admin server: one, or none.
    pub admin: Vec<SocketAddr>,
    /// Device and inode of the control socket's file: another file may replace it during the
    /// handoff. `None` from a process without the socket, and from a build without this field.
    pub control_file: Option<(u64, u64)>,
    /// State that may have changed since it began to serve; `None` unless a handoff was requested.
    pub current: Option<InheritedState>,
}

/// The state that a successor inherits and that changes while its predecessor serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedState {
    /// Interval commitment to honour.
    pub commitment: IntervalCommitment,
    /// The snapshot that was not loaded and must not be overwritten, if so. It may be readable now.
    pub unread: Option<Box<Unread>>,
    /// The most entries of each file: a file that the successor reads may be incomplete.
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
    /// The listeners for HTTP of an address, of all web workers.
    Http(SocketAddr),
    /// Those for HTTPS.
    Https(SocketAddr),
    /// The link that holds the XDP program at the interface with this index.
    Xdp(u32),
    /// The AF_XDP socket of a queue, and the memory of its frames.
    Queue(QueueId),
    /// The lock of the state directory.
    Lock,
    /// The control socket.
    Control,
}

impl SectionKind {
    /// The listeners of an address.
    pub fn of_listeners((scheme, address): (Scheme, SocketAddr)) -> Self {
        match scheme {
            Scheme::Http => Self::Http(address),
            Scheme::Https => Self::Https(address),
        }
    }

    /// The address of listeners, with what they accept.
    pub fn listener(self) -> Option<(Scheme, SocketAddr)> {
        match self {
            Self::Http(address) => Some((Scheme::Http, address)),
            Self::Https(address) => Some((Scheme::Https, address)),
            Self::Udp(_) | Self::Xdp(_) | Self::Queue(_) | Self::Lock | Self::Control => None,
        }
    }
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
            _ => None,
        })
    }

    /// The addresses of its listeners, with what is accepted there.
    pub fn listeners(&self) -> impl Iterator<Item = (Scheme, SocketAddr)> {
        self.sections.iter().filter_map(|section| section.kind.listener())
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
    use std::path::PathBuf;

    fn handoff(admin: &[&str]) -> Handoff {
        Handoff {
            version: "0.1.0".into(),
            process: 77,
            sections: vec![
                Section { kind: SectionKind::Udp("127.0.0.1:6969".parse().unwrap()), count: 3 },
                Section { kind: SectionKind::Udp("[::1]:6969".parse().unwrap()), count: 2 },
                Section { kind: SectionKind::Http("[::1]:80".parse().unwrap()), count: 1 },
                Section { kind: SectionKind::Https("[::1]:443".parse().unwrap()), count: 4 },
                Section { kind: SectionKind::Xdp(2), count: 1 },
                Section { kind: SectionKind::Queue((2, 7)), count: 2 },
                Section { kind: SectionKind::Lock, count: 2 },
                Section { kind: SectionKind::Control, count: 1 },
            ],
            passed: PassedKinds { udp: true, http: false, https: true },
            shard_key: [1, 2, 3, 4, u32::MAX],
            admin: admin.iter().map(|address| address.parse().unwrap()).collect(),
            control_file: Some((64_769, u64::MAX)),
            current: Some(InheritedState {
                commitment: IntervalCommitment { lifetime: 7200, seconds: 3780 },
                unread: Some(Box::new(Unread {
                    path: PathBuf::new(),
                    cause: "Is a directory".into(),
                    partly: true,
                })),
                list_entries: EntryHighWaterMark {
                    kind: Some("deny".into()),
                    files: [("deny.txt".into(), 1_000_000)].into(),
                    blocks: 7,
                },
                values: [("announce.interval".into(), "1800".into())].into(),
            }),
        }
    }

    #[test]
    fn messages_arrive_as_sent_and_malformed_ones_are_errors() {
        let messages = [
            Message::Request { protocol: PROTOCOL, version: "x".into() },
            Message::Handoff(handoff(&["127.0.0.1:6970"])),
            Message::Refusal("no".into()),
            Message::Accept { keeps: vec![SectionKind::Udp("[::1]:6969".parse().unwrap())] },
            Message::Dump { peers: u64::MAX },
            Message::Release { commitment: IntervalCommitment { lifetime: 7200, seconds: 0 } },
            Message::Acquired,
        ];
        let mut bytes: Vec<u8> = messages.iter().flat_map(|it| it.encode().unwrap()).collect();
        bytes.extend_from_slice(b"\0\0\0\x03\"?\"");
        bytes.extend_from_slice(&u32::MAX.to_be_bytes());
        let mut from = bytes.as_slice();
        messages.iter().for_each(|it| assert_eq!(Message::decode(&mut from).unwrap(), *it));
        assert!(Message::decode(&mut from).is_err() && Message::decode(&mut from).is_err());
    }

    #[test]
    fn addresses_are_listed_by_kind() {
        let handoff = handoff(&[]);
        let (udp, counts): (Vec<_>, Vec<_>) = handoff.addresses().unzip();
        assert_eq!((udp.len(), counts), (2, vec![3, 2]));
        let listeners: Vec<_> = handoff.listeners().collect();
        let [http, https] = ["[::1]:80", "[::1]:443"].map(|text| text.parse().unwrap());
        assert_eq!(listeners, [(Scheme::Http, http), (Scheme::Https, https)]);
        let kinds = listeners.into_iter().map(SectionKind::of_listeners);
        assert!(kinds.eq([SectionKind::Http(http), SectionKind::Https(https)]));
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
