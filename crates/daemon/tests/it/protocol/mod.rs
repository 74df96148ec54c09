//! Every line of the protocol's rules (BEP 15, 41, 7, 21 and what real clients send) over real
//! sockets, in both placements. Above each test is the line that it proves.
//!
//! | module | lines |
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

mod addresses;
mod announce;
mod connect;
mod counts;
mod ids;
mod keys;
mod lists;
mod refusals;
mod scrape;
mod silence;

mod support;

/// Both families of the loopback interface.
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
