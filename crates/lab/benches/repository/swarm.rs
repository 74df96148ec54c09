//! A swarm for the maps: one or two peers in place, more in an index map, as in aquatic.

use indexmap::IndexMap;
use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint};
use onrush_swarm::Announce;
use rand::RngExt;
use rand::rngs::SmallRng;

/// The time of a peer's last announce, in seconds, which every contender stores.
const NOW: u32 = 60;

/// The peers of one info hash, and how many of them are seeders.
#[derive(Default)]
pub(crate) struct Swarm {
    peers: Peers,
    seeders: u32,
}

enum Peers {
    Few(usize, [([u8; 6], Peer); 2]),
    /// Keyed by std's SipHash-1-3.
    Many(Box<IndexMap<[u8; 6], Peer>>),
}

impl Default for Peers {
    fn default() -> Self {
        Self::Few(0, Default::default())
    }
}

/// The state of a peer.
#[derive(Clone, Copy, Default)]
struct Peer {
    seen: u32,
    seeder: bool,
}

impl Swarm {
    /// Stores an announce and writes the reply.
    pub(crate) fn announce(&mut self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>) {
        let Endpoint::V4(endpoint) = announce.endpoint else { panic!("all clients speak IPv4") };
        let peer = Peer { seen: NOW, seeder: announce.seeder };
        let before = self.peers.insert(endpoint, peer);
        debug_assert!(before.is_none_or(|before| before.seen <= NOW));
        let was_seeder = before.is_some_and(|before| before.seeder);
        self.seeders = self.seeders + u32::from(announce.seeder) - u32::from(was_seeder);
        let mut head = [0; HEAD_LEN];
        AnnounceHead {
            transaction_id: announce.transaction_id,
            interval: 1_800,
            leechers: self.peers.len() as u32 - self.seeders,
            seeders: self.seeders,
        }
        .write(&mut head);
        out.extend_from_slice(&head);
        self.peers.sample(&endpoint, announce.want.into(), rng, out);
    }
}

impl Peers {
    fn len(&self) -> usize {
        match self {
            Self::Few(len, _) => *len,
            Self::Many(peers) => peers.len(),
        }
    }

    /// Removes a peer and returns its state.
    fn insert(&mut self, endpoint: [u8; 6], peer: Peer) -> Option<Peer> {
        match self {
            Self::Many(peers) => peers.insert(endpoint, peer),
            Self::Few(len, rows) => {
                if let Some((_, known)) = rows[..*len].iter_mut().find(|row| row.0 == endpoint) {
                    return Some(std::mem::replace(known, peer));
                }
                if let Some(row) = rows.get_mut(*len) {
                    *row = (endpoint, peer);
                    *len += 1;
                } else {
                    let mut peers: Box<IndexMap<_, _>> = Box::new(rows.iter().copied().collect());
                    peers.insert(endpoint, peer);
                    *self = Self::Many(peers);
                }
                None
            }
        }
    }

    /// Up to `want` other peers: all, or a run from a random place on.
    fn sample(&self, own: &[u8; 6], want: usize, rng: &mut SmallRng, out: &mut Vec<u8>) {
        match self {
            Self::Few(len, rows) => {
                let others = rows[..*len].iter().filter(|(endpoint, _)| endpoint != own);
                others.take(want).for_each(|(endpoint, _)| out.extend_from_slice(endpoint));
            }
            Self::Many(peers) => {
                let start = rng.random_range(0..peers.len());
                let (before, after) = peers.as_slice().split_at(start);
                let others = after.keys().chain(before.keys()).filter(|endpoint| *endpoint != own);
                others.take(want).for_each(|endpoint| out.extend_from_slice(endpoint));
            }
        }
    }
}
