//! Fair shares: how much of a shard one source may occupy.
//!
//! A source is an IPv4 address or an IPv6 /64, as one client may use all addresses of a /64. The
//! network around it, a /24 or a /48, may occupy [`NETWORK_SOURCES`] times as much. Only peers that
//! are stored are counted, and a peer is stored only after its address was proven, so a spoofed
//! source occupies nothing.
//!
//! | limit | counted in | a count is too high by |
//! |---|---|---|
//! | peers in a swarm of up to 128 | its block of peers, on demand | nothing |
//! | peers in a larger swarm | a table of the swarm | nothing on average, 8 at most in practice |
//! | peers in all | a table of the shard, with a cell for 64 peers | the mean of its cells |
//! | new swarms per minute | a table of the shard, cleared every minute | the mean of its cells |
//!
//! If the limit in all is 1 % of the peers of a shard, the mean is at most 2.5 % of it.
//!
//! Each shard applies its share of the limits: info hashes spread evenly over the shards, so the
//! shares add up to the limit. A table is crowded when the mean of its cells exceeds a quarter of
//! the limit of a source. Then it no longer tells sources apart, and the limit of the networks
//! applies alone.

mod counts;

use onrush_proto::Endpoint;

use crate::keys::SourceHashes;
use crate::time::Moment;
use counts::Counts;

/// How many sources' worth of each limit a network may occupy.
pub const NETWORK_SOURCES: u64 = 16;

/// Peers of a shard per cell of its table: 1 byte of table for 16 peers.
const TABLE_SHARE: u64 = 64;
/// Cells of a table at least and at most: 64 KiB and 16 MiB.
const TABLE_CELLS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 22;

/// Limits of a source; 0 switches one off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceLimits {
    /// Peers in one swarm.
    pub peers_per_swarm: u32,
    /// Peers in all swarms.
    pub peers: u64,
    /// New swarms per minute.
    pub new_swarms: u32,
}

impl SourceLimits {
    /// The share of one of `shards` shards.
    pub fn share(self, shards: u64) -> Self {
        let share = |limit: u64| if limit == 0 { 0 } else { (limit / shards).max(1) };
        Self {
            peers_per_swarm: self.peers_per_swarm,
            peers: share(self.peers),
            new_swarms: share(self.new_swarms.into()) as u32,
        }
    }
}

/// A set of sources, such as those that no limit applies to.
pub trait SourceSet: std::fmt::Debug + Send + Sync {
    /// Whether the set has the address of this endpoint.
    fn contains(&self, endpoint: &Endpoint) -> bool;
}

/// A limit that a newcomer would exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exceeded {
    PeersPerSwarm,
    Peers,
    NewSwarms,
}

/// Peers of the sources of a shard.
#[derive(Debug)]
pub(crate) struct Sources {
    limits: SourceLimits,
    /// Peers of each source and network; `None` if nothing limits them.
    peers: Option<Counts<u32>>,
    /// Swarms created in this minute.
    new_swarms: Option<Counts<u32>>,
    minute: u32,
}

impl Sources {
    /// For a shard of at most `max_peers` peers; `None` if every limit is off.
    pub(crate) fn new(limits: SourceLimits, max_peers: u64) -> Option<Self> {
        let cells = (max_peers / TABLE_SHARE).clamp(*TABLE_CELLS.start(), *TABLE_CELLS.end());
        (limits != SourceLimits::default()).then(|| Self {
            limits,
            peers: (limits.peers > 0).then(|| Counts::new(cells as usize)),
            new_swarms: (limits.new_swarms > 0).then(|| Counts::new(*TABLE_CELLS.start() as usize)),
            minute: 0,
        })
    }

    /// Whether swarms of this many peers are checked.
    #[inline]
    pub(crate) fn limits_swarm_of(&self, peers: usize) -> bool {
        let limit = self.limits.peers_per_swarm as usize;
        // In a smaller swarm no source can exceed it.
        limit > 0 && peers >= limit
    }

    /// Checks a newcomer against the limits of a swarm in which its source and its network have
    /// these numbers of peers.
    #[inline]
    pub(crate) fn check_swarm(&self, [source, network]: [u64; 2]) -> Result<(), Exceeded> {
        let limit = u64::from(self.limits.peers_per_swarm);
        match source >= limit || network >= limit * NETWORK_SOURCES {
            true => Err(Exceeded::PeersPerSwarm),
            false => Ok(()),
        }
    }

    /// Checks one more peer of this source against the limits.
    #[inline]
    pub(crate) fn check_peers(&self, hashes: SourceHashes) -> Result<(), Exceeded> {
        match &self.peers {
            Some(peers) if is_over(peers, self.limits.peers, hashes) => Err(Exceeded::Peers),
            _ => Ok(()),
        }
    }

    /// Checks one more swarm of this source against the limit.
    pub(crate) fn check_new_swarm(
        &mut self,
        hashes: SourceHashes,
        now: Moment,
    ) -> Result<(), Exceeded> {
        let Some(new_swarms) = &mut self.new_swarms else { return Ok(()) };
        let minute = now.0 / 60;
        if self.minute != minute {
            self.minute = minute;
            new_swarms.clear();
        }
        match is_over(new_swarms, self.limits.new_swarms.into(), hashes) {
            true => Err(Exceeded::NewSwarms),
            false => Ok(()),
        }
    }

    /// Counts a swarm that this source has created.
    pub(crate) fn swarm_created(&mut self, hashes: SourceHashes) {
        if let Some(new_swarms) = &mut self.new_swarms {
            new_swarms.add(hashes.source);
            new_swarms.add(hashes.network);
        }
    }

    /// Counts a peer that was stored.
    #[inline]
    pub(crate) fn peer_added(&mut self, hashes: SourceHashes) {
        if let Some(peers) = &mut self.peers {
            peers.add(hashes.source);
            peers.add(hashes.network);
        }
    }

    /// Takes back a peer that was removed.
    #[inline]
    pub(crate) fn peer_removed(&mut self, hashes: SourceHashes) {
        if let Some(peers) = &mut self.peers {
            peers.remove(hashes.source);
            peers.remove(hashes.network);
        }
    }

    /// How much a source occupies, for comparison with others: its peers, or its network's share
    /// per source, whichever is more. `None` if peers in all are not limited.
    pub(crate) fn weight(&self, hashes: SourceHashes) -> Option<u64> {
        let peers = self.peers.as_ref()?;
        Some(peers.of(hashes.source).max(peers.of(hashes.network) / NETWORK_SOURCES))
    }

    /// Whether a table is crowded, so that the limits of networks apply alone.
    pub(crate) fn is_crowded(&self) -> bool {
        let crowded = |counts: &Option<Counts<u32>>, limit: u64| {
            counts.as_ref().is_some_and(|counts| is_crowded(counts, limit))
        };
        crowded(&self.peers, self.limits.peers)
            || crowded(&self.new_swarms, self.limits.new_swarms.into())
    }

    /// Panics unless the table counts exactly these endpoints.
    pub(crate) fn check(&self, endpoints: impl Iterator<Item = SourceHashes>) {
        let Some(peers) = &self.peers else { return };
        let mut counted =
            Self { peers: Some(Counts::new(peers.cells())), new_swarms: None, ..*self };
        endpoints.for_each(|hashes| counted.peer_added(hashes));
        assert!(counted.peers == self.peers, "the table counts the peers that are stored");
    }
}

fn is_crowded(counts: &Counts<u32>, limit: u64) -> bool {
    counts.mean() > limit / 4
}

/// The count of a source includes the mean, so that no source exceeds its limit; that of a network
/// does not, as the mean may exceed the limit of a crowded table.
#[inline]
fn is_over(counts: &Counts<u32>, limit: u64, hashes: SourceHashes) -> bool {
    let network_limit = limit * NETWORK_SOURCES;
    (counts.of(hashes.source) >= limit && !is_crowded(counts, limit))
        || (counts.of(hashes.network) >= network_limit
            && counts.without_mean(hashes.network) >= network_limit)
}

/// The peers of each source in a large swarm.
///
/// The table doubles with the swarm; counting the peers anew takes 20 ns each. It has four peers
/// per cell at most, so that other sources add 4 to 8 to a count. Their mean is subtracted, so that
/// a count is right on average, and in practice by 8 more or less.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SwarmSources {
    sources: Counts<u16>,
    networks: Counts<u16>,
}

/// The most peers per cell.
const PEERS_PER_CELL: usize = 4;
/// Cells for sources per cell for networks, whose limit is higher.
const NETWORK_CELLS: usize = 8;

impl SwarmSources {
    /// For a swarm of `peers` peers, and for twice as many.
    pub(crate) fn new(peers: usize) -> Self {
        let sources = Counts::new(peers / PEERS_PER_CELL + 1);
        let networks = Counts::new(sources.cells() / NETWORK_CELLS);
        Self { sources, networks }
    }

    /// Whether the table is too small for a swarm of `peers` peers.
    #[inline]
    pub(crate) fn is_outgrown(&self, peers: usize) -> bool {
        peers > self.sources.cells() * PEERS_PER_CELL
    }

    #[inline]
    pub(crate) fn add(&mut self, hashes: SourceHashes) {
        self.sources.add(hashes.source);
        self.networks.add(hashes.network);
    }

    #[inline]
    pub(crate) fn remove(&mut self, hashes: SourceHashes) {
        self.sources.remove(hashes.source);
        self.networks.remove(hashes.network);
    }

    /// An empty table of the same size.
    pub(crate) fn emptied(&self) -> Self {
        Self {
            sources: Counts::new(self.sources.cells()),
            networks: Counts::new(self.networks.cells()),
        }
    }

    /// The number of peers of a source and of its network, about.
    #[inline]
    pub(crate) fn of(&self, hashes: SourceHashes) -> [u64; 2] {
        let networks = self.networks.without_mean(hashes.network);
        [self.sources.without_mean(hashes.source), networks]
    }
}
