//! Builds the members of a tracker, workers and fronts, and the lanes between them.

use std::sync::Arc;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;
use onrush_swarm::{Shard, ShardMap};

use crate::connection::{ConnectionIds, Keys};
use crate::front::Front;
use crate::intake::Intake;
use crate::lanes::{Inbox, Mailbox, Waker, lanes_to};
use crate::limits::WorkerSettings;
use crate::metrics::{WorkerMetrics, XdpQueue};
use crate::producer::Producer;
use crate::rules::Rules;
use crate::sorter::share;
use crate::worker::{SocketSide, SwarmSide, Worker};

/// Values that must be unpredictable for clients.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// The keys of connection ids.
    pub keys: Keys,
    /// The key of the function from info hashes to shards.
    pub shard_key: [u32; 5],
    /// The key of the hash tables inside the shards.
    pub table_key: [u8; 16],
    /// The seed of sampling and jitter.
    pub seed: u64,
}

impl Secrets {
    /// Random secrets with the given connection keys.
    pub fn random(keys: Keys) -> Self {
        Self { keys, shard_key: rand::random(), table_key: rand::random(), seed: rand::random() }
    }
}

/// The function from info hashes to shards.
pub fn shard_map(shards: usize, secrets: &Secrets) -> ShardMap {
    ShardMap::new(secrets.shard_key, shards as u16)
}

/// Builds the workers of a tracker whose only front is UDP; see [`assemble_with_fronts`].
///
/// # Panics
/// Unless there is one socket for each worker with a socket side.
pub fn assemble<S: Socket>(
    settings: &WorkerSettings,
    secrets: &Secrets,
    sockets: Vec<S>,
    rules: &Rules,
) -> Vec<Worker<S>> {
    assemble_with_fronts(settings, secrets, sockets, rules, Vec::new()).0
}

/// Builds all workers, ready to take turns, and one front for each of `fronts`, which holds the
/// waker that ends the front's sleep. The first workers get `sockets`, in order. A front has the
/// same limits as a worker with a socket side.
///
/// # Panics
/// Unless there is one socket for each worker with a socket side.
pub fn assemble_with_fronts<S: Socket>(
    settings: &WorkerSettings,
    secrets: &Secrets,
    sockets: Vec<S>,
    rules: &Rules,
    fronts: Vec<Arc<dyn Waker>>,
) -> (Vec<Worker<S>>, Vec<Front>) {
    let placement = settings.placement;
    assert_eq!(
        sockets.len(),
        placement.socket_sides(),
        "one socket for each worker with a socket side"
    );
    let map = shard_map(placement.shards(), secrets);
    let ids = ConnectionIds::new(&secrets.keys, settings.connection_validity);
    let senders = sockets.len() + fronts.len();
    let parkers: Vec<Parker> = (0..placement.workers()).map(|_| Parker::new()).collect();
    let wakers = parkers.iter().enumerate().map(|(index, parker)| match sockets.get(index) {
        Some(socket) => Arc::new(socket.waker()) as Arc<dyn Waker>,
        None => {
            let unparker = parker.unparker().clone();
            Arc::new(move || unparker.unpark())
        }
    });
    let own = settings.batches_in_flight;
    let waiting = senders * share(placement.shards(), own);
    let (mailboxes, inboxes): (Vec<Mailbox>, Vec<Inbox>) =
        wakers.chain(fronts).map(|waker| lanes_to(waker, waiting, own)).unzip();
    let mailboxes: Arc<[Mailbox]> = mailboxes.into();
    let owners: Arc<[usize]> =
        (0..placement.shards()).map(|shard| placement.owner(shard)).collect();
    let mut inboxes = inboxes.into_iter();
    let mut sockets = sockets.into_iter();
    let mut workers = Vec::with_capacity(placement.workers());
    for (index, (parker, inbox)) in parkers.into_iter().zip(inboxes.by_ref()).enumerate() {
        let mut metrics = WorkerMetrics::default();
        let socket_side = sockets.next().map(|mut socket| {
            metrics.queues = XdpQueue::of(&mut socket);
            let buffers = socket.buffers();
            metrics.receive_buffer.set(buffers.receive as u64);
            metrics.send_buffer.set(buffers.send as u64);
            let intake = Intake::new(rules, index, ids.clone());
            SocketSide::new(index, socket, intake, map, settings)
        });
        let swarm_side = (0..placement.shards())
            .find(|shard| placement.owner(*shard) == index)
            .map(|shard| swarm_side(rules, secrets, shard));
        let (mailboxes, owners) = (mailboxes.clone(), owners.clone());
        workers.push(Worker {
            index,
            socket_side,
            swarm_side,
            inbox,
            mailboxes,
            owners,
            parker,
            metrics: Arc::new(metrics),
        });
    }
    let front = |(index, inbox)| Front {
        index,
        metrics: Arc::new(WorkerMetrics::default()),
        producer: Producer::new(index, map, settings),
        inbox,
        mailboxes: mailboxes.clone(),
        owners: owners.clone(),
    };
    let fronts = (workers.len()..).zip(inboxes).map(front).collect();
    (workers, fronts)
}

fn swarm_side(rules: &Rules, secrets: &Secrets, shard: usize) -> SwarmSide {
    let seed = secrets.seed.wrapping_add(shard as u64);
    let mut side = SwarmSide::new(
        shard,
        Shard::new(rules.shard, secrets.table_key, seed),
        rules.sweep_period(),
    );
    side.update(rules);
    side
}
