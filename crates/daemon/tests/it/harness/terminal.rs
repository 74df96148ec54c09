//! A terminal for a program under test: a pseudoterminal, of which the test has the master. Also
//! used by the tests of `onrush-load`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};
use nix::unistd::Pid;

/// Deadline of every wait, for an event that is certain.
const DEADLINE: Duration = Duration::from_secs(120);

/// A terminal with a program on it. The program is killed on drop.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Closed by [`close`](Self::close). No other process inherits it.
    master: Option<PtyMaster>,
    /// The program's side.
    slave: File,
    program: Child,
    shown: String,
}

impl Terminal {
    /// Starts a program on a terminal of 80 columns and 24 rows, as the leader of a session. If the
    /// terminal `controls` the session, its end sends SIGHUP to the program, and the end of the
    /// program is the end of the terminal.
    pub(crate) fn start(program: &mut Command, controls: bool) -> Self {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(ptsname_r(&master).unwrap())
            .unwrap();
        let side = || Stdio::from(slave.try_clone().unwrap());
        let sized = Command::new("stty").args(["cols", "80", "rows", "24"]).stdin(side()).status();
        assert!(sized.unwrap().success());
        // Where tests run under nohup, programs would ignore SIGHUP.
        let program = Command::new("env")
            .args(["--default-signal=HUP", "setsid"])
            .args(controls.then_some("--ctty"))
            .arg(program.get_program())
            .args(program.get_args())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        Self { master: Some(master), slave, program, shown: String::new() }
    }

    /// Waits until the program has shown a text without spaces, since there may be none between
    /// words: the cursor moves over cells that are empty anyway.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        let mut master = self.master.as_ref().expect("an open terminal");
        while !self.shown.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap();
            let mut waits = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut waits, left).unwrap();
            assert!(ready > 0, "{text:?} is not shown within {DEADLINE:?}: {:?}", self.shown);
            let mut piece = [0; 4096];
            let length = master.read(&mut piece).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&piece[..length]));
        }
    }

    /// Output of the program up to the last text that was waited for.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends keys.
    pub(crate) fn press(&self, keys: &[u8]) {
        let mut master = self.master.as_ref().expect("an open terminal");
        master.write_all(keys).unwrap();
    }

    /// Closes the terminal.
    pub(crate) fn close(&mut self) {
        self.master = None;
    }

    /// Whether the terminal edits lines and echoes them, as for a shell.
    pub(crate) fn is_restored(&self) -> bool {
        let mode = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        tcgetattr(&self.slave).unwrap().local_flags.contains(mode)
    }

    /// Stops the output, as Ctrl-S does: a program that writes has to wait.
    pub(crate) fn stop_output(&self) {
        tcflow(&self.slave, FlowArg::TCOOFF).unwrap();
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.program.id() as i32), signal).unwrap();
    }

    /// Waits for the end of the program.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "runs after {DEADLINE:?}: {:?}", self.shown);
            thread::yield_now();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
