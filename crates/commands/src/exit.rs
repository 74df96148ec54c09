//! How a process of `onrush` ends: its exit status, and its final message on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use onrush_control::client::ClientError;

use crate::format;

/// Stopped as requested, or wrote the requested output.
pub const GOOD: u8 = 0;
/// Could not start, or failed while it served.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const WRONG: u8 = 2;
/// Stopped as requested, but could not write the peers to disk.
pub const LOST_PEERS: u8 = 3;

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
}

/// Writes a text to standard output and ends with this status. A closed pipe (`onrush
/// --print-config | head`) is not an error.
pub fn print(text: &str, code: u8) -> Exit {
    print_or(text, code, Exit::failed)
}

/// As [`print`], with the end for the case that standard output cannot be written.
pub(crate) fn print_or(text: &str, code: u8, failed: fn(String) -> Exit) -> Exit {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failed(format!("cannot write: {error}"))
        }
        _ => Exit { code, text: String::new() },
    }
}

impl From<ClientError> for Exit {
    fn from(error: ClientError) -> Self {
        // It may have the text of a server, or a path that another user has chosen.
        let text = error.to_string();
        match (error, format::escaped(&text)) {
            (ClientError::Usage(_), problems) => Self::wrong(problems),
            (_, failure) => Self::failed(failure),
        }
    }
}
