//! The swarm side of a worker: one shard, and its upkeep in small steps.

use std::time::Duration;

use onrush_swarm::{Moment, Shard};

use crate::clock::Now;
use crate::metrics::WorkerMetrics;

/// Entries looked at per turn at most while expired peers are searched: some microseconds, or some
/// tens of them when most have expired.
const SWEEP_STEP: usize = 256;

/// The swarm side of a worker.
pub struct SwarmSide {
    /// Which shard this is.
    pub shard_index: usize,
    /// The swarms.
    pub shard: Shard,
    /// In which every peer is to be looked at once.
    sweep_period: Duration,
    /// Entries that should have been looked at by now and were not yet.
    sweep_debt: usize,
    last: Option<Moment>,
}

impl SwarmSide {
    /// A side that sweeps `shard` once in `sweep_period`.
    pub fn new(shard_index: usize, shard: Shard, sweep_period: Duration) -> Self {
        Self { shard_index, shard, sweep_period, sweep_debt: 0, last: None }
    }

    /// A step of expiry, and once a second the gauges. Returns whether the next step is due
    /// already.
    pub fn keep_up(&mut self, now: Now, metrics: &WorkerMetrics) -> bool {
        if self.last != Some(now.moment) {
            let seconds = self.last.map_or(1, |last| now.moment.since(last));
            self.last = Some(now.moment);
            let since_last = Duration::from_secs(u64::from(seconds));
            self.sweep_debt += self.shard.sweep_budget(since_last, self.sweep_period);
            metrics.shard.set(&self.shard.totals());
        }
        if self.sweep_debt > 0 {
            let swept = self.shard.sweep(now.moment, self.sweep_debt.min(SWEEP_STEP));
            // A worker that was away for long owes one pass, not several.
            self.sweep_debt = match swept.pass_finished {
                true => 0,
                false => self.sweep_debt.saturating_sub(swept.looked_at.max(1)),
            };
        }
        self.sweep_debt > 0
    }
}
