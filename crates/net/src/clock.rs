//! How wrong the wall clock may be, as the kernel knows from whoever synchronises it.

use std::io;
use std::time::Duration;

use crate::sys;

/// The bound that the kernel reports for a clock that nobody synchronises
/// (include/linux/timex.h, NTP_PHASE_LIMIT).
pub const UNSYNCHRONISED: Duration = Duration::from_secs(16);

/// The bound of the clock's error, which grows by 500 us per second while nobody corrects it, up
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
