//! A shard: the swarms of its share of the info hashes, served by the batch.

use std::time::Duration;

use onrush_proto::{Endpoint, InfoHash};

use crate::batch::ShardBatch;
use crate::time::Moment;
use crate::totals::Totals;

/// The longest lifetime of a peer, seconds: half of the 36 hours after which stored ages wrap
/// around, so that sweeps have as long again to find it.
pub const MAX_PEER_LIFETIME: u32 = 65_536;

/// What a shard is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSettings {
    /// Seconds that a client is told to wait until its next announce.
    pub interval: u32,
    /// Up to this many percent more or less, anew in each reply, 0 to 100.
    pub interval_jitter_percent: u32,
    /// Seconds after its last announce at which a peer may be forgotten, 1 to
    /// [`MAX_PEER_LIFETIME`]. It is forgotten at most 8 s and one full pass of sweeps later.
    pub peer_lifetime: u32,
    /// Seconds for which `completed` outlives a swarm's last peer.
    pub completed_retention: u32,
    /// Peers stored at most, both families together. Beyond, who is not known yet gets peers and
    /// counts but is not stored.
    pub max_peers: u64,
    /// Swarms without peers kept at most for their `completed`; the oldest leave first.
    pub max_idle_swarms: u64,
}

/// The swarms of one share of the info hashes. Has one owner: no locks.
#[derive(Debug)]
pub struct Shard {
    settings: ShardSettings,
    totals: Totals,
}

/// What a call of [`Shard::sweep`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Swarms and peers looked at.
    pub looked_at: usize,
    /// Peers forgotten.
    pub expired: usize,
    /// Swarms without peers whose `completed` was forgotten after its time.
    pub idle_expired: usize,
    /// Whether the sweep has come to the end of the shard, so that the next call begins anew.
    pub pass_finished: bool,
}

/// A swarm as [`Shard::swarms`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmView {
    /// Its name.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Seconds since its last peer left, when it has none.
    pub idle_for: Option<u32>,
    /// Its peers in no particular order.
    pub peers: Vec<PeerView>,
}

/// A peer as [`Shard::swarms`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whether it misses nothing.
    pub seeder: bool,
    /// Seconds since its last announce, to within 4.
    pub age: u32,
}

impl Shard {
    /// An empty shard. `key` keys the hashes of its tables and is secret; `seed` starts the
    /// sequence that peers and intervals are drawn from.
    ///
    /// # Panics
    /// When settings are out of the ranges that they state, or ask for more than 2^32 - 2 swarms.
    pub fn new(settings: ShardSettings, key: [u8; 16], seed: u64) -> Self {
        let _ = (key, seed);
        Self { settings, totals: Totals::default() }
    }

    /// Answers everything in the batch: its announces in order, then its parts of scrapes.
    /// Replies are written into the batch's own memory.
    pub fn serve<R: Copy, P: Copy>(&mut self, batch: &mut ShardBatch<R, P>, now: Moment) {
        let _ = (&self.settings, batch, now);
        todo!("swarm")
    }

    /// Forgets peers that have not announced for a lifetime, and idle swarms after their time,
    /// a piece of the shard per call. Looks at `budget` peers and swarms at most, plus the rest of one short
    /// list (under 256 peers).
    pub fn sweep(&mut self, now: Moment, budget: usize) -> Swept {
        let _ = (now, budget);
        todo!("swarm")
    }

    /// The budget with which calls of [`sweep`](Self::sweep) that come `since_last` after one another get once
    /// around the shard in `full_pass`.
    pub fn sweep_budget(&self, since_last: Duration, full_pass: Duration) -> usize {
        let _ = (since_last, full_pass);
        todo!("swarm")
    }

    /// What the shard holds and has done. Costs nothing.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Forgets a swarm with all of its peers and its `completed`; false when it is not known.
    pub fn forget(&mut self, info_hash: &InfoHash) -> bool {
        let _ = info_hash;
        todo!("swarm")
    }

    /// Every swarm with its peers, in no particular order: for tests and snapshots, not for the
    /// path of a packet.
    pub fn swarms(&self, now: Moment) -> impl Iterator<Item = SwarmView> + '_ {
        let _ = now;
        std::iter::empty()
    }
}
