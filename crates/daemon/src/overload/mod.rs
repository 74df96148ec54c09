//! Load shedding in a chosen order, in place of random drops by the kernel. While busy workers lose
//! more than a configured share of datagrams, clients get a longer interval, and the kernel drops
//! what is no request and, in a flood of connects, the connects of a share of all sources, so that
//! fewer announces are lost.
//!
//! | module | contents |
//! |---|---|
//! | [`losses`] | why the kernel dropped datagrams |
//! | [`load`] | the load of a second |
//! | [`policy`] | from the load to the step of overload |
//! | [`connect_share`] | from the load to the share of sources whose connects are answered |
//! | [`onrush_tracker::shedding`] | the filter that the kernel gets |

pub mod connect_share;
pub mod load;
pub mod losses;
pub mod policy;

use std::io;
use std::time::{Duration, Instant};

use log::Level;
use onrush_config::Settings;
use onrush_control::api::stats;
use onrush_replica::handoff::IntervalCommitment;
use onrush_tracker::access::Lists;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::member::Member;
use onrush_tracker::rules::Rules;
use onrush_tracker::shedding::Shedding;

use connect_share::ConnectShare;
use load::Load;
use policy::{Change, Policy, STEPS};

/// From a filter that the kernel refuses until the next one is tried: memory may have been short.
const FILTER_RETRY: Duration = Duration::from_secs(5 * 60);
/// Upper bound of a peer's lifetime, seconds: the range of a stored age.
pub(crate) const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;

/// The supervisor's side of load shedding. In the beginning without shedding and commitments.
#[derive(Debug)]
pub struct Overload {
    policy: Policy,
    connects: ConnectShare,
    /// The filter, with the key by which the sources of a share are chosen.
    shedding: Shedding,
    /// The kernel has refused a filter at a socket: none is tried until then.
    filter_refused: Option<Instant>,
    /// End of the commitment to longer intervals sent before, and its peer lifetime in seconds.
    committed: Option<(Instant, u32)>,
}

/// The commitment to clients that were sent `interval`.
fn commitment_of(announce: &AnnounceSettings, interval: u32) -> IntervalCommitment {
    let lifetime = lifetime(announce, interval);
    IntervalCommitment { lifetime, seconds: longest_wait(announce, interval) }
}

impl Default for Overload {
    fn default() -> Self {
        let (policy, connects) = (Policy::default(), ConnectShare::default());
        let shedding = Shedding::with_random_key();
        Self { policy, connects, shedding, filter_refused: None, committed: None }
    }
}

impl Overload {
    /// Call every second with its load, and whether datagrams that the kernel's filter drops can be
    /// told from losses. Returns whether rules have changed, and messages for the log.
    pub fn tick(
        &mut self,
        settings: &Settings,
        load: &Load,
        can_shed: bool,
        now: Instant,
    ) -> (bool, Vec<(Level, String)>) {
        let before = self.pressure(settings);
        let was_shed = self.is_shedding();
        let change = self.policy.tick(settings.overload.drop_share, load);
        self.filter_refused.take_if(|until| now >= *until);
        let can_shed = can_shed && self.filter_refused.is_none();
        let changed_share = match can_shed && settings.overload.drop_share > 0 {
            true => self.connects.tick(load, self.policy.is_pressed()),
            false => self.connects.stop(),
        };
        let expired = self.committed.take_if(|(until, _)| now >= *until).is_some();
        if change == Some(Change::Down) {
            self.commit(settings, before.interval, now);
        }
        let messages = self.messages(settings, change, (before.step, was_shed));
        (expired || change.is_some() || changed_share, messages)
    }

    /// What has changed since a second with this step, in which load was shed or not, for the log:
    /// warnings of more overload, and information about less. A second that ends the overload has
    /// one message.
    fn messages(
        &self,
        settings: &Settings,
        change: Option<Change>,
        (former_step, was_shed): (u32, bool),
    ) -> Vec<(Level, String)> {
        let stats::Overload { step, interval, connect_share } = self.pressure(settings);
        let is_shed = self.is_shedding();
        if step == 0 && !is_shed && (former_step > 0 || was_shed) {
            let text = format!(
                "overload ended: the interval is {interval} s again, and all connects are answered"
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
            let text = format!(
                "overload: {cause}; the interval is {interval} s now, and connects of {:.0} % of \
                 all sources are answered",
                connect_share * 100.0,
            );
            messages.push((level, text));
        }
        match (was_shed, is_shed) {
            (false, true) => {
                let text = "load shedding begins: the kernel drops what is no request, and, in a \
                            flood of connects, connects of a part of all sources";
                messages.push((Level::Warn, text.to_owned()));
            }
            (true, false) => messages.push((Level::Info, "load shedding ends".to_owned())),
            _ => {}
        }
        messages
    }

    /// Call every second with all members. After a filter that the kernel refuses no load is shed
    /// for five minutes; returns the warning of it.
    pub fn check_filters(&mut self, members: &[Member], now: Instant) -> Option<String> {
        let mut errors = members.iter().map(|member| member.metrics.filter_error.get());
        let number = errors.find(|number| *number != 0 && self.is_shedding())?;
        self.filter_refused = Some(now + FILTER_RETRY);
        let error = io::Error::from_raw_os_error(number as i32);
        Some(format!(
            "the kernel refuses the filter for load shedding: {error}; no load is shed for {} \
             minutes: permit setsockopt with SO_ATTACH_FILTER where a sandbox forbids it, and \
             raise net.core.optmem_max where memory is short",
            FILTER_RETRY.as_secs() / 60
        ))
    }

    /// Whether the kernel is to drop datagrams.
    pub fn is_shedding(&self) -> bool {
        self.connects.get().is_some() && self.filter_refused.is_none()
    }

    /// The current step, the interval that it leads to, and the share of connects.
    pub fn pressure(&self, settings: &Settings) -> stats::Overload {
        let (step, interval) = (self.policy.step(), settings.announce.interval);
        let longest = settings.overload.longest_interval.max(interval);
        let more = u64::from(longest - interval) * u64::from(step) / u64::from(STEPS);
        let connect_share = self.connects.get().unwrap_or(1.0);
        stats::Overload { step, interval: interval + more as u32, connect_share }
    }

    /// The configured rules, adapted to the current step and commitment.
    pub fn rules(&self, settings: &Settings, lists: &Lists) -> Rules {
        let mut rules = settings.rules(lists);
        let pressure = self.pressure(settings);
        let lifetime = lifetime(&settings.announce, pressure.interval);
        let committed = self.committed.map_or(0, |(_, lifetime)| lifetime);
        rules.set_peer_lifetime(lifetime.max(committed));
        rules.set_interval(pressure.interval);
        rules.shedding = self.connects.get().map(|share| self.shedding.with_share(share));
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

        /// Advances by `seconds`, each with 10,000 datagrams, nine tenths of them connects, of
        /// which the filter lets its share pass. Without it busy workers lose `percent` of all.
        fn seconds(&mut self, seconds: u32, percent: u64) {
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let passed = (9_000.0 * self.overload.connects.get().unwrap_or(1.0)) as u64;
                let arrived = 1_000 + passed;
                let received = arrived.min(100 * (100 - percent));
                let lost = arrived - received;
                let load = Load {
                    received,
                    lost,
                    lost_by_busy: lost,
                    connects: received * passed / arrived,
                    shed: 9_000 - passed,
                    ..Load::default()
                };
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
        assert!(fixture.messages.is_empty() && fixture.rules().shedding.is_none());
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
        let share = rules.shedding.map(|shedding| shedding.share());
        assert!(share.is_some_and(|share| share < 0.3), "{share:?}");
        let shown = fixture.overload.pressure(&fixture.settings);
        assert_eq!((shown.step, Some(shown.connect_share)), (8, share));
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
        assert!(rules.shedding.is_none());
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
    fn a_refused_filter_is_warned_of_once_and_ends_load_shedding_for_minutes() {
        let mut fixture = Fixture::new("[overload]\nlongest_interval = 3600\n");
        let members = [0, 1].map(|nth| Member::new(Role::Both, nth, Arc::default()));
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        fixture.seconds(5, 90);
        assert!(fixture.overload.is_shedding() && fixture.rules().shedding.is_some());
        let enomem = 12;
        members[1].metrics.filter_error.set(enomem);
        let warning = fixture.overload.check_filters(&members, fixture.now).unwrap();
        assert!(warning.contains("os error 12") && warning.contains("net.core.optmem_max"));
        assert!(!fixture.overload.is_shedding(), "drops of this second are not the filter's");
        fixture.seconds(100, 90);
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        assert!(!fixture.overload.is_shedding() && fixture.rules().shedding.is_none());
        let shown = fixture.overload.pressure(&fixture.settings);
        assert_eq!((shown.interval, shown.connect_share.to_bits()), (3600, 1f64.to_bits()));
        // The worker has removed what it has.
        members[1].metrics.filter_error.set(0);
        fixture.seconds(300, 90);
        assert_eq!(fixture.overload.check_filters(&members, fixture.now), None);
        assert!(fixture.overload.is_shedding() && fixture.rules().shedding.is_some());
    }

    #[test]
    fn a_drop_share_of_zero_disables_shedding() {
        let mut fixture = Fixture::new("[overload]\ndrop_share = 0\n");
        fixture.seconds(100, 90);
        assert!(fixture.messages.is_empty());
        assert_eq!(fixture.rules().announce.interval, 1800);
    }
}
