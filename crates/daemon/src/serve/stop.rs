//! How a tracker ends: its peers go to the final snapshot, or to the successor.

use std::thread;
use std::time::{Duration, Instant};

use procfs_core::process::Stat;
use procfs_core::{FromRead, ProcError};

use super::Serving;
use super::executor::Executor;
use crate::xdp::XdpProgram;
use onrush_replica::delta::{self, CompletedHandoff};
use onrush_text::numbers::grouped;
use onrush_tracker::metrics::Summary;
use onrush_tracker::orders::FRONT_PAUSE_LIMIT;

/// Time for the last history to be written.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for a process to exit after its sockets are closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

impl Serving {
    /// Lets web workers finish the requests that have begun, stops all workers, writes the peers to
    /// disk, then releases the state directory. Also returns why the peers could not be written.
    pub fn stop(self) -> (Summary, Result<(), String>) {
        let Executor { running, mut files, admin, history, clock, mut xdp, .. } = self.executor;
        admin.stopping();
        xdp.iter_mut().for_each(XdpProgram::end);
        if let Ok(paused) = running.orders().pause_fronts() {
            let end = Instant::now() + FRONT_PAUSE_LIMIT;
            // Connections that are open then belong to clients that are slow.
            let _ = paused.wait_by(|results| results.recv_deadline(end));
        }
        let (summary, shards) = running.stop_and_take_shards();
        let written = files.snapshots.write_final(shards, clock);
        files.write_history(&history, clock, HISTORY_TIMEOUT);
        files.remove_control();
        drop(files.lock);
        (summary, written)
    }

    /// Stops the workers, whose sockets the successor has, and sends it the delta. Returns whether
    /// the successor still runs; if not, the peers are written to the snapshot.
    pub fn finish_handoff(self, handoff: CompletedHandoff) -> bool {
        let Executor { running, mut files, admin, clock, .. } = self.executor;
        let CompletedHandoff { to, process, mut since } = handoff;
        // The successor waits for this address.
        drop(admin);
        let (_, mut shards) = running.stop_and_take_shards();
        files.snapshots.join();
        match delta::write(to.0, &mut shards, &mut since, clock.now()) {
            Ok(delta) => {
                let peers = grouped(delta.v4 + delta.v6);
                log::info!("handoff complete: process {process} serves; delta sent: {peers} peers");
            }
            Err(error) => {
                log::warn!(
                    "handoff complete: process {process} has the sockets, but did not get the \
                     delta: {error}"
                );
                if exits_soon(process) {
                    if let Err(why) = files.snapshots.write_final(shards, clock) {
                        log::error!("{why}");
                    }
                    return false;
                }
            }
        }
        // This process exits now: freeing millions of peers would only delay the exit.
        std::mem::forget(shards);
        if let Some(lock) = files.lock {
            lock.release_to_other();
        }
        true
    }
}

/// Whether a process that has closed its sockets exits too, which takes the kernel a moment.
fn exits_soon(process: i32) -> bool {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while Instant::now() < deadline {
        if has_exited(process) {
            return true;
        }
        #[expect(clippy::disallowed_methods, reason = "no event of other processes")]
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Whether the process does not exist, or is a zombie.
fn has_exited(process: i32) -> bool {
    match Stat::from_file(format!("/proc/{process}/stat")) {
        Ok(stat) => matches!(stat.state, 'Z' | 'X'),
        Err(error) => matches!(error, ProcError::NotFound(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_zombie_has_exited() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = child.id() as i32;
        assert!(!has_exited(process) && !has_exited(std::process::id() as i32));
        // The child exits at the end of its input, and is not waited for yet.
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_exited(process) {
            assert!(Instant::now() < deadline, "the child runs on");
        }
        child.wait().unwrap();
        assert!(has_exited(process));
    }
}
