//! The counts that a worker reports while it runs.

use crate::latency::Latencies;

/// Counts since the last report, within the measured window or not.
#[derive(Debug, Default)]
pub struct Recent {
    /// Requests handed to the network.
    pub sent: u64,
    /// Right replies.
    pub right: u64,
    /// Wrong replies.
    pub wrong: u64,
    /// Lost requests.
    pub lost: u64,
    /// Latencies in nanoseconds, to two digits.
    pub latency: Latencies<2>,
}

impl Recent {
    /// Adds the counts of `other`, and resets them.
    pub fn take(&mut self, other: &mut Self) {
        self.sent += std::mem::take(&mut other.sent);
        self.right += std::mem::take(&mut other.right);
        self.wrong += std::mem::take(&mut other.wrong);
        self.lost += std::mem::take(&mut other.lost);
        self.latency.add(&other.latency);
        other.latency.0.reset();
    }

    /// Whether nothing was sent, received or lost.
    pub fn is_empty(&self) -> bool {
        self.sent + self.right + self.wrong + self.lost == 0
    }
}
