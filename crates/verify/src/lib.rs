//! Conformance checks of UDP BitTorrent trackers: one check per kind of request, against BEP 15
//! and its companions and against the behaviour that real clients rely on.
//!
//! Checks are independent: each has info hashes and sockets of its own, so that several run at a
//! time. A lost datagram causes no failure: requests are repeated, and silence counts as such only
//! beside another request that was answered.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | [`verify`]: all checks, several at a time |
//! | [`report`] | the list for people, JSON for machines |
//! | [`checks`] | the checks |
//! | [`check`] | what a check is, and its result |
//! | [`fixture`] | what one check works with: info hashes, clients, the shared large swarm |
//! | [`exchange`] | a client: requests with repeats, silence |
//! | [`message`] | requests and replies, field by field |
//! | [`address`] | the address of a tracker: an announce URL, or host and port |
//! | [`tcp`] | URL, TLS and reachability of trackers over HTTP and WebSocket |
//! | [`target`] | the tracker's addresses, source addresses and time |
//! | [`probe`] | a connect, an announce and a scrape, with their times |
//! | [`reachability`] | whether anything answers at the target |

pub mod address;
pub mod check;
pub mod checks;
pub mod exchange;
pub mod fixture;
pub mod message;
pub mod probe;
pub mod reachability;
pub mod report;
pub mod run;
pub mod target;
pub mod tcp;

pub use run::{VerifySettings, verify};
