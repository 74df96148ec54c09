//! Estimated error of the wall clock (`adjtimex`).

use std::io;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_a_bound() {
        let error = max_error().unwrap();
        assert!(error <= UNSYNCHRONISED, "{error:?}");
    }
}
