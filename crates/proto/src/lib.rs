//! The tracker protocols as types: BEP 15 datagrams (with BEP 7's IPv6 peers and BEP 41's options)
//! to Rust values and back; over HTTP, queries to Rust values (BEP 3, 21, 23 and 48), and replies
//! in bencoding (BEP 7, 24 and 31 too); over WebSocket, the messages of WebTorrent.
//!
//! No I/O, no clock, no allocation: everything is parsed from, and written into, byte slices; only
//! replies and lists of info hashes over HTTP are appended to a vector of the caller, and lists in
//! messages of WebTorrent are vectors. All integers are big endian in datagrams (BEP 15, "UDP
//! tracker protocol").
//!
//! | module | contents |
//! |---|---|
//! | [`id`] | identifiers and their text forms, like [`InfoHash`] and [`ConnectionId`] |
//! | [`endpoint`] | a peer's address and port in wire form |
//! | [`connect`], [`announce`], [`scrape`], [`error`] | one action each: request and response |
//! | [`options`] | options behind an announce (BEP 41) |
//! | [`request`] | any datagram that a client may send: [`Request::parse`] |
//! | [`response`] | any datagram that a tracker may send: [`Response::parse`] |
//! | [`http`] | the target and query of a GET, and the bodies of its replies |
//! | [`http::client`] | the same for a client: writes queries, reads replies strictly |
//! | [`webtorrent`] | messages over WebSocket, in both directions |
//!
//! A connect request parsed by a tracker, and its response parsed by the client:
//!
//! ```
//! use onrush_proto::connect::{self, Connect, ConnectResponse};
//! use onrush_proto::{ConnectionId, Family, Request, Response, TransactionId};
//!
//! let mut datagram = [0; connect::REQUEST_LEN];
//! Connect { transaction_id: TransactionId(7) }.write(&mut datagram);
//!
//! let Ok(Request::Connect(Connect { transaction_id })) = Request::parse(&datagram) else {
//!     panic!("a connect request was written")
//! };
//! let answer = ConnectResponse { transaction_id, connection_id: ConnectionId(0xC0FFEE) };
//! let mut reply = [0; connect::RESPONSE_LEN];
//! answer.write(&mut reply);
//!
//! assert_eq!(Response::parse(&reply, Family::V4), Ok(Response::Connect(answer)));
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]

pub mod announce;
pub mod connect;
pub mod endpoint;
pub mod error;
pub mod http;
pub mod id;
pub mod options;
pub mod request;
pub mod response;
pub mod scrape;
pub mod webtorrent;
mod wire;

pub use announce::{Announce, AnnounceHead, Event};
pub use connect::Connect;
pub use endpoint::{Endpoint, Family, UNCONNECTABLE_PORT};
pub use id::{ConnectionId, InfoHash, PeerId, TransactionId};
pub use request::{Malformed, Request};
pub use response::Response;
pub use scrape::{Scrape, ScrapeCounts};
pub use wire::MAX_RESPONSE_LEN;
