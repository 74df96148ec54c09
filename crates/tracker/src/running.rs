//! Members on their threads: start, failures and stop.

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
use crate::member::{Member, MemberThread};
use crate::metrics::Summary;
use crate::orders::Orders;
use crate::worker::Worker;

/// Maximum sleep of a member. It wakes a few times per second, so that its count of turns tells an
/// idle member from a stalled one, and expiry continues.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// The unexpected exit of a member.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} failed: {cause}")]
pub struct WorkerFailure {
    /// The name of the member.
    pub name: String,
    /// Why it exited.
    pub cause: String,
}

/// The addresses that a tracker serves. A port 0 in the settings is the port that the kernel chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Those of the workers' sockets.
    pub udp: Vec<SocketAddr>,
    /// Those of the listeners for HTTP.
    pub http: Vec<SocketAddr>,
    /// Those of the listeners for HTTPS.
    pub https: Vec<SocketAddr>,
}

/// The URL scheme that a TCP listener serves (RFC 9110, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Connections of HTTP.
    Http,
    /// Connections of HTTP over TLS.
    Https,
}

impl Addresses {
    /// All of them with their scheme, like `udp://192.0.2.1:6969`.
    pub fn urls(&self) -> Vec<String> {
        let by_scheme = [("udp", &self.udp), ("http", &self.http), ("https", &self.https)];
        let urls = by_scheme.into_iter().flat_map(|(scheme, addresses)| {
            addresses.iter().map(move |address| format!("{scheme}://{address}"))
        });
        urls.collect()
    }
}

/// A tracker with its members on threads.
pub struct Running {
    addresses: Addresses,
    members: Arc<[Member]>,
    mailboxes: Arc<[Mailbox]>,
    orders: Orders,
    stop: Arc<AtomicBool>,
    failures: Receiver<WorkerFailure>,
    /// Dropping this lets the members take turns.
    gate: Option<Sender<Infallible>>,
    threads: Vec<JoinHandle<Option<Shard>>>,
}

impl Running {
    /// Starts a thread for each worker, named by its role and pinned by `settings`, and for each of
    /// `fronts` in the order of their numbers, which are not pinned. All members wait for
    /// [`begin`](Self::begin).
    ///
    /// # Errors
    /// When a thread cannot be started; the others are stopped again.
    pub fn prepare<S: Socket + Send + 'static, F: MemberThread>(
        settings: &WorkerSettings,
        addresses: Addresses,
        workers: Vec<Worker<S>>,
        fronts: Vec<F>,
        clock: Clock,
    ) -> io::Result<Self> {
        let (gate, opened) = bounded(0);
        let (failure_sender, failures) = unbounded();
        let shared =
            workers.first().map(|worker| (worker.mailboxes.clone(), worker.owners.clone()));
        let (mailboxes, owners) = shared.unwrap_or_default();
        let mut members = Vec::with_capacity(workers.len() + fronts.len());
        workers.iter().for_each(|worker| add(&mut members, worker));
        fronts.iter().for_each(|front| add(&mut members, front));
        let mut running = Self {
            orders: Orders::new(&mailboxes, workers.len(), owners),
            addresses,
            members: members.into(),
            mailboxes,
            stop: Arc::new(AtomicBool::new(false)),
            failures,
            gate: Some(gate),
            threads: Vec::new(),
        };
        let turns = Turns {
            clock,
            cpu: None,
            spin: settings.spin,
            opened,
            stop: running.stop.clone(),
            failures: failure_sender,
        };
        for worker in workers {
            let cpu = settings.pin.as_ref().and_then(|cpus| cpus.get(worker.index).copied());
            running.start(worker, Turns { cpu, ..turns.clone() })?;
        }
        for front in fronts {
            // Without a vCPU of its own, it would take time from workers.
            running.start(front, Turns { spin: Duration::ZERO, ..turns.clone() })?;
        }
        Ok(running)
    }

    /// Starts the thread of the next member.
    fn start(&mut self, member: impl MemberThread, turns: Turns) -> io::Result<()> {
        let name = self.members[self.threads.len()].name.clone();
        let thread = thread::Builder::new().name(name).spawn(move || turns.run(member));
        // Dropping `self` stops the others.
        self.threads.push(thread?);
        Ok(())
    }

    /// Adds members without a thread. Call it before the list of members is shared.
    pub fn add(&mut self, members: impl IntoIterator<Item = Member>) {
        self.members = self.members.iter().cloned().chain(members).collect();
    }

    /// Starts the turns of the members.
    pub fn begin(&mut self) {
        self.gate = None;
    }

    /// The addresses that are served.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// All members by number: workers, then fronts, then those without a thread.
    pub fn members(&self) -> &Arc<[Member]> {
        &self.members
    }

    /// The mailboxes of all members: workers, then fronts.
    pub fn mailboxes(&self) -> &Arc<[Mailbox]> {
        &self.mailboxes
    }

    /// The sum of all members' counters.
    pub fn summary(&self) -> Summary {
        Summary::of(self.members.iter().map(|member| &*member.metrics))
    }

    /// The handle for orders to the workers.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Members that have exited unexpectedly. From the first failure on, the tracker is incomplete.
    pub fn failures(&self) -> &Receiver<WorkerFailure> {
        &self.failures
    }

    /// Stops all members and waits for the end of their turns. Also returns the shards.
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

/// How a member's thread takes turns.
#[derive(Clone)]
struct Turns {
    clock: Clock,
    cpu: Option<usize>,
    /// How long an idle member polls before it sleeps.
    spin: Duration,
    /// Closes when turns may start.
    opened: Receiver<Infallible>,
    stop: Arc<AtomicBool>,
    failures: Sender<WorkerFailure>,
}

impl Turns {
    /// Runs the member until it is stopped. Returns its shard, unless it failed or has none.
    fn run<M: MemberThread>(self, mut member: M) -> Option<Shard> {
        if let Some(cpu) = self.cpu
            && let Err(error) = affinity::pin_current_thread(cpu)
        {
            log::warn!("{error}; the worker runs unpinned");
        }
        // Nothing is ever sent: this returns when the gate is dropped.
        let _ = self.opened.recv();
        let name = thread::current().name().unwrap_or("member").to_owned();
        // Unwind safe: after a panic the member takes no more turns, and the process exits.
        let ended = catch_unwind(AssertUnwindSafe(|| self.take(&mut member)));
        let cause = match ended {
            Ok(Ok(())) => return member.end(),
            Ok(Err(error)) if member.role().has_sockets() => format!("its socket failed: {error}"),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("it panicked: {}", panic_text(&*panic)),
        };
        let _ = self.failures.send(WorkerFailure { name, cause });
        member.end();
        None
    }

    fn take<M: MemberThread>(&self, member: &mut M) -> io::Result<()> {
        let mut idle = Idle { spin: self.spin, since: None };
        // When the last busy turn began; it lasts until the next turn begins.
        let mut began = None;
        while !self.stop.load(Ordering::Acquire) {
            let (now, since_start) = self.clock.read();
            if let Some(began) = began.take() {
                let took = since_start.saturating_sub(began).as_nanos() as u64;
                member.metrics().turn_times.observe(took);
            }
            if member.turn(now)? {
                began = Some(since_start);
                idle.reset();
            } else if idle.is_short() {
                std::hint::spin_loop();
            } else {
                member.wait(MAX_SLEEP)?;
                idle.reset();
            }
        }
        Ok(())
    }
}

/// Adds a member to the list, with the next number of its role.
fn add(members: &mut Vec<Member>, thread: &impl MemberThread) {
    let role = thread.role();
    let nth = members.iter().filter(|member| member.role == role).count();
    members.push(Member::new(role, nth, thread.metrics().clone()));
}

/// How long a member has been idle.
struct Idle {
    /// How long an idle member polls before it sleeps.
    spin: Duration,
    since: Option<Instant>,
}

impl Idle {
    /// Whether the member polls once more instead of sleeping.
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
