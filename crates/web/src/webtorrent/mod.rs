//! WebTorrent: peers that reach each other over WebRTC, and are introduced over WebSocket.

pub mod exchange;
pub mod interval;
mod owner;
mod parcel;
pub(crate) mod peer;
pub mod swarms;
