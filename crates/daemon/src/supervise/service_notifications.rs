//! Notifications to the service manager while the tracker serves: ready, the status line, and the
//! watchdog.

use std::time::{Duration, Instant};

use crate::effect::{Effect, Effects, ServiceState};
use onrush_text::numbers::grouped;
use onrush_tracker::metrics::Summary;
use onrush_tracker::running::Addresses;

/// How often the status line is renewed.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The periodic notifications of a tracker that serves.
#[derive(Debug)]
pub(super) struct ServiceNotifications {
    watchdog: Option<Watchdog>,
    /// The beginning of the status line: the addresses.
    serves: String,
    /// Time of the last status line, and the datagrams received until then.
    status: (Instant, u64),
}

impl ServiceNotifications {
    /// For a tracker that serves these addresses from now on. `watchdog` is the timeout of the
    /// manager's watchdog, if it has one for this process.
    pub(super) fn new(addresses: &Addresses, watchdog: Option<Duration>, now: Instant) -> Self {
        let serves = format!("serves {}", addresses.urls().join(" and "));
        let watchdog = watchdog.map(|timeout| Watchdog::new(timeout, now));
        Self { watchdog, serves, status: (now, 0) }
    }

    /// The tracker serves, for the first time or after a reload.
    pub(super) fn ready(&self, effects: &mut Effects) {
        effects.push(Effect::Notify(ServiceState::Ready(self.serves.clone())));
    }

    /// Call every second with the sum of all counters, and how long each worker has been `stalled`.
    pub(super) fn tick(
        &mut self,
        summary: &Summary,
        stalled: &[Duration],
        now: Instant,
        effects: &mut Effects,
    ) {
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(stalled, now)) {
            effects.push(Effect::Notify(ServiceState::Watchdog));
        }
        if now.duration_since(self.status.0) >= STATUS_EVERY {
            effects.push(Effect::Notify(ServiceState::Status(self.line(summary, now))));
        }
    }

    fn line(&mut self, summary: &Summary, now: Instant) -> String {
        let (last, datagrams) = std::mem::replace(&mut self.status, (now, summary.datagrams));
        let seconds = now.duration_since(last).as_secs_f64().max(0.001);
        let rate = grouped(summary.datagrams.saturating_sub(datagrams) as f64 / seconds);
        let peers = grouped(summary.peers_v4 + summary.peers_v6);
        let swarms = grouped(summary.swarms);
        format!("{}: {rate} requests/s, {peers} peers in {swarms} swarms", self.serves)
    }
}

/// Decides when to reset the manager's watchdog: only while every worker has taken a turn since the
/// last reset. If a worker hangs, the watchdog expires and the manager restarts the tracker.
#[derive(Debug)]
struct Watchdog {
    /// Time between resets.
    every: Duration,
    last: Instant,
}

impl Watchdog {
    /// For a watchdog that expires `timeout` after its last reset.
    fn new(timeout: Duration, now: Instant) -> Self {
        // Workers take at least four turns per second; a shorter interval could see none.
        let every = (timeout / 3).max(Duration::from_millis(500));
        Self { every, last: now }
    }

    /// Whether to reset the watchdog at `now`, given how long each worker has been `stalled`. Call
    /// at least once a second.
    fn is_due(&mut self, stalled: &[Duration], now: Instant) -> bool {
        let elapsed = now.duration_since(self.last);
        let due = elapsed >= self.every && stalled.iter().all(|time| *time < elapsed);
        if due {
            self.last = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_control::stall::StallDetector;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_watchdog_is_reset_while_every_worker_takes_turns() {
        let mut now = Instant::now();
        let (mut watchdog, mut stalls) = (Watchdog::new(9 * SECOND, now), StallDetector::new(now));
        let mut turns = [0, 0];
        let mut resets = Vec::new();
        for second in 0..30 {
            now += SECOND;
            turns[0] += 4;
            // The second worker hangs for ten seconds.
            turns[1] += if (10..20).contains(&second) { 0 } else { 1 };
            if watchdog.is_due(&stalls.observe(turns, now), now) {
                resets.push(second);
            }
        }
        // The second worker's last turn before the reset at 11 was at 9; the next one is at 20.
        assert_eq!(resets, [2, 5, 8, 11, 20, 23, 26, 29]);
    }

    #[test]
    fn the_status_line_shows_rates_since_the_last_one() {
        let start = Instant::now();
        let addresses = Addresses {
            udp: vec!["127.0.0.1:6969".parse().unwrap()],
            http: vec!["[::1]:80".parse().unwrap()],
            https: Vec::new(),
        };
        let mut notifications = ServiceNotifications::new(&addresses, None, start);
        let mut summary =
            Summary { datagrams: 500, swarms: 3, peers_v6: 4_000, ..Summary::default() };
        let expected = "serves udp://127.0.0.1:6969 and http://[::1]:80: 100 requests/s, 4,000 \
                        peers in 3 swarms";
        assert_eq!(notifications.line(&summary, start + 5 * SECOND), expected);
        summary.datagrams += 10;
        assert!(notifications.line(&summary, start + 10 * SECOND).contains(": 2 requests/s, "));
    }
}
