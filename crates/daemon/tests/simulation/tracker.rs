//! One process of a simulated tracker: its workers, which a fault stalls, and its counters.

use std::sync::Arc;

use onrush_config::Settings;
use onrush_swarm::Shard;
use onrush_tracker::assemble::{Secrets, assemble};
use onrush_tracker::metrics::Summary;
use onrush_tracker::orders::Orders;
use onrush_tracker::rules::Rules;
use onrush_tracker::worker::Worker;

use super::clock::Time;
use super::socket::SharedSocket;

/// A process with all of its workers on the thread of the test.
pub(crate) struct Tracker {
    pub(crate) workers: Vec<Worker<SharedSocket>>,
    /// The second until which each worker takes no turn.
    stalled: Vec<u64>,
    /// When the process has started, for its monotonic clock.
    pub(crate) started: u64,
}

impl Tracker {
    pub(crate) fn new(
        settings: &Settings,
        secrets: &Secrets,
        rules: &Rules,
        sockets: Vec<SharedSocket>,
        started: u64,
    ) -> Self {
        let workers = assemble(&settings.workers(), secrets, sockets, rules);
        Self { stalled: vec![0; workers.len()], workers, started }
    }

    /// The handle to the workers.
    pub(crate) fn orders(&self) -> Orders {
        let Worker { mailboxes, owners, .. } = &self.workers[0];
        Orders::new(mailboxes, self.workers.len(), owners.clone())
    }

    /// Gives rules to all workers.
    pub(crate) fn update(&self, rules: Rules) {
        self.orders().update_rules(&Arc::new(rules)).expect("a worker takes its orders");
    }

    /// Keeps a worker from taking turns.
    pub(crate) fn stall(&mut self, worker: usize, until: u64) {
        let place = worker % self.workers.len();
        self.stalled[place] = until;
    }

    /// Whether every worker takes turns.
    pub(crate) fn runs(&self, now: Time) -> bool {
        self.stalled.iter().all(|until| *until <= now.second)
    }

    /// Lets every worker that is not stalled take turns until all are idle.
    pub(crate) fn settle(&mut self, now: Time) {
        for _ in 0..10_000 {
            let mut busy = false;
            for (worker, until) in self.workers.iter_mut().zip(&self.stalled) {
                if *until <= now.second {
                    let turn = worker.turn(now.since(self.started));
                    busy |= turn.expect("the in-process network does not fail");
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the workers are still busy after 10,000 turns");
    }

    /// The totals of all workers.
    pub(crate) fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|worker| &*worker.metrics))
    }

    /// The shards, in order.
    pub(crate) fn shards(&mut self) -> Vec<&mut Shard> {
        let sides = self.workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
        sides.map(|side| &mut side.shard).collect()
    }
}
