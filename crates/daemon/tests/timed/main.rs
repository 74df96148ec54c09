//! Tests judged by the clock or by chance: rates, latencies, every outcome of random moments.
//! Neither `scripts/test` nor `cargo test` runs these tests: a host that takes CPU time away lets
//! them fail without a defect (decision 81).
//!
//! The tests need root, or a user namespace, as those of `tests/faults`.

mod certificates;
mod overload;
mod top_sources;
mod upgrade_kills;

/// Shared with the other tests of the daemon, which use the rest.
#[allow(dead_code, reason = "this program uses a part")]
#[path = "../it/harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "this program uses a part")]
#[path = "../faults/upgrade_rounds.rs"]
mod upgrade_rounds;
