//! The end of the process: its final message, on standard error and for a predecessor.

use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use onrush_commands::exit::{Exit, GOOD};

use super::logging;

/// Environment variable with the role of a process that an upgrade has started.
pub const UPGRADE_ROLE: &str = "ONRUSH_UPGRADE";
/// The [`UPGRADE_ROLE`] of the successor. Its standard input is a socket to the predecessor.
pub const SUCCESSOR: &str = "successor";

/// Writes the message and returns the exit status. A failing successor sends its message to the
/// predecessor too.
pub fn report(exit: Exit) -> ExitCode {
    let is_successor = env::var_os(UPGRADE_ROLE).is_some_and(|role| role == SUCCESSOR);
    if exit.code != GOOD
        && is_successor
        && let Ok(running) = io::stdin().as_fd().try_clone_to_owned()
    {
        // The predecessor may have closed the socket.
        let _ = UnixStream::from(running).write_all(exit.text.as_bytes());
    }
    // Last, since it may wait for a reader. Without a reader, only the status remains.
    logging::end(&exit.text);
    ExitCode::from(exit.code)
}
