//! A thread that keeps capabilities which all other threads have dropped: for AF_XDP sockets that
//! are opened later, and for a process that it starts, as a successor loads an XDP program of its
//! own.
//!
//! Capabilities belong to threads, and a process gets those that its starter has in the ambient set
//! (capabilities(7)). The thread keeps them permitted, and makes them effective and ambient while
//! it does a job.

use std::io;
use std::thread;

use caps::{CapSet, Capability, CapsHashSet};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// The thread. It ends when the last clone of this is dropped.
#[derive(Clone, Debug)]
pub struct SpawnThread(Sender<Job>);

/// A job; its argument is whether the capabilities could be raised.
type Job = Box<dyn FnOnce(io::Result<()>) + Send>;

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

    /// Does `work` with the capabilities; a process that it starts has them, too.
    ///
    /// # Errors
    /// That of the work, or when it cannot be done.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (result, done) = bounded(1);
        let job = move |raised: io::Result<()>| {
            // The caller waits for it.
            let _ = result.send(raised.and_then(|()| work()));
        };
        let ended = || io::Error::other("the thread with the capabilities has ended");
        self.0.send(Box::new(job)).map_err(|_| ended())?;
        done.recv().map_err(|_| ended())?
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
    const SETS: [CapSet; 2] = [CapSet::Effective, CapSet::Ambient];
    for job in jobs {
        let raised = SETS.into_iter().try_for_each(|set| {
            capabilities.iter().try_for_each(|capability| caps::raise(None, set, *capability))
        });
        job(raised.map_err(io::Error::other));
        // It fails only where there are none.
        SETS.into_iter().for_each(|set| _ = caps::clear(None, set));
    }
}
