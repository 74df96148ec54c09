//! What the main thread shows to others: who works, what is in force, and where to ask for changes. Cheap
//! to clone, for any thread but a worker's: no worker ever waits for what is behind the mutex here.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crossbeam_channel::{Sender, TrySendError};

use crate::files::Files;
use crate::request::Ask;
use onrush_config::settings::Settings;
use onrush_tracker::access::Lists;
use onrush_tracker::metrics::{Summary, WorkerMetrics};
use onrush_tracker::orders::Orders;

/// A tracker as others see it.
#[derive(Clone)]
pub struct Overview {
    workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    orders: Orders,
    addresses: Arc<[SocketAddr]>,
    started: SystemTime,
    in_force: Arc<Mutex<InForce>>,
    files: Files,
    asks: Sender<Ask>,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The lists.
    pub lists: Lists,
    /// How far the tracker is.
    pub phase: Phase,
    /// How hard it is pressed.
    pub pressure: Pressure,
}

/// How hard a tracker is pressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// 0 is not at all; [`SLOTS`](onrush_tracker::shedding::SLOTS) at most.
    pub step: u32,
    /// Seconds that clients are told to wait, before jitter.
    pub interval: u32,
}

/// How far a tracker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serving,
    /// It has been asked to end.
    Stopping,
}

impl Overview {
    /// Of these workers, started just now.
    pub fn new(
        workers: Arc<[(String, Arc<WorkerMetrics>)]>,
        orders: Orders,
        addresses: &[SocketAddr],
        in_force: InForce,
        files: Files,
        asks: Sender<Ask>,
    ) -> Self {
        Self {
            workers,
            orders,
            addresses: addresses.into(),
            started: SystemTime::now(),
            in_force: Arc::new(Mutex::new(in_force)),
            files,
            asks,
        }
    }

    /// Workers by name, each with its counters.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &WorkerMetrics)> {
        self.workers.iter().map(|(name, metrics)| (name.as_str(), metrics.as_ref()))
    }

    /// The same as a whole, to be kept: to share each of them would touch its worker's line of the cache.
    pub fn shared_workers(&self) -> Arc<[(String, Arc<WorkerMetrics>)]> {
        self.workers.clone()
    }

    /// All counters together.
    pub fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|(_, metrics)| metrics.as_ref()))
    }

    /// The ways that orders take to the workers.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// The addresses that are served.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// When the workers began.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// How the writing of files went.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// What is in force at the moment.
    pub fn in_force(&self) -> InForce {
        self.lock().clone()
    }

    /// Shows something else as being in force.
    pub fn change(&self, change: impl FnOnce(&mut InForce)) {
        change(&mut self.lock());
    }

    /// Asks the main thread for something; hands it back when it has too much to do already, or is gone.
    pub fn ask(&self, ask: Ask) -> Result<(), Ask> {
        self.asks.try_send(ask).map_err(|error| match error {
            TrySendError::Full(ask) | TrySendError::Disconnected(ask) => ask,
        })
    }

    fn lock(&self) -> MutexGuard<'_, InForce> {
        // Whoever panicked while it looked on has changed nothing halfway.
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
