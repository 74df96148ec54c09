//! Requests and responses byte by byte, as specified in BEP 15. Independent of the product's
//! parsers and encoders, so that a mistake there cannot cancel out here.

use std::net::{IpAddr, SocketAddr};

use onrush_proto::{Family, InfoHash, ScrapeCounts};

/// The magic number of a connect, at the place of the connection id (BEP 15, "Connect").
pub(crate) const MAGIC: u64 = 0x0417_2710_1980;

/// The events of BEP 15, "Announce", and libtorrent's fourth.
pub(crate) const COMPLETED: u32 = 1;
/// See [`COMPLETED`].
pub(crate) const STARTED: u32 = 2;
/// See [`COMPLETED`].
pub(crate) const STOPPED: u32 = 3;
/// See [`COMPLETED`].
pub(crate) const PAUSED: u32 = 4;

/// An info hash, unique for each number.
pub(crate) fn hash(number: u32) -> InfoHash {
    let mut hash = [0xA5; 20];
    // Spread over the bytes like real hashes.
    let mixed = u64::from(number).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash[..8].copy_from_slice(&mixed.to_be_bytes());
    hash[16..].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}

/// A random info hash.
pub(crate) fn random_hash() -> InfoHash {
    InfoHash(rand::random())
}

/// A connect request of exactly 16 bytes.
pub(crate) fn connect(transaction: u32) -> Vec<u8> {
    head(MAGIC, 0, transaction)
}

/// A scrape request.
pub(crate) fn scrape(id: u64, transaction: u32, hashes: &[InfoHash]) -> Vec<u8> {
    let mut bytes = head(id, 2, transaction);
    bytes.extend(hashes.iter().flat_map(|hash| hash.0));
    bytes
}

/// The 16 bytes at the start of every request.
pub(crate) fn head(id: u64, action: u32, transaction: u32) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(action.to_be_bytes());
    bytes.extend(transaction.to_be_bytes());
    bytes
}

/// An announce request.
#[derive(Clone, Debug)]
pub(crate) struct Announce {
    pub(crate) info_hash: InfoHash,
    pub(crate) peer_id: [u8; 20],
    pub(crate) downloaded: u64,
    pub(crate) left: u64,
    pub(crate) uploaded: u64,
    pub(crate) event: u32,
    pub(crate) ip: u32,
    pub(crate) key: u32,
    pub(crate) num_want: i32,
    pub(crate) port: u16,
    /// Bytes after the first 98.
    pub(crate) tail: Vec<u8>,
}

/// A leecher at `port` that leaves the number of peers to the tracker.
pub(crate) fn leecher(info_hash: InfoHash, port: u16) -> Announce {
    Announce {
        info_hash,
        peer_id: *b"-ON0001-abcdefghijkl",
        downloaded: 1 << 40,
        left: 12_345,
        uploaded: 99,
        event: 0,
        ip: 0,
        key: 0xC0FF_EE00,
        num_want: -1,
        port,
        tail: Vec::new(),
    }
}

/// A seeder at `port`.
pub(crate) fn seeder(info_hash: InfoHash, port: u16) -> Announce {
    Announce { left: 0, ..leecher(info_hash, port) }
}

impl Announce {
    /// Sets the event.
    pub(crate) fn event(self, event: u32) -> Self {
        Self { event, ..self }
    }

    /// Sets the number of requested peers.
    pub(crate) fn want(self, num_want: i32) -> Self {
        Self { num_want, ..self }
    }

    /// The datagram (BEP 15, "Announce").
    pub(crate) fn bytes(&self, id: u64, transaction: u32) -> Vec<u8> {
        let mut bytes = head(id, 1, transaction);
        bytes.extend(self.info_hash.0); // 16
        bytes.extend(self.peer_id); // 36
        bytes.extend(self.downloaded.to_be_bytes()); // 56
        bytes.extend(self.left.to_be_bytes()); // 64
        bytes.extend(self.uploaded.to_be_bytes()); // 72
        bytes.extend(self.event.to_be_bytes()); // 80
        bytes.extend(self.ip.to_be_bytes()); // 84
        bytes.extend(self.key.to_be_bytes()); // 88
        bytes.extend(self.num_want.to_be_bytes()); // 92
        bytes.extend(self.port.to_be_bytes()); // 96
        assert_eq!(bytes.len(), 98);
        bytes.extend(&self.tail);
        bytes
    }
}

/// An announce reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AnnounceReply {
    pub(crate) interval: u32,
    pub(crate) leechers: u32,
    pub(crate) seeders: u32,
    pub(crate) peers: Vec<SocketAddr>,
    /// Length of the datagram in bytes.
    pub(crate) len: usize,
}

impl AnnounceReply {
    /// Parses an announce reply of this family. Panics on any other datagram.
    pub(crate) fn read(reply: &[u8], family: Family) -> Self {
        assert_eq!(u32_at(reply, 0), 1, "an announce response: {}", display(reply));
        let width = match family {
            Family::V4 => 6,
            Family::V6 => 18,
        };
        let list = &reply[20..];
        assert_eq!(list.len() % width, 0, "{} bytes of whole peers", list.len());
        Self {
            interval: u32_at(reply, 8),
            leechers: u32_at(reply, 12),
            seeders: u32_at(reply, 16),
            peers: list.chunks(width).map(peer).collect(),
            len: reply.len(),
        }
    }

    /// The ports of the peers in ascending order.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.peers.iter().map(SocketAddr::port).collect();
        ports.sort_unstable();
        ports
    }

    /// Numbers of seeders and leechers.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.seeders, self.leechers)
    }
}

/// The entries of a scrape reply. Panics on any other datagram.
pub(crate) fn counts(reply: &[u8]) -> Vec<ScrapeCounts> {
    assert_eq!(u32_at(reply, 0), 2, "a scrape response: {}", display(reply));
    assert_eq!((reply.len() - 8) % 12, 0, "{} bytes of whole entries", reply.len() - 8);
    let entry = |at: &[u8]| ScrapeCounts {
        seeders: u32_at(at, 0),
        completed: u32_at(at, 4),
        leechers: u32_at(at, 8),
    };
    reply[8..].chunks(12).map(entry).collect()
}

/// The text of an error reply. Panics on any other datagram.
pub(crate) fn error_text(reply: &[u8]) -> String {
    assert_eq!(u32_at(reply, 0), 3, "an error response: {}", display(reply));
    String::from_utf8(reply[8..].to_vec()).expect("an error text in UTF-8")
}

/// The big-endian `u32` at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The big-endian `u64` at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn peer(bytes: &[u8]) -> SocketAddr {
    let (ip, port) = bytes.split_at(bytes.len() - 2);
    let ip: IpAddr = match ip.try_into() {
        Ok(v4) => <[u8; 4]>::into(v4),
        Err(_) => <[u8; 16]>::try_from(ip).expect("an address of either family").into(),
    };
    SocketAddr::new(ip, u16::from_be_bytes(port.try_into().expect("two bytes")))
}

/// A reply for assertion messages.
fn display(reply: &[u8]) -> String {
    format!("{reply:02x?} ({})", String::from_utf8_lossy(reply))
}
