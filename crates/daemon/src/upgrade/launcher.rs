//! Starts the successor from the predecessor: under a service manager the successor has to be in
//! the same control group and sandbox, and to be a child of the manager in the end.
//!
//! systemd accepts `MAINPID=` of any process of the unit, but waits only for its own children: on
//! `systemctl stop` it would not wait for another process's snapshot. So between the two runs a
//! *launcher*, the same program, which starts the successor and waits for it. If the successor
//! fails, the launcher exits with the same status. After the handoff the launcher exits, and
//! process 1 inherits the successor.
//!
//! Launcher and successor have a Unix socket to the predecessor as standard input. When it is
//! closed the launcher exits; on a byte it kills the successor. A successor that fails writes its
//! final message to it ([`report`](crate::process::exit::report)).

use std::env;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitStatus};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use onrush_commands::exit::{Exit, FAILED, GOOD};

use super::program::{Program, UPGRADE_FORCE};
use crate::process::exit::{SUCCESSOR, UPGRADE_ROLE};
use crate::process::signals;
use crate::process::spawn_thread::SpawnThread;

/// The [`UPGRADE_ROLE`] of the launcher.
const LAUNCHER: &str = "launcher";
/// Tells the launcher to kill the successor.
const KILL: u8 = b'k';
/// Time for the launcher to exit after the handoff.
const LAUNCHER_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bound of a final message, bytes.
const MAX_MESSAGE: u64 = 64 << 10;

impl Program {
    /// Starts a launcher, which starts the successor, both with the capabilities of `with`. With
    /// `force` the successor may drop peers that do not fit.
    ///
    /// # Errors
    /// When the program cannot be executed.
    pub fn start(&self, force: bool, with: Option<&SpawnThread>) -> io::Result<StartedSuccessor> {
        let (control, theirs) = UnixStream::pair()?;
        let mut command = self.command(LAUNCHER, force);
        command.stdin(OwnedFd::from(theirs));
        let mut launcher = match with {
            Some(thread) => thread.run(move || command.spawn())?,
            None => command.spawn()?,
        };
        let (done, exited) = bounded(1);
        let messages = control.try_clone()?;
        thread::Builder::new().name("successor".into()).spawn(move || {
            let exited = match launcher.wait() {
                Ok(status) => describe(status, &read_message(&messages)),
                Err(error) => format!("its exit status is unknown: {error}"),
            };
            // After the handoff the receiver is dropped.
            let _ = done.send(exited);
        })?;
        Ok(StartedSuccessor { control, exited })
    }
}

fn read_message(control: &UnixStream) -> String {
    // Both writers have exited, so everything has arrived.
    let _ = control.set_nonblocking(true);
    let mut message = Vec::new();
    let _ = control.take(MAX_MESSAGE).read_to_end(&mut message);
    String::from_utf8_lossy(&message).trim_end().to_owned()
}

/// A started successor.
#[derive(Debug)]
pub struct StartedSuccessor {
    control: UnixStream,
    /// Receives how the launcher has exited, and so a successor that has failed.
    pub exited: Receiver<String>,
}

/// How a successor has exited: its status, as the launcher passed it on, and its final message.
fn describe(status: ExitStatus, message: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    };
    if message.is_empty() { how } else { format!("{how}:\n{message}") }
}

impl StartedSuccessor {
    /// Kills the successor.
    pub fn kill(&mut self) {
        // A launcher that does not read has exited.
        let _ = self.control.write_all(&[KILL]);
    }

    /// It has the sockets: ends the launcher.
    pub fn release(self) {
        let _ = self.control.shutdown(Shutdown::Write);
        if self.exited.recv_timeout(LAUNCHER_TIMEOUT).is_err() {
            log::warn!("the launcher of the successor does not exit");
        }
    }
}

/// Whether this process is a launcher, which calls [`run_launcher`] and nothing else.
pub fn is_launcher() -> bool {
    env::var_os(UPGRADE_ROLE).is_some_and(|role| role == LAUNCHER)
}

/// Whether the predecessor has started this process as its successor. The flag `--upgrade` has the
/// same effect.
pub fn is_successor() -> bool {
    env::var_os(UPGRADE_ROLE).is_some_and(|role| role == SUCCESSOR)
}

/// Whether the predecessor has started this process with the effect of the flag `--force`.
pub fn is_forced() -> bool {
    env::var_os(UPGRADE_FORCE).is_some()
}

/// Starts the successor. Exits with its status, or when the predecessor closes the socket.
pub fn run_launcher() -> Exit {
    // Catches and discards signals sent to all processes of a unit: the launcher exits with the
    // successor, or with the predecessor.
    let _signals = signals::listen();
    launch().map_or_else(Exit::failed, |code| Exit { code, text: String::new() })
}

/// The exit status of the launcher.
fn launch() -> Result<u8, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let stdin = || {
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        stdin.map_err(failed("no connection to the running onrush"))
    };
    let mut control = UnixStream::from(stdin()?);
    let successor = Program::current().command(SUCCESSOR, is_forced()).stdin(stdin()?).spawn();
    let mut successor = successor.map_err(failed("cannot start the successor"))?;
    let pid = Pid::from_raw(successor.id() as i32);
    let control = thread::Builder::new().name("control".into()).spawn(move || {
        let mut byte = [0];
        while let Ok(1..) = control.read(&mut byte) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        process::exit(GOOD.into());
    });
    control.map_err(failed("cannot start a thread")).inspect_err(|_| {
        let _ = successor.kill();
    })?;
    Ok(match successor.wait().map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => code as u8,
        // As a shell encodes signals.
        Ok((None, signal)) => 128 + signal.unwrap_or(0) as u8,
        Err(_) => FAILED,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_shows_status_and_message() {
        let exited = |raw, message| describe(ExitStatus::from_raw(raw), message);
        assert_eq!(
            exited(2 << 8, "onrush.toml:1: no"),
            "it ended with exit code 2:\nonrush.toml:1: no"
        );
        assert_eq!(exited(9, ""), "signal 9 ended it");
    }
}
