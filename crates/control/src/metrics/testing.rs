//! Settings and workers for tests.

use std::sync::Arc;

use onrush_config::Settings;
use onrush_tracker::metrics::WorkerMetrics;

/// The settings of a valid configuration.
pub(crate) fn settings(config: &str) -> Settings {
    Settings::for_test(config)
}

/// As many workers as the settings have, with counters of 0.
pub(crate) fn workers(settings: &Settings) -> Arc<[(String, Arc<WorkerMetrics>)]> {
    let named = |worker| (settings.placement.worker_name(worker), Arc::default());
    (0..settings.placement.workers()).map(named).collect()
}
