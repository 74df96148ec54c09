//! Requests and responses, by the encoders and parsers of `onrush-proto`. Those are tested against
//! datagrams of real clients in its own tests, and byte by byte in `protocol`.

use std::net::SocketAddr;

use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_proto::{
    Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, Scrape, ScrapeCounts,
    TransactionId, announce, connect as wire,
};

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
    let mut bytes = [0; wire::REQUEST_LEN];
    Connect { transaction_id: TransactionId(transaction) }.write(&mut bytes);
    bytes.to_vec()
}

/// A scrape request.
pub(crate) fn scrape(id: u64, transaction: u32, hashes: &[InfoHash]) -> Vec<u8> {
    let mut bytes = vec![0; REQUEST_HEAD_LEN + HASH_LEN * hashes.len()];
    Scrape::write(ConnectionId(id), TransactionId(transaction), hashes, &mut bytes);
    bytes
}

/// An announce request.
#[derive(Clone, Debug)]
pub(crate) struct Announce(onrush_proto::Announce<'static>);

/// A leecher at `port` that leaves the number of peers to the tracker.
pub(crate) fn leecher(info_hash: InfoHash, port: u16) -> Announce {
    Announce(onrush_proto::Announce {
        info_hash,
        peer_id: PeerId(*b"-ON0001-abcdefghijkl"),
        downloaded: 1 << 40,
        left: 12_345,
        uploaded: 99,
        key: 0xC0FF_EE00,
        num_want: -1,
        port,
        ..onrush_proto::Announce::default()
    })
}

/// A seeder at `port`.
pub(crate) fn seeder(info_hash: InfoHash, port: u16) -> Announce {
    let mut seeder = leecher(info_hash, port);
    seeder.0.left = 0;
    seeder
}

impl Announce {
    /// Sets the event.
    pub(crate) fn event(mut self, event: Event) -> Self {
        self.0.event = event;
        self
    }

    /// Sets the number of requested peers.
    pub(crate) fn want(mut self, num_want: i32) -> Self {
        self.0.num_want = num_want;
        self
    }

    /// The datagram (BEP 15, "Announce").
    pub(crate) fn bytes(&self, id: u64, transaction: u32) -> Vec<u8> {
        let (connection_id, transaction_id) = (ConnectionId(id), TransactionId(transaction));
        let mut bytes = vec![0; announce::REQUEST_LEN];
        onrush_proto::Announce { connection_id, transaction_id, ..self.0 }.write(&mut bytes);
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
}

impl AnnounceReply {
    /// Parses an announce reply of this family. Panics on any other datagram.
    pub(crate) fn read(reply: &[u8], family: Family) -> Self {
        let Ok(Response::Announce(head, peers)) = Response::parse(reply, family) else {
            panic!("an announce response: {}", display(reply))
        };
        Self {
            interval: head.interval,
            leechers: head.leechers,
            seeders: head.seeders,
            peers: peers.iter().map(|peer| (peer.ip(), peer.port()).into()).collect(),
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
    match Response::parse(reply, Family::V4) {
        Ok(Response::Scrape(_, counts)) => counts.iter().collect(),
        _ => panic!("a scrape response: {}", display(reply)),
    }
}

/// The text of an error reply. Panics on any other datagram.
pub(crate) fn error_text(reply: &[u8]) -> String {
    match Response::parse(reply, Family::V4) {
        Ok(Response::Error(_, text)) => String::from_utf8(text.to_vec()).expect("UTF-8"),
        _ => panic!("an error response: {}", display(reply)),
    }
}

/// The big-endian `u32` at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The big-endian `u64` at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A reply for assertion messages.
fn display(reply: &[u8]) -> String {
    format!("{reply:02x?} ({})", String::from_utf8_lossy(reply))
}
