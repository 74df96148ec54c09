//! Estimated error of the wall clock (`adjtimex`), and the clock of programs in the kernel.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::sys;

/// The bound that the kernel reports for a clock that is not synchronised (include/linux/timex.h,
/// NTP_PHASE_LIMIT).
pub const UNSYNCHRONISED: Duration = Duration::from_secs(16);

/// The bound of the clock's error, which grows by 500 us per second while it is not corrected, up
/// to [`UNSYNCHRONISED`].
///
/// # Errors
/// When a sandbox forbids the call.
pub fn max_error() -> io::Result<Duration> {
    Ok(Duration::from_micros(sys::clock_error()?))
}

/// The time of CLOCK_MONOTONIC in nanoseconds, by which programs in the kernel go
/// (bpf-helpers(7), `bpf_ktime_get_ns`).
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_a_bound() {
        let error = max_error().unwrap();
        assert!(error <= UNSYNCHRONISED, "{error:?}");
    }
}
