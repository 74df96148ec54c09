//! The web front: announces and scrapes over HTTP and HTTPS (BEP 3, 7, 21, 23, 24, 31, 48) on the
//! swarms that UDP has, and WebTorrent over WebSocket on swarms of its own.
//!
//! A [`WebWorker`] is a member of the data path with a thread of its own, like a socket worker. It
//! owns its connections; the shards serve its requests over the lanes and return replies in wire
//! form (BEP 15), which it writes as bencode.
//!
//! ```text
//! accept ─▶ read ─▶ head ─▶ query ─▶ admission ─▶ lane ─▶ shard ─▶ lane ─▶ bencode ─▶ write
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`worker`] | one turn: events, accepts, requests, replies, time-outs |
//! | `table` | the open connections, their limits, and when they time out |
//! | `connection` | one connection: which request is next, and when it closes |
//! | [`head`] | the head of a request (RFC 9112) |
//! | [`proxy`] | which client a request is from, where proxies are in front |
//! | `service` | from a request to a shard, or to a reply |
//! | `page` | the page at `/` |
//! | `response` | statuses and replies |
//! | `transport` | the stream of a connection, with TLS or without |
//! | [`tls`] | TLS on a connection, and certificates |
//! | [`websocket`] | frames and upgrades of WebSocket (RFC 6455), without I/O |
//! | [`webtorrent`] | the swarms of WebRTC peers, and their exchange between workers |
//!
//! A connection has one request in flight at a time, so pipelined requests are answered in order.
//! It holds memory only for a part of a request, and for what its client does not read.

#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]

mod connection;
pub mod head;
mod page;
pub mod proxy;
mod response;
mod service;
mod table;
pub mod tls;
mod transport;
pub mod websocket;
pub mod webtorrent;
pub mod worker;

pub use worker::WebWorker;
