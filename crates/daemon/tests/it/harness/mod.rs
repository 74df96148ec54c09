//! What the tests of the daemon are built on: the process, a client, the log messages, a network namespace.

pub(crate) mod client;
pub(crate) mod messages;
pub(crate) mod network;
pub(crate) mod process;
