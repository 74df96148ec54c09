//! One worker: a socket side, a swarm side, or both. Its [`turn`](Worker::turn) is the whole data
//! path, the same in either placement.
//!
//! ```text
//! receive ─▶ intake ─▶ sorter ─┬─ own shard: serve ─────────────┬─▶ send
//!    │                         └─ lane ─▶ other worker ─ lane ───┘    ▲
//!    └─ connects and errors are answered at once ─────────────────────┘
//! ```

mod socket_side;
mod swarm_side;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;
use onrush_swarm::Shard;

pub use socket_side::SocketSide;
pub use swarm_side::SwarmSide;

use crate::clock::Now;
use crate::lanes::{Batch, Inbox, Mailbox, Order};
use crate::member::{MemberThread, Role};
use crate::metrics::WorkerMetrics;

/// Batches of other members that a worker serves per turn at most, so that it soon reads its own
/// socket again.
const BATCHES_PER_TURN: usize = 16;
/// Longest sleep of a worker whose background task waits for another thread.
const TASK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A worker. Everything in it belongs to one thread, which shares only lanes and counters with
/// others.
pub struct Worker<S: Socket> {
    /// Its number among all workers.
    pub index: usize,
    /// Its socket side.
    pub socket_side: Option<SocketSide<S>>,
    /// Its swarm side.
    pub swarm_side: Option<SwarmSide>,
    /// The receiving ends of its lanes.
    pub inbox: Inbox,
    /// The mailboxes of all members by number: workers, itself included, then fronts.
    pub mailboxes: Arc<[Mailbox]>,
    /// The worker that owns each shard.
    pub owners: Arc<[usize]>,
    /// Where it sleeps if it has no socket.
    pub parker: Parker,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
}

impl<S: Socket> Worker<S> {
    /// Does one turn of work without blocking. Returns whether more work may be waiting.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn turn(&mut self, now: Now) -> io::Result<bool> {
        let mut busy = false;
        while let Some(order) = self.inbox.order() {
            self.apply(order);
        }
        if let Some(socket_side) = &mut self.socket_side {
            busy |= socket_side.receive(now, &self.metrics)?;
            busy |= dispatch(
                socket_side,
                self.swarm_side.as_mut(),
                &self.mailboxes,
                &self.owners,
                &self.metrics,
                now,
            );
        }
        if let Some(swarm_side) = &mut self.swarm_side {
            busy |= serve_lanes(swarm_side, &self.inbox, &self.mailboxes, &self.metrics, now);
            busy |= swarm_side.maintain(now, &self.metrics);
            busy |= swarm_side.run_tasks(now);
        }
        if let Some(socket_side) = &mut self.socket_side {
            while let Some(batch) = self.inbox.returned() {
                busy = true;
                // A worker's own batches are all of datagrams.
                if let Batch::Udp(requests) = batch {
                    socket_side.producer.accept_reply(requests);
                }
            }
            socket_side.send(&self.metrics);
            socket_side.maintain(now, &self.metrics);
        }
        self.metrics.turns.add(1);
        Ok(busy)
    }

    /// Applies an order, or starts what takes longer than a turn.
    #[cold]
    fn apply(&mut self, order: Order) {
        match order {
            Order::Rules(rules) => {
                if let Some(socket_side) = &mut self.socket_side {
                    socket_side.update(&rules);
                }
                if let Some(swarm_side) = &mut self.swarm_side {
                    swarm_side.update(&rules);
                }
            }
            Order::Pause(done) => match &mut self.socket_side {
                Some(socket_side) => socket_side.pause(done),
                None => _ = done.try_send(()),
            },
            Order::Drain(addresses, taken, done) => match &mut self.socket_side {
                Some(socket_side) => socket_side.drain(&addresses, &taken, done),
                None => _ = done.try_send(()),
            },
            Order::Resume => {
                if let Some(socket_side) = &mut self.socket_side {
                    socket_side.resume();
                }
            }
            Order::Sample(sample) => match &mut self.socket_side {
                Some(socket_side) => socket_side.sample(sample),
                None => sample.into_iter().for_each(|sample| sample.finish()),
            },
            Order::Task(task) => {
                if let Some(swarm_side) = &mut self.swarm_side {
                    swarm_side.add_task(task);
                }
            }
        }
    }
}

impl<S: Socket + Send + 'static> MemberThread for Worker<S> {
    fn role(&self) -> Role {
        match (&self.socket_side, &self.swarm_side) {
            (Some(_), Some(_)) => Role::Both,
            (Some(_), None) => Role::Socket,
            _ => Role::Shard,
        }
    }

    fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.metrics
    }

    fn turn(&mut self, now: Now) -> io::Result<bool> {
        Self::turn(self, now)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let polls = self.swarm_side.as_ref().is_some_and(SwarmSide::is_waiting);
        let timeout = if polls { timeout.min(TASK_POLL_INTERVAL) } else { timeout };
        let mut result = Ok(());
        let (socket_side, parker) = (&mut self.socket_side, &self.parker);
        self.inbox.sleep(|| match socket_side {
            Some(socket_side) => result = socket_side.wait(timeout),
            None => parker.park_timeout(timeout),
        });
        result
    }

    fn end(&mut self) -> Option<Shard> {
        // The lane itself stays open as long as any handle to it exists.
        while self.inbox.order().is_some() {}
        self.swarm_side.take().map(|side| side.shard)
    }
}

/// Serves the open batch of the worker's own shard in place, and sends the others over lanes.
fn dispatch<S: Socket>(
    socket_side: &mut SocketSide<S>,
    mut swarm_side: Option<&mut SwarmSide>,
    mailboxes: &[Mailbox],
    owners: &[usize],
    metrics: &WorkerMetrics,
    now: Now,
) -> bool {
    let mut busy = false;
    let own = swarm_side.as_ref().map(|swarm_side| swarm_side.shard_index);
    while let Some(mut requests) = socket_side.producer.take_sorted(own) {
        busy = true;
        let count = requests.batch.len() as u64;
        match &mut swarm_side {
            Some(swarm_side) if swarm_side.shard_index == requests.shard => {
                metrics.local.add(count);
                swarm_side.shard.serve(&mut requests.batch, now.moment);
                socket_side.producer.accept_reply(requests);
            }
            own => {
                if own.is_some() {
                    metrics.foreign.add(count);
                }
                // A lane has room for every member's share of batches, so that sending fails only
                // when the shard's worker has exited.
                let lane = &mailboxes[owners[requests.shard]].requests;
                if let Err(Batch::Udp(requests)) = lane.try_send(Batch::Udp(requests)) {
                    metrics.lane_full.add(1);
                    socket_side.abort(requests, metrics);
                }
            }
        }
    }
    busy
}

/// Serves batches of other members for this worker's shard.
fn serve_lanes(
    swarm_side: &mut SwarmSide,
    inbox: &Inbox,
    mailboxes: &[Mailbox],
    metrics: &WorkerMetrics,
    now: Now,
) -> bool {
    let mut busy = false;
    for _ in 0..BATCHES_PER_TURN {
        let Some(mut batch) = inbox.request() else { break };
        busy = true;
        let home = batch.serve(&mut swarm_side.shard, now.moment);
        // The lane of returns has room for every batch of its member, so that sending fails only
        // when the member has exited.
        if let Err(batch) = mailboxes[home].returns.try_send(batch) {
            metrics.orphaned.add(batch.len() as u64);
        }
    }
    busy
}
