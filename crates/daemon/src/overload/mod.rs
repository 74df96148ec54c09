//! Overload: while busy workers lose more than a configured share of datagrams, clients get a
//! longer interval, and the kernel drops datagrams that are no valid request, so that fewer
//! requests are lost.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | the load of a second |
//! | [`policy`] | from the load to the step of overload |
//! | [`filter`] | from the load to the switch of the kernel's filter |
//! | [`onrush_net::mio::drops`] | why the kernel dropped datagrams |
//! | [`onrush_tracker::kernel_filter`] | the filter that the kernel gets |

pub mod filter;
pub mod load;
pub mod policy;

use std::time::{Duration, Instant};

use log::Level;
use onrush_config::Settings;
use onrush_control::api::stats;
use onrush_replica::handoff::IntervalCommitment;
use onrush_tracker::access::Lists;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::member::Member;
use onrush_tracker::rules::Rules;

use filter::FilterSwitch;
use load::Load;
use policy::{Change, Policy, STEPS};

/// Upper bound of a peer's lifetime, seconds: the range of a stored age.
pub(crate) const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;

/// The supervisor's side of an overload. In the beginning without pressure and commitments.
#[derive(Debug, Default)]
pub struct Overload {
    policy: Policy,
    filter: FilterSwitch,
    /// End of the commitment to longer intervals sent before, and its peer lifetime in seconds.
    committed: Option<(Instant, u32)>,
}

/// The commitment to clients that were sent `interval`.
fn commitment_of(announce: &AnnounceSettings, interval: u32) -> IntervalCommitment {
    let lifetime = lifetime(announce, interval);
    IntervalCommitment { lifetime, seconds: longest_wait(announce, interval) }
}

impl Overload {
    /// Call every second with its load, and whether datagrams that the kernel's filter drops can be
    /// told from losses. Returns whether rules have changed, and messages for the log.
    pub fn tick(
        &mut self,
        settings: &Settings,
        load: &Load,
        can_filter: bool,
        now: Instant,
    ) -> (bool, Vec<(Level, String)>) {
        let before = self.pressure(settings);
        let was_filtered = self.is_filtering();
        let change = self.policy.tick(settings.overload.drop_share, load);
        let permitted = can_filter && settings.overload.drop_share > 0;
        let switched = self.filter.tick(load, self.policy.is_pressed(), permitted, now);
        let expired = self.committed.take_if(|(until, _)| now >= *until).is_some();
        if change == Some(Change::Down) {
            self.commit(settings, before.interval, now);
        }
        let messages = self.messages(settings, change, (before.step, was_filtered));
        (expired || change.is_some() || switched, messages)
    }

    /// Messages for the log about the changes since a second with this step, in which the filter
    /// was on or not: warnings of more overload, and information about less. A second that ends
    /// the overload has one message.
    fn messages(
        &self,
        settings: &Settings,
        change: Option<Change>,
        (former_step, was_filtered): (u32, bool),
    ) -> Vec<(Level, String)> {
        let stats::Overload { step, interval } = self.pressure(settings);
        let is_filtered = self.is_filtering();
        if step == 0 && !is_filtered && (former_step > 0 || was_filtered) {
            let text = format!(
                "overload ended: the interval is {interval} s again, and the kernel's filter is off"
            );
            return vec![(Level::Info, text)];
        }
        let mut messages = Vec::new();
        if let Some(change) = change {
            let (level, cause) = match change {
                Change::Up { lost, refused } => {
                    let cause = format!(
                        "workers are busy, {lost} % of datagrams are lost and {refused} % are \
                         refused as busy"
                    );
                    (Level::Warn, cause)
                }
                Change::Down => (Level::Info, "few datagrams are lost or refused now".to_owned()),
            };
            messages.push((level, format!("overload: {cause}; the interval is {interval} s now")));
        }
        match (was_filtered, is_filtered) {
            (false, true) => {
                let text = "the kernel's filter is on: datagrams that are no valid request are \
                            dropped";
                messages.push((Level::Warn, text.to_owned()));
            }
            (true, false) => {
                messages.push((Level::Info, "the kernel's filter is off".to_owned()));
            }
            _ => {}
        }
        messages
    }

    /// Call every second with all members. A filter that the kernel refuses is off for five
    /// minutes; returns the warning of it.
    pub fn check_filters(&mut self, members: &[Member], now: Instant) -> Option<String> {
        if !self.is_filtering() {
            return None;
        }
        let error = members.iter().find_map(|member| member.metrics.filter_refusal.get())?;
        self.filter.refuse(now);
        Some(format!(
            "the kernel refuses the filter against overload: {error}; it is tried again in {} \
             minutes: permit setsockopt with SO_ATTACH_FILTER where a sandbox forbids it, and \
             raise net.core.optmem_max where memory is short",
            filter::RETRY.as_secs() / 60
        ))
    }

    /// Whether the kernel is to have the filter.
    pub fn is_filtering(&self) -> bool {
        self.filter.is_on()
    }

    /// The current step, and the interval that it leads to.
    pub fn pressure(&self, settings: &Settings) -> stats::Overload {
        let (step, interval) = (self.policy.step(), settings.announce.interval);
        let longest = settings.overload.longest_interval.max(interval);
        let more = u64::from(longest - interval) * u64::from(step) / u64::from(STEPS);
        stats::Overload { step, interval: interval + more as u32 }
    }

    /// The configured rules, adapted to the current step and commitment.
    pub fn rules(&self, settings: &Settings, lists: &Lists) -> Rules {
        let mut rules = settings.rules(lists);
        let pressure = self.pressure(settings);
        let lifetime = lifetime(&settings.announce, pressure.interval);
        let committed = self.committed.map_or(0, |(_, lifetime)| lifetime);
        rules.set_peer_lifetime(lifetime.max(committed));
        rules.set_interval(pressure.interval);
        rules.kernel_filter = self.is_filtering();
        rules
    }

    /// Commits to `interval`, which was sent until now: the next one sent is shorter.
    pub fn commit(&mut self, settings: &Settings, interval: u32, now: Instant) {
        self.adopt(commitment_of(&settings.announce, interval), now);
    }

    /// The commitment beyond the configured interval; `None` if only that was sent.
    pub fn commitment(&self, settings: &Settings, now: Instant) -> Option<IntervalCommitment> {
        let pressure = self.pressure(settings);
        let current =
            (pressure.step > 0).then(|| commitment_of(&settings.announce, pressure.interval));
        let earlier = self.committed.map(|(until, lifetime)| {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            IntervalCommitment { lifetime, seconds: left as u32 }
        });
        match (current, earlier) {
            (Some(current), Some(earlier)) => Some(current.max(earlier)),
            (current, earlier) => current.or(earlier),
        }
    }

    /// The commitment including the configured interval, for a successor whose configuration may
    /// have a shorter one.
    pub fn full_commitment(&self, settings: &Settings, now: Instant) -> IntervalCommitment {
        let configured = commitment_of(&settings.announce, settings.announce.interval);
        self.commitment(settings, now).map_or(configured, |more| more.max(configured))
    }

    /// Adds a commitment, of this process or of its predecessor.
    pub fn adopt(&mut self, commitment: IntervalCommitment, now: Instant) {
        let IntervalCommitment { lifetime, seconds } = commitment;
        let (until, committed) = self.committed.unwrap_or((now, 0));
        let until = until.max(now + Duration::from_secs(seconds.into()));
        self.committed = Some((until, committed.max(lifetime.min(LONGEST_LIFETIME))));
    }
}

/// The longest wait, in seconds, of a client that was sent `interval` with jitter.
fn longest_wait(announce: &AnnounceSettings, interval: u32) -> u32 {
    let longest = u64::from(interval) * u64::from(100 + announce.interval_jitter_percent) / 100;
    u32::try_from(longest).unwrap_or(u32::MAX)
}

/// The lifetime, in seconds, of peers that were sent `interval`: the configured one in proportion,
/// up to [`LONGEST_LIFETIME`].
fn lifetime(announce: &AnnounceSettings, interval: u32) -> u32 {
    let scaled =
        u64::from(announce.peer_lifetime) * u64::from(interval) / u64::from(announce.interval);
    scaled.clamp(announce.peer_lifetime.into(), LONGEST_LIFETIME.into()) as u32
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use onrush_tracker::member::Role;
    use std::sync::Arc;

    /// An [`Overload`] with a clock and counters that the test advances.
    struct Fixture {
        settings: Settings,
        overload: Overload,
        now: Instant,
        messages: Vec<(Level, String)>,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let settings = Settings::for_test(text);
            let (overload, now) = (Overload::default(), Instant::now());
            Self { settings, overload, now, messages: Vec::new() }
        }

        /// Advances by `seconds`, each with 10,000 datagrams, of which busy workers lose `percent`.
        fn seconds(&mut self, seconds: u32, percent: u64) {
            let lost = 100 * percent;
            let load =
                Load { received: 10_000 - lost, lost, lost_by_busy: lost, ..Load::default() };
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let (_, messages) = self.overload.tick(&self.settings, &load, true, self.now);
                self.messages.extend(messages);
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
        assert_eq!((calm.announce.interval, calm.shard.peer_lifetime), (1800, 3600));
        fixture.seconds(60, 4);
        assert!(fixture.messages.is_empty() && !fixture.rules().kernel_filter);
        fixture.seconds(5, 20);
        let rules = fixture.rules();
        assert_eq!((rules.announce.interval, rules.shard.interval), (2250, 2250));
        assert_eq!((rules.announce.peer_lifetime, rules.shard.peer_lifetime), (4500, 4500));
        let (level, text) = &fixture.messages[0];
        assert!(*level == Level::Warn && text.contains("the interval is 2250 s now"), "{text}");
        fixture.seconds(100, 90);
        let rules = fixture.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (5400, 10_800));
        assert_eq!(fixture.messages.len(), 9, "a line for each step and for the filter");
        assert!(rules.kernel_filter);
        assert_eq!(fixture.overload.pressure(&fixture.settings).step, 8);
    }

    #[test]
    fn recovery_is_no_warning_and_its_end_is_one_line() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        fixture.seconds(100, 90);
        let rise = std::mem::take(&mut fixture.messages);
        assert!(rise.iter().all(|(level, _)| *level == Level::Warn), "{rise:?}");
        fixture.seconds(8 * 40, 0);
        let recovery = fixture.messages;
        assert!(recovery.iter().all(|(level, _)| *level == Level::Info), "{recovery:?}");
        let is_end = |(_, text): &&(Level, String)| text.contains(" 1800 s");
        assert_eq!(recovery.iter().filter(is_end).count(), 1, "{recovery:?}");
        let (_, last) = recovery.last().unwrap();
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
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (1800, 7200));
        fixture.seconds(3600 * 21 / 20, 0);
        assert_eq!(fixture.rules().shard.peer_lifetime, 3600);
    }

    /// A successor adopts the commitment during the overload, or after it.
    #[test]
    fn a_successor_keeps_the_commitment() {
        let text = "[overload]\nlongest_interval = 3600\n";
        let mut fixture = Fixture::new(text);
        let commitment =
            |fixture: &Fixture| fixture.overload.commitment(&fixture.settings, fixture.now);
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
        let full =
            |fixture: &Fixture| fixture.overload.full_commitment(&fixture.settings, fixture.now);
        assert_eq!(full(&fixture), left);
        let configured = IntervalCommitment { lifetime: 3600, seconds: 1890 };
        assert_eq!(full(&Fixture::new(text)), configured);
        let mut successor = Fixture::new(text);
        successor.overload.adopt(left, successor.now);
        let rules = successor.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (1800, 7200));
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
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (43_200, 65_536));
    }

    #[test]
    fn a_refused_filter_is_warned_of_once_and_tried_again_after_minutes() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        let members = [0, 1].map(|nth| Member::new(Role::Both, nth, Arc::default()));
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        fixture.seconds(5, 90);
        assert!(fixture.overload.is_filtering() && fixture.rules().kernel_filter);
        let enomem = io::Error::from_raw_os_error(12);
        members[1].metrics.filter_refusal.set(Some(&enomem));
        let warning = fixture.overload.check_filters(&members, fixture.now).unwrap();
        assert!(warning.contains("os error 12") && warning.contains("net.core.optmem_max"));
        assert!(!fixture.overload.is_filtering(), "drops of this second are not the filter's");
        fixture.seconds(100, 90);
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        assert!(!fixture.overload.is_filtering() && !fixture.rules().kernel_filter);
        assert_eq!(fixture.overload.pressure(&fixture.settings).interval, 3600);
        // The worker has removed what it has.
        members[1].metrics.filter_refusal.set(None);
        fixture.seconds(300, 90);
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        assert!(fixture.overload.is_filtering() && fixture.rules().kernel_filter);
    }

    #[test]
    fn a_drop_share_of_zero_disables_both_measures() {
        let mut fixture = Fixture::new("[overload]\ndrop_share = 0\n");
        fixture.seconds(100, 90);
        assert!(fixture.messages.is_empty());
        let rules = fixture.rules();
        assert_eq!((rules.announce.interval, rules.kernel_filter), (1800, false));
    }
}
