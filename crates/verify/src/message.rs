//! Requests as the checks send them, field by field, and replies as they read them.

use onrush_proto::announce::REQUEST_LEN;
use onrush_proto::options::Options;
use onrush_proto::{
    Announce, Connect, ConnectionId, Endpoint, InfoHash, PeerId, Scrape, TransactionId, connect,
};

/// Bytes of a reply that a report shows.
const SHOWN_BYTES: usize = 40;
/// The same of a text.
const SHOWN_TEXT: usize = 160;

/// Event `completed` on the wire (BEP 15, "Announce").
pub const COMPLETED: u32 = 1;
/// Event `started` on the wire.
pub const STARTED: u32 = 2;
/// Event `stopped` on the wire.
pub const STOPPED: u32 = 3;

/// An announce as checks vary it.
#[derive(Clone, Debug)]
pub struct AnnounceRequest {
    /// The fields. `bytes` replaces their connection id, event and options by its argument and the
    /// two fields below.
    pub fields: Announce<'static>,
    /// The event's number, which need not be a defined one.
    pub event: u32,
    /// The bytes after the 98 of BEP 15 (BEP 41).
    pub options: Vec<u8>,
}

impl AnnounceRequest {
    /// A leecher that starts and wants 50 peers.
    pub fn leecher(hash: InfoHash, port: u16) -> Self {
        let mut peer_id = PeerId(*b"-oR0001-000000000000");
        peer_id.0[15..].copy_from_slice(format!("{port:05}").as_bytes());
        let key = u32::from(port);
        let fields =
            Announce { info_hash: hash, peer_id, left: 1, key, port, ..Announce::default() };
        Self { fields, event: STARTED, options: Vec::new() }.want(50)
    }

    /// A seeder that starts and wants 50 peers.
    pub fn seeder(hash: InfoHash, port: u16) -> Self {
        let Self { fields, event, options } = Self::leecher(hash, port);
        Self { fields: Announce { left: 0, ..fields }, event, options }
    }

    /// The same announce with another event.
    pub fn event(self, event: u32) -> Self {
        Self { event, ..self }
    }

    /// The same announce with another number of peers wanted.
    pub fn want(self, num_want: i32) -> Self {
        Self { fields: Announce { num_want, ..self.fields }, ..self }
    }

    /// The datagram, with transaction id 0.
    pub fn bytes(&self, id: ConnectionId) -> Vec<u8> {
        let options = Options(&self.options);
        let announce = Announce { connection_id: id, options, ..self.fields };
        let mut bytes = vec![0; REQUEST_LEN + self.options.len()];
        announce.write(&mut bytes);
        bytes[80..84].copy_from_slice(&self.event.to_be_bytes());
        bytes
    }
}

/// The reply to an announce.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnnounceReply {
    /// Seconds until the next announce.
    pub interval: u32,
    /// Number of leechers in the swarm.
    pub leechers: u32,
    /// Number of seeders in the swarm.
    pub seeders: u32,
    /// The peer list.
    pub peers: Vec<Endpoint>,
    /// The datagram.
    pub bytes: Vec<u8>,
}

impl AnnounceReply {
    /// The counts and the datagram, for a report.
    pub fn counts(&self) -> String {
        let (seeders, leechers) = (self.seeders, self.leechers);
        format!("{seeders} seeders and {leechers} leechers: {}", hex(&self.bytes))
    }

    /// The length of the peer list and the datagram, for a report.
    pub fn listed(&self) -> String {
        format!("{} peers: {}", self.peers.len(), hex(&self.bytes))
    }
}

/// A connect request with transaction id 0.
pub fn connect_request() -> Vec<u8> {
    let mut request = [0; connect::REQUEST_LEN];
    Connect { transaction_id: TransactionId(0) }.write(&mut request);
    request.to_vec()
}

/// A scrape request with transaction id 0.
pub fn scrape_request(id: ConnectionId, hashes: &[InfoHash]) -> Vec<u8> {
    let mut request = vec![0; 16 + 20 * hashes.len()];
    Scrape::write(id, TransactionId(0), hashes, &mut request);
    request
}

/// A random info hash, which no swarm has.
pub fn fresh_hash() -> InfoHash {
    InfoHash(rand::random())
}

/// A connection id that the tracker did not issue: the given one with three bits flipped.
pub fn forged(id: ConnectionId) -> ConnectionId {
    ConnectionId(id.0 ^ 0x0000_0400_0020_0001)
}

/// The transaction id of a reply; `None` where the datagram is too short.
pub(crate) fn transaction_of(reply: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(reply.get(4..8)?.try_into().ok()?))
}

/// Names a request for a report, like `an announce of 98 bytes (event 2, num_want 50, port 1)`.
pub(crate) fn describe(request: &[u8]) -> String {
    let field = |at: usize| request.get(at..at + 4).and_then(|field| field.try_into().ok());
    let number = |at| field(at).map_or(0, u32::from_be_bytes);
    let len = request.len();
    match field(8).map(u32::from_be_bytes) {
        Some(0) => format!("a connect of {len} bytes"),
        Some(1) if len >= REQUEST_LEN => {
            let port = u16::from_be_bytes([request[96], request[97]]);
            let (event, want) = (number(80), number(92) as i32);
            format!("an announce of {len} bytes (event {event}, num_want {want}, port {port})")
        }
        Some(2) => format!("a scrape of {} hashes", len.saturating_sub(16) / 20),
        _ => format!("a datagram of {len} bytes"),
    }
}

/// The first bytes in hexadecimal, in groups of four, and the length.
pub fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes[..bytes.len().min(SHOWN_BYTES)]
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    let more = if bytes.len() > SHOWN_BYTES { " ..." } else { "" };
    format!("{}{more} ({} bytes)", words.join(" "), bytes.len())
}

/// The first bytes of a text, with escapes, and the length.
pub(crate) fn shown(text: &[u8]) -> String {
    let more = if text.len() > SHOWN_TEXT { "..." } else { "" };
    let first = &text[..text.len().min(SHOWN_TEXT)];
    format!("`{}`{more} ({} bytes)", first.escape_ascii(), text.len())
}
