//! The process: its user, signals, inherited sockets, log, service manager and exit status.

mod blocking_writer;
pub mod exit;
mod journal_socket;
pub mod log_entry;
pub mod log_output;
pub mod log_queue;
pub mod logging;
pub mod service_notify;
pub mod signals;
pub mod socket_activation;
pub mod spawn_thread;
pub mod switch_user;
pub mod user;
