//! The process that follows, started by the one that it follows: under a service manager it has to be in the same
//! control group and sandbox, and the manager has to take it for a child of its own.
//!
//! systemd takes `MAINPID=` of any process of the unit, but waits for the end of its own children only: of another
//! one `systemctl stop` would not wait until it has written its snapshot. So between the two there is a *guard*,
//! the same program, which starts the successor and waits for it. A successor that ends early has told why, and the guard
//! ends like it. When the sockets have changed hands the guard simply leaves, and the successor becomes a child of
//! process 1.
//!
//! They are joined by a *line*, a Unix socket at standard input of guard and successor: its end tells the guard to
//! leave, one byte to kill; a successor that cannot start writes its last words to it, besides standard error.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::exit::{self, Exit};
use crate::process::signals;

/// Says to a process started with `--upgrade` which part it has.
const PART: &str = "ONRUSH_UPGRADE";
const GUARD: &str = "guard";
const SUCCESSOR: &str = "successor";
/// To the guard: end the successor.
const KILL: u8 = b'k';
/// How long a successor may take until it asks for the peers: lists of millions take seconds.
const STARTING: Duration = Duration::from_secs(180);
/// How long it may go on after it has failed to take over.
const FAILING: Duration = Duration::from_secs(5);
/// How long a guard may take to leave.
const LEAVING: Duration = Duration::from_secs(1);
/// Bytes of last words at most.
const WORDS: u64 = 64 << 10;

/// How this process was started, and its successor is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
}

impl Program {
    /// Of this process. To be called when it has just been started: the file may be replaced later, which is what an
    /// upgrade is about.
    pub fn here() -> Self {
        let mut args = env::args_os();
        let name = args.next().unwrap_or_default();
        let known = env::current_exe().ok();
        let path = started_as(Path::new(&name), env::var_os("PATH"), known.as_deref());
        Self { path, args: args.filter(|arg| arg != "--upgrade").collect() }
    }

    /// The file that is executed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn command(&self, part: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.args).arg("--upgrade").env(PART, part);
        // Sockets that were passed to this process come by the upgrade, and the watchdog is for whoever the
        // manager watches over: it says so by MAINPID, not by a number from before.
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        command
    }

    /// Starts the successor, behind its guard.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub fn start(&self, now: Instant) -> io::Result<Successor> {
        let (line, theirs) = UnixStream::pair()?;
        let mut guard = self.command(GUARD).stdin(OwnedFd::from(theirs)).spawn()?;
        let (tell, ended) = bounded(1);
        let words = line.try_clone()?;
        thread::Builder::new().name("successor".into()).spawn(move || {
            let status = guard.wait();
            // Nobody may be waiting any more.
            let _ = tell.send(status.map(|status| Ended { status, words: read_words(&words) }));
        })?;
        Ok(Successor { line, ended, until: now + STARTING })
    }
}

/// The path that a program was started by: a link stays one, as what it leads to may be another version later.
fn started_as(name: &Path, path: Option<OsString>, known: Option<&Path>) -> PathBuf {
    let is_it = |path: &Path| match (fs::metadata(path), known.map(fs::metadata)) {
        (Ok(this), Some(Ok(known))) => (this.dev(), this.ino()) == (known.dev(), known.ino()),
        _ => false,
    };
    let given = match name.components().count() {
        0 | 1 if !name.is_absolute() => {
            let directories = path.as_deref().map(env::split_paths).into_iter().flatten();
            directories.map(|directory| directory.join(name)).find(|path| is_it(path))
        }
        _ => std::path::absolute(name).ok().filter(|path| is_it(path)),
    };
    given.or_else(|| known.map(Path::to_owned)).unwrap_or_else(|| name.to_owned())
}

fn read_words(line: &UnixStream) -> String {
    // Whoever could still write has ended.
    let _ = line.set_nonblocking(true);
    let mut words = Vec::new();
    let _ = line.take(WORDS).read_to_end(&mut words);
    String::from_utf8_lossy(&words).trim_end().to_owned()
}

/// A successor that has been started.
#[derive(Debug)]
pub struct Successor {
    line: UnixStream,
    ended: Receiver<io::Result<Ended>>,
    /// When it has taken too long.
    until: Instant,
}

/// How a successor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As its parent saw it.
    pub status: ExitStatus,
    /// Its last words.
    pub words: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "it ended with exit code {code}")?,
            (None, Some(signal)) => write!(f, "signal {signal} ended it")?,
            (None, None) => write!(f, "it ended")?,
        }
        if self.words.is_empty() { Ok(()) } else { write!(f, ":\n{}", self.words) }
    }
}

impl Successor {
    /// Tells when it has ended.
    pub fn ended(&self) -> &Receiver<io::Result<Ended>> {
        &self.ended
    }

    /// It has asked for what there is: from here on the conversation has its own time-outs.
    pub fn asked(&mut self, now: Instant) {
        self.until = now + Duration::from_secs(86_400);
    }

    /// It has not taken over, and should end by itself.
    pub fn failed(&mut self, now: Instant) {
        self.until = self.until.min(now + FAILING);
    }

    /// To be called every second: ends one that takes too long. Whether it had to.
    pub fn second(&mut self, now: Instant) -> bool {
        let late = now >= self.until;
        if late {
            self.kill(now);
        }
        late
    }

    /// Ends it.
    pub fn kill(&mut self, now: Instant) {
        self.until = now + FAILING;
        // Whoever cannot be told has ended.
        let _ = self.line.write_all(&[KILL]);
    }

    /// It has taken over: the guard leaves, and this process has no part in it any more.
    pub fn release(self) {
        let _ = self.line.shutdown(Shutdown::Write);
        if self.ended.recv_timeout(LEAVING).is_err() {
            log::warn!("the process between this one and its successor does not end");
        }
    }
}

/// Whether this process is to be a guard: then that is all that it does.
pub fn is_guard() -> bool {
    env::var_os(PART).is_some_and(|part| part == GUARD)
}

/// Starts the successor and ends as it does, or when the line ends.
pub fn guard() -> Exit {
    // What is meant for all processes of a unit is not meant for this one: it ends when one of the others does.
    let _wishes = signals::listen();
    let failed = |what: &str, error: io::Error| Exit::failed(format!("{what}: {error}"));
    let stdin = || io::stdin().as_fd().try_clone_to_owned();
    let (mut hear, give) = match (stdin().map(UnixStream::from), stdin()) {
        (Ok(hear), Ok(give)) => (hear, give),
        (Err(error), _) | (_, Err(error)) => return failed("no line to the running onrush", error),
    };
    let program = Program::here();
    let mut child = match program.command(SUCCESSOR).stdin(Stdio::from(give)).spawn() {
        Ok(child) => child,
        Err(error) => return failed("cannot start the successor", error),
    };
    let number = Pid::from_raw(child.id() as i32);
    let listening = thread::Builder::new().name("line".into()).spawn(move || {
        let mut byte = [0];
        while let Ok(1..) = hear.read(&mut byte) {
            let _ = kill(number, Signal::SIGKILL);
        }
        process::exit(exit::GOOD.into());
    });
    if let Err(error) = listening {
        let _ = child.kill();
        return failed("no thread", error);
    }
    let code = match child.wait().map(|status| (status.code(), status.signal())) {
        Ok((Some(code), _)) => code as u8,
        // As a shell tells of signals.
        Ok((None, signal)) => 128 + signal.unwrap_or(0) as u8,
        Err(_) => exit::FAILED,
    };
    Exit { code, text: String::new() }
}

/// Tells whoever started this process as its successor why it is none.
pub fn last_words(words: &str) {
    if env::var_os(PART).is_none_or(|part| part != SUCCESSOR) {
        return;
    }
    if let Ok(line) = io::stdin().as_fd().try_clone_to_owned() {
        // Whoever does not listen any more does not need to hear it.
        let _ = UnixStream::from(line).write_all(words.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_it_was_started_and_a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("onrush-1"), directory.path().join("onrush"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let path = Some(directory.path().as_os_str().to_owned());
        let found = |name: &Path, path| started_as(name, path, Some(&file));
        assert_eq!(found(&link, None), link);
        assert_eq!(found(Path::new("onrush"), path.clone()), link);
        // What is something else is not believed.
        let other = directory.path().join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(found(&other, None), file);
        assert_eq!(found(Path::new("other"), path), file);
        assert_eq!(started_as(Path::new("onrush"), None, None), Path::new("onrush"));
    }

    #[test]
    fn how_it_ended_is_told_with_its_last_words() {
        let ended = |raw, words: &str| {
            Ended { status: ExitStatus::from_raw(raw), words: words.into() }.to_string()
        };
        assert_eq!(
            ended(2 << 8, "onrush.toml:1: no"),
            "it ended with exit code 2:\nonrush.toml:1: no"
        );
        assert_eq!(ended(9, ""), "signal 9 ended it");
    }
}
