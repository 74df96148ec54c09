//! `onrush-load attack` and `scripts/attack-test` in network namespaces, as spoofed sources need.
#![cfg(target_os = "linux")]

mod attack;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
#[path = "../../../net/tests/namespaces/namespace.rs"]
mod namespace;
mod reachability;
mod script;
mod tracker;
