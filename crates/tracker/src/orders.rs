//! The control side's handle to the workers. Orders travel over a lane of their own, so that a
//! worker shares no lock with the control side; a worker reads the lane once per turn.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;
use thiserror::Error;

use crate::lanes::{Lane, Mailbox, Order, ShardTask};
use crate::rules::Rules;
use crate::source_sample::SourceSample;

/// A worker's lane of orders is full or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("worker {0} does not respond: it has exited, or is stalled with a full queue of orders")]
pub struct WorkerUnresponsive(
    /// The worker's number.
    pub usize,
);

/// Sends orders to the workers, and new rules to fronts too. Cheap to clone, for any thread.
#[derive(Clone)]
pub struct Orders {
    /// By member: workers first, fronts behind them.
    lanes: Arc<[Lane<Order>]>,
    workers: usize,
    /// The worker that owns each shard.
    owners: Arc<[usize]>,
}

impl Orders {
    /// Orders for the members behind `mailboxes`, of which the first `workers` are workers;
    /// `owners` lists the worker of each shard.
    pub fn new(mailboxes: &[Mailbox], workers: usize, owners: Arc<[usize]>) -> Self {
        let lanes = mailboxes.iter().map(|mailbox| mailbox.orders.clone()).collect();
        Self { lanes, workers, owners }
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.owners.len()
    }

    /// Gives `rules` to every worker and to every front. An unresponsive worker does not keep the
    /// others from it; a front that has exited needs no rules.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order.
    pub fn update_rules(&self, rules: &Arc<Rules>) -> Result<(), WorkerUnresponsive> {
        let result = self.send_to_workers(|| Order::Rules(rules.clone()));
        for front in &self.lanes[self.workers..] {
            let _ = front.try_send(Order::Rules(rules.clone()));
        }
        result
    }

    /// Stops every socket worker from receiving. Each sends on `done` once every request it has
    /// received is answered.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order.
    pub fn pause(&self, done: &Sender<()>) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Pause(done.clone()))
    }

    /// Makes every socket worker answer what is queued at `addresses`, then stop receiving. Each
    /// sends on `done` once every request is answered.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order.
    pub fn drain(
        &self,
        addresses: &Arc<[SocketAddr]>,
        done: &Sender<()>,
    ) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Drain(addresses.clone(), done.clone()))
    }

    /// Lets every socket worker receive again.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order; the others did.
    pub fn resume(&self) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Resume)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Makes every worker collect the sample that `sample` makes for it, until
    /// [`end_samples`](Self::end_samples) or the next sample. Each worker finishes its sample; one
    /// without a socket does so at once.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order; the others did.
    pub fn sample_sources(
        &self,
        mut sample: impl FnMut() -> SourceSample,
    ) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Sample(Some(Box::new(sample()))))
    }

    /// Makes every worker finish its sample, if it has one.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order; the others did.
    pub fn end_samples(&self) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Sample(None))
    }

    fn send_to_workers(&self, mut order: impl FnMut() -> Order) -> Result<(), WorkerUnresponsive> {
        let mut result = Ok(());
        for (worker, lane) in self.lanes[..self.workers].iter().enumerate() {
            if lane.try_send(order()).is_err() {
                result = result.and(Err(WorkerUnresponsive(worker)));
            }
        }
        result
    }

    /// Runs a background task on every shard; `task` makes it from the shard's number.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take its task; the others did.
    pub fn run_on_every_shard(
        &self,
        mut task: impl FnMut(usize) -> Box<dyn ShardTask>,
    ) -> Result<(), WorkerUnresponsive> {
        let mut result = Ok(());
        for shard in 0..self.owners.len() {
            result = result.and(self.run_on_shard(shard, task(shard)));
        }
        result
    }

    /// Runs a background task on one shard.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], when the shard's worker did not take the task.
    ///
    /// # Panics
    /// When `shard` is not below [`shards`](Self::shards).
    pub fn run_on_shard(
        &self,
        shard: usize,
        task: Box<dyn ShardTask>,
    ) -> Result<(), WorkerUnresponsive> {
        let worker = self.owners[shard];
        self.lanes[worker].try_send(Order::Task(task)).map_err(|_| WorkerUnresponsive(worker))
    }
}
