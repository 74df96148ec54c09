//! Tests that count in their own process and must share it with no sockets of other tests.

mod allocations;
mod drops;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
