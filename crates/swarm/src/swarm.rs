//! A swarm: its name, its `completed` and its peers, in 48 bytes.

use onrush_proto::scrape::COUNTS_LEN;
use onrush_proto::{InfoHash, ScrapeCounts};

use crate::peers::{Counts, Peers};
use crate::time::Moment;

/// An entry of the store.
#[derive(Debug)]
pub(crate) struct Swarm {
    pub(crate) info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`, once per source and period.
    pub(crate) completed: u32,
    pub(crate) peers: Peers,
}

const _: () = assert!(size_of::<Swarm>() == 48);

impl Swarm {
    /// Seconds since its last peer left, where it has none.
    pub(crate) fn idle_for(&self, now: Moment) -> Option<u32> {
        match self.peers {
            Peers::Idle(idle) => Some(now.since(idle.since)),
            _ => None,
        }
    }

    /// Its counts in the reply to a scrape, in wire form (BEP 15, "Scrape"; BEP 48).
    #[inline]
    pub(crate) fn scrape(&self) -> [u8; COUNTS_LEN] {
        let Counts { seeders, leechers } = self.peers.counts();
        let mut wire = [0; COUNTS_LEN];
        ScrapeCounts { seeders, completed: self.completed, leechers }.write(&mut wire);
        wire
    }
}
