//! Tests judged by the clock: rates, latencies, the time that a search or a list of checks takes.
//! Neither `scripts/test` nor `cargo test` runs these tests: a host that takes CPU time away lets
//! them fail without a defect (decision 81).

#[path = "../it/command.rs"]
mod command;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod find_max;
mod run;
mod server;
mod stalls;
mod verify;
