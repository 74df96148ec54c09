//! The time that owners of state get with every call.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
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

/// How long the host has been suspended since its boot: only one of these clocks runs meanwhile.
pub fn suspended() -> Duration {
    let [monotonic, boot] = [ClockId::CLOCK_MONOTONIC, ClockId::CLOCK_BOOTTIME]
        .map(|clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from));
    boot.saturating_sub(monotonic)
}
