//! How the process ends: its exit code, and its last words on standard error.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::start::StartError;
use crate::supervise::End;
use crate::upgrade::successor;

/// It was asked to end, or has shown what it was asked for.
pub const GOOD: u8 = 0;
/// It could not start, or died.
pub const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub const WRONG: u8 = 2;

/// An end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// For whoever started the process, whatever the level of the log is. Ends with a line break,
    /// or is empty.
    pub text: String,
}

impl Exit {
    /// Nothing went wrong.
    pub fn good() -> Self {
        Self { code: GOOD, text: String::new() }
    }

    /// It could not do what it was asked for.
    pub fn failed(why: impl Display) -> Self {
        Self { code: FAILED, text: format!("onrush: {why}\n") }
    }

    /// What it was asked for is wrong; `problems` are whole lines.
    pub fn wrong(problems: impl Display) -> Self {
        Self { code: WRONG, text: problems.to_string() }
    }

    /// After serving, or after trying to.
    pub fn after(served: Result<End, StartError>) -> Self {
        match served {
            Ok(End::Asked | End::Given(_)) => Self::good(),
            Ok(End::Orphaned(process)) => Self::failed(format!(
                "process {process} took over and ended at once: start again (the log says whether the peers are in the \
                 snapshot)"
            )),
            Ok(End::Died(death)) => Self::failed(format!("{} died: {}", death.name, death.cause)),
            // Parts of the configuration.
            Err(StartError::List(error)) => Self::wrong(format!("{error}\nnothing was started.\n")),
            Err(StartError::Token(error)) => {
                Self::wrong(format!("{error}\nnothing was started.\n"))
            }
            Err(error) => Self::failed(error),
        }
    }

    /// Says the last words. Where they cannot be written, the exit code says what it can.
    pub fn say(self) -> ExitCode {
        let _ = std::io::stderr().write_all(self.text.as_bytes());
        if self.code != GOOD {
            successor::last_words(&self.text);
        }
        ExitCode::from(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::running::WorkerFailure;
    use std::io;

    #[test]
    fn each_end_has_its_code_and_its_words() {
        let after = |served| {
            let exit = Exit::after(served);
            (exit.code, exit.text)
        };
        assert_eq!(after(Ok(End::Asked)), (0, String::new()));
        let death = WorkerFailure { name: "worker-3".into(), cause: "it panicked: why".into() };
        let said = "onrush: worker-3 died: it panicked: why\n";
        assert_eq!(after(Ok(End::Died(death))), (1, said.into()));
        let (code, text) = after(Err(StartError::Poll(io::ErrorKind::OutOfMemory.into())));
        assert_eq!(code, 1);
        assert!(text.starts_with("onrush: cannot set up polling: "), "{text}");
        let wrong = Exit { code: 2, text: "onrush.toml:1: no\n".into() };
        assert_eq!(Exit::wrong("onrush.toml:1: no\n"), wrong);
    }
}
