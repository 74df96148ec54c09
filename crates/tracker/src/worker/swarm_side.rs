//! The swarm side of a worker: one shard, and its upkeep in small steps.

use std::collections::VecDeque;
use std::time::Duration;

use onrush_swarm::{Moment, Shard};

use crate::clock::Now;
use crate::lanes::ShardTask;
use crate::metrics::WorkerMetrics;
use crate::rules::Rules;

/// Entries looked at in one piece while expired peers are searched.
const SWEEP_PIECE: usize = 256;
/// What may be done in a turn at most, in entries: some 10 us for looking, 0.1 ms when all are
/// forgotten (docs/benchmarks/expiry.md).
const LONGEST_SWEEP_STEP: usize = 8 * SWEEP_PIECE;
/// To forget a swarm costs as much as to look at so many entries: its index, its place, and the swarm
/// that moves there, all of them out of the caches.
const FORGETTING: usize = 8;
/// Turns that a worker takes in a second at least, as the steps have to be chosen for them: even full
/// ones take 1.5 ms at most.
const TURNS_PER_SECOND: usize = 512;

/// The swarm side of a worker.
pub struct SwarmSide {
    /// Which shard this is.
    pub shard_index: usize,
    /// The swarms.
    pub shard: Shard,
    /// In which every peer is to be looked at once.
    sweep_period: Duration,
    /// Entries due in a second: as many as when there were most of them in this pass, or the more are
    /// forgotten the slower it would become.
    sweep_rate: usize,
    /// Entries that should have been looked at by now and were not yet.
    sweep_backlog: usize,
    /// What to do in a turn of this second, in entries.
    sweep_step: usize,
    /// Entries looked at, and passes over all of them, since the start.
    swept: u64,
    sweep_passes: u64,
    last: Option<Moment>,
    /// One is done after the other: a shard has room for one walk.
    chores: VecDeque<Box<dyn ShardTask>>,
}

impl SwarmSide {
    /// A side that sweeps `shard` once in `sweep_period`.
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
            chores: VecDeque::new(),
        }
    }

    /// Goes by other rules from the next request on.
    pub fn update(&mut self, rules: &Rules) {
        self.shard.update(rules.shard);
        self.sweep_period = rules.sweep_period;
        // What is due in a second follows the period.
        self.sweep_rate = 0;
    }

    /// Takes on a chore, to be done after those that are waiting already.
    pub fn add_task(&mut self, chore: Box<dyn ShardTask>) {
        self.chores.push_back(chore);
    }

    /// A step of the first chore. Returns whether the next step is due already.
    pub fn run_tasks(&mut self, now: Now) -> bool {
        let Some(chore) = self.chores.front_mut() else { return false };
        if !chore.step(&mut self.shard, now) {
            self.chores.pop_front();
        }
        !self.chores.is_empty() && !self.is_waiting()
    }

    /// Whether the first chore waits for somebody else.
    pub fn is_waiting(&self) -> bool {
        self.chores.front().is_some_and(|chore| chore.is_waiting())
    }

    /// A step of expiry, and once a second the gauges. Returns whether the next step is due
    /// already.
    pub fn maintain(&mut self, now: Now, metrics: &WorkerMetrics) -> bool {
        if self.last != Some(now.moment) {
            let seconds = self.last.map_or(1, |last| now.moment.since(last));
            self.last = Some(now.moment);
            let rate = self.shard.sweep_budget(Duration::from_secs(1), self.sweep_period);
            self.sweep_rate = self.sweep_rate.max(rate);
            let due = self.sweep_rate.saturating_mul(seconds as usize);
            self.sweep_backlog = self.sweep_backlog.saturating_add(due);
            self.sweep_step = self
                .sweep_backlog
                .div_ceil(TURNS_PER_SECOND)
                .clamp(SWEEP_PIECE, LONGEST_SWEEP_STEP);
            metrics.shard.set(&self.shard.totals(), self.shard.swarms_by_family());
            metrics.shard.swept.set(self.swept);
            metrics.shard.sweep_passes.set(self.sweep_passes);
            metrics.shard.sweep_debt.set(self.sweep_backlog as u64);
        }
        let mut done = 0;
        while self.sweep_backlog > 0 && done < self.sweep_step {
            done += self.sweep_piece(now.moment);
        }
        self.sweep_backlog > 0
    }

    /// Sweeps a piece of what is due. Returns what it took, in entries.
    fn sweep_piece(&mut self, now: Moment) -> usize {
        let before = swarms(&self.shard);
        let swept = self.shard.sweep(now, self.sweep_backlog.min(SWEEP_PIECE));
        let forgotten = before.saturating_sub(swarms(&self.shard)) as usize;
        let looked_at = swept.visited.max(1);
        self.swept += swept.visited as u64;
        self.sweep_passes += u64::from(swept.pass_finished);
        if swept.pass_finished {
            // A worker that was away for long owes one pass, not several.
            (self.sweep_backlog, self.sweep_rate) = (0, 0);
        } else {
            self.sweep_backlog = self.sweep_backlog.saturating_sub(looked_at);
        }
        looked_at + forgotten * FORGETTING
    }
}

/// Swarms with and without peers.
fn swarms(shard: &Shard) -> u64 {
    let totals = shard.totals();
    totals.swarms + totals.idle_swarms
}
