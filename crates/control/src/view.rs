//! The tracker's state as the main thread publishes it to other threads. Workers never read it, so
//! none of them can wait for its mutex.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Sender, TrySendError};
use onrush_proto::InfoHash;
use onrush_swarm::ShardMap;

use crate::files::Files;
use crate::request::Request;
use onrush_config::Settings;
use onrush_tracker::access::Lists;
use onrush_tracker::lanes::Mailbox;
use onrush_tracker::metrics::{Summary, WorkerMetrics};
use onrush_tracker::orders::Orders;

/// A running tracker as other threads see it. Cheap to clone.
#[derive(Clone)]
pub struct View {
    parts: Arc<Parts>,
    started: (Instant, SystemTime),
    in_force: Arc<Mutex<InForce>>,
    requests: Sender<Request>,
}

/// What does not change while the tracker runs.
pub struct Parts {
    /// All workers by thread name, in order, each with its counters.
    pub workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    /// Sends orders to the workers.
    pub orders: Orders,
    /// The lanes to the workers, in their order.
    pub mailboxes: Arc<[Mailbox]>,
    /// Maps info hashes to shards.
    pub map: ShardMap,
    /// The served UDP addresses.
    pub addresses: Vec<SocketAddr>,
    /// Counters of the files that the daemon writes.
    pub files: Files,
}

/// The settings and lists in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The access lists.
    pub lists: Lists,
    /// The overload level.
    pub pressure: Pressure,
}

/// The overload level of a tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// 0 (none) to [`SLOTS`](onrush_tracker::shedding::SLOTS).
    pub step: u32,
    /// The announce interval sent to clients, in seconds, before jitter.
    pub interval: u32,
}

impl View {
    /// A view of a tracker that starts now. Requests from other threads arrive at `requests`.
    pub fn new(parts: Parts, in_force: InForce, requests: Sender<Request>) -> Self {
        Self {
            parts: Arc::new(parts),
            started: (Instant::now(), SystemTime::now()),
            in_force: Arc::new(Mutex::new(in_force)),
            requests,
        }
    }

    /// The workers by thread name, each with its counters.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &WorkerMetrics)> {
        self.parts.workers.iter().map(|(name, metrics)| (name.as_str(), metrics.as_ref()))
    }

    /// The same as one shared list. Cloning each `Arc<WorkerMetrics>` instead would write to a
    /// cache line of each worker.
    pub fn shared_workers(&self) -> Arc<[(String, Arc<WorkerMetrics>)]> {
        self.parts.workers.clone()
    }

    /// The sum of all workers' counters.
    pub fn summary(&self) -> Summary {
        Summary::of(self.parts.workers.iter().map(|(_, metrics)| metrics.as_ref()))
    }

    /// Sends orders to the workers.
    pub fn orders(&self) -> &Orders {
        &self.parts.orders
    }

    /// How many batches wait in the lane to a worker, and how many fit.
    pub fn lane_depth(&self, worker: usize) -> (usize, usize) {
        self.parts.mailboxes[worker].requests.depth()
    }

    /// The shard that owns an info hash.
    pub fn shard_of(&self, info_hash: &InfoHash) -> usize {
        self.parts.map.shard_of(info_hash)
    }

    /// The served UDP addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.parts.addresses
    }

    /// When the tracker started, on the monotonic clock and on the system's clock.
    pub fn started(&self) -> (Instant, SystemTime) {
        self.started
    }

    /// Counters of the files that the daemon writes.
    pub fn files(&self) -> &Files {
        &self.parts.files
    }

    /// The settings and lists in force at the moment.
    pub fn in_force(&self) -> InForce {
        self.lock().clone()
    }

    /// Publishes a change of the settings and lists in force.
    pub fn update(&self, change: impl FnOnce(&mut InForce)) {
        change(&mut self.lock());
    }

    /// Sends a request to the main thread.
    ///
    /// # Errors
    /// The request itself, when the main thread's queue is full or the thread has exited.
    pub fn request(&self, request: Request) -> Result<(), Request> {
        self.requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(request) | TrySendError::Disconnected(request) => request,
        })
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        // Each change is a plain assignment, so a panic leaves no half of one behind.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} workers)", self.parts.workers.len())
    }
}
