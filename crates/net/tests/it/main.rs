//! Integration tests over loopback and the in-memory network. Tests that need a network namespace,
//! and so start processes, are in `namespaces`: until such a process executes its program it holds
//! this one's sockets, and an address that a test here frees would still be taken.

mod bind;
mod conformance;
mod connect;
mod filter;
mod listen;
mod memory;
mod steering;
mod streams;
#[path = "../suite/mod.rs"]
mod suite;
