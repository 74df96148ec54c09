//! Test scaffolding that several crates share. Only their tests and examples depend on it.

#![forbid(unsafe_code)]

pub mod memory_tracker;
pub mod population;
