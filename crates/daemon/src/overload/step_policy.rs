//! The step of overload: up by one while the workers cannot keep up, down by one after half a
//! minute without pressure.
//!
//! A second is under pressure when busy workers have lost, or refused as busy, more than the
//! configured share of its datagrams; from the fifth second in succession with such losses on, also
//! when idle workers have, as bursts do not last. It also is when more than that share of its
//! connections of HTTP was turned away, or of its requests over HTTP refused as busy; these are
//! shares of their own, and no reason for the kernel's filter. A single burst can cause one second
//! of pressure.
//! So a step up needs pressure in most seconds of a window. Toward a step down, a second of
//! pressure subtracts one from the number of calm seconds, and does not reset it.

use std::collections::VecDeque;

use super::load::Load;

/// The highest step.
pub const STEPS: u32 = 8;
/// Seconds of the window, between two steps up, and after which losses are no burst.
const WINDOW: usize = 5;
/// Seconds of a window under pressure for a step up.
const PRESSED: usize = 3;
/// Seconds without pressure before a step down.
const CALM: u32 = 30;
/// Datagrams, connections or requests over HTTP in a second below which there is no pressure.
const ENOUGH: u64 = 100;

/// A step up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepChange {
    /// Up, because of pressure.
    Up {
        /// Percentage of datagrams lost.
        lost: u64,
        /// Percentage of datagrams that were requests refused as busy.
        refused: u64,
        /// Percentage of connections that were turned away.
        turned_away: u64,
        /// Percentage of requests over HTTP that were refused as busy.
        refused_over_http: u64,
    },
    /// Down.
    Down,
}

/// Decides once a second.
#[derive(Debug, Default)]
pub struct StepPolicy {
    step: u32,
    /// Whether each of the last seconds was under pressure, of datagrams and of any kind.
    window: VecDeque<[bool; 2]>,
    /// Seconds in succession in which more than the permitted share of the datagrams was lost or
    /// refused.
    losing_for: usize,
    calm_for: u32,
    /// Seconds until the next step up: the last one has to take effect first.
    settling: u32,
}

impl StepPolicy {
    /// 0 to [`STEPS`].
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Whether most of the last seconds were under pressure of datagrams.
    pub fn is_pressed(&self) -> bool {
        self.most_seconds(|[by_datagrams, _]| by_datagrams)
    }

    fn most_seconds(&self, pressed: impl Fn([bool; 2]) -> bool) -> bool {
        self.window.iter().filter(|second| pressed(**second)).count() >= PRESSED
    }

    /// Call every second with its load and the permitted percentage of losses (0 switches the
    /// steps off).
    pub fn tick(&mut self, limit: u32, load: &Load) -> Option<StepChange> {
        let limit = u64::from(limit);
        let enough = |all: u64| all >= ENOUGH && limit > 0;
        let exceeds = |out: u64, all: u64| enough(all) && out * 100 > limit * all;
        let is_calm = |out: u64, all: u64| !enough(all) || out * 200 <= limit * all;
        let (all, gone) = (load.arrived(), load.lost + load.refused);
        self.losing_for = if exceeds(gone, all) { self.losing_for + 1 } else { 0 };
        let out = if self.losing_for >= WINDOW { gone } else { load.pressed_out() };
        let by_datagrams = exceeds(out, all);
        let of_http =
            [(load.turned_away, load.connections), (load.refused_over_http, load.requests)];
        let pressed = by_datagrams || of_http.iter().any(|(out, all)| exceeds(*out, *all));
        let calm = is_calm(out, all) && of_http.iter().all(|(out, all)| is_calm(*out, *all));
        self.window.push_back([by_datagrams, pressed]);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.settling = self.settling.saturating_sub(1);
        self.calm_for = match (calm, pressed) {
            (true, _) => self.calm_for + 1,
            (_, true) => self.calm_for.min(CALM).saturating_sub(1),
            _ => self.calm_for,
        };
        let most_pressed = self.most_seconds(|[_, any]| any);
        if pressed && most_pressed && self.settling == 0 && self.step < STEPS {
            (self.step, self.settling, self.calm_for) = (self.step + 1, WINDOW as u32, 0);
            let percent = |count: u64, all: u64| count * 100 / all.max(1);
            return Some(StepChange::Up {
                lost: percent(load.lost, all),
                refused: percent(load.refused, all),
                turned_away: percent(load.turned_away, load.connections),
                refused_over_http: percent(load.refused_over_http, load.requests),
            });
        }
        if calm && self.step > 0 && self.calm_for >= CALM {
            (self.step, self.calm_for) = (self.step - 1, 0);
            return Some(StepChange::Down);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A second of these datagrams, lost by busy workers or by idle ones.
    fn second(received: u64, lost: u64, busy: bool) -> Load {
        let lost_by_busy = if busy { lost } else { 0 };
        Load { received, lost, lost_by_busy, ..Load::default() }
    }

    /// A step up, with these percentages of datagrams, connections and requests over HTTP.
    fn up(lost: u64, refused: u64, turned_away: u64, refused_over_http: u64) -> StepChange {
        StepChange::Up { lost, refused, turned_away, refused_over_http }
    }

    /// The changes, with a limit of 5 %, of as many seconds.
    fn steps(policy: &mut StepPolicy, seconds: u32, load: &Load) -> Vec<(u32, StepChange)> {
        (1..=seconds).filter_map(|at| Some((at, policy.tick(5, load)?))).collect()
    }

    #[test]
    fn steps_up_above_the_limit_and_down_after_calm_seconds() {
        let mut policy = StepPolicy::default();
        assert_eq!(steps(&mut policy, 20, &second(950, 50, true)), [], "5 % is permitted");
        let rise = steps(&mut policy, 60, &second(500, 500, true));
        assert_eq!(rise.len(), 8, "{rise:?}");
        assert_eq!(rise[0], (3, up(50, 0, 0, 0)), "most of the window");
        assert!(rise.windows(2).all(|pair| pair[1].0 - pair[0].0 == 5), "{rise:?}");
        assert_eq!(policy.step(), STEPS);
        let more_than_half_of_the_limit = second(960, 40, true);
        assert_eq!(steps(&mut policy, 600, &more_than_half_of_the_limit), []);
        let down = steps(&mut policy, 300, &second(1000, 0, true));
        assert_eq!(down.len(), 8, "{down:?}");
        assert!(down.windows(2).all(|pair| pair[1].0 - pair[0].0 == CALM), "{down:?}");
        assert_eq!(policy.step(), 0);
    }

    #[test]
    fn few_datagrams_never_cause_a_step() {
        assert_eq!(steps(&mut StepPolicy::default(), 100, &second(0, 80, true)), []);
    }

    /// Of idle workers they are no pressure before the fifth second in succession.
    #[test]
    fn losses_and_refusals_are_pressure_of_busy_workers_or_if_they_last() {
        let refused = Load { received: 1_000, refused: 500, ..Load::default() };
        for (idle, busy, lost, refused) in [
            (second(500, 500, false), second(500, 500, true), 50, 0),
            (refused.clone(), Load { refused_by_busy: 500, ..refused }, 0, 50),
        ] {
            let up = up(lost, refused, 0, 0);
            let mut policy = StepPolicy::default();
            assert_eq!(steps(&mut policy, 3, &busy), [(3, up)]);
            let mut policy = StepPolicy::default();
            for _ in 0..20 {
                assert_eq!(steps(&mut policy, 4, &idle), []);
                assert_eq!(
                    steps(&mut policy, 1, &second(1_000, 50, false)),
                    [],
                    "5 % is permitted"
                );
            }
            assert_eq!(steps(&mut policy, 7, &idle), [(7, up)]);
            assert_eq!(steps(&mut policy, 60, &idle).len(), 7);
        }
    }

    #[test]
    fn what_is_refused_over_http_is_pressure_of_its_own() {
        let turned_away = |turned_away, datagrams| Load {
            connections: 1_000,
            turned_away,
            ..second(datagrams, 0, true)
        };
        let refused = |refused_over_http, datagrams| Load {
            requests: 1_000,
            refused_over_http,
            ..second(datagrams, 0, true)
        };
        let kinds: [(&dyn Fn(u64, u64) -> Load, _); 2] =
            [(&turned_away, up(0, 0, 6, 0)), (&refused, up(0, 0, 0, 6))];
        // However many datagrams there are beside it.
        for ((of_http, up), datagrams) in kinds.into_iter().flat_map(|it| [(it, 0), (it, 100_000)])
        {
            let load = |count| of_http(count, datagrams);
            let mut policy = StepPolicy::default();
            assert_eq!(steps(&mut policy, 20, &load(50)), [], "5 % is permitted");
            assert_eq!(steps(&mut policy, 3, &load(60)), [(3, up)]);
            assert_eq!(steps(&mut policy, 40, &load(25)), [(30, StepChange::Down)]);
        }
    }

    /// A burst of 85,000 datagrams within 0.12 s, every five seconds and every twelve: the step
    /// stays at 0 whether or not the worker is busy in that second, and it returns to 0 during the
    /// bursts.
    #[test]
    fn bursts_cause_no_step_and_do_not_hold_one() {
        for (period, busy) in [(5, false), (12, false), (5, true), (12, true)] {
            let mut policy = StepPolicy::default();
            let bursts = |policy: &mut StepPolicy, seconds: u32| -> Vec<StepChange> {
                let load = |at: u32| match at % period {
                    0 => second(20_000, 65_000, busy),
                    _ => second(500, 0, false),
                };
                (1..=seconds).filter_map(|at| policy.tick(5, &load(at))).collect()
            };
            assert_eq!(bursts(&mut policy, 600), [], "every {period} s");
            steps(&mut policy, 60, &second(500, 500, true));
            assert_eq!(policy.step(), STEPS);
            bursts(&mut policy, 600);
            assert_eq!(policy.step(), 0, "every {period} s");
        }
    }

    #[test]
    fn a_limit_of_zero_leads_back_to_no_step() {
        let mut policy = StepPolicy::default();
        steps(&mut policy, 60, &second(500, 500, true));
        let down = (0..240).filter_map(|_| policy.tick(0, &second(500, 500, true))).count();
        assert_eq!((down, policy.step()), (8, 0));
    }

    proptest! {
        /// The kernel's filter is of no use against what web workers refuse.
        #[test]
        fn refusals_over_http_are_no_pressure_of_datagrams(
            seconds in proptest::collection::vec(
                (0u64..5_000, 0u64..500, any::<bool>(), 0u64..5_000, 0u64..5_000),
                0..60,
            ),
        ) {
            let mut policies = [StepPolicy::default(), StepPolicy::default()];
            for (received, lost, busy, requests, refused_over_http) in seconds {
                let load = second(received, lost, busy);
                policies[0].tick(5, &load);
                policies[1].tick(5, &Load { requests, refused_over_http, ..load });
                let [without, with] = policies.each_ref().map(StepPolicy::is_pressed);
                prop_assert_eq!(with, without);
            }
        }

        #[test]
        fn each_change_is_a_single_step(
            seconds in proptest::collection::vec((0u64..5_000, 0u64..5_000, any::<bool>()), 0..400),
        ) {
            let mut policy = StepPolicy::default();
            let mut before = 0;
            for (received, lost, busy) in seconds {
                let change = policy.tick(5, &second(received, lost, busy));
                let expected = match change {
                    None => before,
                    Some(StepChange::Up { .. }) => before + 1,
                    Some(StepChange::Down) => before - 1,
                };
                prop_assert_eq!(policy.step(), expected);
                prop_assert!(policy.step() <= STEPS);
                before = policy.step();
            }
        }
    }
}
