//! The counts that a worker reports while it runs.

use hdrhistogram::Histogram;

/// Counts since the last report, within the measured window or not.
#[derive(Debug)]
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
    pub latency: Histogram<u64>,
}

impl Default for Recent {
    fn default() -> Self {
        let latency =
            Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("these bounds are valid");
        Self { sent: 0, right: 0, wrong: 0, lost: 0, latency }
    }
}

impl Recent {
    /// Adds the counts of `other`, and resets them.
    pub fn take(&mut self, other: &mut Self) {
        self.sent += std::mem::take(&mut other.sent);
        self.right += std::mem::take(&mut other.right);
        self.wrong += std::mem::take(&mut other.wrong);
        self.lost += std::mem::take(&mut other.lost);
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        other.latency.reset();
    }

    /// Whether nothing was sent, received or lost.
    pub fn is_empty(&self) -> bool {
        self.sent + self.right + self.wrong + self.lost == 0
    }
}
