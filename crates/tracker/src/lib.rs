//! The data path of the tracker as a library: workers, the checks of a datagram, batches between workers, and
//! the counters. The daemon assembles it and runs it; the path of one datagram is drawn in [`worker`].
//!
//! | module | contents |
//! |---|---|
//! | [`limits`] | what the data path needs to know of the settings |
//! | [`assemble`] | builds the workers of a placement and the lanes between them |
//! | [`running`] | workers on their threads |
//! | [`worker`] | one turn: receive, sort, serve, send |
//! | [`intake`], [`connection`], [`access`], [`shedding`] | the checks of a datagram; every refusal has a name |
//! | [`sorter`], [`lanes`], [`scrape_join`] | one batch per shard, its way there and back, scrapes over several shards |
//! | [`rules`], [`orders`] | what may change while workers run, and how it reaches them |
//! | [`clock`], [`metrics`], [`clients`] | time, counters, client software by peer id prefix |

#![forbid(unsafe_code)]

pub mod access;
pub mod assemble;
pub mod clients;
pub mod clock;
pub mod connection;
pub mod front;
pub mod intake;
pub mod lanes;
pub mod limits;
pub mod metrics;
pub mod orders;
pub mod producer;
pub mod refusal;
pub mod rules;
pub mod running;
pub mod scrape_join;
pub mod shedding;
pub mod sorter;
pub mod worker;

pub use running::Running;
