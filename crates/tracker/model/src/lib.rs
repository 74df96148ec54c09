//! The sleep protocol of the lanes (crates/tracker/src/lanes/sleep.rs, unchanged) under loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release`. The test is in that file.

#![cfg(loom)]

#[path = "../../src/lanes/sleep.rs"]
pub mod sleep;
