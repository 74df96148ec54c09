//! The progress of a run on a terminal.

use std::os::unix::process::ExitStatusExt;

use nix::sys::signal::Signal;

use super::command::command;
use super::faulty::{Fault, Server};
use super::terminal::Terminal;

#[test]
fn a_run_ends_with_its_terminal() {
    let tracker = Server::start(Fault::Nothing);
    let mut load = command();
    load.args(tracker.targets()).args("--duration 3600 --sources 16 --swarms 500".split(' '));
    let mut terminal = Terminal::start(&mut load, true);
    terminal.wait_for("p99");
    terminal.close();
    let status = terminal.end();
    assert_eq!(status.signal(), Some(Signal::SIGHUP as i32), "{status}");
}
