//! Readiness of the tracker, as `/ready` reports it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Readiness of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Readiness {
    /// Sockets are being bound, or saved state is being loaded.
    Starting,
    /// The tracker answers requests.
    Serving,
    /// The tracker is shutting down.
    Stopping,
}

impl Readiness {
    /// All values, in the order of a run.
    pub const ALL: [Self; 3] = [Self::Starting, Self::Serving, Self::Stopping];

    /// Its name in JSON and in labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Stopping => "stopping",
        }
    }
}

/// A [`Readiness`] that the main thread sets and the HTTP thread reads.
#[derive(Debug)]
pub(crate) struct AtomicReadiness(AtomicU8);

impl AtomicReadiness {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Readiness::Starting as u8))
    }

    pub(crate) fn set(&self, readiness: Readiness) {
        self.0.store(readiness as u8, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Readiness {
        Readiness::ALL[usize::from(self.0.load(Ordering::Acquire))]
    }
}
