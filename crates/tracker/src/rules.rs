//! What may change while workers run: each has a copy of its own, and gets a new one whole.

use std::sync::Arc;
use std::time::Duration;

use onrush_proto::scrape::MAX_HASHES;
use onrush_swarm::ShardSettings;

use crate::access::blocks::BlockList;
use crate::access::{AccessList, Lists};
use crate::limits::AnnounceSettings;
use crate::shedding::Shedding;

/// Seconds in which every peer is looked at for expiry, at the longest.
const LONGEST_SWEEP: u32 = 120;

/// The rules that workers go by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What an announce gets.
    pub announce: AnnounceSettings,
    /// Info hashes answered per scrape at most.
    pub max_hashes: usize,
    /// Which swarms are served.
    pub access: Arc<AccessList>,
    /// Which sources are not.
    pub blocked: Arc<BlockList>,
    /// Whether sources that cannot be peers on the internet are refused.
    pub refuse_bogons: bool,
    /// Whether per-packet log lines may name who sent the packet.
    pub log_addresses: bool,
    /// What each shard goes by.
    pub shard: ShardSettings,
    /// In which every peer is to be looked at once.
    pub sweep_period: Duration,
    /// Whose connects are answered under pressure; everybody's without.
    pub shedding: Option<Shedding>,
}

fn sweep_period(peer_lifetime: u32) -> Duration {
    Duration::from_secs(u64::from((peer_lifetime / 8).clamp(1, LONGEST_SWEEP)))
}

impl Rules {
    /// The rules for `shards` shards that store `peers` peers and `idle_swarms` swarms without peers
    /// together. Whole scrapes are answered, and bogons are served.
    pub fn new(
        announce: AnnounceSettings,
        shards: usize,
        peers: u64,
        idle_swarms: u64,
        lists: &Lists,
    ) -> Self {
        let shards = shards as u64;
        let shard = ShardSettings {
            interval: announce.interval,
            interval_jitter_percent: announce.interval_jitter_percent,
            peer_lifetime: announce.peer_lifetime,
            completed_retention: announce.completed_retention,
            max_peers: peers.div_ceil(shards),
            max_idle_swarms: idle_swarms.div_ceil(shards),
        };
        Self {
            max_hashes: MAX_HASHES,
            access: lists.access.clone(),
            blocked: lists.blocked.clone(),
            refuse_bogons: false,
            log_addresses: false,
            shard,
            sweep_period: sweep_period(announce.peer_lifetime),
            announce,
            shedding: None,
        }
    }

    /// Clients are told to wait for so many seconds.
    pub fn set_interval(&mut self, interval: u32) {
        self.announce.interval = interval;
        self.shard.interval = interval;
    }

    /// Peers are remembered for so many seconds after they announced.
    pub fn set_peer_lifetime(&mut self, lifetime: u32) {
        self.announce.peer_lifetime = lifetime;
        self.shard.peer_lifetime = lifetime;
        self.sweep_period = sweep_period(lifetime);
    }
}
