//! One worker: a socket side, a swarm side, or both. Its [`turn`](Worker::turn) is the whole data
//! path, the same in either placement.
//!
//! ```text
//! receive ─▶ intake ─▶ sorter ─┬─ own shard: serve ─────────────┬─▶ send
//!    │                         └─ lane ─▶ another's shard ─ lane ┘    ▲
//!    └─ connects and errors are answered from here ────────────────────┘
//! ```

mod socket_side;
mod swarm_side;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;

pub use socket_side::SocketSide;
pub use swarm_side::SwarmSide;

use crate::clock::Now;
use crate::lanes::Order;
use crate::lanes::{Inbox, Mailbox};
use crate::metrics::WorkerMetrics;

/// Parcels that a worker serves for others in one turn at most, so that its own socket is looked
/// at again soon.
const PARCELS_PER_TURN: usize = 16;
/// How long a worker that has nothing to do sleeps while a chore of its waits for somebody else.
const CHORE_WAITS: Duration = Duration::from_millis(1);

/// A worker. Everything in it belongs to one thread; it meets others only through lanes and
/// counters.
pub struct Worker<S: Socket> {
    /// Its number among all workers.
    pub index: usize,
    /// Its socket side.
    pub socket_side: Option<SocketSide<S>>,
    /// Its swarm side.
    pub swarm_side: Option<SwarmSide>,
    /// Where its parcels arrive.
    pub inbox: Inbox,
    /// The mailboxes to all workers, itself included, by number.
    pub mailboxes: Arc<[Mailbox]>,
    /// The worker that owns each shard.
    pub owners: Arc<[usize]>,
    /// Sleeps here when it has no socket to sleep in.
    pub parker: Parker,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
}

impl<S: Socket> Worker<S> {
    /// Does what there is to do and never waits. Returns whether there may be more.
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
            busy |= serve_lanes(swarm_side, &self.inbox, &self.mailboxes, now);
            busy |= swarm_side.maintain(now, &self.metrics);
            busy |= swarm_side.run_tasks(now);
        }
        if let Some(socket_side) = &mut self.socket_side {
            while let Some(parcel) = self.inbox.returned() {
                busy = true;
                socket_side.accept_reply(parcel);
            }
            socket_side.send(&self.metrics);
            socket_side.maintain(now, &self.metrics);
        }
        self.metrics.turns.add(1);
        Ok(busy)
    }

    /// Does as it is told, or takes it on for later.
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
            Order::Pause(tell) => {
                if let Some(socket_side) = &mut self.socket_side {
                    socket_side.pause(tell);
                }
            }
            Order::Drain(left, tell) => {
                if let Some(socket_side) = &mut self.socket_side {
                    socket_side.drain(&left, tell);
                }
            }
            Order::Resume => {
                if let Some(socket_side) = &mut self.socket_side {
                    socket_side.resume();
                }
            }
            Order::Task(chore) => {
                if let Some(swarm_side) = &mut self.swarm_side {
                    swarm_side.add_task(chore);
                }
            }
        }
    }

    /// Sleeps until there may be something to do, for `timeout` at most.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let waits = self.swarm_side.as_ref().is_some_and(SwarmSide::is_waiting);
        let timeout = if waits { timeout.min(CHORE_WAITS) } else { timeout };
        let mut result = Ok(());
        let (socket_side, parker) = (&mut self.socket_side, &self.parker);
        self.inbox.sleep(|| match socket_side {
            Some(socket_side) => result = socket_side.wait(timeout),
            None => parker.park_timeout(timeout),
        });
        result
    }
}

/// Every open batch goes to its shard: straight into the own one, over a lane to any other.
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
    while let Some(mut parcel) = socket_side.take_sorted(own) {
        busy = true;
        let requests = parcel.batch.len() as u64;
        match &mut swarm_side {
            Some(swarm_side) if swarm_side.shard_index == parcel.shard => {
                metrics.local.add(requests);
                swarm_side.shard.serve(&mut parcel.batch, now.moment);
                socket_side.accept_reply(parcel);
            }
            own => {
                if own.is_some() {
                    metrics.foreign.add(requests);
                }
                // A lane has room for every sender's share of batches, so this fails only when the
                // shard's worker is gone.
                if let Err(parcel) = mailboxes[owners[parcel.shard]].requests.try_send(parcel) {
                    metrics.lane_full.add(1);
                    socket_side.abort(parcel, metrics);
                }
            }
        }
    }
    busy
}

/// What other workers have sent for this one's shard.
fn serve_lanes(swarm_side: &mut SwarmSide, inbox: &Inbox, mailboxes: &[Mailbox], now: Now) -> bool {
    let mut busy = false;
    for _ in 0..PARCELS_PER_TURN {
        let Some(mut parcel) = inbox.request() else { break };
        busy = true;
        swarm_side.shard.serve(&mut parcel.batch, now.moment);
        // The way home has room for every parcel its owner has, so this fails only when the
        // owner is gone; then nobody is left to reply.
        let _ = mailboxes[parcel.home].returns.try_send(parcel);
    }
    busy
}
