//! Test scaffolding that several crates share. Only their tests and examples depend on it.

pub mod bad_requests;
pub mod memory_tracker;
pub mod population;
#[cfg(feature = "tls")]
pub mod tls;
