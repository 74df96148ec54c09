//! The command against a small conforming tracker and against faulty ones, over real sockets.

#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod profiles;
mod run;
mod verify;

use std::process::{Command, Output};

/// The command.
fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_onrush-load"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
