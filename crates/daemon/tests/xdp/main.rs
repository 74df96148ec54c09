//! The daemon with its XDP program, on a link between two hosts in network namespaces. The program
//! itself is tested in `crates/tracker/tests/xdp`.
//!
//! The tests need root outside of a user namespace: `scripts/xdp-test` runs them.

mod conformance;
mod counters;
mod faults;
mod lifetime;
mod link;
mod queues;

/// Shared with the tests of faults, which use the rest.
#[allow(dead_code, reason = "this program uses a part")]
#[path = "../faults/sandbox.rs"]
mod sandbox;

/// Shared with the other tests of the daemon, which use the rest.
#[allow(dead_code, unused_imports, reason = "this program uses a part")]
#[path = "../it/harness/mod.rs"]
mod harness;
