//! The limits on what is stored, naively: all peers are counted for each newcomer.
//!
//! A peer that is stored may always announce again. A newcomer is stored unless
//!
//! - the peers of its source or network in the swarm have reached `limits.source_peers_per_swarm`;
//!   if it is the network, it replaces a peer of a neighbour that has more there, if one is drawn,
//! - it is the first peer of a swarm, and its source or network has created as many swarms in this
//!   minute as `limits.source_new_swarms` permits,
//! - the peers of its source or network in the shard have reached the shard's share of
//!   `limits.source_peers`,
//! - the shard has reached its share of `limits.peers`. Then it replaces a peer whose source
//!   occupies a quarter more than its own, if one is drawn and may be replaced in this minute.
//!
//! No run has as many peers as would reach the limit of a block (IPv4 /16, IPv6 /32).
//!
//! The shard counts sources in tables in which some share cells, so a count may include that of
//! another source. It may be too high, never too low.

use std::collections::BTreeMap;

use onrush_config::Settings;
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::sources::NETWORK_SOURCES;

use super::history::{Doubt, Possible};

/// A number of peers or swarms, at least and at most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Count {
    pub(crate) fn add(&mut self, certain: bool) {
        self.least += u64::from(certain);
        self.most += 1;
    }

    /// The number of these peers.
    pub(crate) fn of(peers: &[(InfoHash, Endpoint, Possible)]) -> Self {
        let mut count = Self::default();
        peers.iter().for_each(|(.., peer)| count.add(!peer.unknown));
        count
    }
}

/// The source and the network of an endpoint: IPv4 /32 and /24, or IPv6 /64 and /48.
pub(crate) fn blocks(endpoint: &Endpoint) -> [Vec<u8>; 2] {
    let bytes = endpoint.as_bytes();
    let lengths = match endpoint {
        Endpoint::V4(_) => [4, 3],
        Endpoint::V6(_) => [8, 6],
    };
    lengths.map(|length| bytes[..length].to_vec())
}

/// Adds one to the count of a newcomer's source and of its network, if this endpoint is of them.
pub(crate) fn add_alike(counts: &mut [Count; 2], of: &Endpoint, own: &Endpoint, certain: bool) {
    for (count, (of, own)) in counts.iter_mut().zip(blocks(of).into_iter().zip(blocks(own))) {
        if of == own {
            count.add(certain);
        }
    }
}

/// The limits of a shard. Those of sources are off if they are 0.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) peers: u64,
    pub(crate) of_source: u64,
    pub(crate) per_swarm: u64,
    pub(crate) new_swarms: u64,
}

/// Numbers of other peers when a newcomer arrives.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Peers of its source and of its network in the swarm.
    pub(crate) in_swarm: [Count; 2],
    /// Peers of its source and of its network in the shard.
    pub(crate) in_shard: [Count; 2],
    /// Peers of the shard.
    pub(crate) all: Count,
    /// Whether it certainly creates its swarm, and whether it may.
    pub(crate) creates: (bool, bool),
    /// Swarms of its source and of its network in this minute.
    pub(crate) created: [Count; 2],
    /// Swarms of all sources in this minute.
    pub(crate) all_created: Count,
}

/// Result of a newcomer's announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewcomerOutcome {
    Stored,
    Refused,
    /// Either; why it may be refused.
    Open(Doubt),
}

/// Whether a limit is certainly reached, and whether it may be.
fn reached(limit: u64, [source, network]: [Count; 2]) -> (bool, bool) {
    let of_network = limit * NETWORK_SOURCES;
    let certain = source.least >= limit || network.least >= of_network;
    let possible = source.most >= limit || network.most >= of_network;
    (limit > 0 && certain, limit > 0 && possible)
}

impl Limits {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (limits, shards) = (&settings.limits, settings.placement.shards() as u64);
        let share = |limit: u64| if limit == 0 { 0 } else { (limit / shards).max(1) };
        Self {
            peers: share(limits.peers).max(1),
            of_source: share(limits.source_peers.unwrap_or(0)),
            per_swarm: limits.source_peers_per_swarm.into(),
            new_swarms: share(limits.source_new_swarms.into()),
        }
    }

    /// Whether newcomers replace others in a full shard.
    pub(crate) fn replaces(&self) -> bool {
        self.of_source > 0
    }

    /// Whether these peers of a newcomer's source and network in its swarm may be as many as are
    /// permitted.
    pub(crate) fn crowds(&self, in_swarm: [Count; 2]) -> bool {
        reached(self.per_swarm, in_swarm).1
    }

    /// Result of a newcomer's announce.
    pub(crate) fn outcome(&self, found: &Found) -> NewcomerOutcome {
        let of_source = reached(self.of_source, found.in_shard);
        let mut new_swarms = reached(self.new_swarms, found.created);
        new_swarms = (new_swarms.0 && found.creates.0, new_swarms.1 && found.creates.1);
        let full = (found.all.least >= self.peers, found.all.most >= self.peers);
        let source_in_swarm = self.per_swarm > 0 && found.in_swarm[0].least >= self.per_swarm;
        // A newcomer that replaces a neighbour needs no more space.
        let crowds = self.crowds(found.in_swarm);
        let no_space = full.0 && !self.replaces() && !crowds;
        if source_in_swarm || of_source.0 || new_swarms.0 || no_space {
            return NewcomerOutcome::Refused;
        }
        if crowds || of_source.1 || new_swarms.1 || full.1 {
            return NewcomerOutcome::Open(Doubt::Limited);
        }
        let shared = |limit: u64, all: Count| limit > 0 && all.most >= limit;
        let misjudged = shared(self.of_source, found.all)
            || found.creates.1 && shared(self.new_swarms, found.all_created);
        match misjudged {
            true => NewcomerOutcome::Open(Doubt::Misjudged),
            false => NewcomerOutcome::Stored,
        }
    }
}

/// Peers of the sources and networks of a shard.
#[derive(Debug, Default)]
pub(crate) struct Occupied(BTreeMap<Vec<u8>, Count>);

impl Occupied {
    pub(crate) fn by(peers: &[(InfoHash, Endpoint, Possible)]) -> Self {
        let mut occupied = Self::default();
        for (_, endpoint, peer) in peers {
            for block in blocks(endpoint) {
                occupied.0.entry(block).or_default().add(!peer.unknown);
            }
        }
        occupied
    }

    /// The numbers of peers of the source and of the network.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> [Count; 2] {
        blocks(endpoint).map(|block| self.0.get(&block).copied().unwrap_or_default())
    }

    /// How much a source occupies at most: its peers, or a sixteenth of its network's. Of settled
    /// peers, its own number counts an eighth.
    fn weight(&self, endpoint: &Endpoint) -> Count {
        let [source, network] = self.of(endpoint);
        Count {
            least: source.least.max(network.least / NETWORK_SOURCES),
            most: source.most.max(network.most / NETWORK_SOURCES),
        }
    }

    /// Whether a newcomer possibly may replace a peer.
    pub(crate) fn outweighs(&self, peer: &Endpoint, newcomer: &Endpoint) -> bool {
        let own = self.weight(newcomer).least;
        self.weight(peer).most > own + own / 4 + 1
    }
}

/// Swarms created by newcomers, with the minutes in which each may have been created.
#[derive(Debug, Default)]
pub(crate) struct Created(Vec<(Endpoint, usize, [u32; 2], bool)>);

impl Created {
    /// A newcomer has created a swarm in this shard, or may have.
    pub(crate) fn push(&mut self, by: Endpoint, shard: usize, minutes: [u32; 2], certain: bool) {
        self.0.push((by, shard, minutes, certain));
    }

    /// Another process serves, which has not counted them.
    pub(crate) fn doubt(&mut self) {
        self.0.iter_mut().for_each(|(.., certain)| *certain = false);
    }

    /// The swarms of a newcomer's source and network, and those of all, in these minutes.
    pub(crate) fn of(
        &self,
        newcomer: &Endpoint,
        shard: usize,
        minutes: [u32; 2],
    ) -> ([Count; 2], Count) {
        let (mut own, mut all) = ([Count::default(); 2], Count::default());
        for (by, _, created, certain) in self.0.iter().filter(|it| it.1 == shard) {
            if created[0] > minutes[1] || created[1] < minutes[0] {
                continue;
            }
            let certain = *certain && *created == minutes && minutes[0] == minutes[1];
            all.add(certain);
            add_alike(&mut own, by, newcomer, certain);
        }
        (own, all)
    }
}
