//! The rules of the protocol (BEP 15, 41, 7, 21 and the behaviour of common clients) over real
//! sockets, in both placements. The comment above each test states the rule that it checks.
//!
//! | module | rules |
//! |---|---|
//! | [`connect`] | Connect: the exchange |
//! | [`ids`] | Connect: scope and validity of connection ids |
//! | [`keys`] | Connect: ids over restarts, hosts and key rotations |
//! | [`announce`] | Announce: peer identity, options, events, interval |
//! | [`counts`] | Announce: seeders, leechers, completed |
//! | [`lists`] | Announce: length and selection of peer lists |
//! | [`refusals`] | Announce: forbidden hashes, full tracker, bogons |
//! | [`scrape`] | Scrape |
//! | [`silence`] | Anything else: requests without a reply, and no amplification |
//! | [`addresses`] | Anything else: replies leave from the address of the request |

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
