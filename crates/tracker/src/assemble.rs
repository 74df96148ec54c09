//! Builds the workers of either placement and the lanes between them.

use std::sync::Arc;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;
use onrush_swarm::{Shard, ShardMap};

use crate::connection::{ConnectionIds, Keys};
use crate::intake::Intake;
use crate::lanes::{Inbox, Mailbox, SocketWaker, Waker, lanes_to};
use crate::limits::WorkerSettings;
use crate::metrics::WorkerMetrics;
use crate::rules::Rules;
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

/// The function from info hashes to shards.
pub fn shard_map(shards: usize, secrets: &Secrets) -> ShardMap {
    ShardMap::new(secrets.shard_key, shards as u16)
}

/// Builds all workers, ready to take turns: one with a socket side for each of `sockets`, in order.
///
/// # Panics
/// When there are not as many sockets as the placement has workers with a socket side.
pub fn assemble<S: Socket>(
    settings: &WorkerSettings,
    secrets: &Secrets,
    sockets: Vec<S>,
    rules: &Rules,
) -> Vec<Worker<S>> {
    let placement = settings.placement;
    assert_eq!(
        sockets.len(),
        placement.socket_sides(),
        "one socket for each worker with a socket side"
    );
    let map = shard_map(placement.shards(), secrets);
    let ids = ConnectionIds::new(&secrets.keys, settings.connection_validity);
    let intake = Intake::new(rules, ids);
    let parkers: Vec<Parker> = (0..placement.workers()).map(|_| Parker::new()).collect();
    let waker: Vec<Arc<dyn Waker>> = parkers
        .iter()
        .enumerate()
        .map(|(index, parker)| match sockets.get(index) {
            Some(socket) => Arc::new(SocketWaker(socket.waker())) as Arc<dyn Waker>,
            None => Arc::new(parker.unparker().clone()) as Arc<dyn Waker>,
        })
        .collect();
    let (mailboxes, inboxes): (Vec<Mailbox>, Vec<Inbox>) =
        waker.into_iter().map(|waker| lanes(settings, waker)).unzip();
    let mailboxes: Arc<[Mailbox]> = mailboxes.into();
    let owners: Arc<[usize]> =
        (0..placement.shards()).map(|shard| placement.owner(shard)).collect();
    let mut sockets = sockets.into_iter();
    let mut workers = Vec::with_capacity(placement.workers());
    for (index, (inbox, parker)) in inboxes.into_iter().zip(parkers).enumerate() {
        let socket_side = sockets.next().map(|socket| {
            SocketSide::new(index, socket, intake.clone(), map, settings, rules.max_hashes)
        });
        let swarm_side = (0..placement.shards())
            .find(|shard| placement.owner(*shard) == index)
            .map(|shard| swarm_side(rules, secrets, shard));
        let (mailboxes, owners) = (mailboxes.clone(), owners.clone());
        let metrics = Arc::new(WorkerMetrics::default());
        workers.push(Worker {
            index,
            socket_side,
            swarm_side,
            inbox,
            mailboxes,
            owners,
            parker,
            metrics,
        });
    }
    workers
}

fn lanes(settings: &WorkerSettings, waker: Arc<dyn Waker>) -> (Mailbox, Inbox) {
    let senders = settings.placement.socket_sides();
    let own = settings.batches_in_flight;
    lanes_to(waker, senders * share(settings.placement.shards(), own), own)
}

fn swarm_side(rules: &Rules, secrets: &Secrets, shard: usize) -> SwarmSide {
    let seed = secrets.seed.wrapping_add(shard as u64);
    SwarmSide::new(shard, Shard::new(rules.shard, secrets.table_key, seed), rules.sweep_period)
}
