//! What a worker tells of itself while it runs.

use hdrhistogram::Histogram;

/// What was counted lately, within the window or not.
#[derive(Debug)]
pub struct Recent {
    /// Requests handed to the network.
    pub sent: u64,
    /// Right replies.
    pub right: u64,
    /// Wrong ones.
    pub wrong: u64,
    /// Requests given up.
    pub lost: u64,
    /// Nanoseconds to the replies, to two digits.
    pub latency: Histogram<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        let latency =
            Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("these bounds are valid");
        Self { sent: 0, right: 0, wrong: 0, lost: 0, latency }
    }
}
