//! Readiness of the tracker, as `/ready` reports it.

/// Readiness of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
