//! Load for UDP BitTorrent trackers: many peers' worth of real conversations, every reply checked.
//!
//! A *population* (which peers are in which swarms) is a function of a seed, not a table: from
//! any endpoint that a tracker hands out it can be told in constant time whether it belongs into
//! the swarm that was asked for. A *profile* says what these peers send and how often. Workers,
//! each with a backend of `onrush-net` over many sockets, keep requests in flight or send them at
//! a fixed rate, and judge what comes back.
//!
//! | room | what is in it |
//! |---|---|
//! | [`plan`] | population and mix, from a seed |
//! | [`generator`] | one worker: asks, listens, counts; time is an argument |
//! | [`check`] | is the reply right |
//! | [`tally`] | what a worker counts and measures |
//! | [`report`] | what came out, for people and for machines |
//! | [`sources`] | the addresses that requests come from, and their sockets |
//! | [`hashes`] | the info hashes of a population as a file |
//! | [`descriptors`] | room for that many sockets |
//! | [`probe`] | whether anybody answers at all |
//! | [`search`] | the highest rate within bounds |
//! | [`interrupt`] | Ctrl-C ends a run early |
//! | [`run`] | workers, warm-up, measured window, drain |
//! | [`series`] | the run over time, a sample per interval |
//! | [`live`] | what is shown while it runs |
//! | [`cpu`] | processor time of the tracker and of the load tester |
//! | [`process`] | that, and memory and kernel drops, of any process |
//! | [`environment`] | the machine that measures |
//! | [`chart`] | pictures of lines and bars, as SVG |

#![forbid(unsafe_code)]

pub mod chart;
pub mod check;
pub mod cpu;
pub mod descriptors;
pub mod environment;
pub mod generator;
pub mod hashes;
pub mod interrupt;
pub mod latency;
pub mod live;
pub mod number;
pub mod plan;
pub mod probe;
pub mod process;
pub mod report;
pub mod run;
pub mod search;
pub mod series;
pub mod sources;
pub mod tally;
mod version;

pub use onrush_net::affinity;
pub use version::version;
