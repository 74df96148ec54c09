//! The time of a run: how long replies may take, and when all checks end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time for all checks, so that a run ends within a minute whatever the tracker does.
pub const CHECK_TIME: Duration = Duration::from_secs(45);
/// Time for all checks and the clean-up after them.
const TOTAL_TIME: Duration = Duration::from_secs(53);

/// The time that is left.
#[derive(Debug)]
pub struct Budget {
    timeout: Duration,
    start: Instant,
    cleaning_up: AtomicBool,
}

impl Budget {
    /// From now on, with this time for a reply.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, start: Instant::now(), cleaning_up: AtomicBool::new(false) }
    }

    /// Ends the time for checks and starts the time for the clean-up.
    pub(crate) fn start_cleanup(&self) {
        self.cleaning_up.store(true, Ordering::Relaxed);
    }

    /// The deadline of a wait of `timeouts` timeouts from now.
    pub(crate) fn deadline(&self, timeouts: f64) -> Instant {
        (Instant::now() + self.timeout.mul_f64(timeouts)).min(self.end())
    }

    /// Whether the time is used up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.end()
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn end(&self) -> Instant {
        self.start + if self.cleaning_up.load(Ordering::Relaxed) { TOTAL_TIME } else { CHECK_TIME }
    }
}
