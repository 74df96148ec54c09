//! A tracker that counts, and runs that a signal ends once it has received enough: what a run has
//! done by then does not depend on the speed of the host.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::faulty::{Fault, Server};

/// How long the next datagram is waited for.
const DEADLINE: Duration = Duration::from_secs(120);
/// Arguments of a run that only a signal ends, in which no reply comes too late.
pub(crate) const ENDLESS: &str = "--duration 3600 --warmup 0 --timeout 60";

/// A tracker, and the sizes of the batches that it receives.
pub(crate) struct Counted<S = Server> {
    pub(crate) server: S,
    pub(crate) received: Receiver<usize>,
}

impl Counted {
    pub(crate) fn start(fault: Fault) -> Self {
        let (counts, received) = channel();
        let server = Server::paced(fault, 128, move |count| _ = counts.send(count));
        Self { server, received }
    }
}

impl<S> Counted<S> {
    /// Waits until so many datagrams have come since the last call; false for a sender that has
    /// stopped.
    pub(crate) fn wait_for(&self, datagrams: usize) -> bool {
        let mut left = datagrams;
        while left > 0 {
            let Ok(count) = self.received.recv_timeout(DEADLINE) else { return false };
            left = left.saturating_sub(count);
        }
        true
    }

    /// Starts a run, and counts from now on.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        self.received.try_iter().for_each(drop);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Interrupts a run once it has sent so many datagrams more.
    #[track_caller]
    pub(crate) fn end_run(&self, mut run: Child, datagrams: usize) -> Output {
        let came = self.wait_for(datagrams);
        match came {
            true => interrupt(&run),
            false => run.kill().unwrap(),
        }
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(came, "the run sends nothing: {said}");
        output
    }

    /// A run of so many datagrams.
    #[track_caller]
    pub(crate) fn run(&self, command: &mut Command, datagrams: usize) -> Output {
        self.end_run(self.spawn(command.args(ENDLESS.split(' '))), datagrams)
    }
}

/// Sends SIGINT.
pub(crate) fn interrupt(run: &Child) {
    let sent = Command::new("kill").args(["-INT", &run.id().to_string()]).status();
    assert!(sent.unwrap().success());
}
