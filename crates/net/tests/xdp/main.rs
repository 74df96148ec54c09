//! The AF_XDP backend over a pair of veth devices, each in a network namespace of its own. It needs
//! root: scripts/xdp-test.

mod conformance;
mod handoff;
mod link;
mod queues;
#[path = "../suite/mod.rs"]
mod suite;
