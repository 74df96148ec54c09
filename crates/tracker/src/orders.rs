//! What a running worker is told from outside of the packet path: new rules, and chores over its
//! shard. Orders come down a lane of their own, so that a worker shares no lock with whoever gives
//! them; it looks at the lane once a turn.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;
use onrush_swarm::Shard;
use thiserror::Error;

use crate::clock::Now;
use crate::lanes::{Lane, Ways};
use crate::rules::Rules;

/// Something to be done by one worker.
pub enum Order {
    /// From the next datagram on these rules hold. All of them change at once.
    Rules(Arc<Rules>),
    /// Receive nothing more, and tell once everything that was received is answered.
    Hold(Sender<()>),
    /// Receive what is left at these addresses and nothing else, and tell once everything is answered.
    Finish(Arc<[SocketAddr]>, Sender<()>),
    /// Receive again.
    Resume,
    /// Work over the whole shard. A worker without a shard drops it.
    Chore(Box<dyn Chore>),
}

/// Work over a shard that takes longer than a turn may: done in steps, one after each turn, so
/// that no reply waits for it. What it finds it sends to whoever asked, through a channel that
/// never makes the worker wait.
///
/// A chore that is dropped before its end was interrupted: its worker has gone.
pub trait Chore: Send {
    /// Does a step, which takes some 10 us and at most 0.2 ms. Returns whether there is more to do.
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool;

    /// Whether it cannot go on before somebody else has done something, so that there is no hurry with the next
    /// step.
    fn waits(&self) -> bool {
        false
    }
}

/// Why an order was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("worker {0} takes no orders: it has ended, or has been standing still for long")]
pub struct Deaf(
    /// The worker's number.
    pub usize,
);

/// The ways that orders take to all workers. Cheap to clone, for any thread.
#[derive(Clone)]
pub struct Orders {
    lanes: Arc<[Lane<Order>]>,
    owners: Arc<[usize]>,
}

impl Orders {
    /// To the workers at the end of `ways`, where `owners` are those of the shards.
    pub fn new(ways: &[Ways], owners: Arc<[usize]>) -> Self {
        Self { lanes: ways.iter().map(|ways| ways.orders.clone()).collect(), owners }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.owners.len()
    }

    /// Lets every worker follow `rules`. One that is deaf does not keep the others from it.
    ///
    /// # Errors
    /// [`Deaf`], naming the first worker that did not take it.
    pub fn follow(&self, rules: &Arc<Rules>) -> Result<(), Deaf> {
        self.every_worker(|| Order::Rules(rules.clone()))
    }

    /// Has every worker with sockets receive nothing more. Each tells once it has answered what it has.
    ///
    /// # Errors
    /// [`Deaf`], naming the first worker that did not take it.
    pub fn hold(&self, tell: &Sender<()>) -> Result<(), Deaf> {
        self.every_worker(|| Order::Hold(tell.clone()))
    }

    /// Has every worker with sockets answer what is left at these addresses. Each tells once it has.
    ///
    /// # Errors
    /// [`Deaf`], naming the first worker that did not take it.
    pub fn finish(&self, left: &Arc<[SocketAddr]>, tell: &Sender<()>) -> Result<(), Deaf> {
        self.every_worker(|| Order::Finish(left.clone(), tell.clone()))
    }

    /// Has every worker receive again.
    ///
    /// # Errors
    /// [`Deaf`], naming the first worker that did not take it; the others have.
    pub fn resume(&self) -> Result<(), Deaf> {
        self.every_worker(|| Order::Resume)
    }

    fn every_worker(&self, order: impl Fn() -> Order) -> Result<(), Deaf> {
        let mut result = Ok(());
        for (worker, lane) in self.lanes.iter().enumerate() {
            if lane.try_send(order()).is_err() {
                result = result.and(Err(Deaf(worker)));
            }
        }
        result
    }

    /// Has the owner of every shard do a chore of its own, made by `chore` from the shard's number.
    ///
    /// # Errors
    /// [`Deaf`], naming the first worker that did not take it; the others have.
    pub fn every_shard(&self, mut chore: impl FnMut(usize) -> Box<dyn Chore>) -> Result<(), Deaf> {
        let mut result = Ok(());
        for shard in 0..self.owners.len() {
            result = result.and(self.shard(shard, chore(shard)));
        }
        result
    }

    /// Has the owner of one shard do a chore.
    ///
    /// # Errors
    /// [`Deaf`], when it did not take it.
    ///
    /// # Panics
    /// When there are no more than `shard` shards.
    pub fn shard(&self, shard: usize, chore: Box<dyn Chore>) -> Result<(), Deaf> {
        let worker = self.owners[shard];
        self.lanes[worker].try_send(Order::Chore(chore)).map_err(|_| Deaf(worker))
    }
}
