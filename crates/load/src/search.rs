//! Searches for the highest rate that a tracker holds, within a bounded time: from the rate of a
//! closed loop, short open-loop rounds go up or down until one rate is held and one fails, then
//! halve the interval between them, and a longer round confirms the result.
//!
//! A closed loop cannot overload the tracker and its rate is near the result, so few rounds are
//! needed and few of them overload the tracker. A failed round is repeated once, so that a short
//! disturbance of the host does not decide. A confirmation is not: the next one has a lower rate.

use std::time::Duration;

use crate::report::Report;
use crate::report::search::{Bounds, Purpose, Round, Search, Verdict};

/// The first rate, as a share of the closed loop's: above this latency grows fast.
const FIRST_SHARE: f64 = 0.8;
/// The ratio of the first rate and the next one; each further one is the square of the one before.
const FIRST_RATIO: f64 = 1.25;
/// Upper bound on the ratio of two rates.
const MAX_RATIO: f64 = 4.0;
/// The lowest rate that is tried.
const MIN_RATE: f64 = 1.0;
/// The highest rate that is tried.
const MAX_RATE: f64 = 1e8;
/// Confirming rounds that fail for the load tester's own limit before no further one is tried.
const MAX_OWN_LIMITS: usize = 2;

/// The aim of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// The bounds within which a rate counts as held.
    pub bounds: Bounds,
    /// Wanted distance between the highest held and the lowest failed rate: 0.02 for 2 %.
    pub resolution: f64,
    /// The time of the search.
    pub times: Times,
}

/// The time of a search, and of rounds with their warm-up and the wait for the last replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A round.
    pub round: Duration,
    /// A confirming round.
    pub confirmation: Duration,
    /// All.
    pub total: Duration,
}

impl Times {
    /// The time of a search with rounds of these lengths, after a closed loop of `closed`: with the
    /// defaults of the command line less than a minute.
    pub fn new(closed: Duration, round: Duration, confirmation: Duration) -> Self {
        Self { round, confirmation, total: closed + round * 8 + confirmation * 2 }
    }
}

/// Searches from the rate of a closed loop. `measure` runs a round at a rate, `observe` is called
/// with each round, `elapsed` is the time since the search began, closed loop included, and
/// `stopped` ends it early. Where no round confirms the result it is the highest rate held, marked
/// as not confirmed; an interrupted round does not count.
///
/// The report is the one of the round at the found rate, with the search added; where no rate was
/// held, the one of the last round.
///
/// # Errors
/// The errors of `measure`.
pub fn search(
    aim: Aim,
    closed: Report,
    mut measure: impl FnMut(Purpose, f64) -> anyhow::Result<Report>,
    mut observe: impl FnMut(&Round),
    elapsed: impl Fn() -> Duration,
    stopped: impl Fn() -> bool,
) -> anyhow::Result<Report> {
    let closed_loop = closed.sent_rate;
    let is_over = |needed: Duration| stopped() || elapsed() + needed > aim.times.total;
    let mut seeker = Seeker {
        aim,
        measure: &mut measure,
        observe: &mut observe,
        is_over: &is_over,
        stopped: &stopped,
        held: None,
        failed: None,
        rounds: Vec::new(),
    };
    seeker.grow(closed_loop * FIRST_SHARE)?;
    seeker.narrow()?;
    let confirmed = seeker.confirm()?;
    let found = confirmed.or(seeker.held);
    let (rounds, mut reports): (Vec<Round>, Vec<_>) = seeker.rounds.into_iter().unzip();
    // The last of several rounds at the found rate is the confirming one.
    let best = rounds.iter().rposition(|round| round.held() && Some(round.rate) == found);
    let mut report = match best {
        Some(at) => reports.swap_remove(at),
        None => reports.pop().unwrap_or(closed),
    };
    report.search = Some(Search {
        bounds: aim.bounds,
        // Rounded, as 0.02 * 100 is not exactly 2 in binary.
        resolution_percent: (aim.resolution * 1e8).round() / 1e6,
        closed_loop,
        found,
        confirmed: confirmed.is_some(),
        limit: seeker.failed.map(|(_, verdict)| verdict),
        rounds,
    });
    Ok(report)
}

struct Seeker<'s> {
    aim: Aim,
    measure: &'s mut dyn FnMut(Purpose, f64) -> anyhow::Result<Report>,
    observe: &'s mut dyn FnMut(&Round),
    /// Whether the search was stopped, or the rest of its time is shorter than this.
    is_over: &'s dyn Fn(Duration) -> bool,
    stopped: &'s dyn Fn() -> bool,
    /// The highest held rate.
    held: Option<f64>,
    /// The lowest failed rate and its verdict.
    failed: Option<(f64, Verdict)>,
    rounds: Vec<(Round, Report)>,
}

impl Seeker<'_> {
    /// Runs a round and notes its verdict; `None` when it was interrupted, which says nothing about
    /// the rate.
    fn round(&mut self, purpose: Purpose, rate: f64) -> anyhow::Result<Option<Verdict>> {
        let report = (self.measure)(purpose, rate);
        if (self.stopped)() {
            return Ok(None);
        }
        let report = report?;
        let round = Round::new(purpose, rate, &report, &self.aim.bounds);
        (self.observe)(&round);
        let verdict = round.verdict;
        self.rounds.push((round, report));
        Ok(Some(verdict))
    }

    /// Runs a round and, where it failed, a second one. Returns whether neither was interrupted.
    fn attempt(&mut self, purpose: Purpose, rate: f64) -> anyhow::Result<bool> {
        let mut verdict = self.round(purpose, rate)?;
        if verdict.is_some_and(|verdict| verdict != Verdict::Held) && self.has_time() {
            verdict = self.round(purpose, rate)?;
        }
        match verdict {
            Some(Verdict::Held) => self.held = Some(rate),
            Some(verdict) => self.failed = Some((rate, verdict)),
            None => {}
        }
        Ok(verdict.is_some())
    }

    /// Whether there is time for a round and, where a rate was held, two to confirm it.
    fn has_time(&self) -> bool {
        let Times { round, confirmation, .. } = self.aim.times;
        let reserved = if self.held.is_some() { confirmation * 2 } else { Duration::ZERO };
        !(self.is_over)(round + reserved)
    }

    /// Finds a held and a failed rate, by steps that grow.
    fn grow(&mut self, first: f64) -> anyhow::Result<()> {
        let (mut rate, mut ratio) = (first.clamp(MIN_RATE, MAX_RATE), FIRST_RATIO);
        while (MIN_RATE..=MAX_RATE).contains(&rate) && self.has_time() {
            if !self.attempt(Purpose::Grow, rate)? {
                break;
            }
            match (self.held, self.failed) {
                (Some(_), Some(_)) => break,
                (Some(_), None) => rate *= ratio,
                _ => rate /= ratio,
            }
            ratio = (ratio * ratio).min(MAX_RATIO);
        }
        Ok(())
    }

    /// Brings both of them closer together.
    fn narrow(&mut self) -> anyhow::Result<()> {
        while let (Some(low), Some((high, _))) = (self.held, self.failed)
            && high / low > 1.0 + self.aim.resolution
            && self.has_time()
        {
            if !self.attempt(Purpose::Narrow, (low * high).sqrt())? {
                break;
            }
        }
        Ok(())
    }

    /// The rate that holds for longer too: the highest held one, or one that is lower by some steps
    /// of the resolution, about twice as many each time.
    fn confirm(&mut self) -> anyhow::Result<Option<f64>> {
        let Some(highest) = self.held else { return Ok(None) };
        let (mut steps, mut own_limits) = (0.0, 0);
        while own_limits < MAX_OWN_LIMITS && !(self.is_over)(self.aim.times.confirmation) {
            let rate = highest * (1.0 - self.aim.resolution).powf(steps);
            match self.round(Purpose::Confirm, rate)? {
                Some(Verdict::Held) => return Ok(Some(rate)),
                Some(verdict) => {
                    own_limits += usize::from(verdict == Verdict::LoadTester);
                    self.failed = Some((rate, verdict));
                }
                None => break,
            }
            steps = steps * 2.0 + 2.0;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;
    use proptest::prelude::*;
    use std::cell::{Cell, RefCell};

    const BOUNDS: Bounds = Bounds { loss_percent: 0.1, p99_ms: 10.0 };

    /// The times of the command line's defaults.
    fn times() -> Times {
        let second = Duration::from_secs(1);
        Times::new(second * 5 / 2, second * 7 / 2, second * 13)
    }

    /// A round against a tracker that serves `capacity` and loses the rest.
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

    /// A search from the rate of a closed loop, within `total`. Each round takes all of its time.
    fn seek(
        closed_loop: f64,
        total: Duration,
        measure: impl Fn(Purpose, f64) -> anyhow::Result<Report>,
        stopped: impl Fn() -> bool,
    ) -> (Report, Duration) {
        let times = Times { total, ..times() };
        let clock = Cell::new(Duration::from_millis(2500));
        let timed = |purpose, rate| {
            let confirms = purpose == Purpose::Confirm;
            let takes = if confirms { times.confirmation } else { times.round };
            clock.set(clock.get() + takes);
            measure(purpose, rate)
        };
        let aim = Aim { bounds: BOUNDS, resolution: 0.02, times };
        let closed = round(closed_loop, closed_loop);
        let report = search(aim, closed, timed, |_| {}, || clock.get(), stopped).unwrap();
        (report, clock.get())
    }

    /// A search within the default time, without an interrupt.
    fn found(closed_loop: f64, measure: impl Fn(Purpose, f64) -> Report) -> Report {
        seek(closed_loop, times().total, |purpose, rate| Ok(measure(purpose, rate)), || false).0
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Held),
            Just(Verdict::Lost),
            Just(Verdict::Slow),
            Just(Verdict::LoadTester)
        ]
    }

    /// A round with this verdict.
    fn judged(rate: f64, verdict: Verdict) -> Report {
        let mut report = round(rate, f64::MAX);
        match verdict {
            Verdict::Held => {}
            Verdict::Lost => report.loss_percent = 5.0,
            Verdict::Slow => report.latency.p99 = 50e3,
            Verdict::LoadTester => report.unsent = rate as u64 + 1,
        }
        report
    }

    proptest! {
        #[test]
        fn the_capacity_is_found_to_the_resolution(capacity in 5.0..1e7f64, closed in 5.0..1e7f64) {
            let measure = |_, rate| Ok(round(rate, capacity));
            let (report, _) = seek(closed, Duration::from_secs(3600), measure, || false);
            let found = result(&report).found.unwrap();
            // 0.1 % may be lost.
            prop_assert!(found <= capacity * 1.0011, "{found} of {capacity}");
            prop_assert!(found >= capacity * 0.979, "{found} of {capacity}");
            prop_assert_eq!(result(&report).limit, Some(Verdict::Lost));
        }

        /// Near the closed loop's rate the time suffices for nearly the whole resolution.
        #[test]
        fn a_minute_suffices_near_the_closed_loop(
            capacity in 1e3..1e7f64, ratio in 0.8..1.6f64,
        ) {
            let report = found(capacity * ratio, |_, rate| round(rate, capacity));
            let search = result(&report);
            prop_assert!(search.confirmed);
            let found = search.found.unwrap();
            prop_assert!(found >= capacity * 0.85 && found <= capacity * 1.0011, "{found}");
        }

        /// Whatever rounds come to, the search ends in time and has the highest rate that held.
        #[test]
        fn a_search_ends_within_a_minute_with_a_result(
            closed in 0.0..1e6f64, verdicts in proptest::collection::vec(verdict(), 40),
        ) {
            let nth = Cell::new(0);
            let measure = |_, rate| {
                nth.set(nth.get() + 1);
                Ok(judged(rate, verdicts[nth.get() - 1]))
            };
            let (report, took) = seek(closed, times().total, measure, || false);
            prop_assert!(took <= Duration::from_secs(60), "{took:?}");
            let search = result(&report);
            let rounds = || search.rounds.iter();
            let last_confirms = rounds().last().is_some_and(|round| {
                round.held() && round.purpose == Purpose::Confirm
            });
            prop_assert_eq!(search.confirmed, last_confirms);
            let held = rounds().filter(|round| round.held()).map(|round| round.rate);
            let expected = match last_confirms {
                true => rounds().last().map(|round| round.rate),
                false => held.reduce(f64::max),
            };
            prop_assert_eq!(search.found, expected);
            let own = rounds().filter(|round| {
                round.purpose == Purpose::Confirm && round.verdict == Verdict::LoadTester
            });
            prop_assert!(own.count() <= 2);
        }
    }

    #[test]
    fn one_hiccup_does_not_decide() {
        let nth = Cell::new(0);
        let report = found(50_000.0, |_, rate| {
            nth.set(nth.get() + 1);
            round(rate, if nth.get() % 3 == 1 { 1.0 } else { 50_000.0 })
        });
        let found = result(&report).found.unwrap();
        assert!((40_000.0..=50_100.0).contains(&found), "{found}");
    }

    #[test]
    fn what_does_not_hold_for_longer_is_lowered() {
        let report = found(10_000.0, |purpose, rate| {
            round(rate, if purpose == Purpose::Confirm { 9700.0 } else { 10_000.0 })
        });
        let found = result(&report).found.unwrap();
        assert!(result(&report).confirmed);
        assert!((9000.0..=9710.0).contains(&found), "{found}");
        assert_eq!(report.sent_rate, found, "the report is that of the confirmed round");
    }

    #[test]
    fn a_limit_of_the_load_tester_is_said() {
        let report = found(30_000.0, |_, rate| {
            let own = rate > 30_000.0;
            judged(rate, if own { Verdict::LoadTester } else { Verdict::Held })
        });
        assert_eq!(result(&report).limit, Some(Verdict::LoadTester));
        assert!(report.to_table().contains("Limited by the load tester"), "{}", report.to_table());
    }

    #[test]
    fn a_tracker_that_holds_nothing_is_found_out() {
        let told = RefCell::new(0);
        let aim = Aim { bounds: BOUNDS, resolution: 0.02, times: times() };
        let measure = |_, rate| Ok(round(rate, 0.0));
        // The rates end at one per second, long before the time does.
        let (closed, elapsed) = (round(100.0, 100.0), || Duration::ZERO);
        let report =
            search(aim, closed, measure, |_| *told.borrow_mut() += 1, elapsed, || false).unwrap();
        assert_eq!((result(&report).found, result(&report).confirmed), (None, false));
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
        let (report, _) = seek(1000.0, times().total, measure, || rounds.get() >= 4);
        let search = result(&report);
        assert_eq!((rounds.get(), search.rounds.len()), (4, 3), "the last one was cut");
        let highest = 1000.0 * FIRST_SHARE * FIRST_RATIO.powi(3);
        assert_eq!((search.found, search.confirmed), (Some(highest), false));
        assert_eq!(report.sent_rate, highest, "the report is that of its round");
        assert!(report.to_table().contains("not confirmed"), "{}", report.to_table());
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
        let (report, _) = seek(1000.0, times().total, measure, || rounds.get() >= 3);
        assert_eq!(result(&report).found, Some(1000.0));
    }

    /// A failed confirmation is reported as the limit. The highest rate that held is the result all
    /// the same.
    #[test]
    fn a_load_tester_at_its_limit_confirms_twice_at_most() {
        let report = found(10_000.0, |purpose, rate| {
            let mut report = round(rate, 10_000.0);
            report.unsent = if purpose == Purpose::Confirm { 10_000 } else { 0 };
            report
        });
        let search = result(&report);
        assert_eq!((search.confirmed, search.limit), (false, Some(Verdict::LoadTester)));
        let found = search.found.unwrap();
        assert!((9000.0..=10_010.0).contains(&found), "{found}");
        let confirms = search.rounds.iter().filter(|round| round.purpose == Purpose::Confirm);
        assert_eq!(confirms.count(), 2);
        let table = report.to_table();
        assert!(table.contains("not confirmed") && table.contains("load tester"), "{table}");
    }
}
