//! Every line of the protocol's rules (PROTOCOL: BEP 15, 41, 7, 21, 52 and what real clients
//! send) over real sockets, in both placements. Above each test stands the line that it proves.
//!
//! | room | lines |
//! |---|---|
//! | [`connect`] | Connect, and what makes an id good |

#![forbid(unsafe_code)]

#[path = "protocol/connect.rs"]
mod connect;

mod support;
