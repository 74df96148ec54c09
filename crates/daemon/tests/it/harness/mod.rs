//! Shared by the tests of the daemon: process, client, log messages, network namespaces.

pub(crate) mod client;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod process;
