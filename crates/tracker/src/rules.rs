//! The rules that may change at run time. Each worker has its own copy and replaces it as a whole.

use std::sync::Arc;
use std::time::Duration;

use onrush_swarm::ShardSettings;

use crate::access::AccessList;
use crate::access::addresses::AddressSet;
use crate::access::blocks::SourceBlocks;
use crate::access::member_counts::MemberCounts;
use crate::limits::AnnounceSettings;
use crate::proxies::Proxies;

/// Maximum seconds of a pass of expiry over all peers.
const MAX_SWEEP_PERIOD: u32 = 120;

/// The rules of a worker.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Peers per reply, and the configured interval and lifetime: those in force are in `shard`.
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
    /// The settings of each shard, with the interval and the lifetime in force.
    pub shard: ShardSettings,
    /// The sources to which no limit of a source applies.
    pub trusted: Arc<AddressSet>,
    /// The proxies in front of web workers.
    pub proxies: Arc<Proxies>,
    /// Whether the kernel drops datagrams that are no valid request
    /// ([`kernel_filter`](crate::kernel_filter)).
    pub kernel_filter: bool,
}

impl Rules {
    /// The time in which expiry visits every peer once.
    pub(crate) fn sweep_period(&self) -> Duration {
        let seconds = (self.shard.peer_lifetime / 8).clamp(1, MAX_SWEEP_PERIOD);
        Duration::from_secs(seconds.into())
    }
}
