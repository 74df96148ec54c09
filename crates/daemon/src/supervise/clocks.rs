//! Warnings of time in which this process did not run, and of a wall clock that was set: otherwise
//! their consequences, such as dropped datagrams and refused connection ids, would have no cause.

use std::time::Duration;

use crate::effect::Effects;
use crate::notice::{Notice, Repeats};
use crate::overload::load::PAUSE;
use crate::time::Time;
use onrush_text::times::duration;

/// A smaller difference of the clocks in a second is not reported: connection ids tolerate it.
const JUMP: u64 = 10;

/// The clocks at the last second, and how long the host had been suspended until then.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    last: Option<(Time, Duration)>,
}

impl Clocks {
    /// Call every second, with how long the host has been `suspended` since its boot.
    pub(super) fn tick(&mut self, time: Time, suspended: Duration, effects: &mut Effects) {
        let Some((last, before)) = self.last.replace((time, suspended)) else { return };
        // The monotonic clock stands still while the host is suspended.
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
        if jump >= JUMP {
            let sign = if time.unix > expected { '+' } else { '-' };
            let notice = Notice::warn(format!(
                "the wall clock jumped by {sign}{}: connection ids of before are refused once; \
                 check the synchronisation of the clock (`timedatectl`, `chronyc tracking`)",
                duration(jump as f64)
            ));
            effects.notice(notice.with(Repeats::Limited("clock")));
        }
    }
}
