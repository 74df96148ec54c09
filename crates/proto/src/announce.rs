//! Announce: a peer reports its state in a swarm and asks for other peers (BEP 15, "Announce").
//!
//! ```text
//! request, >= 98 bytes
//! 0               8        12       16              36              56
//! +---------------+--------+--------+---------------+---------------+
//! | connection id | 1      | trans. | info hash     | peer id       |
//! +---------------+--------+--------+---------------+---------------+
//! 56           64      72          80       84    88     92         96      98
//! +------------+-------+-----------+--------+-----+------+----------+-------+----------
//! | downloaded | left  | uploaded  | event  | ip  | key  | num_want | port  | options (BEP 41)
//! +------------+-------+-----------+--------+-----+------+----------+-------+----------
//!
//! response
//! 0        4        8          12         16        20
//! +--------+--------+----------+----------+---------+---------------------------------
//! | 1      | trans. | interval | leechers | seeders | peers: 6 bytes each over IPv4,
//! +--------+--------+----------+----------+---------+        18 bytes each over IPv6
//! ```

use crate::endpoint::Family;
use crate::id::{ConnectionId, InfoHash, PeerId, TransactionId};
use crate::options::Options;
use crate::wire::{self, MAX_RESPONSE_LEN};

/// The action number of an announce, in requests and responses.
pub const ACTION: u32 = 1;
/// Bytes of an announce request without options; fewer is no announce.
pub const REQUEST_LEN: usize = 98;
/// Bytes of an announce response before its peers.
pub const HEAD_LEN: usize = 20;

/// Bytes of a response with the most peers that a tracker should send over `family`
/// ([`Family::max_peers`]).
pub const fn max_response_len(family: Family) -> usize {
    HEAD_LEN + family.max_peers() * family.peer_len()
}

const _: () = assert!(max_response_len(Family::V4) <= MAX_RESPONSE_LEN);
const _: () = assert!(max_response_len(Family::V6) <= MAX_RESPONSE_LEN);

/// The event of an announce (BEP 15, "Announce", offset 80).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Event {
    /// 0: a regular announce. Undefined numbers are read as this.
    #[default]
    None,
    /// 1: it now has the whole torrent.
    Completed,
    /// 2: it has just joined.
    Started,
    /// 3: it is leaving.
    Stopped,
    /// 4: it is a partial seed (BEP 21, "Tracker Announce"): it wants nothing more, though `left`
    /// is not 0. BEP 21 names the event for HTTP only; the number is libtorrent's, which sends it
    /// with every announce of such a torrent.
    Paused,
}

impl Event {
    /// The event of a number on the wire.
    #[inline]
    pub const fn from_wire(number: u32) -> Self {
        match number {
            1 => Self::Completed,
            2 => Self::Started,
            3 => Self::Stopped,
            4 => Self::Paused,
            _ => Self::None,
        }
    }

    /// The event of a text over HTTP and WebSocket (BEP 3, "trackers"; BEP 21). Others are none.
    #[inline]
    pub const fn from_text(text: &[u8]) -> Self {
        match text {
            b"completed" => Self::Completed,
            b"started" => Self::Started,
            b"stopped" => Self::Stopped,
            b"paused" => Self::Paused,
            _ => Self::None,
        }
    }

    /// The text over HTTP; [`Event::from_text`] is its inverse. None for no event.
    pub const fn to_text(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Completed => Some("completed"),
            Self::Started => Some("started"),
            Self::Stopped => Some("stopped"),
            Self::Paused => Some("paused"),
        }
    }

    /// The number on the wire; [`Event::from_wire`] is its inverse.
    pub const fn to_wire(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Completed => 1,
            Self::Started => 2,
            Self::Stopped => 3,
            Self::Paused => 4,
        }
    }
}

/// An announce request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Announce<'a> {
    /// From a connect response.
    pub connection_id: ConnectionId,
    /// Echoed in the response.
    pub transaction_id: TransactionId,
    /// The swarm.
    pub info_hash: InfoHash,
    /// The client's peer id. Peers are identified by their endpoint, not by this.
    pub peer_id: PeerId,
    /// Bytes since `started`, as reported by the client.
    pub downloaded: u64,
    /// Bytes still missing; 0 makes a seeder.
    pub left: u64,
    /// Bytes since `started`, as reported by the client.
    pub uploaded: u64,
    /// The event, if any.
    pub event: Event,
    /// The address that the client claims, 0 for none; not defined over IPv6 (BEP 15, "IPv6"). A
    /// tracker that uses it lets a client direct the traffic of others to any address.
    pub ip: u32,
    /// A number that stays with the client when its address changes, and is the same over both
    /// families (BEP 7, "Tracker Hostname Resolution"; BEP 15, "IPv6").
    pub key: u32,
    /// How many peers the client wants: negative for "as you like" (BEP 15, "Announce").
    pub num_want: i32,
    /// Where the peer listens.
    pub port: u16,
    /// Whatever follows: BEP 41 options, most often none.
    pub options: Options<'a>,
}

impl<'a> Announce<'a> {
    /// Reads a datagram of at least [`REQUEST_LEN`] bytes whose action is known to be [`ACTION`];
    /// `None` when it is shorter. No field can be invalid by itself.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (fixed, options) = datagram.split_first_chunk::<REQUEST_LEN>()?;
        Some(Self {
            connection_id: ConnectionId(wire::u64(fixed, 0)),
            transaction_id: TransactionId(wire::u32(fixed, 12)),
            info_hash: InfoHash(wire::bytes(fixed, 16)),
            peer_id: PeerId(wire::bytes(fixed, 36)),
            downloaded: wire::u64(fixed, 56),
            left: wire::u64(fixed, 64),
            uploaded: wire::u64(fixed, 72),
            event: Event::from_wire(wire::u32(fixed, 80)),
            ip: wire::u32(fixed, 84),
            key: wire::u32(fixed, 88),
            num_want: wire::u32(fixed, 92) as i32,
            port: wire::u16(fixed, 96),
            options: Options(options),
        })
    }

    /// Writes the request with its options and returns its length.
    ///
    /// # Panics
    /// When `into` is shorter than [`REQUEST_LEN`] and the options together.
    pub fn write(&self, into: &mut [u8]) -> usize {
        wire::put(into, 0, self.connection_id.0.to_be_bytes());
        wire::put(into, 8, ACTION.to_be_bytes());
        wire::put(into, 12, self.transaction_id.0.to_be_bytes());
        wire::put(into, 16, self.info_hash.0);
        wire::put(into, 36, self.peer_id.0);
        wire::put(into, 56, self.downloaded.to_be_bytes());
        wire::put(into, 64, self.left.to_be_bytes());
        wire::put(into, 72, self.uploaded.to_be_bytes());
        wire::put(into, 80, self.event.to_wire().to_be_bytes());
        wire::put(into, 84, self.ip.to_be_bytes());
        wire::put(into, 88, self.key.to_be_bytes());
        wire::put(into, 92, self.num_want.to_be_bytes());
        wire::put(into, 96, self.port.to_be_bytes());
        let end = REQUEST_LEN + self.options.0.len();
        into[REQUEST_LEN..end].copy_from_slice(self.options.0);
        end
    }
}

/// An announce response up to its peers, which follow in wire form ([`crate::Endpoint`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnounceHead {
    /// Transaction id of the request.
    pub transaction_id: TransactionId,
    /// Seconds until the next regular announce (BEP 15, "Announce": no sooner without an event).
    pub interval: u32,
    /// Peers that miss something, of both families.
    pub leechers: u32,
    /// Peers that miss nothing, of both families.
    pub seeders: u32,
}

impl AnnounceHead {
    /// Writes the head; the peers follow it.
    #[inline]
    pub fn write(&self, into: &mut [u8; HEAD_LEN]) {
        wire::put(into, 0, ACTION.to_be_bytes());
        wire::put(into, 4, self.transaction_id.0.to_be_bytes());
        wire::put(into, 8, self.interval.to_be_bytes());
        wire::put(into, 12, self.leechers.to_be_bytes());
        wire::put(into, 16, self.seeders.to_be_bytes());
    }

    /// Reads the head.
    pub fn parse(from: &[u8; HEAD_LEN]) -> Self {
        Self {
            transaction_id: TransactionId(wire::u32(from, 4)),
            interval: wire::u32(from, 8),
            leechers: wire::u32(from, 12),
            seeders: wire::u32(from, 16),
        }
    }
}
