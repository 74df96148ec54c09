//! Faults of the surroundings, one test each: time, network, disk, limits of the process, and kills
//! in the middle of an upgrade. The daemon runs over real sockets under a load of honest requests;
//! after each fault it has to serve again by itself, with exact counters, all its peers, every
//! confirmed list change and a usable snapshot (decision 68).
//!
//! The tests need root, or a user namespace, which `scripts/test` provides.

mod account;
mod clock;
mod disk;
mod limits;
mod load;
mod network;
mod pause;
mod sandbox;
mod upgrade;
mod upgrade_kills;
mod worker;

/// Shared with the tests of `tests/timed`, which use the rest.
#[allow(dead_code, reason = "this program uses a part")]
mod upgrade_rounds;

/// Shared with the other tests of the daemon, which use the rest.
#[allow(dead_code, reason = "this program uses a part")]
#[path = "../it/harness/mod.rs"]
mod harness;
