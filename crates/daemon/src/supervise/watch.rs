//! What the supervisor checks every second: stalled workers, kernel drops, steering, and totals.

use std::io;
use std::time::{Duration, Instant};

use log::Level;
use onrush_swarm::Moment;

use super::steering_backoff::{Change, SteeringBackoff};
use super::totals_log::Totals;
use crate::process::logging::WarningLimit;
use onrush_config::Settings;
use onrush_control::stall::STALL_THRESHOLD;
use onrush_tracker::metrics::{Summary, WorkerMetrics};

/// Ticks are not exactly a second apart: totals that are due within this time are not postponed.
const TOLERANCE: Duration = Duration::from_millis(500);

/// The state between ticks. All decisions follow from counters and times.
pub(super) struct Watch {
    start: Instant,
    limit: WarningLimit,
    totals: Totals,
    totals_every: Duration,
    totals_at: Instant,
    drops: u64,
    backoff: SteeringBackoff,
    /// Log lines of the current tick.
    lines: Vec<(Level, String)>,
}

impl Watch {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            start: now,
            limit: WarningLimit::new(settings.limits.warnings_per_minute),
            totals: Totals::new(settings.placement),
            totals_every: settings.log.totals_every,
            totals_at: now,
            drops: 0,
            backoff: SteeringBackoff::new(settings.placement.socket_sides()),
            lines: Vec::new(),
        }
    }

    /// Applies changed settings.
    pub(super) fn update(&mut self, settings: &Settings) {
        self.limit.per_minute = settings.limits.warnings_per_minute;
        self.totals_every = settings.log.totals_every;
    }

    /// Call every second with all workers, always in the same order, the sum of their counters, and
    /// how long each has been `stalled`. Returns lines for the log. `steer` changes the steering,
    /// which the kernel may refuse; it is `None` where steering is off.
    pub(super) fn tick(
        &mut self,
        workers: &[(&str, &WorkerMetrics)],
        summary: &Summary,
        stalled: &[Duration],
        now: Instant,
        steer: Option<impl FnMut(Change) -> io::Result<()>>,
    ) -> Vec<(Level, String)> {
        self.warn_of_stalls(workers, stalled, now);
        self.check_drops(summary.kernel_drops, now);
        if let Some(steer) = steer {
            self.adapt_steering(workers, now, steer);
        }
        let elapsed = now.duration_since(self.totals_at);
        if !self.totals_every.is_zero() && elapsed + TOLERANCE >= self.totals_every {
            self.totals_at = now;
            self.lines.push((Level::Info, self.totals.line(*summary, elapsed)));
        }
        std::mem::take(&mut self.lines)
    }

    fn warn(&mut self, kind: &'static str, now: Instant, text: impl FnOnce() -> String) {
        let line = self.limit.check(kind, now, text);
        self.lines.extend(line.map(|text| (Level::Warn, text)));
    }

    fn warn_of_stalls(
        &mut self,
        workers: &[(&str, &WorkerMetrics)],
        stalled: &[Duration],
        now: Instant,
    ) {
        for ((name, _), stalled) in workers.iter().zip(stalled) {
            if *stalled >= STALL_THRESHOLD {
                self.warn("stall", now, || {
                    format!(
                        "{name} has not taken a turn for {} s: its vCPU may be taken by others",
                        stalled.as_secs()
                    )
                });
            }
        }
    }

    fn check_drops(&mut self, drops: u64, now: Instant) {
        let new = drops.saturating_sub(self.drops);
        self.drops = drops;
        if new > 0 {
            self.warn("drops", now, || {
                format!(
                    "the kernel dropped {new} datagrams within a second because receive buffers \
                     were full: raise net.core.rmem_max and socket.receive_buffer, or give the \
                     tracker more workers"
                )
            });
        }
    }

    fn adapt_steering(
        &mut self,
        workers: &[(&str, &WorkerMetrics)],
        now: Instant,
        mut steer: impl FnMut(Change) -> io::Result<()>,
    ) {
        let drops = workers.iter().map(|(_, metrics)| metrics.kernel_drops.get());
        let moment = Moment(now.duration_since(self.start).as_secs() as u32);
        for change in self.backoff.observe(drops, moment) {
            if let Change::Withdraw(worker) = change {
                self.warn("backoff", now, || {
                    format!(
                        "worker-{worker} drops datagrams while others are idle: its datagrams \
                         are spread over all workers for a while"
                    )
                });
            }
            if let Err(error) = steer(change) {
                self.warn("steering", now, || format!("cannot change the steering: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::{Flags, Host};
    use onrush_control::stall::StallDetector;

    const NAMES: [&str; 2] = ["worker-0", "worker-1"];

    /// Two workers whose counters and clock the test advances.
    struct Tracked {
        watch: Watch,
        stalls: StallDetector,
        metrics: [WorkerMetrics; 2],
        now: Instant,
        changes: Vec<Change>,
        steered: bool,
        refuse: bool,
    }

    impl Tracked {
        fn new(text: &str) -> Self {
            let host = Host { vcpus: vec![0, 1], ..Host::default() };
            let parsed = Settings::parse("test.toml", text, &Flags::default(), &host);
            let (settings, _) = parsed.expect("a valid configuration");
            let now = Instant::now();
            Self {
                watch: Watch::new(&settings, now),
                stalls: StallDetector::new(now),
                metrics: Default::default(),
                now,
                changes: Vec::new(),
                steered: true,
                refuse: false,
            }
        }

        /// A second in which these workers take turns.
        fn tick(&mut self, awake: &[usize]) -> Vec<(Level, String)> {
            awake.iter().for_each(|worker| self.metrics[*worker].turns.add(1));
            self.now += Duration::from_secs(1);
            let workers: Vec<_> = NAMES.into_iter().zip(&self.metrics).collect();
            let summary = Summary::of(&self.metrics);
            let turns = self.metrics.iter().map(|metrics| metrics.turns.get());
            let stalled = self.stalls.observe(turns, self.now);
            let steer = |change| {
                self.changes.push(change);
                if self.refuse { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
            };
            let steer = self.steered.then_some(steer);
            self.watch.tick(&workers, &summary, &stalled, self.now, steer)
        }

        /// The warnings of such a second.
        fn warnings(&mut self, awake: &[usize]) -> Vec<String> {
            let lines = self.tick(awake).into_iter();
            lines.filter(|(level, _)| *level == Level::Warn).map(|(_, text)| text).collect()
        }
    }

    #[test]
    fn a_worker_without_turns_for_five_seconds_is_named() {
        let mut tracked = Tracked::new("");
        assert_eq!(tracked.warnings(&[0, 1]), [""; 0]);
        for _ in 0..4 {
            assert_eq!(tracked.warnings(&[0]), [""; 0]);
        }
        let said = "worker-1 has not taken a turn for 5 s: its vCPU may be taken by others";
        assert_eq!(tracked.warnings(&[0]), [said]);
    }

    #[test]
    fn drops_are_reported_with_number_and_remedy() {
        let mut tracked = Tracked { steered: false, ..Tracked::new("") };
        tracked.metrics[0].kernel_drops.add(7);
        tracked.metrics[1].kernel_drops.add(4);
        let warnings = tracked.warnings(&[0, 1]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("the kernel dropped 11 datagrams within a second"));
        assert!(warnings[0].contains("raise net.core.rmem_max and socket.receive_buffer"));
        assert_eq!(tracked.warnings(&[0, 1]), [""; 0], "already reported");
        // Where steering is off, nothing else follows from them.
        for _ in 0..5 {
            tracked.metrics[1].kernel_drops.add(1);
            assert_eq!(tracked.warnings(&[0, 1]).len(), 1);
        }
    }

    #[test]
    fn warnings_of_one_kind_are_limited_per_minute() {
        let mut tracked = Tracked::new("[limits]\nwarnings_per_minute = 2\n");
        let shown: Vec<usize> = (1..=62)
            .filter(|_| {
                tracked.metrics.iter().for_each(|metrics| metrics.kernel_drops.add(1));
                !tracked.warnings(&[0, 1]).is_empty()
            })
            .collect();
        // The minute begins with the first warning.
        assert_eq!(shown, [1, 2, 61, 62]);
    }

    #[test]
    fn the_dropping_worker_is_withdrawn_and_later_restored() {
        let mut tracked = Tracked { refuse: true, ..Tracked::new("") };
        tracked.metrics[1].kernel_drops.add(1);
        assert_eq!((tracked.warnings(&[0, 1]).len(), tracked.changes.len()), (1, 0));
        tracked.metrics[1].kernel_drops.add(1);
        let warnings = tracked.warnings(&[0, 1]);
        assert_eq!(tracked.changes, [Change::Withdraw(1)]);
        assert!(warnings[1].starts_with("worker-1 drops datagrams"), "{warnings:?}");
        assert!(warnings[2].starts_with("cannot change the steering: "), "{warnings:?}");
        assert!(warnings[2].contains("denied"), "{warnings:?}");
        tracked.refuse = false;
        for _ in 0..29 {
            tracked.tick(&[0, 1]);
        }
        assert_eq!(tracked.changes, [Change::Withdraw(1)], "half a minute is not over");
        assert_eq!(tracked.warnings(&[0, 1]), [""; 0]);
        assert_eq!(tracked.changes, [Change::Withdraw(1), Change::Restore(1)]);
    }

    #[test]
    fn totals_appear_at_their_interval() {
        let mut tracked = Tracked::new("[log]\ntotals_every = 10\n");
        tracked.metrics[0].incoming.v4.datagrams.add(70);
        tracked.metrics[1].incoming.v6.datagrams.add(30);
        for second in 1..=30 {
            let lines = tracked.tick(&[0, 1]);
            match second {
                10 => assert!(lines[0].1.starts_with("in 10/s, out 0/s: "), "{lines:?}"),
                20 | 30 => assert!(lines[0].1.starts_with("in 0/s, "), "{lines:?}"),
                _ => assert_eq!(lines, [], "second {second}"),
            }
            assert!(lines.iter().all(|(level, _)| *level == Level::Info), "{lines:?}");
        }
        let mut silent = Tracked::new("[log]\ntotals_every = 0\n");
        assert!((0..200).all(|_| silent.tick(&[0, 1]).is_empty()));
    }

    /// After a late tick the next second is shorter.
    #[test]
    fn totals_appear_despite_short_seconds() {
        let mut tracked = Tracked::new("[log]\ntotals_every = 1\n");
        for milliseconds in [1030, 970, 1000, 999, 1001] {
            // `tick` adds the second itself.
            tracked.now =
                tracked.now + Duration::from_millis(milliseconds) - Duration::from_secs(1);
            let lines = tracked.tick(&[0, 1]);
            assert_eq!(lines.len(), 1, "after {milliseconds} ms: {lines:?}");
        }
    }
}
