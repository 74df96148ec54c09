//! Shared by the tests of the daemon: the process, its clients, their packets and floods, its admin
//! side, log messages, terminals, and network namespaces.

pub(crate) mod client;
pub(crate) mod flood;
pub(crate) mod http;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod packets;
pub(crate) mod process;
pub(crate) mod swarms;
pub(crate) mod terminal;
