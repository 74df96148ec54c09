//! The supervisor's checks of every second: stalled workers, lost and refused requests, steering,
//! and totals.

use std::io;
use std::mem;
use std::time::{Duration, Instant};

use log::Level;
use onrush_swarm::Moment;

use super::limit_warnings::LimitWarnings;
use super::steering_backoff::{SteeringBackoff, SteeringChange};
use super::totals_log::Totals;
use crate::overload::load::Load;
use crate::process::logging::WarningLimit;
use onrush_config::Settings;
use onrush_control::stall::STALL_THRESHOLD;
use onrush_tracker::member::Member;
use onrush_tracker::metrics::{Summary, UNSENT};

/// Ticks are not exactly a second apart: totals that are due within this time are not postponed.
const TOLERANCE: Duration = Duration::from_millis(500);

/// A warning of replies that the kernel did not accept is due if they are one of so many.
const UNSENT_SHARE: u64 = 100;
/// Causes of unsent replies with their remedies, in the order of [`UNSENT`].
const UNSENT_REMEDIES: [&str; UNSENT.len()] = [
    "the send buffer is full: raise net.core.wmem_max and socket.send_buffer, and check whether \
     the link is saturated",
    "a rule of a firewall or a route forbids them (EPERM, EACCES): permit what the tracker sends \
     from its ports (`nft list ruleset`, `iptables -S OUTPUT`, `ip rule`)",
    "there is no route to the clients (ENETUNREACH, EHOSTUNREACH, ENETDOWN): check `ip route` and \
     `ip address`, for IPv6 with -6",
    "the queue of the network card is full, or memory is short (ENOBUFS, ENOMEM): raise its \
     txqueuelen, and check `tc -s qdisc`",
    "they are larger than the MTU (EMSGSIZE): correct the MTU of the network card or of the route \
     (`ip link`, `ip route`), or lower announce.max_peers_v4 and announce.max_peers_v6",
    "for another cause: `strace -f -e trace=sendmmsg,sendmsg -p PID` shows it",
];

/// Why requests are refused as busy, and the remedy: with busy workers, and with idle ones.
const BUSY_REMEDY: &str = "the workers of their swarms do not keep up: add workers (workers.swarm \
                           where the placement is split, otherwise workers.total)";
const IDLE_REMEDY: &str = "more arrive at once than limits.batches_in_flight, or for scrapes \
                           limits.scrapes_in_flight, has room for, while the workers of their \
                           swarms are idle: raise it";

/// The state between ticks. All decisions follow from counters and times.
pub(super) struct Watch {
    start: Instant,
    limit: WarningLimit,
    limits: LimitWarnings,
    totals: Totals,
    totals_every: Duration,
    totals_at: Instant,
    sent: u64,
    unsent: [u64; UNSENT.len()],
    backoff: SteeringBackoff,
    /// Log lines of the current tick.
    lines: Vec<(Level, String)>,
}

impl Watch {
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            start: now,
            limit: WarningLimit::new(settings.limits.warnings_per_minute),
            limits: LimitWarnings::default(),
            totals: Totals::new(settings.placement),
            totals_every: settings.log.totals_every,
            totals_at: now,
            sent: 0,
            unsent: Default::default(),
            backoff: SteeringBackoff::new(settings.placement.socket_sides()),
            lines: Vec::new(),
        }
    }

    /// Applies changed settings.
    pub(super) fn update(&mut self, settings: &Settings) {
        self.limit.per_minute = settings.limits.warnings_per_minute;
        self.totals_every = settings.log.totals_every;
    }

    /// Call every second with all members, always in the same order, their load, the sum of their
    /// counters, and how long each has been `stalled`. Returns lines for the log. `steer` changes
    /// the steering, which the kernel may refuse; it is `None` where steering is off.
    pub(super) fn tick(
        &mut self,
        members: &[Member],
        load: &Load,
        summary: &Summary,
        stalled: &[Duration],
        now: Instant,
        steer: Option<impl FnMut(SteeringChange) -> io::Result<()>>,
    ) -> Vec<(Level, String)> {
        self.warn_of_stalls(members, stalled, now);
        self.check_losses(load.lost, now);
        self.check_refusals(load, now);
        let reached = self.limits.tick(summary, now, &mut self.limit).into_iter();
        self.lines.extend(reached.map(|text| (Level::Warn, text)));
        self.check_unsent(summary, now);
        if let Some(steer) = steer {
            self.adapt_steering(load, now, steer);
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

    fn warn_of_stalls(&mut self, members: &[Member], stalled: &[Duration], now: Instant) {
        for (Member { name, .. }, stalled) in members.iter().zip(stalled) {
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

    fn check_losses(&mut self, lost: u64, now: Instant) {
        if lost > 0 {
            self.warn("drops", now, || {
                format!(
                    "the kernel dropped {lost} datagrams within a second because receive buffers \
                     were full: raise net.core.rmem_max and socket.receive_buffer, or give the \
                     tracker more workers"
                )
            });
        }
    }

    /// Warns of requests refused as busy, once a minute.
    fn check_refusals(&mut self, load: &Load, now: Instant) {
        let Load { refused, refused_by_busy, .. } = *load;
        if refused > 0 {
            let (kind, remedy) = match refused_by_busy {
                0 => ("refused by idle", IDLE_REMEDY),
                _ => ("refused by busy", BUSY_REMEDY),
            };
            let text =
                || format!("{refused} requests within a second were refused as busy: {remedy}");
            let line = self.limit.check_once(kind, now, text);
            self.lines.extend(line.map(|text| (Level::Warn, text)));
        }
    }

    /// Warns of replies that the kernel did not accept, once a minute for each cause.
    fn check_unsent(&mut self, summary: &Summary, now: Instant) {
        let before = mem::replace(&mut self.unsent, summary.unsent);
        let sent = summary.sent - mem::replace(&mut self.sent, summary.sent);
        let replies = sent + summary.unsent_in_all() - before.iter().sum::<u64>();
        for (cause, (count, before)) in summary.unsent.into_iter().zip(before).enumerate() {
            let new = count - before;
            if new > 0 && new * UNSENT_SHARE >= replies {
                let line = self.limit.check_once(UNSENT[cause], now, || {
                    let remedy = UNSENT_REMEDIES[cause];
                    format!("{new} of {replies} replies within a second were not sent: {remedy}")
                });
                self.lines.extend(line.map(|text| (Level::Warn, text)));
            }
        }
    }

    fn adapt_steering(
        &mut self,
        load: &Load,
        now: Instant,
        mut steer: impl FnMut(SteeringChange) -> io::Result<()>,
    ) {
        let moment = Moment(now.duration_since(self.start).as_secs() as u32);
        for change in self.backoff.observe(&load.workers, moment) {
            if let SteeringChange::Withdraw(worker) = change {
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
    use crate::overload::load::Readings;
    use onrush_config::{Flags, Host};
    use onrush_control::stall::StallDetector;
    use onrush_tracker::limits::Placement;
    use onrush_tracker::member::Role;
    use onrush_tracker::metrics::WorkerMetrics;
    use onrush_tracker::refusal::Refusal;
    use std::sync::Arc;

    /// Two workers whose counters and clock the test advances.
    struct Tracked {
        watch: Watch,
        readings: Readings,
        stalls: StallDetector,
        metrics: [Arc<WorkerMetrics>; 2],
        roles: [Role; 2],
        now: Instant,
        changes: Vec<SteeringChange>,
        steered: bool,
        refuse: bool,
    }

    impl Tracked {
        fn new(text: &str) -> Self {
            let host = Host { vcpus: vec![0, 1], ..Host::default() };
            let parsed = Settings::parse("test.toml", text, &Flags::default(), &host);
            let (settings, _) = parsed.expect("a valid configuration");
            let now = Instant::now();
            let roles = match settings.placement {
                Placement::Colocated { .. } => [Role::Both; 2],
                Placement::Split { .. } => [Role::Socket, Role::Shard],
            };
            Self {
                roles,
                watch: Watch::new(&settings, now),
                readings: Readings::new(2),
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
            let member = |nth: usize| Member::new(self.roles[nth], nth, self.metrics[nth].clone());
            let members = [0, 1].map(member);
            let summary = Summary::of(self.metrics.iter().map(|metrics| &**metrics));
            let turns = self.metrics.iter().map(|metrics| metrics.turns.get());
            let stalled = self.stalls.observe(turns, self.now);
            let load = self.readings.tick(&members, &stalled, self.now);
            let steer = |change| {
                self.changes.push(change);
                if self.refuse { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
            };
            let steer = self.steered.then_some(steer);
            self.watch.tick(&members, &load, &summary, &stalled, self.now, steer)
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
    fn requests_refused_as_busy_are_reported_with_the_remedy() {
        let mut tracked = Tracked::new("[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n");
        let mut refuse = |busy: [u64; 2]| {
            tracked.metrics[0].incoming.v4.refused[Refusal::Busy as usize].add(9);
            for (worker, milliseconds) in tracked.metrics.iter().zip(busy) {
                worker.turn_times.observe(milliseconds * 1_000_000);
            }
            tracked.warnings(&[0, 1])
        };
        let idle = refuse([900, 0]);
        assert!(idle[0].starts_with("9 requests") && idle[0].contains("limits.batches_in_flight"));
        let busy = refuse([0, 900]);
        assert!(busy[0].starts_with("9 requests") && busy[0].contains("workers.swarm"), "{busy:?}");
        assert_eq!((refuse([900, 0]), refuse([0, 900])), (vec![], vec![]), "once a minute");
        assert_eq!((idle.len(), busy.len()), (1, 1));
    }

    #[test]
    fn unsent_replies_are_reported_by_cause_once_a_minute() {
        let mut tracked = Tracked::new("");
        let [permission, too_long] = ["permission", "too_long"]
            .map(|cause| UNSENT.iter().position(|name| *name == cause).unwrap());
        let mut shown = Vec::new();
        for second in 1..=62 {
            // All replies of one worker, and less than one in a hundred of the other's.
            tracked.metrics[0].unsent[permission].add(40);
            tracked.metrics[1].unsent[too_long].add(1);
            tracked.metrics[1].sent.add(100);
            for warning in tracked.warnings(&[0, 1]) {
                let parts = ["40 of 141 replies", "EPERM", "nft list ruleset"];
                assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
                shown.push(second);
            }
        }
        assert_eq!(shown, [1, 61]);
        tracked.metrics[1].unsent[too_long].add(2);
        let warnings = tracked.warnings(&[0, 1]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("EMSGSIZE") && warnings[0].contains("MTU"), "{warnings:?}");
        let mut silent = Tracked::new("[limits]\nwarnings_per_minute = 0\n");
        silent.metrics[0].unsent[permission].add(40);
        assert_eq!(silent.warnings(&[0, 1]), [""; 0]);
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
        let lose = |tracked: &Tracked| {
            tracked.metrics[1].kernel_drops.add(1);
            tracked.metrics[1].turn_times.observe(900_000_000);
        };
        lose(&tracked);
        assert_eq!((tracked.warnings(&[0, 1]).len(), tracked.changes.len()), (1, 0));
        lose(&tracked);
        let warnings = tracked.warnings(&[0, 1]);
        assert_eq!(tracked.changes, [SteeringChange::Withdraw(1)]);
        assert!(warnings[1].starts_with("worker-1 drops datagrams"), "{warnings:?}");
        assert!(warnings[2].starts_with("cannot change the steering: "), "{warnings:?}");
        assert!(warnings[2].contains("denied"), "{warnings:?}");
        tracked.refuse = false;
        for _ in 0..29 {
            tracked.tick(&[0, 1]);
        }
        assert_eq!(tracked.changes, [SteeringChange::Withdraw(1)], "half a minute is not over");
        assert_eq!(tracked.warnings(&[0, 1]), [""; 0]);
        assert_eq!(tracked.changes, [SteeringChange::Withdraw(1), SteeringChange::Restore(1)]);
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
