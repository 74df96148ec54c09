//! Warnings of time in which this process did not run, and of a wall clock that was set: otherwise
//! their consequences, such as dropped datagrams and refused connection ids, would have no cause.

use std::time::Duration;

use crate::effect::Effects;
use crate::notice::{Notice, Repeats};
use crate::time::Time;
use onrush_text::times::duration;
use onrush_tracker::connection::SKEW;

/// A second that lasts for so long is one in which this process did not run.
const PAUSE: Duration = Duration::from_secs(5);

/// The clocks at the last second.
#[derive(Debug)]
pub(super) struct Clocks {
    last: Time,
    /// How long the host had been suspended until then; `None` before the first second.
    suspended: Option<Duration>,
}

impl Clocks {
    /// With the clocks of the start.
    pub(super) fn new(start: Time) -> Self {
        Self { last: start, suspended: None }
    }

    /// Call every second, with how long the host has been `suspended` since its boot. Returns
    /// whether the process did not run since the last call.
    pub(super) fn tick(&mut self, time: Time, suspended: Duration, effects: &mut Effects) -> bool {
        let last = std::mem::replace(&mut self.last, time);
        let before = self.suspended.replace(suspended).unwrap_or(suspended);
        // The monotonic clock does not advance while the host is suspended.
        let passed = time.now.duration_since(last.now) + suspended.saturating_sub(before);
        if passed >= PAUSE {
            effects.warn(format!(
                "this process did not run for {} (a paused or suspended VM, SIGSTOP, swap, a disk \
                 that hangs): requests of this time are late or lost",
                duration(passed.as_secs_f64())
            ));
        }
        let expected = last.unix + passed.as_secs();
        let jump = time.unix.abs_diff(expected);
        // Connection ids tolerate a smaller one.
        if jump >= SKEW {
            let sign = if time.unix > expected { '+' } else { '-' };
            let notice = Notice::warn(format!(
                "the wall clock jumped by {sign}{}: connection ids issued before may be refused \
                 once; check the synchronisation of the clock (`timedatectl`, `chronyc tracking`)",
                duration(jump as f64)
            ));
            effects.notice(notice.with(Repeats::Limited("clock")));
        }
        passed >= PAUSE
    }
}
