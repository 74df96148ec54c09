//! What the workers of all protocols share: the [`Worker`] that a run drives, its settings, the
//! pace of its requests, and its counts. Time is an argument.

pub mod counts;
pub mod pace;
mod recent;
mod settings;

use std::io;
use std::time::Duration;

pub use counts::Counts;
pub use pace::{Pace, Pacer};
pub use recent::Recent;
pub use settings::{LoadSettings, Window};

pub use crate::latency::Nanos;
use crate::plan::Plan;
use crate::tally::QueueTally;

/// One worker of a run: it sends requests and checks replies.
pub trait Worker {
    /// Its counts.
    fn counts(&mut self) -> &mut Counts;

    /// Ends the window early, at `end`; after the last request that was sent, where this worker is
    /// late and has sent some since.
    fn end_at(&mut self, end: Nanos);

    /// Replies that the kernel dropped for want of room.
    fn dropped(&self) -> u64;

    /// The counts of its AF_XDP queues; the default has none.
    fn queues(&mut self) -> Vec<QueueTally> {
        Vec::new()
    }

    /// Receives, expires, sends. Reads the time from `clock`, which is monotonic.
    ///
    /// # Errors
    /// Only what makes its sockets unusable.
    fn turn(&mut self, clock: &impl Fn() -> Nanos) -> io::Result<Next>;

    /// Waits as [`turn`](Self::turn) has returned.
    ///
    /// # Errors
    /// Only what makes its sockets unusable.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}

/// The sockets of a worker that begins later, on a thread of its own.
pub trait Prepared: Send {
    /// The worker.
    type Worker<'p>: Worker;

    /// Worker number `number`, which sends `plan` from time 0 on. Requests within `window` count.
    ///
    /// # Errors
    /// Only what makes the sockets unusable.
    fn start(
        self,
        plan: &Plan,
        settings: LoadSettings,
        number: usize,
        window: Window,
    ) -> io::Result<Self::Worker<'_>>;
}

/// The action after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another turn at once: the next request is due too soon to sleep.
    Again,
    /// Wait for replies, at most this long.
    Wait(Duration),
    /// All requests are sent, and answered or expired.
    Done,
}
