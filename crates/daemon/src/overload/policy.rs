//! How hard the tracker is pressed, in steps: one more while more than the configured share of datagrams is
//! dropped, one less after half a minute in which hardly any was.

use onrush_tracker::shedding::SLOTS;

use std::collections::VecDeque;

/// Seconds over which the share is taken, and between two steps up.
const WINDOW: usize = 5;
/// Seconds in a row with little loss after which it is a step less.
const CALM: u32 = 30;
/// Datagrams in that time from which on a share says something.
const ENOUGH: u64 = 500;

/// A step up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Up, as this percentage was dropped.
    Harder(u64),
    /// Down.
    Easier,
}

/// What decides, from counters and seconds alone.
#[derive(Debug, Default)]
pub struct Policy {
    step: u32,
    /// What was received and dropped up to each of the last seconds.
    readings: VecDeque<(u64, u64)>,
    calm_for: u32,
    /// Until when it does not go up: the last step has to show first.
    settling: u32,
}

impl Policy {
    /// 0 to [`SLOTS`].
    pub fn step(&self) -> u32 {
        self.step
    }

    /// To be called once a second with the percentage that may be dropped (0 for never minding) and what was
    /// received and dropped since the start.
    pub fn second(&mut self, limit: u32, received: u64, dropped: u64) -> Option<Change> {
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
        // Of an exact share: the percentage is rounded down.
        if !off && dropped * 100 > limit * all && all >= ENOUGH {
            if self.settling > 0 || self.step == SLOTS {
                return None;
            }
            (self.step, self.settling) = (self.step + 1, WINDOW as u32);
            return Some(Change::Harder(share));
        }
        if self.step > 0 && self.calm_for >= CALM {
            (self.step, self.calm_for) = (self.step - 1, 0);
            return Some(Change::Easier);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A policy of 5 % with its counters.
    #[derive(Default)]
    struct Counted {
        policy: Policy,
        received: u64,
        dropped: u64,
    }

    impl Counted {
        fn second(&mut self, received: u64, dropped: u64) -> Option<Change> {
            self.received += received;
            self.dropped += dropped;
            self.policy.second(5, self.received, self.dropped)
        }

        fn steps(&mut self, seconds: u32, received: u64, dropped: u64) -> Vec<(u32, Change)> {
            (1..=seconds).filter_map(|at| Some((at, self.second(received, dropped)?))).collect()
        }
    }

    #[test]
    fn it_goes_up_while_too_much_is_dropped_and_down_when_it_is_calm() {
        let mut counted = Counted::default();
        assert_eq!(counted.steps(20, 950, 50), [], "5 % are permitted");
        let up = counted.steps(60, 500, 500);
        assert_eq!(up.len(), 8, "{up:?}");
        assert_eq!(up[0], (1, Change::Harder(14)), "the window has one second of it");
        assert!(up.windows(2).all(|pair| pair[1].0 - pair[0].0 == 5), "{up:?}");
        assert_eq!(counted.policy.step(), SLOTS);
        assert_eq!(counted.steps(600, 960, 40), [], "4 % are not calm enough to go down");
        let down = counted.steps(300, 1000, 0);
        assert_eq!(down.len(), 8, "{down:?}");
        assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 == CALM), "{down:?}");
        assert_eq!(counted.policy.step(), 0);
    }

    #[test]
    fn a_handful_of_datagrams_says_nothing() {
        let mut counted = Counted::default();
        assert_eq!(counted.steps(100, 0, 80), []);
    }

    proptest! {
        #[test]
        fn a_step_is_never_more_than_one(
            seconds in proptest::collection::vec((0u64..5_000, 0u64..5_000), 0..400),
        ) {
            let mut counted = Counted::default();
            let mut before = 0;
            for (received, dropped) in seconds {
                let change = counted.second(received, dropped);
                let step = counted.policy.step();
                let expected = match change {
                    None => before,
                    Some(Change::Harder(_)) => before + 1,
                    Some(Change::Easier) => before - 1,
                };
                prop_assert_eq!(step, expected);
                prop_assert!(step <= SLOTS);
                before = step;
            }
        }
    }
}
