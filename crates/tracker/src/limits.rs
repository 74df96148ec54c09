//! The settings of the data path: the placement of workers, the limits of their buffers and of web
//! workers' connections, and the values of announce replies. The configuration reads and checks
//! them.

use std::time::Duration;

/// How sockets and shards are distributed over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Socket workers and swarm workers, joined by lanes.
    Split {
        /// Workers with sockets, at least 1.
        socket_workers: usize,
        /// Workers with a shard each, at least 1.
        swarm_workers: usize,
    },
    /// Workers with sockets and a shard each.
    Colocated {
        /// Number of workers, at least 1.
        workers: usize,
    },
}

impl Placement {
    /// Number of workers with a socket side. They have the first numbers.
    pub fn socket_sides(&self) -> usize {
        match *self {
            Self::Split { socket_workers, .. } => socket_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// Number of shards, each with a worker of its own.
    pub fn shards(&self) -> usize {
        match *self {
            Self::Split { swarm_workers, .. } => swarm_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        match *self {
            Self::Split { socket_workers, swarm_workers } => socket_workers + swarm_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// The worker that owns a shard.
    pub fn owner(&self, shard: usize) -> usize {
        self.workers() - self.shards() + shard
    }
}

/// The number, CPUs and limits of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The number of workers of each kind.
    pub placement: Placement,
    /// The vCPU of each worker in the order socket workers (or colocated workers), swarm
    /// workers; `None` leaves the choice to the scheduler.
    pub pin: Option<Vec<usize>>,
    /// How long an idle worker polls before it sleeps.
    pub spin: Duration,
    /// Maximum datagrams per receive call.
    pub receive_batch: usize,
    /// Maximum batches in flight per socket worker or front.
    pub batches_in_flight: usize,
    /// Maximum requests per batch.
    pub batch_requests: usize,
    /// Maximum scrapes in flight per socket worker or front.
    pub scrapes_in_flight: usize,
    /// Minimum seconds for which a connection id is valid; the maximum is twice as long.
    pub connection_validity: u32,
}

/// The limits of one web worker's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebLimits {
    /// Seconds for which a connection without a request stays open after a reply; 0 closes it after
    /// each reply.
    pub keep_alive: u32,
    /// Seconds in which the head of a request has to arrive and the client has to take a reply.
    pub timeout: u32,
    /// Maximum open connections: the worker's share, rounded up.
    pub connections: usize,
    /// Maximum open connections of a source: an IPv4 address or an IPv6 /64.
    pub connections_per_source: usize,
    /// Maximum bytes of incomplete requests and unsent replies of all connections: the worker's
    /// share, rounded up.
    pub buffer_memory: usize,
    /// The limits of connections by WebSocket, if it is served.
    pub webtorrent: Option<WebTorrentLimits>,
}

/// The limits of WebTorrent, and the interval of its announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebTorrentLimits {
    /// Announce interval, seconds.
    pub interval: u32,
    /// Maximum offers of an announce that are forwarded.
    pub max_offers: usize,
    /// Maximum bytes of a message.
    pub max_message: usize,
    /// Maximum swarms that a connection is a member of.
    pub memberships: usize,
}

/// The values of announce replies, and lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// Announce interval, seconds.
    pub interval: u32,
    /// Maximum random deviation of the interval, percent; drawn for each reply.
    pub interval_jitter_percent: u32,
    /// Peers for a client that asks for no number (BEP 15: a negative one).
    pub default_peers: u16,
    /// Maximum peers per reply over IPv4 (hard limit 200).
    pub max_peers_v4: u16,
    /// Maximum peers per reply over IPv6 (hard limit 67).
    pub max_peers_v6: u16,
    /// Seconds after its last announce at which a peer expires.
    pub peer_lifetime: u32,
    /// Seconds for which a swarm's `completed` is kept after its last peer has left.
    pub completed_retention: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_and_workers_are_numbered_by_placement() {
        let split = Placement::Split { socket_workers: 3, swarm_workers: 2 };
        assert_eq!((split.socket_sides(), split.shards(), split.workers()), (3, 2, 5));
        assert_eq!([split.owner(0), split.owner(1)], [3, 4]);
        let colocated = Placement::Colocated { workers: 4 };
        assert_eq!((colocated.socket_sides(), colocated.shards(), colocated.workers()), (4, 4, 4));
        assert_eq!(colocated.owner(3), 3);
    }
}
