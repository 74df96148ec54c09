//! How the process ends: its exit status, and its final message on standard error.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::logging;

/// Stopped as requested, or wrote the requested output.
pub const GOOD: u8 = 0;
/// Could not start, or failed while it served.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const WRONG: u8 = 2;
/// Stopped as requested, but could not write the peers to disk.
pub const LOST_PEERS: u8 = 3;

/// Environment variable with the role of a process that an upgrade has started.
pub const UPGRADE_ROLE: &str = "ONRUSH_UPGRADE";
/// The [`UPGRADE_ROLE`] of the successor. Its standard input is a socket to the predecessor.
pub const SUCCESSOR: &str = "successor";

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit status.
    pub code: u8,
    /// The final message, shown at every log level. Ends with a line break, or is empty.
    pub text: String,
}

impl Exit {
    /// Success, without a message.
    pub fn good() -> Self {
        Self { code: GOOD, text: String::new() }
    }

    /// The requested work failed because of `why`.
    pub fn failed(why: impl Display) -> Self {
        Self { code: FAILED, text: format!("onrush: {why}\n") }
    }

    /// The tracker stopped as requested, and could not write its peers because of `why`.
    pub fn lost_peers(why: impl Display) -> Self {
        Self { code: LOST_PEERS, text: format!("onrush: {why}\n") }
    }

    /// The request itself is wrong; `problems` are whole lines.
    pub fn wrong(problems: impl Display) -> Self {
        Self { code: WRONG, text: problems.to_string() }
    }

    /// Writes the message and returns the exit status. A failing successor sends its message to the
    /// predecessor too.
    pub fn report(self) -> ExitCode {
        let is_successor = env::var_os(UPGRADE_ROLE).is_some_and(|role| role == SUCCESSOR);
        if self.code != GOOD
            && is_successor
            && let Ok(running) = io::stdin().as_fd().try_clone_to_owned()
        {
            // The predecessor may have closed the socket.
            let _ = UnixStream::from(running).write_all(self.text.as_bytes());
        }
        // Last, since it may wait for a reader. Without a reader, only the status remains.
        logging::end(&self.text);
        ExitCode::from(self.code)
    }
}
