//! `onrush-load` as a process.

use std::process::{Command, Output};

use onrush_load::report::Report;

/// The command.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_onrush-load"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The report on standard output.
#[track_caller]
pub(crate) fn report(output: &Output) -> Report {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", stdout(output), stderr(output)))
}
