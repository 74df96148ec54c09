//! The only module that reads time. A worker reads the clock once per turn and passes the result
//! on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onrush_swarm::Moment;

/// The time of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Seconds on the tracker's monotonic clock, for ages of peers.
    pub moment: Moment,
    /// Wall-clock seconds since 1970, for connection ids: other hosts and the next process have to
    /// agree on them.
    pub unix: u64,
}

/// The first moment: 12 days, so that peers of a snapshot can have earlier moments.
const FIRST: Moment = Moment(1 << 20);

/// The clock of a running tracker. All of its workers share one start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The current time. A wall clock before 1970 counts as 1970.
    pub fn now(&self) -> Now {
        self.read().0
    }

    /// The current second of the wall clock, and when it began on CLOCK_MONOTONIC, nanoseconds.
    pub fn second(&self) -> (u64, u64) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = onrush_net::clock::monotonic().saturating_sub(since.subsec_nanos().into());
        (since.as_secs(), began)
    }

    /// The current time, and the time since the clock was started, to measure durations.
    pub fn read(&self) -> (Now, Duration) {
        let since = self.start.elapsed();
        let moment = FIRST.after(since.as_secs() as u32);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        (Now { moment, unix }, since)
    }
}
