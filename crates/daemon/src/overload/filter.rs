//! The switch of the kernel's filter: on under pressure, off once it drops little.

use std::time::{Duration, Instant};

use super::load::Load;

/// Seconds without pressure, in which the filter drops at most a tenth of what is received, until
/// it is switched off.
const QUIET: u32 = 30;
/// Delay before a refused filter is tried again: memory may have been short.
pub const RETRY: Duration = Duration::from_secs(5 * 60);

/// The switch of the kernel's filter; off in the beginning.
#[derive(Debug, Default)]
pub struct FilterSwitch {
    is_on: bool,
    quiet_for: u32,
    /// The kernel has refused the filter at a socket: it is off until then.
    refused_until: Option<Instant>,
}

impl FilterSwitch {
    /// Whether the kernel is to have the filter.
    pub fn is_on(&self) -> bool {
        self.is_on && self.refused_until.is_none()
    }

    /// Call every second with its load, whether the workers are under pressure, and whether the
    /// filter is permitted. Returns whether the filter has been switched.
    pub fn tick(&mut self, load: &Load, pressed: bool, permitted: bool, now: Instant) -> bool {
        self.refused_until.take_if(|until| now >= *until);
        let quiet = !pressed && load.filtered * 10 <= load.received;
        self.quiet_for = if quiet { self.quiet_for + 1 } else { 0 };
        let needed = pressed || self.is_on && self.quiet_for <= QUIET;
        let is_on = needed && permitted && self.refused_until.is_none();
        std::mem::replace(&mut self.is_on, is_on) != is_on
    }

    /// The kernel refuses the filter.
    pub fn refuse(&mut self, now: Instant) {
        self.refused_until = Some(now + RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The filter drops junk, so that the workers are not under pressure: it stays while it does.
    #[test]
    fn the_filter_stays_while_it_drops_much() {
        let (mut switch, now) = (FilterSwitch::default(), Instant::now());
        let mut tick = |filtered, pressed| {
            let load = Load { received: 10_000, filtered, ..Load::default() };
            let switched = switch.tick(&load, pressed, true, now);
            (switched, switch.is_on())
        };
        assert!((0..600).all(|_| tick(0, false) == (false, false)));
        assert_eq!(tick(0, true), (true, true));
        assert!((0..600).all(|_| tick(100_000, false) == (false, true)));
        assert!((0..600).all(|_| tick(0, true) == (false, true)));
        assert!((0..QUIET).all(|_| tick(500, false) == (false, true)));
        assert_eq!(tick(500, false), (true, false));
    }

    #[test]
    fn the_filter_is_off_where_it_is_not_permitted_and_minutes_after_a_refusal() {
        let (mut switch, start) = (FilterSwitch::default(), Instant::now());
        let load = Load::default();
        assert!(!switch.tick(&load, true, false, start));
        assert!(switch.tick(&load, true, true, start) && switch.is_on());
        assert!(switch.tick(&load, true, false, start) && !switch.is_on());
        assert!(switch.tick(&load, true, true, start) && switch.is_on());
        switch.refuse(start);
        assert!(!switch.is_on(), "at once");
        assert!(switch.tick(&load, true, true, start + SECOND), "the workers remove it");
        assert!(!switch.tick(&load, true, true, start + RETRY - SECOND));
        assert!(switch.tick(&load, true, true, start + RETRY) && switch.is_on());
    }
}
