//! What one peer asks in an announce, field by field, and what it is told.

use std::net::Ipv4Addr;

use onrush_proto::announce::REQUEST_LEN;
use onrush_proto::options::Options;
use onrush_proto::{Announce, ConnectionId, Endpoint, Event, InfoHash, PeerId, TransactionId};

use super::dialogue::hex;

/// An announce as a check wants it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The swarm.
    pub hash: InfoHash,
    /// The peer's port.
    pub port: u16,
    /// Bytes missing.
    pub left: u64,
    /// The event's number on the wire.
    pub event: u32,
    /// Peers wanted.
    pub num_want: i32,
    /// The address that the client would like to have.
    pub ip: Ipv4Addr,
    /// The peer id.
    pub peer_id: [u8; 20],
    /// What follows the 98 bytes.
    pub options: Vec<u8>,
}

/// The number of event `completed` on the wire (BEP 15, "Announce").
pub const COMPLETED: u32 = 1;
/// The number of event `started`.
pub const STARTED: u32 = 2;
/// The number of event `stopped`.
pub const STOPPED: u32 = 3;

impl Ask {
    /// By a leecher that starts and wants 50 peers.
    pub fn new(hash: InfoHash, port: u16) -> Self {
        let mut peer_id = *b"-oR0001-000000000000";
        peer_id[15..].copy_from_slice(format!("{port:05}").as_bytes());
        Self {
            hash,
            port,
            left: 1,
            event: STARTED,
            num_want: 50,
            ip: Ipv4Addr::UNSPECIFIED,
            peer_id,
            options: Vec::new(),
        }
    }

    /// By a seeder.
    pub fn seeder(hash: InfoHash, port: u16) -> Self {
        Self { left: 0, ..Self::new(hash, port) }
    }

    /// With another event.
    pub fn event(self, event: u32) -> Self {
        Self { event, ..self }
    }

    /// With another number of peers wanted.
    pub fn want(self, num_want: i32) -> Self {
        Self { num_want, ..self }
    }

    /// The datagram, without a transaction id.
    pub fn bytes(&self, id: ConnectionId) -> Vec<u8> {
        let announce = Announce {
            connection_id: id,
            transaction_id: TransactionId(0),
            info_hash: self.hash,
            peer_id: PeerId(self.peer_id),
            downloaded: 0,
            left: self.left,
            uploaded: 0,
            event: Event::None,
            ip: self.ip.to_bits(),
            key: u32::from(self.port),
            num_want: self.num_want,
            port: self.port,
            options: Options(&self.options),
        };
        let mut bytes = vec![0; REQUEST_LEN + self.options.len()];
        announce.write(&mut bytes);
        bytes[80..84].copy_from_slice(&self.event.to_be_bytes());
        bytes
    }
}

/// An announce's reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// Seconds until the next.
    pub interval: u32,
    /// Peers that miss something.
    pub leechers: u32,
    /// Peers that miss nothing.
    pub seeders: u32,
    /// Who is listed.
    pub peers: Vec<Endpoint>,
    /// The datagram.
    pub bytes: Vec<u8>,
}

impl Announced {
    /// Seeders and leechers, as people read it, with the bytes.
    pub fn counts(&self) -> String {
        let (seeders, leechers) = (self.seeders, self.leechers);
        format!("{seeders} seeders and {leechers} leechers: {}", hex(&self.bytes))
    }

    /// How many peers, with the bytes.
    pub fn listed(&self) -> String {
        format!("{} peers: {}", self.peers.len(), hex(&self.bytes))
    }
}
