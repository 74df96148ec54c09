//! Shared by the tests of the daemon: the process, its clients, their packets and floods, its admin
//! side, log messages, terminals, and network namespaces.

mod client;
pub(crate) mod flood;
mod http;
pub(crate) mod messages;
mod network;
pub(crate) mod packets;
mod process;
mod swarms;
pub(crate) mod terminal;

pub(crate) use client::*;
pub(crate) use http::*;
pub(crate) use network::*;
pub(crate) use packets::*;
pub(crate) use process::*;
pub(crate) use swarms::*;
