//! A thread that keeps capabilities which all other threads have dropped, so that a process that it
//! starts has them: a successor loads an XDP program of its own.
//!
//! Capabilities belong to threads, and a process gets those that its starter has in the ambient set
//! (capabilities(7)). The thread keeps them permitted, and raises them while it starts a process.

use std::io;
use std::process::{Child, Command};
use std::thread;

use caps::{CapSet, Capability, CapsHashSet};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct SpawnThread(Sender<Job>);

/// A command, and where to send the process that it has become.
type Job = (Command, Sender<io::Result<Child>>);

impl SpawnThread {
    /// Starts the thread, and drops these capabilities from all sets of the calling one, whose
    /// later threads lack them too.
    ///
    /// # Errors
    /// When the thread cannot be started, or a sandbox forbids capset(2).
    pub fn start(kept: &[Capability]) -> io::Result<Self> {
        let (jobs, waiting) = unbounded();
        let (ready, is_ready) = bounded(1);
        let set: CapsHashSet = kept.iter().copied().collect();
        let of_thread = set.clone();
        thread::Builder::new().name("spawn".into()).spawn(move || {
            let kept = keep(&of_thread);
            let has_failed = kept.is_err();
            // The starter waits for it.
            let _ = ready.send(kept);
            if !has_failed {
                serve(&waiting, &of_thread);
            }
        })?;
        let ended = |_| io::Error::other("the thread has ended");
        let is_kept = is_ready.recv().map_err(ended)?.map_err(io::Error::other);
        drop_all(kept).map_err(io::Error::other)?;
        is_kept?;
        Ok(Self(jobs))
    }

    /// Starts a process with the capabilities.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        let (result, started) = bounded(1);
        let ended = || io::Error::other("the thread that starts processes has ended");
        self.0.send((command, result)).map_err(|_| ended())?;
        started.recv().map_err(|_| ended())?
    }
}

/// Reduces the capabilities of this thread to these, permitted and inheritable.
fn keep(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Effective)?;
    caps::set(None, CapSet::Inheritable, kept)?;
    caps::set(None, CapSet::Permitted, kept)
}

/// Drops capabilities of this thread.
fn drop_all(capabilities: &[Capability]) -> Result<(), caps::errors::CapsError> {
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        capabilities.iter().try_for_each(|capability| caps::drop(None, set, *capability))?;
    }
    Ok(())
}

fn serve(jobs: &Receiver<Job>, capabilities: &CapsHashSet) {
    for (mut command, result) in jobs {
        let raised = capabilities
            .iter()
            .try_for_each(|capability| caps::raise(None, CapSet::Ambient, *capability));
        let started = raised.map_err(io::Error::other).and_then(|()| command.spawn());
        // It fails only where there are none.
        let _ = caps::clear(None, CapSet::Ambient);
        let _ = result.send(started);
    }
}
