//! The lanes' sleep protocol (crates/tracker/src/lanes/sleeper.rs, as it is) under loom:
//! `RUSTFLAGS="--cfg loom" cargo test --release`. Its test stands in that file.

#![forbid(unsafe_code)]
#![cfg(loom)]

#[path = "../../src/lanes/sleeper.rs"]
pub mod sleeper;
