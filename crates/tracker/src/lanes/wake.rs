//! Ends a sleep of a worker or front from another thread.

/// Ends a sleep from another thread. A wake before the sleep makes it return at once.
pub trait Waker: Send + Sync {
    /// Makes the current or the next sleep return.
    fn wake(&self);
}

impl Waker for crossbeam_utils::sync::Unparker {
    fn wake(&self) {
        self.unpark();
    }
}

/// Wakes a worker that sleeps in its socket.
#[derive(Debug)]
pub struct SocketWaker<W>(pub W);

impl<W: onrush_net::Waker> Waker for SocketWaker<W> {
    fn wake(&self) {
        self.0.wake();
    }
}
