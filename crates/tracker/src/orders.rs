//! The control side's handle to the workers. Orders travel over a lane of their own, so that a
//! worker shares no lock with the control side; a worker reads the lane once per turn.

use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use onrush_net::QueueId;
use onrush_swarm::{Shard, SwarmSummary, Verdict};
use thiserror::Error;

use crate::clock::Now;
use crate::gather::Gather;
use crate::lanes::{Lane, Mailbox, Order, ShardTask};
use crate::rules::Rules;
use crate::source_sample::{Sampled, SampledSources, SourceSample};

/// Swarms that a step of a walk visits: a few cache misses each.
const WALK_STEP: usize = 128;

/// Time for fronts to finish the requests that have begun, after a [pause](Orders::pause_fronts).
/// The sender of the order does not wait longer for slow clients.
pub const FRONT_PAUSE_LIMIT: Duration = Duration::from_secs(1);

/// A worker's lane of orders is full or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("worker {0} does not respond: it has exited, or is stalled with a full queue of orders")]
pub struct WorkerUnresponsive(
    /// The worker's number among all members: fronts are behind workers.
    pub usize,
);

/// Sends orders to the workers, and those that concern clients to fronts too. Cheap to clone, for
/// any thread.
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
        let _ = self.send_to(self.fronts(), || Order::Rules(rules.clone()));
        result
    }

    /// Stops every worker from receiving. Each answers once every request it has received is
    /// answered; one without a socket does so at once.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order.
    pub fn pause(&self) -> Result<Gather<()>, WorkerUnresponsive> {
        let (done, gather) = Gather::new(self.workers);
        self.send_to_workers(|| Order::Pause(done.clone())).map(|()| gather)
    }

    /// Stops every front from accepting connections, and makes it end those that are open: at once
    /// where no request has begun, else after the replies. Each answers once none is open, which
    /// takes longer than [`FRONT_PAUSE_LIMIT`] with clients that are slow.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first front that did not take the order; the others did.
    pub fn pause_fronts(&self) -> Result<Gather<()>, WorkerUnresponsive> {
        let (done, gather) = Gather::new(self.fronts().len());
        self.send_to(self.fronts(), || Order::Pause(done.clone())).map(|()| gather)
    }

    /// Makes every front, which is paused, accept what waits at `addresses`. Each answers as after
    /// a [pause](Self::pause_fronts).
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first front that did not take the order; the others did.
    pub fn drain_fronts(
        &self,
        addresses: &Arc<[SocketAddr]>,
    ) -> Result<Gather<()>, WorkerUnresponsive> {
        let (done, gather) = Gather::new(self.fronts().len());
        let order = || Order::Drain(addresses.clone(), Arc::default(), done.clone());
        self.send_to(self.fronts(), order).map(|()| gather)
    }

    /// Makes every worker answer what waits at `addresses` and in queues that are not `taken`, then
    /// stop receiving. Each answers as after a [`pause`](Self::pause).
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order.
    pub fn drain(
        &self,
        addresses: &Arc<[SocketAddr]>,
        taken: &Arc<[QueueId]>,
    ) -> Result<Gather<()>, WorkerUnresponsive> {
        let (done, gather) = Gather::new(self.workers);
        let order = || Order::Drain(addresses.clone(), taken.clone(), done.clone());
        self.send_to_workers(order).map(|()| gather)
    }

    /// Lets every socket worker receive again, and every front accept.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first member that did not take the order; the others did.
    pub fn resume(&self) -> Result<(), WorkerUnresponsive> {
        self.send_to(0..self.lanes.len(), || Order::Resume)
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Makes every worker sample up to `size` sources of requests of a kind, until
    /// [`end_samples`](Self::end_samples) or the next sample. A worker without a socket finishes
    /// its sample at once. `seed` seeds the random numbers of each sample.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order; the others did.
    ///
    /// # Panics
    /// Workers panic when `size` is 0.
    pub fn sample_sources(
        &self,
        kind: Sampled,
        size: usize,
        mut seed: impl FnMut() -> u64,
    ) -> Result<Gather<SampledSources>, WorkerUnresponsive> {
        let (to, gather) = Gather::new(self.workers);
        let mut sample = || Box::new(SourceSample::new(kind, size, seed(), to.clone()));
        self.send_to_workers(|| Order::Sample(Some(sample()))).map(|()| gather)
    }

    /// Makes every worker finish its sample, if it has one.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take the order; the others did.
    pub fn end_samples(&self) -> Result<(), WorkerUnresponsive> {
        self.send_to_workers(|| Order::Sample(None))
    }

    /// The numbers of the fronts.
    fn fronts(&self) -> Range<usize> {
        self.workers..self.lanes.len()
    }

    fn send_to_workers(&self, order: impl FnMut() -> Order) -> Result<(), WorkerUnresponsive> {
        self.send_to(0..self.workers, order)
    }

    fn send_to(
        &self,
        members: Range<usize>,
        mut order: impl FnMut() -> Order,
    ) -> Result<(), WorkerUnresponsive> {
        let mut result = Ok(());
        for member in members {
            if self.lanes[member].try_send(order()).is_err() {
                result = result.and(Err(WorkerUnresponsive(member)));
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

    /// Runs a task on every shard until it returns a result; `task` makes it from the shard's
    /// number. It also runs to its end if the gather is dropped.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take its task; the others did.
    pub fn gather<R, T>(
        &self,
        mut task: impl FnMut(usize) -> T,
    ) -> Result<Gather<R>, WorkerUnresponsive>
    where
        R: Send + 'static,
        T: FnMut(&mut Shard, Now) -> Option<R> + Send + 'static,
    {
        let (to, gather) = Gather::new(self.shards());
        self.run_on_every_shard(|shard| sending(task(shard), to.clone())).map(|()| gather)
    }

    /// Runs a task on one shard until it returns a result.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], when the shard's worker did not take the task.
    ///
    /// # Panics
    /// When `shard` is not below [`shards`](Self::shards).
    pub fn gather_from_shard<R: Send + 'static>(
        &self,
        shard: usize,
        task: impl FnMut(&mut Shard, Now) -> Option<R> + Send + 'static,
    ) -> Result<Gather<R>, WorkerUnresponsive> {
        let (to, gather) = Gather::new(1);
        self.run_on_shard(shard, sending(task, to)).map(|()| gather)
    }

    /// Visits every swarm of every shard, in steps. The result of a shard is what `begin` returns,
    /// after `visit` has added the shard's swarms to it. The walks end early when the gather is
    /// dropped.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], naming the first worker that did not take its task; the others did.
    pub fn gather_walk<R: Send + 'static>(
        &self,
        begin: impl Fn() -> R,
        visit: impl Fn(&mut R, &SwarmSummary) + Clone + Send + 'static,
    ) -> Result<Gather<R>, WorkerUnresponsive> {
        let (to, gather) = Gather::new(self.shards());
        let walk = |_| {
            let (wanted, visit) = (Arc::downgrade(&gather.wanted), visit.clone());
            let (mut begun, mut result) = (false, Some(begin()));
            let step = move |shard: &mut Shard, now: Now| {
                if !mem::replace(&mut begun, true) {
                    shard.begin_walk();
                }
                let sum = result.as_mut()?;
                let visit = |swarm: &SwarmSummary| {
                    visit(sum, swarm);
                    Verdict::Keep
                };
                let more = wanted.strong_count() > 0 && shard.walk(now.moment, WALK_STEP, visit);
                if more { None } else { result.take() }
            };
            sending(step, to.clone())
        };
        self.run_on_every_shard(walk).map(|()| gather)
    }
}

/// The background task that sends the result of `task`.
fn sending<R: Send + 'static>(
    mut task: impl FnMut(&mut Shard, Now) -> Option<R> + Send + 'static,
    to: Sender<R>,
) -> Box<dyn ShardTask> {
    // There is room for each result; the receiver may be gone.
    Box::new(move |shard: &mut Shard, now: Now| {
        task(shard, now).map(|result| to.try_send(result)).is_none()
    })
}
