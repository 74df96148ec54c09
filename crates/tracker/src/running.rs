//! Workers on their threads: started together, watched, stopped together.

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

use crate::clock::Clock;
use crate::lanes::Mailbox;
use crate::limits::WorkerSettings;
use crate::metrics::{Summary, WorkerMetrics};
use crate::orders::Orders;
use crate::worker::Worker;

/// How long a worker sleeps at most: it wakes a few times a second, so that standing still and
/// having nothing to do can be told apart, and expiry goes on.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// A worker's end that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFailure {
    /// The worker.
    pub name: String,
    /// What it died of.
    pub cause: String,
}

/// A tracker whose workers run.
pub struct Running {
    addresses: Vec<SocketAddr>,
    workers: Arc<[(String, Arc<WorkerMetrics>)]>,
    mailboxes: Arc<[Mailbox]>,
    orders: Orders,
    stop: Arc<AtomicBool>,
    failures: Receiver<WorkerFailure>,
    /// While it is there no worker takes a turn.
    gate: Option<Sender<Infallible>>,
    threads: Vec<JoinHandle<Option<Shard>>>,
}

impl Running {
    /// Gives each worker a thread of its name, on its vCPU, and lets all of them begin.
    ///
    /// # Errors
    /// When a thread cannot be started; those that were are stopped again.
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

    /// The same, but the workers wait for [`begin`](Self::begin).
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
        let (tell, failures) = unbounded();
        let mailboxes =
            workers.first().map_or_else(|| Arc::from([]), |worker| worker.mailboxes.clone());
        let owners = workers.first().map_or_else(|| Arc::from([]), |w| w.owners.clone());
        let mut running = Self {
            orders: Orders::new(&mailboxes, owners),
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
            let life = WorkerThread {
                worker,
                clock,
                cpu,
                spin: settings.spin,
                opened: opened.clone(),
                stop: running.stop.clone(),
                tell: tell.clone(),
            };
            let thread = thread::Builder::new().name(name).spawn(move || life.live());
            match thread {
                Ok(thread) => running.threads.push(thread),
                Err(error) => {
                    running.stop();
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    /// Lets the workers begin.
    pub fn begin(&mut self) {
        self.gate = None;
    }

    /// The addresses that are served, with the ports that the kernel picked where 0 was asked.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Workers by name, each with its counters.
    pub fn workers(&self) -> impl Iterator<Item = (&str, &WorkerMetrics)> {
        self.workers.iter().map(|(name, metrics)| (name.as_str(), metrics.as_ref()))
    }

    /// The same, for other threads.
    pub fn shared_workers(&self) -> Arc<[(String, Arc<WorkerMetrics>)]> {
        self.workers.clone()
    }

    /// The mailboxes that lead to the workers.
    pub fn mailboxes(&self) -> &Arc<[Mailbox]> {
        &self.mailboxes
    }

    /// All counters together.
    pub fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|(_, metrics)| metrics.as_ref()))
    }

    /// The mailboxes that orders take to the workers.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Workers that have died. The tracker is incomplete from the first one on.
    pub fn failures(&self) -> &Receiver<WorkerFailure> {
        &self.failures
    }

    /// Stops all workers and waits until they are through with what they are doing.
    pub fn stop(mut self) -> Summary {
        self.end();
        self.summary()
    }

    /// As [`stop`](Self::stop), and leaves the shards.
    pub fn stop_and_take_shards(mut self) -> (Summary, Vec<Shard>) {
        let shards = self.end();
        (self.summary(), shards)
    }

    fn end(&mut self) -> Vec<Shard> {
        self.stop.store(true, Ordering::Release);
        self.gate = None;
        for mailboxes in self.mailboxes.iter() {
            mailboxes.requests.wake();
        }
        // What a worker dies of is told by its `WorkerFailure`.
        self.threads.drain(..).filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a worker's thread takes along.
struct WorkerThread<S: Socket> {
    worker: Worker<S>,
    clock: Clock,
    cpu: Option<usize>,
    spin: Duration,
    /// Ends when turns may be taken.
    opened: Receiver<Infallible>,
    stop: Arc<AtomicBool>,
    tell: Sender<WorkerFailure>,
}

impl<S: Socket> WorkerThread<S> {
    /// Leaves its shard, if it has one and did not die.
    fn live(mut self) -> Option<Shard> {
        if let Some(cpu) = self.cpu
            && let Err(error) = affinity::pin_current_thread(cpu)
        {
            log::warn!("{error}; the worker runs unpinned");
        }
        // Nothing is ever sent: the gate is there, or it has gone.
        let _ = self.opened.recv();
        let name = thread::current().name().unwrap_or("worker").to_owned();
        let tell = self.tell.clone();
        // Nothing of the worker is used after a panic: the process ends.
        let ended = catch_unwind(AssertUnwindSafe(|| self.take_turns()));
        // Whoever waits for a chore learns that it will not be done: others may hold the lane open for ever.
        while self.worker.inbox.order().is_some() {}
        let cause = match ended {
            Ok(Ok(())) => return self.worker.swarm_side.take().map(|side| side.shard),
            Ok(Err(error)) => format!("its socket failed: {error}"),
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        let _ = tell.send(WorkerFailure { name, cause });
        None
    }

    fn take_turns(&mut self) -> io::Result<()> {
        let mut idle = Idle { spin: self.spin, since: None };
        // When the last turn began, if it had something to do: it took until the next one begins.
        let mut began = None;
        while !self.stop.load(Ordering::Acquire) {
            let (now, since_start) = self.clock.read();
            if let Some(began) = began.take() {
                let took = since_start.saturating_sub(began).as_nanos() as u64;
                self.worker.metrics.turn_times.observe(took);
            }
            if self.worker.turn(now)? {
                began = Some(since_start);
                idle.over();
            } else if idle.is_short() {
                std::hint::spin_loop();
            } else {
                self.worker.wait(LONGEST_SLEEP)?;
                idle.over();
            }
        }
        Ok(())
    }
}

/// How long there has been nothing to do.
struct Idle {
    /// Up to here a worker looks on.
    spin: Duration,
    since: Option<Instant>,
}

impl Idle {
    /// Whether the worker is to look once more instead of sleeping.
    fn is_short(&mut self) -> bool {
        // Time is not asked for by who never spins.
        !self.spin.is_zero() && self.since.get_or_insert_with(Instant::now).elapsed() < self.spin
    }

    fn over(&mut self) {
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
    fn a_worker_looks_on_for_its_time_and_no_longer() {
        let mut idle = Idle { spin: Duration::ZERO, since: None };
        assert!(!idle.is_short());
        assert_eq!(idle.since, None, "who never spins asks for no time");

        let mut idle = Idle { spin: Duration::from_secs(3600), since: None };
        assert!(idle.is_short() && idle.is_short());
        idle.spin = Duration::from_nanos(1);
        while idle.is_short() {}
        idle.over();
        idle.spin = Duration::from_secs(3600);
        assert!(idle.is_short(), "something to do begins the time again");
    }
}
