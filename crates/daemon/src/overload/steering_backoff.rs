//! Suspends steering to overloaded workers. Steering by info hash moves the kernel's receive work
//! too, so one popular or attacked hash can fill one worker's socket while the others are idle.
//! Suspending it makes the kernel spread that worker's datagrams over all sockets, and the lanes
//! carry them to their shard.

use onrush_swarm::Moment;

use super::load::WorkerLoad;
use crate::effect::SteeringChange;

/// Consecutive seconds with losses after which steering to a worker is suspended.
const DROPPING_FOR: u32 = 2;
/// A second counts if a worker lost at least one of so many datagrams: a single one is no reason to
/// suspend the steering of all the others.
const ONE_IN: u64 = 100;
/// Seconds of the first suspension.
const SUSPENSION: u32 = 30;
/// Upper bound of a suspension: it doubles after each failed trial, since a trial costs replies.
const MAX_SUSPENSION: u32 = 32 * SUSPENSION;

/// Decides from each worker's losses which steering to suspend.
#[derive(Debug)]
pub struct SteeringBackoff {
    workers: Vec<Worker>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    dropping_for: u32,
    suspended_at: Option<Moment>,
    /// Length of the current or last suspension, seconds.
    suspension: u32,
    /// When steering was restored. A trial follows, as long as the suspension was.
    restored_at: Option<Moment>,
}

impl Worker {
    fn on_trial(&self, now: Moment) -> bool {
        self.restored_at.is_some_and(|since| now.since(since) < self.suspension)
    }

    /// During a trial the first second with losses suffices.
    fn overloaded(&self, now: Moment) -> bool {
        self.dropping_for >= if self.on_trial(now) { 1 } else { DROPPING_FOR }
    }
}

impl SteeringBackoff {
    /// For this number of workers, all of them steered to.
    pub fn new(workers: usize) -> Self {
        Self { workers: vec![Worker::default(); workers] }
    }

    /// Call every second with each worker's load. Workers after those with sockets have no effect.
    /// Changes nothing where more than half of the workers lose some: then the host is overloaded,
    /// with or without steering.
    pub fn observe(&mut self, loads: &[WorkerLoad], now: Moment) -> Vec<SteeringChange> {
        let mut dropping = 0;
        for (worker, WorkerLoad { received, lost, is_busy }) in self.workers.iter_mut().zip(loads) {
            let more = *is_busy && *lost > 0 && lost * ONE_IN >= received + lost;
            worker.dropping_for = if more { worker.dropping_for + 1 } else { 0 };
            dropping += usize::from(more);
        }
        let lopsided = dropping * 2 <= self.workers.len();
        let decide = |(index, worker): (usize, &mut Worker)| match worker.suspended_at {
            None if lopsided && worker.overloaded(now) => {
                worker.suspension = match worker.on_trial(now) {
                    true => (worker.suspension * 2).min(MAX_SUSPENSION),
                    false => SUSPENSION,
                };
                worker.suspended_at = Some(now);
                Some(SteeringChange::Withdraw(index))
            }
            Some(since) if now.since(since) >= worker.suspension => {
                worker.suspended_at = None;
                worker.restored_at = Some(now);
                worker.dropping_for = 0;
                Some(SteeringChange::Restore(index))
            }
            _ => None,
        };
        self.workers.iter_mut().enumerate().filter_map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The back-off's decision after a second in which busy workers have received 50 datagrams
    /// each, and lost these.
    fn observe<const N: usize>(
        backoff: &mut SteeringBackoff,
        lost: [u64; N],
        second: u32,
    ) -> Vec<SteeringChange> {
        let loads = lost.map(|lost| WorkerLoad { received: 50, lost, is_busy: true });
        backoff.observe(&loads, Moment(second))
    }

    /// Bursts for one info hash, each of which overflows a buffer around the end of a second.
    #[test]
    fn bursts_at_an_idle_worker_change_nothing() {
        let mut backoff = SteeringBackoff::new(4);
        for second in 1..1_000 {
            let idle = WorkerLoad { received: 50, lost: 0, is_busy: false };
            let burst = WorkerLoad { lost: 5_000, ..idle };
            assert_eq!(backoff.observe(&[idle, burst, idle, idle], Moment(second)), []);
        }
    }

    #[test]
    fn the_dropping_worker_is_suspended_and_later_restored() {
        let mut backoff = SteeringBackoff::new(4);
        assert_eq!(observe(&mut backoff, [0, 0, 5, 0], 1), [], "one second is not enough");
        assert_eq!(observe(&mut backoff, [0, 0, 4, 0], 2), [SteeringChange::Withdraw(2)]);
        assert_eq!(observe(&mut backoff, [0, 0, 3, 0], 3), []);
        assert_eq!(observe(&mut backoff, [0; 4], 31), []);
        assert_eq!(observe(&mut backoff, [0; 4], 32), [SteeringChange::Restore(2)]);
        assert_eq!(observe(&mut backoff, [0; 4], 61), [], "no drops during the trial");
        assert_eq!(observe(&mut backoff, [0, 0, 1, 0], 62), []);
        assert_eq!(observe(&mut backoff, [0, 0, 1, 0], 63), [SteeringChange::Withdraw(2)]);
    }

    #[test]
    fn failed_trials_are_short_and_become_rare() {
        let mut backoff = SteeringBackoff::new(4);
        let (mut steered, mut dropping) = (true, Vec::new());
        for second in 1..4_000 {
            if steered {
                dropping.push(second);
            }
            match observe(&mut backoff, [0, u64::from(steered), 0, 0], second)[..] {
                [SteeringChange::Withdraw(1)] => steered = false,
                [SteeringChange::Restore(1)] => steered = true,
                [] => {}
                ref other => panic!("{other:?}"),
            }
        }
        // A suspension, one second of trial, twice the suspension and so on, up to 960 seconds.
        assert_eq!(dropping, [1, 2, 33, 94, 215, 456, 937, 1_898, 2_859, 3_820]);
    }

    #[test]
    fn an_overloaded_host_keeps_its_steering() {
        let mut backoff = SteeringBackoff::new(4);
        for second in 1..10 {
            assert_eq!(observe(&mut backoff, [1, 1, 1, 0], second), []);
        }
    }

    /// As after a burst, or with a buffer that is a little too small.
    #[test]
    fn few_losses_among_many_datagrams_are_no_reason() {
        let mut backoff = SteeringBackoff::new(2);
        for second in 1..60 {
            let other = WorkerLoad { received: 1_000, lost: 0, is_busy: true };
            let loser = WorkerLoad { lost: 9, ..other };
            assert_eq!(backoff.observe(&[loser, other], Moment(second)), []);
        }
    }

    #[test]
    fn a_second_without_drops_resets_the_count() {
        let mut backoff = SteeringBackoff::new(2);
        assert_eq!(observe(&mut backoff, [1, 0], 1), []);
        assert_eq!(observe(&mut backoff, [0, 0], 2), []);
        assert_eq!(observe(&mut backoff, [1, 0], 3), []);
    }
}
