//! The one place that reads time. A worker asks once per turn and passes the answer down.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use onrush_swarm::Moment;

/// What a turn knows about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Seconds on the tracker's monotonic clock: ages of peers.
    pub moment: Moment,
    /// Seconds of wall-clock time since 1970: connection ids, which other hosts and the next
    /// process have to understand too.
    pub unix: u64,
}

/// What the monotonic clock begins with: 12 days, so that there are moments for what happened before.
const FIRST: Moment = Moment(1 << 20);

/// The clock of a running tracker; all of its workers share one start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// What time it is. A wall clock before 1970 counts as 1970.
    pub fn now(&self) -> Now {
        self.read().0
    }

    /// What time it is, and how long ago the clock was started, for whoever measures.
    pub fn read(&self) -> (Now, Duration) {
        let since = self.start.elapsed();
        let moment = FIRST.after(since.as_secs() as u32);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        (Now { moment, unix }, since)
    }
}
