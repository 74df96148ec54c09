//! Searches for the highest rate that a tracker holds: short open-loop rounds double the rate until
//! a round fails, then halve the interval between the highest held and the lowest failed rate, and
//! a longer round confirms the result.
//!
//! A failed round is repeated once, so that a short disturbance of the host does not decide. The
//! number of rounds is bounded, so the search ends.

use crate::report::Report;
use crate::report::search::{Bounds, Purpose, Round, Search, Verdict};

/// The first rate, in requests per second.
const FIRST_RATE: f64 = 1000.0;
/// The lowest rate that is tried.
const MIN_RATE: f64 = 1.0;
/// The highest rate that is tried.
const MAX_RATE: f64 = 1e8;
/// Upper bound on rounds, without the confirming ones.
const MAX_ROUNDS: usize = 48;
/// Upper bound on confirming rounds; each has a lower rate than the one before.
const MAX_CONFIRMATIONS: i32 = 5;

/// The aim of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// The bounds within which a rate counts as held.
    pub bounds: Bounds,
    /// Wanted distance between the highest held and the lowest failed rate: 0.02 for 2 %.
    pub resolution: f64,
}

/// Searches. `measure` runs a round at a rate, `observe` is called with each round, and `stopped`
/// ends the search early: the result is then the highest rate held so far, marked as not
/// confirmed, without the interrupted round.
///
/// The report is the one of the round at the found rate, with the search added; where no rate was
/// held, the one of the last round.
///
/// # Errors
/// Those of `measure`, and when no round was run.
pub fn search(
    aim: Aim,
    measure: impl FnMut(Purpose, f64) -> anyhow::Result<Report>,
    observe: impl FnMut(&Round),
    stopped: impl Fn() -> bool,
) -> anyhow::Result<Report> {
    let (rounds, best) = (Vec::new(), Vec::new());
    let (held, failed, last) = (None, None, None);
    let mut seeker = Seeker { aim, measure, observe, stopped, held, failed, rounds, best, last };
    seeker.grow()?;
    seeker.narrow()?;
    let confirmed = seeker.confirm()?;
    let found = confirmed.or_else(|| seeker.unconfirmed());
    let search = Search {
        bounds: aim.bounds,
        // Rounded, as 0.02 * 100 is not exactly 2 in binary.
        resolution_percent: (aim.resolution * 1e8).round() / 1e6,
        found,
        confirmed: confirmed.is_some(),
        limit: seeker.failed.map(|(_, verdict)| verdict),
        rounds: seeker.rounds,
    };
    // The last of several rounds at the found rate is the confirming one.
    let mut best = seeker.best.into_iter().rev();
    let best = best.find(|(rate, _)| Some(*rate) == found).map(|(_, report)| report);
    let mut report = best.or(seeker.last).ok_or_else(|| anyhow::anyhow!("no round was run"))?;
    report.warnings.extend(search.warning());
    report.search = Some(search);
    Ok(report)
}

struct Seeker<M, T, S> {
    aim: Aim,
    measure: M,
    observe: T,
    stopped: S,
    /// The highest held rate.
    held: Option<f64>,
    /// The lowest failed rate and its verdict.
    failed: Option<(f64, Verdict)>,
    rounds: Vec<Round>,
    /// The reports of held rounds, with their rates.
    best: Vec<(f64, Report)>,
    last: Option<Report>,
}

impl<M, T, S> Seeker<M, T, S>
where
    M: FnMut(Purpose, f64) -> anyhow::Result<Report>,
    T: FnMut(&Round),
    S: Fn() -> bool,
{
    /// Runs a round; `None` when it was interrupted, which says nothing about the rate.
    fn round(&mut self, purpose: Purpose, rate: f64) -> anyhow::Result<Option<Verdict>> {
        let report = (self.measure)(purpose, rate);
        if (self.stopped)() {
            return Ok(None);
        }
        let report = report?;
        let round = Round::new(purpose, rate, &report, &self.aim.bounds);
        (self.observe)(&round);
        let verdict = round.verdict;
        if round.held() {
            self.best.push((rate, report.clone()));
        }
        self.last = Some(report);
        self.rounds.push(round);
        Ok(Some(verdict))
    }

    /// Runs a round and, where it failed, a second one, and notes the result; `None` when it was
    /// interrupted.
    fn attempt(&mut self, purpose: Purpose, rate: f64) -> anyhow::Result<Option<Verdict>> {
        let mut verdict = self.round(purpose, rate)?;
        if verdict.is_some_and(|verdict| verdict != Verdict::Held) && !self.is_over() {
            verdict = self.round(purpose, rate)?;
        }
        match verdict {
            Some(Verdict::Held) => self.held = Some(rate),
            Some(verdict) => self.failed = Some((rate, verdict)),
            None => {}
        }
        Ok(verdict)
    }

    fn is_over(&self) -> bool {
        (self.stopped)() || self.rounds.len() >= MAX_ROUNDS
    }

    /// Finds a held and a failed rate by doubling, or dividing.
    fn grow(&mut self) -> anyhow::Result<()> {
        let mut rate = FIRST_RATE;
        while (MIN_RATE..=MAX_RATE).contains(&rate) && !self.is_over() {
            if self.attempt(Purpose::Grow, rate)?.is_none() {
                break;
            }
            match (self.held, self.failed) {
                (Some(_), Some(_)) => break,
                (Some(_), None) => rate *= 2.0,
                _ => rate /= 4.0,
            }
        }
        Ok(())
    }

    /// Brings both of them closer together.
    fn narrow(&mut self) -> anyhow::Result<()> {
        while let (Some(low), Some((high, _))) = (self.held, self.failed)
            && high / low > 1.0 + self.aim.resolution
            && !self.is_over()
        {
            if self.attempt(Purpose::Narrow, (low * high).sqrt())?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The rate that holds for longer too: the highest held one, or one that is lower by some steps
    /// of the resolution, each step twice as long as the one before.
    fn confirm(&mut self) -> anyhow::Result<Option<f64>> {
        let Some(highest) = self.held else { return Ok(None) };
        for nth in 0..MAX_CONFIRMATIONS {
            if (self.stopped)() {
                break;
            }
            let steps = f64::from(2_i32.pow(nth as u32) - 1);
            let rate = highest * (1.0 - self.aim.resolution).powf(steps);
            match self.attempt(Purpose::Confirm, rate)? {
                Some(Verdict::Held) => return Ok(Some(rate)),
                Some(_) => {}
                None => break,
            }
        }
        Ok(None)
    }

    /// The highest rate that held when somebody had enough, below what failed.
    fn unconfirmed(&self) -> Option<f64> {
        if !(self.stopped)() {
            return None;
        }
        let below = |rate: &f64| self.failed.is_none_or(|(failed, _)| *rate < failed);
        self.best.iter().map(|(rate, _)| *rate).filter(below).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    const AIM: Aim = Aim { bounds: Bounds { loss_percent: 0.1, p99_ms: 10.0 }, resolution: 0.02 };

    /// A round against a tracker that serves `capacity` and loses what is above it.
    fn round(rate: f64, capacity: f64) -> Report {
        let mut report = example();
        report.sent_rate = rate;
        report.rate = rate.min(capacity);
        report.loss_percent = (1.0 - capacity / rate).max(0.0) * 100.0;
        (report.latency.p99, report.dropped_here, report.unsent) = (500.0, 0, 0);
        report
    }

    fn result(report: &Report) -> &Search {
        report.search.as_ref().unwrap()
    }

    proptest! {
        #[test]
        fn the_capacity_is_found_to_the_resolution(capacity in 5.0..1e7f64) {
            let report =
                search(AIM, |_, rate| Ok(round(rate, capacity)), |_| {}, || false).unwrap();
            let found = result(&report).found.unwrap();
            // 0.1 % may be lost.
            prop_assert!(found <= capacity * 1.0011, "{found} of {capacity}");
            prop_assert!(found >= capacity * 0.979, "{found} of {capacity}");
            prop_assert_eq!(result(&report).limit, Some(Verdict::Lost));
            prop_assert!(result(&report).rounds.len() <= 60);
        }
    }

    #[test]
    fn one_hiccup_does_not_decide() {
        let nth = Cell::new(0);
        let measure = |_, rate| {
            nth.set(nth.get() + 1);
            Ok(round(rate, if nth.get() % 3 == 1 { 1.0 } else { 50_000.0 }))
        };
        let report = search(AIM, measure, |_| {}, || false).unwrap();
        let found = result(&report).found.unwrap();
        assert!((45_000.0..=50_100.0).contains(&found), "{found}");
    }

    #[test]
    fn what_does_not_hold_for_longer_is_lowered() {
        let measure = |purpose, rate| {
            Ok(round(rate, if purpose == Purpose::Confirm { 9000.0 } else { 10_000.0 }))
        };
        let report = search(AIM, measure, |_| {}, || false).unwrap();
        let found = result(&report).found.unwrap();
        assert!((8500.0..=9010.0).contains(&found), "{found}");
        assert_eq!(report.sent_rate, found, "the report is that of the confirmed round");
    }

    #[test]
    fn a_limit_of_the_load_tester_is_said() {
        let measure = |_, rate| {
            let mut report = round(rate, 1e9);
            report.unsent = if rate > 30_000.0 { 10_000 } else { 0 };
            Ok(report)
        };
        let report = search(AIM, measure, |_| {}, || false).unwrap();
        assert_eq!(result(&report).limit, Some(Verdict::LoadTester));
        assert!(report.warnings.iter().any(|warning| warning.contains("load tester's limit")));
    }

    #[test]
    fn a_tracker_that_holds_nothing_is_found_out() {
        let told = RefCell::new(0);
        let report =
            search(AIM, |_, rate| Ok(round(rate, 0.0)), |_| *told.borrow_mut() += 1, || false)
                .unwrap();
        assert_eq!(result(&report).found, None);
        assert_eq!(result(&report).rounds.len(), *told.borrow());
        assert!((5..=20).contains(&*told.borrow()), "{} rounds", told.borrow());
    }

    #[test]
    fn who_has_had_enough_gets_what_there_is() {
        let rounds = Cell::new(0);
        let measure = |_, rate| {
            rounds.set(rounds.get() + 1);
            Ok(round(rate, 1e6))
        };
        let report = search(AIM, measure, |_| {}, || rounds.get() >= 4).unwrap();
        let search = result(&report);
        assert_eq!((rounds.get(), search.rounds.len()), (4, 3), "the last one was cut");
        assert_eq!((search.found, search.confirmed), (Some(4000.0), false));
        assert_eq!(report.sent_rate, 4000.0, "the report is that of its round");
        assert!(report.warnings.iter().any(|warning| warning.contains("not confirmed")));
    }

    /// A round that is cut within its warm-up has no report.
    #[test]
    fn a_round_that_was_cut_costs_nothing_of_those_before() {
        let rounds = Cell::new(0);
        let measure = |_, rate| {
            rounds.set(rounds.get() + 1);
            anyhow::ensure!(rounds.get() < 3, "nothing was measured");
            Ok(round(rate, 1e6))
        };
        let report = search(AIM, measure, |_| {}, || rounds.get() >= 3).unwrap();
        assert_eq!(result(&report).found, Some(2000.0));
    }

    #[test]
    fn one_failed_confirmation_is_repeated() {
        let nth = Cell::new(0);
        let measure = |purpose, rate| {
            nth.set(nth.get() + usize::from(purpose == Purpose::Confirm));
            let hiccup = purpose == Purpose::Confirm && nth.get() == 1;
            Ok(round(rate, if hiccup { 1.0 } else { 50_000.0 }))
        };
        let report = search(AIM, measure, |_| {}, || false).unwrap();
        let confirms = result(&report).rounds.iter().filter(|r| r.purpose == Purpose::Confirm);
        let rates: Vec<_> = confirms.map(|round| round.rate).collect();
        assert_eq!((rates.len(), Some(rates[0])), (2, result(&report).found), "{rates:?}");
    }

    /// What keeps a rate from being confirmed is what limits it.
    #[test]
    fn the_verdict_of_a_failed_confirmation_is_the_limit() {
        let measure = |purpose, rate| {
            let mut report = round(rate, 10_000.0);
            report.unsent = if purpose == Purpose::Confirm { 10_000 } else { 0 };
            Ok(report)
        };
        let report = search(AIM, measure, |_| {}, || false).unwrap();
        assert_eq!(
            (result(&report).found, result(&report).limit),
            (None, Some(Verdict::LoadTester))
        );
        assert!(report.warnings.iter().any(|warning| warning.contains("own limit")));
    }
}
