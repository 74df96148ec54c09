//! For tests of the daemon from outside: a tracker in this process on ports of its own, clients
//! that speak to it over real UDP sockets, and the packets that they send, byte by byte.
//!
//! | module | contents |
//! |---|---|
//! | [`served`] | `Plan`, `Served`, `both`: a tracker in either placement, and its counters |
//! | [`client`] | `Client`: one socket that asks, and demands silence |
//! | [`packets`] | `Ask`, `Announced`: requests and responses, written without the product's code |
//! | [`network`] | a network of one's own: addresses that the host does not have |

pub(crate) mod client;
pub(crate) mod network;
pub(crate) mod packets;
pub(crate) mod served;
