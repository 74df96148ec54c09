//! The rules that may change at run time. Each worker has its own copy and replaces it as a whole.

use std::sync::Arc;
use std::time::Duration;

use onrush_proto::scrape::MAX_HASHES;
use onrush_swarm::{ShardSettings, SourceLimits};

use crate::access::addresses::AddressSet;
use crate::access::blocks::SourceBlocks;
use crate::access::member_counts::MemberCounts;
use crate::access::{AccessList, Lists};
use crate::limits::AnnounceSettings;

/// Maximum seconds of a pass of expiry over all peers.
const MAX_SWEEP_PERIOD: u32 = 120;

/// The rules of a worker.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Intervals, lifetimes and peers per reply.
    pub announce: AnnounceSettings,
    /// Maximum info hashes answered per scrape.
    pub max_hashes: usize,
    /// The info hashes that are served.
    pub access: Arc<AccessList>,
    /// The sources that are not served.
    pub blocked: Arc<AddressSet>,
    /// Sources that were blocked while the tracker runs, to count their requests.
    pub blocks: Arc<SourceBlocks>,
    /// Announces of info hashes that are not served, by part of the list.
    pub forbidden: Arc<MemberCounts>,
    /// Whether sources that cannot be peers on the internet are refused (bogons).
    pub refuse_bogons: bool,
    /// Whether log lines per request may contain the address of the client.
    pub log_addresses: bool,
    /// The settings of each shard.
    pub shard: ShardSettings,
    /// The sources to which no limit of a source applies.
    pub trusted: Arc<AddressSet>,
    /// The time in which expiry visits every peer once.
    pub sweep_period: Duration,
    /// Whether the kernel drops datagrams that are no valid request
    /// ([`kernel_filter`](crate::kernel_filter)).
    pub kernel_filter: bool,
}

fn sweep_period(peer_lifetime: u32) -> Duration {
    Duration::from_secs(u64::from((peer_lifetime / 8).clamp(1, MAX_SWEEP_PERIOD)))
}

impl Rules {
    /// Rules for `shards` shards that together store at most `peers` peers (each may store one)
    /// and `idle_swarms` swarms without peers. Scrapes may have as many info hashes as BEP 15
    /// allows; bogons are served, and sources are not limited.
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
            max_peers: (peers / shards).max(1),
            max_idle_swarms: idle_swarms.div_ceil(shards),
            sources: SourceLimits::default(),
        };
        Self {
            max_hashes: MAX_HASHES,
            access: lists.access.clone(),
            blocked: lists.refused().clone(),
            blocks: lists.blocks.clone(),
            forbidden: lists.forbidden.clone(),
            refuse_bogons: false,
            log_addresses: false,
            shard,
            trusted: Arc::default(),
            sweep_period: sweep_period(announce.peer_lifetime),
            announce,
            kernel_filter: false,
        }
    }

    /// Sets the announce interval, in seconds.
    pub fn set_interval(&mut self, interval: u32) {
        self.announce.interval = interval;
        self.shard.interval = interval;
    }

    /// Sets the time after its last announce at which a peer expires, in seconds.
    pub fn set_peer_lifetime(&mut self, lifetime: u32) {
        self.announce.peer_lifetime = lifetime;
        self.shard.peer_lifetime = lifetime;
        self.sweep_period = sweep_period(lifetime);
    }
}
