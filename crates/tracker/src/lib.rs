//! The data path of the tracker as a library: workers, the checks of a datagram, batches between
//! workers, and the counters. The daemon assembles it and runs it; the path of one datagram is
//! drawn in [`worker`].
//!
//! | module | contents |
//! |---|---|
//! | [`limits`] | the settings of the data path |
//! | [`assemble`] | builds workers, fronts and the lanes between them |
//! | [`member`] | members, their roles, and the work of their threads |
//! | [`running`] | members on their threads |
//! | [`worker`] | one turn: receive, sort, serve, send |
//! | [`front`] | the lanes' end of a thread that serves clients and is no socket worker |
//! | [`intake`], [`connection`], [`access`] | the checks of a request |
//! | [`kernel_filter`] | the filter at the sockets under overload |
//! | [`xdp`] | intake in the driver: the XDP program and the rules that it is given |
//! | [`refusal`] | reasons to refuse a request, each with a name and a counter |
//! | [`close_cause`] | causes for the end of a connection, likewise |
//! | [`proxies`] | which proxies are trusted to name the client |
//! | [`producer`], [`sorter`], [`scrape_join`] | requests to batches, served batches to replies |
//! | [`lanes`] | the channels between members, and their messages |
//! | [`rules`], [`orders`] | what may change at run time, and the handle for it |
//! | [`gather`] | one result from each shard or worker that an order has asked |
//! | [`stream`] | the contents of running shards, message by message, for another thread |
//! | [`clock`], [`metrics`], [`clients`] | time, counters, client software by peer id prefix |
//! | [`source_sample`] | who sends most, while somebody asks for it |

#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]

pub mod access;
pub mod assemble;
pub mod clients;
pub mod clock;
pub mod close_cause;
pub mod connection;
pub mod front;
pub mod gather;
pub mod intake;
pub mod kernel_filter;
pub mod lanes;
pub mod limits;
pub mod member;
pub mod metrics;
pub mod orders;
pub mod producer;
pub mod proxies;
pub mod refusal;
pub mod rules;
pub mod running;
pub mod scrape_join;
pub mod sorter;
pub mod source_sample;
pub mod stream;
pub mod worker;
pub mod xdp;

pub use running::Running;
