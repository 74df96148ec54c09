//! Workers on their threads: start, failures and stop.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use onrush_net::{Socket, affinity};
use onrush_swarm::Shard;
use thiserror::Error;

use crate::clock::Clock;
use crate::lanes::Mailbox;
use crate::limits::WorkerSettings;
use crate::metrics::{Summary, WorkerMetrics};
use crate::orders::Orders;
use crate::worker::Worker;

/// Maximum sleep of a worker. It wakes a few times per second, so that its count of turns tells an
/// idle worker from a stalled one, and expiry continues.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// The unexpected exit of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} failed: {cause}")]
pub struct WorkerFailure {
    /// The name of the worker.
    pub name: String,
    /// Why it exited.
    pub cause: String,
}

/// A tracker with its workers on threads.
pub struct Running {
    addresses: Vec<SocketAddr>,
    workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    mailboxes: Arc<[Mailbox]>,
    orders: Orders,
    stop: Arc<AtomicBool>,
    failures: Receiver<WorkerFailure>,
    /// Dropping this lets the workers take turns.
    gate: Option<Sender<Infallible>>,
    threads: Vec<JoinHandle<Option<Shard>>>,
}

impl Running {
    /// Starts a thread for each worker, named and pinned by `settings`, and starts their turns.
    ///
    /// # Errors
    /// When a thread cannot be started; the others are stopped again.
    pub fn launch<S: Socket + Send + 'static>(
        settings: &WorkerSettings,
        addresses: Vec<SocketAddr>,
        workers: Vec<Worker<S>>,
        clock: Clock,
    ) -> io::Result<Self> {
        let mut running = Self::prepare(settings, addresses, workers, clock)?;
        running.begin();
        Ok(running)
    }

    /// As [`launch`](Self::launch), but the workers wait for [`begin`](Self::begin).
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn prepare<S: Socket + Send + 'static>(
        settings: &WorkerSettings,
        addresses: Vec<SocketAddr>,
        workers: Vec<Worker<S>>,
        clock: Clock,
    ) -> io::Result<Self> {
        let (gate, opened) = bounded(0);
        let (failure_sender, failures) = unbounded();
        let shared =
            workers.first().map(|worker| (worker.mailboxes.clone(), worker.owners.clone()));
        let (mailboxes, owners) = shared.unwrap_or_default();
        let mut running = Self {
            orders: Orders::new(&mailboxes, workers.len(), owners),
            addresses,
            workers: workers
                .iter()
                .map(|worker| {
                    (settings.placement.worker_name(worker.index), worker.metrics.clone())
                })
                .collect(),
            mailboxes,
            stop: Arc::new(AtomicBool::new(false)),
            failures,
            gate: Some(gate),
            threads: Vec::with_capacity(workers.len()),
        };
        for worker in workers {
            let name = running.workers[worker.index].0.clone();
            let cpu = settings.pin.as_ref().and_then(|cpus| cpus.get(worker.index).copied());
            let thread = WorkerThread {
                worker,
                clock,
                cpu,
                spin: settings.spin,
                opened: opened.clone(),
                stop: running.stop.clone(),
                failures: failure_sender.clone(),
            };
            match thread::Builder::new().name(name).spawn(move || thread.run()) {
                Ok(handle) => running.threads.push(handle),
                Err(error) => {
                    running.stop();
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    /// Starts the turns of the workers.
    pub fn begin(&mut self) {
        self.gate = None;
    }

    /// The addresses that are served. A port 0 in the settings is the port that the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The counters of each worker, with its name.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &WorkerMetrics)> {
        self.workers.iter().map(|(name, metrics)| (name.as_str(), metrics.as_ref()))
    }

    /// As [`workers`](Self::workers), shared with other threads.
    pub fn shared_workers(&self) -> Arc<[(String, Arc<WorkerMetrics>)]> {
        self.workers.clone()
    }

    /// The mailboxes of all members: workers, then fronts.
    pub fn mailboxes(&self) -> &Arc<[Mailbox]> {
        &self.mailboxes
    }

    /// The sum of all workers' counters.
    pub fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|(_, metrics)| metrics.as_ref()))
    }

    /// The handle for orders to the workers.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Workers that have exited unexpectedly. From the first failure on, the tracker is incomplete.
    pub fn failures(&self) -> &Receiver<WorkerFailure> {
        &self.failures
    }

    /// Stops all workers and waits for the end of their turns.
    pub fn stop(mut self) -> Summary {
        self.end();
        self.summary()
    }

    /// As [`stop`](Self::stop), and returns the shards.
    pub fn stop_and_take_shards(mut self) -> (Summary, Vec<Shard>) {
        let shards = self.end();
        (self.summary(), shards)
    }

    fn end(&mut self) -> Vec<Shard> {
        self.stop.store(true, Ordering::Release);
        self.gate = None;
        for mailbox in self.mailboxes.iter() {
            mailbox.requests.wake();
        }
        // The cause of a panic is in the `WorkerFailure`.
        self.threads.drain(..).filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Everything that a worker's thread owns.
struct WorkerThread<S: Socket> {
    worker: Worker<S>,
    clock: Clock,
    cpu: Option<usize>,
    spin: Duration,
    /// Closes when turns may start.
    opened: Receiver<Infallible>,
    stop: Arc<AtomicBool>,
    failures: Sender<WorkerFailure>,
}

impl<S: Socket> WorkerThread<S> {
    /// Runs the worker until it is stopped. Returns its shard, unless it failed or has none.
    fn run(mut self) -> Option<Shard> {
        if let Some(cpu) = self.cpu
            && let Err(error) = affinity::pin_current_thread(cpu)
        {
            log::warn!("{error}; the worker runs unpinned");
        }
        // Nothing is ever sent: this returns when the gate is dropped.
        let _ = self.opened.recv();
        let name = thread::current().name().unwrap_or("worker").to_owned();
        let failures = self.failures.clone();
        // Unwind safe: after a panic the worker is not used again, and the process exits.
        let ended = catch_unwind(AssertUnwindSafe(|| self.take_turns()));
        // Dropping queued tasks tells their requesters that these will not run; the lane itself
        // stays open as long as any handle to it exists.
        while self.worker.inbox.order().is_some() {}
        let cause = match ended {
            Ok(Ok(())) => return self.worker.swarm_side.take().map(|side| side.shard),
            Ok(Err(error)) => format!("its socket failed: {error}"),
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        let _ = failures.send(WorkerFailure { name, cause });
        None
    }

    fn take_turns(&mut self) -> io::Result<()> {
        let mut idle = Idle { spin: self.spin, since: None };
        // When the last busy turn began; it lasts until the next turn begins.
        let mut began = None;
        while !self.stop.load(Ordering::Acquire) {
            let (now, since_start) = self.clock.read();
            if let Some(began) = began.take() {
                let took = since_start.saturating_sub(began).as_nanos() as u64;
                self.worker.metrics.turn_times.observe(took);
            }
            if self.worker.turn(now)? {
                began = Some(since_start);
                idle.reset();
            } else if idle.is_short() {
                std::hint::spin_loop();
            } else {
                self.worker.wait(MAX_SLEEP)?;
                idle.reset();
            }
        }
        Ok(())
    }
}

/// How long a worker has been idle.
struct Idle {
    /// How long an idle worker polls before it sleeps.
    spin: Duration,
    since: Option<Instant>,
}

impl Idle {
    /// Whether the worker polls once more instead of sleeping.
    fn is_short(&mut self) -> bool {
        // A worker that never spins does not read the clock.
        !self.spin.is_zero() && self.since.get_or_insert_with(Instant::now).elapsed() < self.spin
    }

    fn reset(&mut self) {
        self.since = None;
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_worker_spins_for_the_configured_time() {
        let mut idle = Idle { spin: Duration::ZERO, since: None };
        assert!(!idle.is_short());
        assert_eq!(idle.since, None, "a worker that never spins reads no clock");

        let mut idle = Idle { spin: Duration::from_secs(3600), since: None };
        assert!(idle.is_short() && idle.is_short());
        idle.spin = Duration::from_nanos(1);
        while idle.is_short() {}
        idle.reset();
        idle.spin = Duration::from_secs(3600);
        assert!(idle.is_short(), "work restarts the time");
    }
}
