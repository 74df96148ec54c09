//! When to stop steering to a worker. Steering by info hash moves the kernel's own work too, so one
//! hot or attacked hash can fill one worker's socket while the others are idle. Such a worker's
//! verdict is withdrawn for a while: the kernel then spreads its datagrams over all sockets, and the
//! lanes bring them home.

use onrush_swarm::Moment;

/// Seconds in a row with drops after which a worker is relieved.
const PATIENCE: u32 = 2;
/// Seconds for which it stays relieved before steering is tried again.
const REST: u32 = 30;
/// The same at most: it doubles whenever steering was tried in vain, as each trial costs replies.
const LONGEST_REST: u32 = 32 * REST;

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Steer nothing to this worker.
    Withdraw(usize),
    /// Steer to it again.
    Restore(usize),
}

/// Watches the kernel drops of each worker.
#[derive(Debug)]
pub struct Relief {
    workers: Vec<Watched>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    drops: u64,
    dropping_for: u32,
    relieved_at: Option<Moment>,
    /// For how long it is relieved, or was the last time.
    rest: u32,
    /// When steering to it was tried again: for as long as it was relieved this is a trial.
    restored_at: Option<Moment>,
}

impl Watched {
    fn on_trial(&self, now: Moment) -> bool {
        self.restored_at.is_some_and(|since| now.since(since) < self.rest)
    }

    /// On trial the first drops tell enough.
    fn has_enough(&self, now: Moment) -> bool {
        self.dropping_for >= if self.on_trial(now) { 1 } else { PATIENCE }
    }
}

impl Relief {
    /// For so many workers, all of them steered to.
    pub fn new(workers: usize) -> Self {
        Self { workers: vec![Watched::default(); workers] }
    }

    /// To be called once a second with what the kernel has dropped at each worker since its
    /// start. When most workers drop, the host is full, and steering is not what is wrong.
    pub fn observe(&mut self, drops: impl IntoIterator<Item = u64>, now: Moment) -> Vec<Change> {
        let mut dropping = 0;
        for (worker, drops) in self.workers.iter_mut().zip(drops) {
            let more = drops > worker.drops;
            worker.drops = drops;
            worker.dropping_for = if more { worker.dropping_for + 1 } else { 0 };
            dropping += usize::from(more);
        }
        let lopsided = dropping * 2 <= self.workers.len();
        let decide = |(index, worker): (usize, &mut Watched)| match worker.relieved_at {
            None if lopsided && worker.has_enough(now) => {
                let again = worker.on_trial(now);
                worker.rest = if again { (worker.rest * 2).min(LONGEST_REST) } else { REST };
                worker.relieved_at = Some(now);
                Some(Change::Withdraw(index))
            }
            Some(since) if now.since(since) >= worker.rest => {
                worker.relieved_at = None;
                worker.restored_at = Some(now);
                worker.dropping_for = 0;
                Some(Change::Restore(index))
            }
            _ => None,
        };
        self.workers.iter_mut().enumerate().filter_map(decide).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_drops_is_relieved_and_later_tried_again() {
        let mut relief = Relief::new(4);
        assert_eq!(relief.observe([0, 0, 5, 0], Moment(1)), [], "one second is no pattern");
        assert_eq!(relief.observe([0, 0, 9, 0], Moment(2)), [Change::Withdraw(2)]);
        assert_eq!(relief.observe([0, 0, 12, 0], Moment(3)), []);
        assert_eq!(relief.observe([0, 0, 12, 0], Moment(31)), []);
        assert_eq!(relief.observe([0, 0, 12, 0], Moment(32)), [Change::Restore(2)]);
        assert_eq!(relief.observe([0, 0, 12, 0], Moment(61)), [], "it went well for half a minute");
        assert_eq!(relief.observe([0, 0, 13, 0], Moment(62)), []);
        assert_eq!(relief.observe([0, 0, 14, 0], Moment(63)), [Change::Withdraw(2)]);
    }

    #[test]
    fn trials_in_vain_are_short_and_become_rare() {
        let mut relief = Relief::new(4);
        let (mut drops, mut steered, mut dropping) = (0, true, Vec::new());
        for second in 1..4_000 {
            if steered {
                drops += 1;
                dropping.push(second);
            }
            match relief.observe([0, drops, 0, 0], Moment(second))[..] {
                [Change::Withdraw(1)] => steered = false,
                [Change::Restore(1)] => steered = true,
                [] => {}
                ref other => panic!("{other:?}"),
            }
        }
        // A rest, a second on trial, twice the rest and so on, up to 960 seconds.
        assert_eq!(dropping, [1, 2, 33, 94, 215, 456, 937, 1_898, 2_859, 3_820]);
    }

    #[test]
    fn a_host_that_is_full_everywhere_keeps_its_steering() {
        let mut relief = Relief::new(4);
        for second in 1..10 {
            let drops = u64::from(second);
            assert_eq!(relief.observe([drops, drops, drops, 0], Moment(second)), []);
        }
    }

    #[test]
    fn a_pause_starts_the_count_again() {
        let mut relief = Relief::new(2);
        assert_eq!(relief.observe([1, 0], Moment(1)), []);
        assert_eq!(relief.observe([1, 0], Moment(2)), []);
        assert_eq!(relief.observe([2, 0], Moment(3)), []);
    }
}
