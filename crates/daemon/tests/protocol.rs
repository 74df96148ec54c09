//! Every line of the protocol's rules (BEP 15, 41, 7, 21 and what real clients send) over real
//! sockets, in both placements. Above each test stands the line that it proves.
//!
//! | room | lines |
//! |---|---|
//! | [`connect`] | Connect: the exchange |
//! | [`ids`] | Connect: what an id is good for, and how long |
//! | [`keys`] | Connect: ids over restarts, hosts and rotations |
//! | [`announce`] | Announce: who the peer is, options, events, interval |
//! | [`counts`] | Announce: seeders, leechers, completed |
//! | [`lists`] | Announce: how many peers are handed out, and which |
//! | [`refusals`] | Announce: forbidden, full, bogon |
//! | [`scrape`] | Scrape |
//! | [`silence`] | Anything else, and no reply that is larger than an unproven request |
//! | [`addresses`] | Anything else: replies leave from where they were asked for |

#![forbid(unsafe_code)]

#[path = "protocol/addresses.rs"]
mod addresses;
#[path = "protocol/announce.rs"]
mod announce;
#[path = "protocol/connect.rs"]
mod connect;
#[path = "protocol/counts.rs"]
mod counts;
#[path = "protocol/ids.rs"]
mod ids;
#[path = "protocol/keys.rs"]
mod keys;
#[path = "protocol/lists.rs"]
mod lists;
#[path = "protocol/refusals.rs"]
mod refusals;
#[path = "protocol/scrape.rs"]
mod scrape;
#[path = "protocol/silence.rs"]
mod silence;

#[path = "daemon/process.rs"]
mod process;
mod support;

/// Both families of the loopback interface.
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
