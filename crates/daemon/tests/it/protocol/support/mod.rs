//! A tracker in this process on free ports, clients over real UDP sockets, and their packets, byte
//! by byte.
//!
//! | module | contents |
//! |---|---|
//! | [`tracker`] | `TrackerConfig`, `RunningTracker`, `both`: a tracker and its counters |
//! | [`client`] | `Client`: a socket that sends requests and checks replies |
//! | [`packets`] | `Announce`, `AnnounceReply`: packets, independent of the product |
//! | [`network`] | a network namespace with addresses that the host lacks |

pub(crate) mod client;
pub(crate) mod network;
pub(crate) mod packets;
pub(crate) mod tracker;
