//! The process: its user, signals, inherited sockets, log, service manager and exit status.

pub mod activation;
mod blocking_writer;
pub mod exit;
pub mod log_entry;
pub mod log_output;
pub mod log_queue;
pub mod logging;
pub mod notify;
pub mod signals;
pub mod user;
