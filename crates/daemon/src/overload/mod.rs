//! Overload: while busy workers lose more than a configured share of datagrams, clients get a
//! longer interval, and the kernel drops datagrams that are no valid request, so that fewer
//! requests are lost. While more than that share of connections or requests over HTTP is refused,
//! clients get a longer interval, too.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | the load of a second |
//! | `warnings`, `limit_warnings` | what operators read of losses and limits |
//! | [`steering_backoff`] | from the load of each worker to the steering of announces |
//! | [`step_policy`] | from the load to the step of overload |
//! | `commitment` | how long peers that were sent a longer interval have to be kept |
//! | [`filter`] | from the load to the switch of the kernel's filter |
//! | [`onrush_net::mio::drops`] | why the kernel dropped datagrams |
//! | [`onrush_tracker::kernel_filter`] | the filter that the kernel gets |

mod commitment;
pub mod filter;
mod limit_warnings;
pub mod load;
pub mod steering_backoff;
pub mod step_policy;
mod warnings;

use std::time::{Duration, Instant};

use crate::effect::{Effect, Effects, SteeringChange};
use crate::notice::{Notice, Repeats};
use onrush_config::Settings;
use onrush_config::host::QuotaPeriods;
use onrush_config::settings::OverloadSettings;
use onrush_control::api::stats;
use onrush_swarm::Moment;
use onrush_tracker::access::Lists;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::member::Member;
use onrush_tracker::metrics::Summary;
use onrush_tracker::rules::Rules;

pub(crate) use commitment::LONGEST_LIFETIME;
use commitment::lifetime;
use filter::FilterSwitch;
use load::{Load, Readings};
use steering_backoff::SteeringBackoff;
use step_policy::{STEPS, StepChange, StepPolicy};
use warnings::Warnings;

/// Overload of a tracker: in the beginning without pressure and commitments.
#[derive(Debug)]
pub struct Overload {
    announce: AnnounceSettings,
    settings: OverloadSettings,
    readings: Readings,
    policy: StepPolicy,
    filter: FilterSwitch,
    warnings: Warnings,
    backoff: SteeringBackoff,
    /// When this process began, for the times of the back-off.
    began: Instant,
    /// End of the commitment to longer intervals sent before, and its peer lifetime in seconds.
    committed: Option<(Instant, u32)>,
}

/// The state of the process at the end of a second.
#[derive(Clone, Copy, Debug)]
pub struct ProcessState {
    /// The sum of the counters of all members.
    pub summary: Summary,
    /// Periods of a CPU quota in this second.
    pub quota: QuotaPeriods,
    /// Whether datagrams that the kernel's filter drops can be told from losses.
    pub reasons_known: bool,
    /// Whether this process has steering attached. The supervisor clears it while the sockets are
    /// released to a successor.
    pub is_steering: bool,
    /// Whether an XDP program is in force, which drops what the kernel's filter would.
    pub has_program: bool,
    /// How long the host has been suspended since its boot.
    pub suspended: Duration,
}

impl Overload {
    /// With these settings, from now on.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            announce: settings.announce.clone(),
            settings: settings.overload.clone(),
            readings: Readings::default(),
            policy: StepPolicy::default(),
            filter: FilterSwitch::default(),
            warnings: Warnings::default(),
            backoff: SteeringBackoff::new(settings.placement.socket_sides()),
            began: now,
            committed: None,
        }
    }

    /// The process runs again `now`, after a pause that explains what the kernel dropped.
    pub fn resumed(&mut self, now: Instant) {
        self.warnings.resumed = Some(now);
    }

    /// Puts other settings into force. Clients that were sent a longer interval keep it.
    pub fn reconfigure(&mut self, settings: &Settings, now: Instant) {
        let former = self.pressure().interval;
        let commitment = self.commitment_of(former);
        self.announce = settings.announce.clone();
        self.settings = settings.overload.clone();
        if self.pressure().interval < former {
            self.adopt(commitment, now);
        }
    }

    /// Call every second with all members, always in the same order, how long each has been
    /// `stalled`, and the state of the process: warns of losses, adapts interval, filter and
    /// steering to the load, and stores the commitment.
    pub fn tick(
        &mut self,
        members: &[Member],
        stalled: &[Duration],
        state: &ProcessState,
        now: Instant,
        effects: &mut Effects,
    ) {
        self.check_filters(members, now, effects);
        let load = self.readings.tick(members, stalled, state.quota, now);
        self.warnings.tick(&load, &state.summary, now, effects);
        if state.is_steering {
            self.adapt_steering(&load, now, effects);
        }
        self.adapt(&load, state.reasons_known && !state.has_program, now, effects);
    }

    fn adapt_steering(&mut self, load: &Load, now: Instant, effects: &mut Effects) {
        let moment = Moment(now.duration_since(self.began).as_secs() as u32);
        for change in self.backoff.observe(&load.workers, moment) {
            if let SteeringChange::Withdraw(worker) = change {
                let notice = Notice::warn(format!(
                    "worker-{worker} drops datagrams while others are idle: its datagrams are \
                     spread over all workers for a while"
                ));
                effects.notice(notice.with(Repeats::Limited("backoff")));
            }
            effects.push(Effect::Steer(change));
        }
    }

    /// Adapts interval and filter to the load of a second.
    fn adapt(&mut self, load: &Load, may_filter: bool, now: Instant, effects: &mut Effects) {
        let (before, was_filtered) = (self.pressure(), self.filter.is_on());
        let commitment = self.commitment_of(before.interval);
        let change = self.policy.tick(self.settings.drop_share, load);
        let permitted = may_filter && self.settings.drop_share > 0;
        let switched = self.filter.tick(load, self.policy.is_pressed(), permitted, now);
        let expired = self.committed.take_if(|(until, _)| now >= *until).is_some();
        if change == Some(StepChange::Down) {
            self.adopt(commitment, now);
        }
        // Before the log entries, which state the rules in force.
        if expired || change.is_some() || switched {
            effects.push(Effect::Publish);
        }
        self.report(change, (before.step, was_filtered), effects);
        self.store_commitment(self.pressure().interval != before.interval, now, effects);
    }

    /// Reports the changes since a second with this step, in which the filter was on or not:
    /// warnings of more overload, and information about less. A second that ends the overload has
    /// one notice.
    fn report(
        &self,
        change: Option<StepChange>,
        (former_step, was_filtered): (u32, bool),
        effects: &mut Effects,
    ) {
        let stats::Overload { step, interval } = self.pressure();
        let is_filtered = self.filter.is_on();
        if step == 0 && !is_filtered && (former_step > 0 || was_filtered) {
            return effects.info(format!(
                "overload ended: the interval is {interval} s again, and the kernel's filter is off"
            ));
        }
        match change {
            Some(StepChange::Up { lost, refused, turned_away, refused_over_http }) => {
                let of_http: String = [
                    (turned_away, "connections are turned away (http.connections)"),
                    (refused_over_http, "requests over HTTP are refused as busy"),
                ]
                .iter()
                .filter(|(share, _)| *share > 0)
                .map(|(share, what)| format!("; {share} % of {what}"))
                .collect();
                effects.warn(format!(
                    "overload: {lost} % of datagrams are lost and {refused} % are refused as \
                     busy{of_http}; the interval is {interval} s now"
                ));
            }
            Some(StepChange::Down) => effects.info(format!(
                "overload: few datagrams are lost or refused now; the interval is {interval} s now"
            )),
            None => {}
        }
        match (was_filtered, is_filtered) {
            (false, true) => effects
                .warn("the kernel's filter is on: datagrams that are no valid request are dropped"),
            (true, false) => effects.info("the kernel's filter is off"),
            _ => {}
        }
    }

    /// Switches a filter off that the kernel refuses, for five minutes.
    fn check_filters(&mut self, members: &[Member], now: Instant, effects: &mut Effects) {
        if !self.filter.is_on() {
            return;
        }
        let refusals = members.iter().filter_map(|member| member.metrics.filter_refusal.get());
        if let Some(error) = { refusals }.next() {
            self.filter.refuse(now);
            effects.warn(format!(
                "the kernel refuses the filter against overload: {error}; it is tried again in {} \
                 minutes: permit setsockopt with SO_ATTACH_FILTER where a sandbox forbids it, and \
                 raise net.core.optmem_max where memory is short",
                filter::RETRY.as_secs() / 60
            ));
        }
    }

    /// The current step, and the interval that it leads to.
    pub fn pressure(&self) -> stats::Overload {
        let (step, interval) = (self.policy.step(), self.announce.interval);
        let longest = self.settings.longest_interval.max(interval);
        let more = u64::from(longest - interval) * u64::from(step) / u64::from(STEPS);
        stats::Overload { step, interval: interval + more as u32 }
    }

    /// The configured rules, adapted to the current step and commitment.
    pub fn rules(&self, settings: &Settings, lists: &Lists) -> Rules {
        let mut rules = settings.rules(lists);
        let pressure = self.pressure();
        let lifetime = lifetime(&self.announce, pressure.interval);
        let committed = self.committed.map_or(0, |(_, lifetime)| lifetime);
        rules.shard.peer_lifetime = lifetime.max(committed);
        rules.shard.interval = pressure.interval;
        rules.kernel_filter = self.filter.is_on();
        rules
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use log::Level;
    use onrush_replica::handoff::IntervalCommitment;
    use onrush_tracker::member::Role;

    use super::*;

    /// An [`Overload`] with a clock and counters that the test advances.
    struct Fixture {
        settings: Settings,
        overload: Overload,
        now: Instant,
        notices: Vec<Notice>,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let settings = Settings::for_test(text);
            let now = Instant::now();
            let overload = Overload::new(&settings, now);
            Self { settings, overload, now, notices: Vec::new() }
        }

        /// Advances by `seconds`, each with 10,000 datagrams, of which busy workers lose `percent`.
        fn seconds(&mut self, seconds: u32, percent: u64) {
            let lost = 100 * percent;
            let load =
                Load { received: 10_000 - lost, lost, lost_by_busy: lost, ..Load::default() };
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let mut effects = Effects::default();
                self.overload.adapt(&load, true, self.now, &mut effects);
                self.notices.extend(effects.notices());
            }
        }

        fn rules(&self) -> Rules {
            self.overload.rules(&self.settings, &Lists::open())
        }
    }

    #[test]
    fn drops_lengthen_the_interval_and_the_peer_lifetime() {
        let mut fixture = Fixture::new("[overload]\ndrop_share = 5\nlongest_interval = 5400\n");
        let calm = fixture.rules();
        assert_eq!((calm.shard.interval, calm.shard.peer_lifetime), (1800, 3600));
        fixture.seconds(60, 4);
        assert!(fixture.notices.is_empty() && !fixture.rules().kernel_filter);
        fixture.seconds(5, 20);
        let rules = fixture.rules();
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (2250, 4500));
        let Notice { level, text, .. } = &fixture.notices[0];
        assert!(*level == Level::Warn && text.contains("the interval is 2250 s now"), "{text}");
        let shares = "20 % of datagrams are lost and 0 % are refused as busy";
        assert!(text.contains(shares), "{text}");
        fixture.seconds(100, 90);
        let rules = fixture.rules();
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (5400, 10_800));
        assert_eq!(fixture.notices.len(), 9, "a line for each step and for the filter");
        assert!(rules.kernel_filter);
        assert_eq!(fixture.overload.pressure().step, 8);
    }

    #[test]
    fn recovery_is_no_warning_and_its_end_is_one_line() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        fixture.seconds(100, 90);
        let rise = std::mem::take(&mut fixture.notices);
        assert!(rise.iter().all(|notice| notice.level == Level::Warn), "{rise:?}");
        fixture.seconds(8 * 40, 0);
        let recovery = fixture.notices;
        assert!(recovery.iter().all(|notice| notice.level == Level::Info), "{recovery:?}");
        let is_end = |notice: &&Notice| notice.text.contains(" 1800 s");
        assert_eq!(recovery.iter().filter(is_end).count(), 1, "{recovery:?}");
        let last = &recovery.last().unwrap().text;
        assert!(last.contains("overload ended") && last.contains(" 1800 s"), "{recovery:?}");
    }

    #[test]
    fn peers_sent_a_longer_interval_keep_their_lifetime() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        fixture.seconds(100, 90);
        assert_eq!(fixture.rules().shard.peer_lifetime, 7200);
        // Down again, a step at a time.
        fixture.seconds(8 * 40, 0);
        let rules = fixture.rules();
        assert!(!rules.kernel_filter);
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (1800, 7200));
        fixture.seconds(3600 * 21 / 20, 0);
        assert_eq!(fixture.rules().shard.peer_lifetime, 3600);
    }

    /// A successor adopts the commitment during the overload, or after it.
    #[test]
    fn a_successor_keeps_the_commitment() {
        let text = "[overload]\nlongest_interval = 3600\n";
        let mut fixture = Fixture::new(text);
        let commitment = |fixture: &Fixture| fixture.overload.commitment(fixture.now);
        assert_eq!(commitment(&fixture), None);
        fixture.seconds(100, 90);
        assert_eq!(
            commitment(&fixture),
            Some(IntervalCommitment { lifetime: 7200, seconds: 3780 })
        );
        fixture.seconds(8 * 40, 0);
        let left = commitment(&fixture).unwrap();
        assert!(left.lifetime == 7200 && (3400..3780).contains(&left.seconds), "{left:?}");
        // The configured interval is included: the successor's may be shorter.
        let full = |fixture: &Fixture| fixture.overload.full_commitment(fixture.now);
        assert_eq!(full(&fixture), left);
        let configured = IntervalCommitment { lifetime: 3600, seconds: 1890 };
        assert_eq!(full(&Fixture::new(text)), configured);
        let mut successor = Fixture::new(text);
        successor.overload.adopt(left, successor.now);
        let rules = successor.rules();
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (1800, 7200));
        assert_eq!(commitment(&successor).unwrap().lifetime, 7200, "passed on to a third process");
        successor.seconds(left.seconds + 1, 0);
        assert_eq!((successor.rules().shard.peer_lifetime, commitment(&successor)), (3600, None));
    }

    #[test]
    fn the_lifetime_is_limited_by_stored_ages() {
        let config = "[announce]\ninterval = 30000\n[overload]\nlongest_interval = 43200\n";
        let mut fixture = Fixture::new(config);
        fixture.seconds(100, 90);
        let rules = fixture.rules();
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (43_200, 65_536));
    }

    #[test]
    fn a_refused_filter_is_warned_of_once_and_tried_again_after_minutes() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        let members = [0, 1].map(|nth| Member::new(Role::Both, nth, Arc::default()));
        let check = |fixture: &mut Fixture| {
            let mut effects = Effects::default();
            fixture.overload.check_filters(&members, fixture.now, &mut effects);
            effects.notices().pop().map(|notice| notice.text)
        };
        assert_eq!(check(&mut fixture), None);
        fixture.seconds(5, 90);
        assert!(fixture.overload.filter.is_on() && fixture.rules().kernel_filter);
        let enomem = io::Error::from_raw_os_error(12);
        members[1].metrics.filter_refusal.set(Some(&enomem));
        let warning = check(&mut fixture).unwrap();
        assert!(warning.contains("os error 12") && warning.contains("net.core.optmem_max"));
        assert!(!fixture.overload.filter.is_on(), "drops of this second are not the filter's");
        fixture.seconds(100, 90);
        assert_eq!(check(&mut fixture), None);
        assert!(!fixture.overload.filter.is_on() && !fixture.rules().kernel_filter);
        assert_eq!(fixture.overload.pressure().interval, 3600);
        // The worker has removed what it has.
        members[1].metrics.filter_refusal.set(None);
        fixture.seconds(300, 90);
        assert_eq!(check(&mut fixture), None);
        assert!(fixture.overload.filter.is_on() && fixture.rules().kernel_filter);
    }

    #[test]
    fn a_drop_share_of_zero_disables_both_measures() {
        let mut fixture = Fixture::new("[overload]\ndrop_share = 0\n");
        fixture.seconds(100, 90);
        assert!(fixture.notices.is_empty());
        let rules = fixture.rules();
        assert_eq!((rules.shard.interval, rules.kernel_filter), (1800, false));
    }

    #[test]
    fn the_dropping_worker_is_withdrawn_and_later_restored() {
        let mut fixture = Fixture::new("[workers]\ntotal = 2\n");
        let members = [0, 1].map(|nth| Member::new(Role::Both, nth, Arc::default()));
        let mut second = |loses: bool, is_steering: bool| {
            if loses {
                members[1].metrics.kernel_drops.add(1);
                members[1].metrics.turn_times.observe(900_000_000);
            }
            fixture.now += Duration::from_secs(1);
            let summary = Summary::default();
            let (quota, suspended) = (QuotaPeriods::default(), Duration::ZERO);
            let (reasons_known, has_program) = (true, false);
            let state =
                ProcessState { summary, quota, reasons_known, is_steering, has_program, suspended };
            let mut effects = Effects::default();
            let stalled = [Duration::ZERO; 2];
            fixture.overload.tick(&members, &stalled, &state, fixture.now, &mut effects);
            let change = |effect: &Effect| match effect {
                Effect::Steer(change) => Some(*change),
                _ => None,
            };
            (effects.0.iter().find_map(change), effects.notices().len())
        };
        assert_eq!([true; 3].map(|loses| second(loses, false)), [(None, 1); 3], "without steering");
        assert_eq!(second(false, true), (None, 0));
        assert_eq!(second(true, true), (None, 1));
        assert_eq!(second(true, true), (Some(SteeringChange::Withdraw(1)), 2));
        assert!((0..29).all(|_| second(false, true) == (None, 0)), "half a minute is not over");
        assert_eq!(second(false, true), (Some(SteeringChange::Restore(1)), 0));
    }

    #[test]
    fn a_shorter_interval_by_a_reload_keeps_peers_that_were_sent_the_longer_one() {
        let mut fixture = Fixture::new("[announce]\ninterval = 3600\n");
        let shorter = Settings::for_test("[announce]\ninterval = 600\n");
        fixture.overload.reconfigure(&shorter, fixture.now);
        fixture.settings = shorter;
        let rules = fixture.rules();
        assert_eq!((rules.shard.interval, rules.shard.peer_lifetime), (600, 7200));
        fixture.seconds(3600 * 21 / 20, 0);
        assert_eq!(fixture.rules().shard.peer_lifetime, 1200);
    }
}
