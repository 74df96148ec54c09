//! Builds the workers of either placement and the lanes between them.

use std::sync::Arc;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;
use onrush_swarm::{Shard, ShardMap};

use crate::access::Lists;
use crate::connection::{ConnectionIds, Keys};
use crate::intake::Intake;
use crate::lanes::bell::{Bell, SocketBell};
use crate::lanes::{Inbox, Ways, lanes_to};
use crate::metrics::WorkerMetrics;
use crate::rules::Rules;
use crate::settings::{Placement, Settings};
use crate::sorter::share;
use crate::worker::{SocketSide, SwarmSide, Worker};

/// What must not be guessed from outside.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Of connection ids.
    pub keys: Keys,
    /// Of the function from info hashes to shards.
    pub shard_key: [u32; 5],
    /// Of the tables inside the shards.
    pub table_key: [u8; 16],
    /// Where sampling and jitter start.
    pub seed: u64,
}

impl Secrets {
    /// Fresh ones, around the given connection keys.
    pub fn random(keys: Keys) -> Self {
        Self { keys, shard_key: rand::random(), table_key: rand::random(), seed: rand::random() }
    }
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

/// The function from info hashes to shards.
pub fn shard_map(settings: &Settings, secrets: &Secrets) -> ShardMap {
    ShardMap::new(secrets.shard_key, settings.placement.shards() as u16)
}

/// Builds all workers, ready to take turns: one with a socket side for each of `sockets`, in order.
///
/// # Panics
/// When there are not as many sockets as the placement has workers with a socket side.
pub fn assemble<S: Socket>(
    settings: &Settings,
    secrets: &Secrets,
    sockets: Vec<S>,
    lists: &Lists,
) -> Vec<Worker<S>> {
    let placement = settings.placement;
    assert_eq!(
        sockets.len(),
        placement.socket_sides(),
        "one socket for each worker with a socket side"
    );
    let map = shard_map(settings, secrets);
    let rules = Rules::new(settings, lists);
    let ids = ConnectionIds::new(&secrets.keys, settings.connection.validity);
    let intake = Intake::new(&rules, ids);
    let parkers: Vec<Parker> = (0..placement.workers()).map(|_| Parker::new()).collect();
    let bells: Vec<Arc<dyn Bell>> = parkers
        .iter()
        .enumerate()
        .map(|(index, parker)| match sockets.get(index) {
            Some(socket) => Arc::new(SocketBell(socket.waker())) as Arc<dyn Bell>,
            None => Arc::new(parker.unparker().clone()) as Arc<dyn Bell>,
        })
        .collect();
    let (ways, inboxes): (Vec<Ways>, Vec<Inbox>) =
        bells.into_iter().map(|bell| lanes(settings, bell)).unzip();
    let ways: Arc<[Ways]> = ways.into();
    let owners: Arc<[usize]> =
        (0..placement.shards()).map(|shard| placement.owner(shard)).collect();
    let mut sockets = sockets.into_iter();
    let mut workers = Vec::with_capacity(placement.workers());
    for (index, (inbox, parker)) in inboxes.into_iter().zip(parkers).enumerate() {
        let socket_side = sockets
            .next()
            .map(|socket| SocketSide::new(index, socket, intake.clone(), map, settings));
        let swarm_side = (0..placement.shards())
            .find(|shard| placement.owner(*shard) == index)
            .map(|shard| swarm_side(&rules, secrets, shard));
        let (ways, owners) = (ways.clone(), owners.clone());
        let metrics = Arc::new(WorkerMetrics::default());
        workers.push(Worker {
            index,
            socket_side,
            swarm_side,
            inbox,
            ways,
            owners,
            parker,
            metrics,
        });
    }
    workers
}

fn lanes(settings: &Settings, bell: Arc<dyn Bell>) -> (Ways, Inbox) {
    let senders = settings.placement.socket_sides();
    let own = settings.limits.batches_in_flight;
    lanes_to(bell, senders * share(settings.placement.shards(), own), own)
}

fn swarm_side(rules: &Rules, secrets: &Secrets, shard: usize) -> SwarmSide {
    let seed = secrets.seed.wrapping_add(shard as u64);
    SwarmSide::new(shard, Shard::new(rules.shard, secrets.table_key, seed), rules.sweep_period)
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
