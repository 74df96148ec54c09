//! Metrics: a snapshot of all state, as JSON and in the text format of Prometheus.

mod computed;
pub mod process;
pub mod prometheus;
pub mod snapshot;
pub mod stats;
mod tables;
pub(crate) mod text;

#[cfg(test)]
pub(crate) mod tests;
