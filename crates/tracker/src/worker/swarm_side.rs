//! The swarm side of a worker: one shard, its expiry and its background tasks, in small steps.

use std::collections::VecDeque;
use std::time::Duration;

use onrush_swarm::{Moment, Shard};

use crate::clock::Now;
use crate::lanes::ShardTask;
use crate::metrics::WorkerMetrics;
use crate::rules::Rules;

/// Entries that one call of the shard's sweep visits.
const SWEEP_PIECE: usize = 256;
/// Maximum work per turn, in entries: about 10 us of visits, 0.1 ms if all of them are removed
/// (docs/benchmarks/expiry.md).
const MAX_SWEEP_STEP: usize = 8 * SWEEP_PIECE;
/// The cost of removing a swarm, in visited entries: its index, its place, and the swarm that moves
/// there are all outside the CPU caches.
const REMOVAL_COST: usize = 8;
/// The number of turns per second that steps are sized for: a full turn takes at most 1.5 ms.
const TURNS_PER_SECOND: usize = 512;

/// The swarm side of a worker.
pub struct SwarmSide {
    /// The number of the shard.
    pub shard_index: usize,
    /// The swarms.
    pub shard: Shard,
    /// The time in which expiry visits every peer once.
    sweep_period: Duration,
    /// Entries due per second: the maximum of this pass, as a rate that fell with the number of
    /// entries would slow down while they are removed.
    sweep_rate: usize,
    /// Entries that are due and not visited yet.
    sweep_backlog: usize,
    /// Maximum work per turn in this second, in entries.
    sweep_step: usize,
    /// Entries visited since the start.
    swept: u64,
    /// Passes over all entries since the start.
    sweep_passes: u64,
    /// The second of the last call of [`maintain`](Self::maintain).
    last: Option<Moment>,
    /// Run one after the other: a shard supports one walk at a time.
    tasks: VecDeque<Box<dyn ShardTask>>,
}

impl SwarmSide {
    /// A side that visits every entry of `shard` once per `sweep_period`.
    pub fn new(shard_index: usize, shard: Shard, sweep_period: Duration) -> Self {
        Self {
            shard_index,
            shard,
            sweep_period,
            sweep_rate: 0,
            sweep_backlog: 0,
            sweep_step: SWEEP_PIECE,
            swept: 0,
            sweep_passes: 0,
            last: None,
            tasks: VecDeque::new(),
        }
    }

    /// Uses `rules` from the next request on.
    pub fn update(&mut self, rules: &Rules) {
        self.shard.update(rules.shard);
        self.shard.trust(rules.trusted.clone());
        self.sweep_period = rules.sweep_period();
        // The rate depends on the period.
        self.sweep_rate = 0;
    }

    /// Queues a background task.
    pub fn add_task(&mut self, task: Box<dyn ShardTask>) {
        self.tasks.push_back(task);
    }

    /// Runs a step of the first task. Returns whether the next step can run at once.
    pub fn run_tasks(&mut self, now: Now) -> bool {
        let Some(task) = self.tasks.front_mut() else { return false };
        if !task.step(&mut self.shard, now) {
            self.tasks.pop_front();
        }
        !self.tasks.is_empty() && !self.is_waiting()
    }

    /// Whether the first task waits for another thread.
    pub fn is_waiting(&self) -> bool {
        self.tasks.front().is_some_and(|task| task.is_waiting())
    }

    /// Runs a step of expiry, and once per second updates the gauges. Returns whether entries are
    /// due.
    pub fn maintain(&mut self, now: Now, metrics: &WorkerMetrics) -> bool {
        if self.last != Some(now.moment) {
            let seconds = self.last.map_or(1, |last| now.moment.since(last));
            self.last = Some(now.moment);
            let rate = self.shard.sweep_budget(Duration::from_secs(1), self.sweep_period);
            self.sweep_rate = self.sweep_rate.max(rate);
            let due = self.sweep_rate.saturating_mul(seconds as usize);
            self.sweep_backlog = self.sweep_backlog.saturating_add(due);
            self.sweep_step =
                self.sweep_backlog.div_ceil(TURNS_PER_SECOND).clamp(SWEEP_PIECE, MAX_SWEEP_STEP);
            metrics.shard.set(&self.shard.totals(), self.shard.swarms_by_family());
            metrics.shard.swept.set(self.swept);
            metrics.shard.sweep_passes.set(self.sweep_passes);
            metrics.shard.expiry_backlog.set(self.sweep_backlog as u64);
        }
        let mut done = 0;
        while self.sweep_backlog > 0 && done < self.sweep_step {
            done += self.sweep_piece(now.moment);
        }
        self.sweep_backlog > 0
    }

    /// Sweeps a piece of the backlog. Returns its cost, in entries.
    fn sweep_piece(&mut self, now: Moment) -> usize {
        let before = swarms(&self.shard);
        let swept = self.shard.sweep(now, self.sweep_backlog.min(SWEEP_PIECE));
        let removed = before.saturating_sub(swarms(&self.shard)) as usize;
        let visited = swept.visited.max(1);
        self.swept += swept.visited as u64;
        self.sweep_passes += u64::from(swept.pass_finished);
        if swept.pass_finished {
            // After a long stall one pass is due, not several.
            (self.sweep_backlog, self.sweep_rate) = (0, 0);
        } else {
            self.sweep_backlog = self.sweep_backlog.saturating_sub(visited);
        }
        visited + removed * REMOVAL_COST
    }
}

/// Swarms with and without peers.
fn swarms(shard: &Shard) -> u64 {
    let totals = shard.totals();
    totals.swarms + totals.idle_swarms
}
