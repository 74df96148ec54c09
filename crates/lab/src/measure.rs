//! Processor time, and quantiles of samples.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The processor time of this thread: on a shared machine, wall time means little.
pub fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock").into()
}

/// The sample at a share of sorted ones, 0 for the first and 1 for the last.
pub fn quantile<T: Copy>(sorted: &[T], share: f64) -> T {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}
