//! What ends a worker's wait from another thread.

/// Ends a worker's wait from another thread. A ring before the wait makes it return at once.
pub trait Bell: Send + Sync {
    /// Rings.
    fn ring(&self);
}

impl Bell for crossbeam_utils::sync::Unparker {
    fn ring(&self) {
        self.unpark();
    }
}

/// A bell that wakes a worker through its socket.
#[derive(Debug)]
pub struct SocketBell<W>(pub W);

impl<W: onrush_net::Waker> Bell for SocketBell<W> {
    fn ring(&self) {
        self.0.wake();
    }
}
