//! The step of load shedding: up by one while more than the configured share of datagrams is
//! dropped, down by one after half a minute with at most half of that share.

use onrush_tracker::shedding::SLOTS;

use std::collections::VecDeque;

/// Seconds over which the share is computed, and between two steps up.
const WINDOW: usize = 5;
/// Consecutive seconds with little loss before a step down.
const CALM: u32 = 30;
/// Datagrams per window below which the share counts as 0.
const ENOUGH: u64 = 500;

/// A step up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Up: this percentage was dropped.
    Up(u64),
    /// Down.
    Down,
}

/// Decides from counters, once a second.
#[derive(Debug, Default)]
pub struct Policy {
    step: u32,
    /// Counters of datagrams received and dropped, for each of the last seconds.
    readings: VecDeque<(u64, u64)>,
    calm_for: u32,
    /// Seconds until the next step up: the last one has to take effect first.
    settling: u32,
}

impl Policy {
    /// 0 to [`SLOTS`].
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Call every second with the permitted percentage of drops (0 switches shedding off) and
    /// the datagrams received and dropped since the start.
    pub fn tick(&mut self, limit: u32, received: u64, dropped: u64) -> Option<Change> {
        self.readings.push_back((received, dropped));
        if self.readings.len() <= WINDOW {
            return None;
        }
        let (received_then, dropped_then) = self.readings.pop_front()?;
        let dropped = dropped.saturating_sub(dropped_then);
        let all = received.saturating_sub(received_then) + dropped;
        let share = if all < ENOUGH { 0 } else { dropped * 100 / all };
        self.settling = self.settling.saturating_sub(1);
        let (limit, off) = (u64::from(limit), limit == 0);
        let calm = off || share * 2 <= limit;
        self.calm_for = if calm { self.calm_for + 1 } else { 0 };
        // Compares products, since the percentage is rounded down.
        if !off && dropped * 100 > limit * all && all >= ENOUGH {
            if self.settling > 0 || self.step == SLOTS {
                return None;
            }
            (self.step, self.settling) = (self.step + 1, WINDOW as u32);
            return Some(Change::Up(share));
        }
        if self.step > 0 && self.calm_for >= CALM {
            (self.step, self.calm_for) = (self.step - 1, 0);
            return Some(Change::Down);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A policy with a limit of 5 %, and its counters.
    #[derive(Default)]
    struct Counted {
        policy: Policy,
        received: u64,
        dropped: u64,
    }

    impl Counted {
        fn tick(&mut self, received: u64, dropped: u64) -> Option<Change> {
            self.received += received;
            self.dropped += dropped;
            self.policy.tick(5, self.received, self.dropped)
        }

        fn steps(&mut self, seconds: u32, received: u64, dropped: u64) -> Vec<(u32, Change)> {
            (1..=seconds).filter_map(|at| Some((at, self.tick(received, dropped)?))).collect()
        }
    }

    #[test]
    fn steps_up_above_the_limit_and_down_after_calm_seconds() {
        let mut counted = Counted::default();
        assert_eq!(counted.steps(20, 950, 50), [], "5 % is permitted");
        let up = counted.steps(60, 500, 500);
        assert_eq!(up.len(), 8, "{up:?}");
        assert_eq!(up[0], (1, Change::Up(14)), "one second of the window");
        assert!(up.windows(2).all(|pair| pair[1].0 - pair[0].0 == 5), "{up:?}");
        assert_eq!(counted.policy.step(), SLOTS);
        assert_eq!(counted.steps(600, 960, 40), [], "4 % is more than half of the limit");
        let down = counted.steps(300, 1000, 0);
        assert_eq!(down.len(), 8, "{down:?}");
        assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 == CALM), "{down:?}");
        assert_eq!(counted.policy.step(), 0);
    }

    #[test]
    fn few_datagrams_never_cause_a_step() {
        let mut counted = Counted::default();
        assert_eq!(counted.steps(100, 0, 80), []);
    }

    proptest! {
        #[test]
        fn each_change_is_a_single_step(
            seconds in proptest::collection::vec((0u64..5_000, 0u64..5_000), 0..400),
        ) {
            let mut counted = Counted::default();
            let mut before = 0;
            for (received, dropped) in seconds {
                let change = counted.tick(received, dropped);
                let step = counted.policy.step();
                let expected = match change {
                    None => before,
                    Some(Change::Up(_)) => before + 1,
                    Some(Change::Down) => before - 1,
                };
                prop_assert_eq!(step, expected);
                prop_assert!(step <= SLOTS);
                before = step;
            }
        }
    }
}
