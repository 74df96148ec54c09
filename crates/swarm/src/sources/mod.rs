//! Fair shares: how much of a shard one source may occupy.
//!
//! A source is an IPv4 address or an IPv6 /64, as one client may use all addresses of a /64. The
//! network around it, a /24 or a /48, may occupy [`NETWORK_SOURCES`] times as much, and the block
//! around that, a /16 or a /32, [`BLOCK_SOURCES`] times (in a single swarm, blocks have no limit).
//! Only peers that are stored are counted, and a peer is stored only after its address was proven,
//! so a spoofed source occupies nothing.
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
//! the limit of a source. Then it no longer tells sources apart, and the limits of networks and
//! blocks apply alone. Blocks have a table of their own.

mod counts;

use onrush_proto::Endpoint;

use crate::keys::SourceHashes;
use crate::time::Moment;
use counts::Counts;

/// How many sources' worth of each limit a network may occupy.
pub const NETWORK_SOURCES: u64 = 16;
/// How many sources' worth of the limits over all swarms a block may occupy.
pub const BLOCK_SOURCES: u64 = 16 * NETWORK_SOURCES;

/// The part of a source's peers, rounded up, that newcomers replace in a minute at most: one in so
/// many.
const REPLACED_SHARE: u64 = 16;

/// Peers of a shard per cell of its table: 1 byte of table for 16 peers.
const TABLE_SHARE: u64 = 64;
/// Cells of a table at least and at most: 64 KiB and 16 MiB.
const TABLE_CELLS: std::ops::RangeInclusive<u64> = 1 << 14..=1 << 22;

/// Cells of a table of a shard for at most `max_peers` peers.
pub(crate) fn table_cells(max_peers: u64) -> u64 {
    (max_peers / TABLE_SHARE).clamp(*TABLE_CELLS.start(), *TABLE_CELLS.end())
}

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
    /// The same of its network alone.
    NetworkPerSwarm,
    Peers,
    NewSwarms,
}

/// How much the sources of a shard occupy, and the networks and blocks around them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// The limit of a source.
    limit: u64,
    /// Counts of sources and networks.
    near: Counts<u32>,
    /// Counts of blocks, apart from the others, which theirs would exceed.
    blocks: Counts<u32>,
}

impl Levels {
    /// Of a limit, with this many cells for sources and networks; `None` if the limit is off.
    fn new(limit: u64, cells: u64) -> Option<Self> {
        let table = |cells: u64| Counts::new(cells as usize);
        (limit > 0).then(|| Self { limit, near: table(cells), blocks: table(*TABLE_CELLS.start()) })
    }

    #[inline]
    fn add(&mut self, hashes: SourceHashes) {
        self.near.add(hashes.source);
        self.near.add(hashes.network);
        self.blocks.add(hashes.block);
    }

    #[inline]
    fn remove(&mut self, hashes: SourceHashes) {
        self.near.remove(hashes.source);
        self.near.remove(hashes.network);
        self.blocks.remove(hashes.block);
    }

    fn clear(&mut self) {
        self.near.clear();
        self.blocks.clear();
    }

    fn is_crowded(&self) -> bool {
        self.near.mean() > self.limit / 4
    }

    /// Whether one more would exceed a limit. The count of a source includes the mean, so that no
    /// source exceeds its limit; those of networks and blocks do not, as the mean may exceed the
    /// limit of a crowded table.
    #[inline]
    pub(crate) fn is_over(&self, hashes: SourceHashes) -> bool {
        let Self { limit, near, blocks } = self;
        let is_full = |counts: &Counts<u32>, key, limit| {
            counts.of(key) >= limit && counts.without_mean(key) >= limit
        };
        (near.of(hashes.source) >= *limit && !self.is_crowded())
            || is_full(near, hashes.network, limit * NETWORK_SOURCES)
            || is_full(blocks, hashes.block, limit * BLOCK_SOURCES)
    }
}

/// Peers of the sources of a shard.
#[derive(Debug)]
pub(crate) struct Sources {
    peers_per_swarm: u64,
    /// Peers; `None` if nothing limits them.
    pub(crate) peers: Option<Levels>,
    /// Swarms created in this minute.
    pub(crate) new_swarms: Option<Levels>,
    /// Peers of each source that newcomers have replaced in this minute.
    replaced: Counts<u16>,
    minute: u32,
}

impl Sources {
    /// For a shard of at most `max_peers` peers; `None` if every limit is off.
    pub(crate) fn new(limits: SourceLimits, max_peers: u64) -> Option<Self> {
        let cells = table_cells(max_peers);
        (limits != SourceLimits::default()).then(|| Self {
            peers_per_swarm: limits.peers_per_swarm.into(),
            peers: Levels::new(limits.peers, cells),
            new_swarms: Levels::new(limits.new_swarms.into(), *TABLE_CELLS.start()),
            replaced: Counts::new(*TABLE_CELLS.start() as usize),
            minute: 0,
        })
    }

    /// Whether a newcomer's source, and its network, have reached their limits in a swarm of this
    /// many peers, of which `counts` returns theirs.
    #[inline]
    pub(crate) fn are_over_in_swarm(
        &self,
        peers: usize,
        counts: impl FnOnce() -> [u64; 2],
    ) -> [bool; 2] {
        let limit = self.peers_per_swarm;
        // In a smaller swarm no source can exceed it.
        if limit == 0 || (peers as u64) < limit {
            return [false; 2];
        }
        let [source, network] = counts();
        [source >= limit, network >= limit * NETWORK_SOURCES]
    }

    /// Begins to count swarms and replaced peers anew if a minute is over.
    pub(crate) fn begin_minute(&mut self, now: Moment) {
        let minute = now.0 / 60;
        if self.minute != minute {
            self.minute = minute;
            self.new_swarms.iter_mut().for_each(Levels::clear);
            self.replaced.clear();
        }
    }

    /// Counts a swarm that this source has created.
    pub(crate) fn swarm_created(&mut self, hashes: SourceHashes) {
        self.new_swarms.iter_mut().for_each(|new_swarms| new_swarms.add(hashes));
    }

    /// Counts a peer that was stored.
    #[inline]
    pub(crate) fn peer_added(&mut self, hashes: SourceHashes) {
        self.peers.iter_mut().for_each(|peers| peers.add(hashes));
    }

    /// Takes back a peer that was removed.
    #[inline]
    pub(crate) fn peer_removed(&mut self, hashes: SourceHashes) {
        self.peers.iter_mut().for_each(|peers| peers.remove(hashes));
    }

    /// Counts a peer of this source that a newcomer has replaced.
    pub(crate) fn peer_replaced(&mut self, hashes: SourceHashes) {
        self.replaced.add(hashes.source);
    }

    /// How much a source occupies, for comparison with others: one in `part` of its peers, or the
    /// share per source of its network or its block, whichever is most. `None` if peers in all are
    /// not limited.
    pub(crate) fn weight(&self, hashes: SourceHashes, part: u64) -> Option<u64> {
        let Levels { near, blocks, .. } = self.peers.as_ref()?;
        let network = near.of(hashes.network) / NETWORK_SOURCES;
        let block = blocks.of(hashes.block) / BLOCK_SOURCES;
        Some((near.of(hashes.source) / part).max(network).max(block))
    }

    /// Whether newcomers have left this source some of the part that it may lose in this minute.
    pub(crate) fn may_lose(&self, hashes: SourceHashes) -> bool {
        self.peers.as_ref().is_some_and(|peers| {
            let peers = peers.near.without_mean(hashes.source);
            let part = peers.div_ceil(REPLACED_SHARE).max(1);
            self.replaced.without_mean(hashes.source) < part
        })
    }

    /// Whether a table is crowded, so that the limits of networks and blocks apply alone.
    pub(crate) fn is_crowded(&self) -> bool {
        self.peers.iter().chain(&self.new_swarms).any(Levels::is_crowded)
    }

    /// Panics unless the table counts exactly these endpoints.
    pub(crate) fn check(&self, endpoints: impl Iterator<Item = SourceHashes>) {
        let Some(peers) = &self.peers else { return };
        let mut counted = Levels::new(peers.limit, peers.near.cells() as u64).expect("a limit");
        endpoints.for_each(|hashes| counted.add(hashes));
        assert!(counted == *peers, "the table counts the peers that are stored");
    }
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
