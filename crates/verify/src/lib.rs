//! Conformance checks of BitTorrent trackers over UDP, HTTP(S) and WebSocket (WebTorrent): one
//! check per kind of request, against the BEPs and RFCs and the behaviour that real clients rely
//! on.
//!
//! Checks are independent: each has info hashes and sockets of its own, so that several run at a
//! time. A lost datagram causes no failure: requests are repeated, and silence counts as such only
//! beside another request that was answered.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | [`verify`], [`verify_tcp`]: all checks over a protocol |
//! | `runner` | several checks at a time |
//! | [`report`] | the list for people, JSON for machines |
//! | [`check`] | what a check is, and its result |
//! | [`budget`] | the time of a run |
//! | [`hashes`] | the info hashes of checks |
//! | [`checks`] | the checks over UDP |
//! | [`fixture`] | what a check over UDP works with: info hashes, clients, the large swarm |
//! | [`exchange`] | a client over UDP: requests with repeats, silence |
//! | [`message`] | requests and replies over UDP, field by field |
//! | [`http`] | the checks over HTTP and HTTPS, and what they work with |
//! | [`webtorrent`] | the checks over WebSocket, and what they work with |
//! | [`tcp`] | URL, TLS and reachability of trackers over HTTP and WebSocket; their connections |
//! | [`address`] | the address of a tracker over UDP: an announce URL, or host and port |
//! | [`target`] | addresses of the tracker over UDP, and source addresses |
//! | [`probe`] | a connect, an announce and a scrape, with their times |
//! | [`reachability`] | whether anything answers at the target |

pub mod address;
pub mod budget;
pub mod check;
pub mod checks;
pub mod exchange;
pub mod fixture;
pub mod hashes;
pub mod http;
pub mod message;
pub mod probe;
pub mod reachability;
pub mod report;
pub mod run;
pub(crate) mod runner;
pub mod target;
pub mod tcp;
pub mod webtorrent;

pub use run::{VerifySettings, groups, verify, verify_tcp};
pub use tcp::TcpSettings;
