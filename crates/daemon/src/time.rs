//! The time that owners of state get with every call.

use std::time::Instant;

use onrush_tracker::clock::Clock;

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The monotonic clock.
    pub now: Instant,
    /// Seconds since 1970.
    pub unix: u64,
}

impl Time {
    /// Now, with the wall clock of the workers.
    pub fn of(clock: Clock) -> Self {
        Self { now: Instant::now(), unix: clock.now().unix }
    }
}
