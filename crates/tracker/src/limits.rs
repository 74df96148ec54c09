//! What the data path needs of the daemon's settings: the placement of workers, the limits of their
//! buffers, and what an announce gets. The configuration reads and checks these values.

use std::time::Duration;

/// How the work is laid out over workers.
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
        /// How many, at least 1.
        workers: usize,
    },
}

impl Placement {
    /// Workers with a socket side. They come first in the numbering.
    pub fn socket_sides(&self) -> usize {
        match *self {
            Self::Split { socket_workers, .. } => socket_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// Shards, each with a worker of its own.
    pub fn shards(&self) -> usize {
        match *self {
            Self::Split { swarm_workers, .. } => swarm_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// Workers in all.
    pub fn workers(&self) -> usize {
        match *self {
            Self::Split { socket_workers, swarm_workers } => socket_workers + swarm_workers,
            Self::Colocated { workers } => workers,
        }
    }

    /// The worker that owns a shard.
    pub fn owner(&self, shard: usize) -> usize {
        match *self {
            Self::Split { socket_workers, .. } => socket_workers + shard,
            Self::Colocated { .. } => shard,
        }
    }

    /// The name of a worker's thread: what it does and which one it is.
    pub fn worker_name(&self, index: usize) -> String {
        match *self {
            Self::Colocated { .. } => format!("worker-{index}"),
            Self::Split { socket_workers, .. } if index < socket_workers => {
                format!("socket-{index}")
            }
            Self::Split { socket_workers, .. } => format!("swarm-{}", index - socket_workers),
        }
    }
}

/// How many workers of which kind there are, where they run, and what each may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How many workers of which kind.
    pub placement: Placement,
    /// The vCPU of each worker in the order socket workers (or colocated workers), swarm
    /// workers; `None` leaves them to the scheduler.
    pub pin: Option<Vec<usize>>,
    /// How long an idle worker polls before it sleeps.
    pub spin: Duration,
    /// Datagrams per receive call at most.
    pub receive_batch: usize,
    /// Batches that a socket worker may have in flight.
    pub batches_in_flight: usize,
    /// Requests in one batch at most.
    pub batch_requests: usize,
    /// Scrapes that a socket worker may have in flight.
    pub scrapes_in_flight: usize,
    /// Seconds for which a connection id is valid at least; at most twice as long.
    pub connection_validity: u32,
}

/// What an announce gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// Seconds that a client is told to wait.
    pub interval: u32,
    /// Up to this many percent more or less, anew in each reply.
    pub interval_jitter_percent: u32,
    /// Peers for a client that asks for a negative number.
    pub default_peers: u16,
    /// Peers in a reply over IPv4 at most (hard limit 200).
    pub max_peers_v4: u16,
    /// Peers in a reply over IPv6 at most (hard limit 67).
    pub max_peers_v6: u16,
    /// Seconds after its last announce at which a peer is forgotten.
    pub peer_lifetime: u32,
    /// Seconds for which `completed` outlives a swarm's last peer.
    pub completed_retention: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_one_owner_and_every_worker_a_purpose() {
        let split = Placement::Split { socket_workers: 3, swarm_workers: 2 };
        assert_eq!((split.socket_sides(), split.shards(), split.workers()), (3, 2, 5));
        assert_eq!([split.owner(0), split.owner(1)], [3, 4]);
        assert_eq!(
            (split.worker_name(2), split.worker_name(3)),
            ("socket-2".into(), "swarm-0".into())
        );
        let colocated = Placement::Colocated { workers: 4 };
        assert_eq!((colocated.socket_sides(), colocated.shards(), colocated.workers()), (4, 4, 4));
        assert_eq!(colocated.owner(3), 3);
        assert_eq!(colocated.worker_name(0), "worker-0");
    }
}
