//! `onrush-load` as a process.

use std::process::{Command, Output};

use onrush_load::report::Report;

use super::faulty::Server;

/// The command.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_onrush-load"))
}

/// The command with the load that older tools send to a tracker, the report on standard output and
/// further arguments.
pub(crate) fn classic(tracker: &Server, more: &str) -> Command {
    let mut command = command();
    command
        .arg(&tracker.targets()[0])
        .args("--profile classic --swarms 5000 --sources 8 --json -".split(' '))
        .args(more.split_whitespace());
    command
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
