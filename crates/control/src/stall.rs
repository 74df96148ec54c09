//! Detection of stalled workers from their turn counters.
//!
//! A worker takes several turns per second even when it has nothing to do. A turn counter that does
//! not change means that the worker hangs, or that another process occupies its vCPU. `/health`,
//! `/metrics`, the supervisor's warning and the service manager's watchdog all use this detector.

use std::time::{Duration, Instant};

/// A worker without a turn for this long is reported as stalled: by `/health`, `/metrics`, the page
/// and the log. What delays a purge, what counts as load and what stops the reset of the service
/// manager's watchdog are other thresholds, in the daemon.
pub const STALL_REPORTED: Duration = Duration::from_secs(5);

/// Records when each worker's turn counter last changed.
#[derive(Debug)]
pub struct StallDetector {
    start: Instant,
    workers: Vec<Progress>,
}

/// The last turn counter read from a worker, and when it was first read with this value.
#[derive(Debug)]
struct Progress {
    turns: u64,
    since: Instant,
}

impl StallDetector {
    /// A detector for workers that start at `start` with turn counters of 0.
    pub fn new(start: Instant) -> Self {
        Self { start, workers: Vec::new() }
    }

    /// Takes the turn counters of all workers, always in the same order. Returns for each worker
    /// how long its counter has not changed. Rare calls detect a stall late, but never report one
    /// that does not exist.
    pub fn observe(&mut self, turns: impl IntoIterator<Item = u64>, now: Instant) -> Vec<Duration> {
        let mut stalled = Vec::with_capacity(self.workers.len());
        for (worker, turns) in turns.into_iter().enumerate() {
            if worker == self.workers.len() {
                self.workers.push(Progress { turns: 0, since: self.start });
            }
            let progress = &mut self.workers[worker];
            if progress.turns != turns {
                *progress = Progress { turns, since: now };
            }
            stalled.push(now.saturating_duration_since(progress.since));
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_workers_without_turns_are_stalled() {
        let start = Instant::now();
        let mut detector = StallDetector::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(detector.observe([5, 9], at(0)), [Duration::ZERO; 2]);
        for second in 1..=4 {
            detector.observe([5 + second, 9], at(second));
        }
        assert_eq!(detector.observe([10, 9], at(5)), [Duration::ZERO, STALL_REPORTED]);
        assert_eq!(detector.observe([11, 10], at(6)), [Duration::ZERO; 2], "both took turns");
        assert_eq!(detector.observe([11, 11], at(7)), [Duration::from_secs(1), Duration::ZERO]);
        // A worker that never takes a turn is stalled since the start.
        let stalled = StallDetector::new(start).observe([5, 0], at(9));
        assert_eq!(stalled, [Duration::ZERO, Duration::from_secs(9)]);
    }
}
