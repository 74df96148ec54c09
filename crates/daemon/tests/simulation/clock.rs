//! The clocks of a simulated host: a monotonic one that follows the network's time, and a wall
//! clock that is set forward and back.

use std::time::{Duration, Instant};

use onrush_swarm::Moment;
use onrush_tracker::clock::Now;

/// The wall clock at the start of a run, in seconds since 1970.
const START: u64 = 1_800_000_000;
/// The monotonic clock at the start of a tracker (`Clock` of the tracker does the same).
const FIRST: u32 = 1 << 20;

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    /// Seconds since the start of the run.
    pub(crate) second: u64,
    /// Seconds since 1970 by the wall clock.
    pub(crate) unix: u64,
}

impl Time {
    /// The time as a tracker reads it that started at `start` seconds.
    pub(crate) fn since(self, start: u64) -> Now {
        Now { moment: Moment(FIRST + (self.second - start) as u32), unix: self.unix }
    }
}

/// A change of the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A step by this many seconds, not below 1970.
    By(i64),
    /// To the first second of 1970, where a host without a battery starts.
    Epoch,
}

/// The clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The start of the run on the clock of supervisors.
    start: Instant,
    /// The time of the last step of the wall clock, on both clocks after the step.
    stepped: Time,
}

impl Clocks {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), stepped: Time { second: 0, unix: START } }
    }

    /// The time at this second of the run.
    pub(crate) fn at(&self, second: u64) -> Time {
        Time { second, unix: self.stepped.unix + (second - self.stepped.second) }
    }

    /// This second of the run on the clock of supervisors.
    pub(crate) fn instant(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    pub(crate) fn step(&mut self, step: Step, second: u64) {
        let unix = match step {
            Step::By(seconds) => self.at(second).unix.saturating_add_signed(seconds),
            Step::Epoch => 0,
        };
        self.stepped = Time { second, unix };
    }
}
