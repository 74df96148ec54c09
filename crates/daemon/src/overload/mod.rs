//! Load shedding in a chosen order, in place of random drops by the kernel. While more than a
//! configured share of datagrams is dropped, clients get a longer interval, and connects of
//! unproven sources are answered only part of the time, so that fewer announces of known clients
//! are dropped.
//!
//! | module | contents |
//! |---|---|
//! | [`advertised_interval`] | the longer intervals sent, kept over a restart |
//! | [`policy`] | from counters to the step of shedding |
//! | [`onrush_tracker::shedding`] | whose connects are answered |

pub mod advertised_interval;
pub mod policy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use onrush_config::Settings;
use onrush_control::api::stats;
use onrush_tracker::access::Lists;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::rules::Rules;
use onrush_tracker::shedding::{ProvenSources, SLOTS, Shedding};
use policy::{Change, Policy};

/// Upper bound of a peer's lifetime, seconds: the range of a stored age.
const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;
/// Lower bound of the [`SLOTS`] parts of the time in which new sources are answered. With a quarter
/// of the time, three of four clients get through by their fourth connect, within two minutes.
const LEAST_OPEN: u32 = 2;

/// The supervisor's side of load shedding. In the beginning without shedding and commitments.
#[derive(Debug, Default)]
pub struct Overload {
    policy: Policy,
    /// Sources that have proven their address, and when their generation began; created at the
    /// first step.
    known: Option<(Arc<ProvenSources>, Instant)>,
    /// End of the commitment to longer intervals sent before, and its peer lifetime in seconds.
    committed: Option<(Instant, u32)>,
}

/// Clients were sent a longer interval: until they have announced again, their peers must not
/// expire. A successor and a restarted tracker keep the commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalCommitment {
    /// Lower bound of the peer lifetime, seconds.
    pub lifetime: u32,
    /// Seconds from now until the last of these clients is due.
    pub seconds: u32,
}

impl IntervalCommitment {
    /// The commitment to clients that were sent `interval`.
    fn of(announce: &AnnounceSettings, interval: u32) -> Self {
        let lifetime = lifetime(announce, interval);
        Self { lifetime, seconds: longest_wait(announce, interval) }
    }

    /// The commitment that includes both.
    fn max(self, other: Self) -> Self {
        Self {
            lifetime: self.lifetime.max(other.lifetime),
            seconds: self.seconds.max(other.seconds),
        }
    }
}

impl Overload {
    /// Call every second with the datagrams received and dropped by the kernel since the start.
    /// Returns whether rules have changed, and a message for the log.
    pub fn tick(
        &mut self,
        settings: &Settings,
        received: u64,
        dropped: u64,
        now: Instant,
    ) -> (bool, Option<String>) {
        let before = self.pressure(settings);
        let change = self.policy.tick(settings.overload.drop_share, received, dropped);
        let after = self.pressure(settings);
        let expired = self.committed.take_if(|(until, _)| now >= *until).is_some();
        let cause = match change {
            None => {
                self.renew_known(after.interval, now);
                return (expired, None);
            }
            Some(Change::Up(share)) => {
                let peers = settings.limits.peers;
                self.known.get_or_insert_with(|| (Arc::new(ProvenSources::new(peers)), now));
                format!("{share} % of the datagrams of the last seconds were dropped")
            }
            Some(Change::Down) => {
                self.commit(settings, before.interval, now);
                if after.step == 0 {
                    self.known = None;
                }
                "few datagrams are dropped now".to_owned()
            }
        };
        let message = format!(
            "overload: {cause}; the interval is {} s now, and connects of new sources are answered \
             in {} of {SLOTS} parts of the time",
            after.interval,
            open(after.step),
        );
        (true, Some(message))
    }

    /// The current step, and the interval that it leads to.
    pub fn pressure(&self, settings: &Settings) -> stats::Overload {
        let (step, interval) = (self.policy.step(), settings.announce.interval);
        let longest = settings.overload.longest_interval.max(interval);
        let more = u64::from(longest - interval) * u64::from(step) / u64::from(SLOTS);
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
        rules.shedding = match (&self.known, pressure.step) {
            (Some((known, _)), 1..) => Some(Shedding::new(known.clone(), open(pressure.step))),
            _ => None,
        };
        rules
    }

    /// Commits to `interval`, which was sent until now: the next one sent is shorter.
    pub fn commit(&mut self, settings: &Settings, interval: u32, now: Instant) {
        self.adopt(IntervalCommitment::of(&settings.announce, interval), now);
    }

    /// The commitment beyond the configured interval; `None` if only that was sent.
    pub fn commitment(&self, settings: &Settings, now: Instant) -> Option<IntervalCommitment> {
        let pressure = self.pressure(settings);
        let current = (pressure.step > 0)
            .then(|| IntervalCommitment::of(&settings.announce, pressure.interval));
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
        let configured = IntervalCommitment::of(&settings.announce, settings.announce.interval);
        self.commitment(settings, now).map_or(configured, |more| more.max(configured))
    }

    /// Adds a commitment, of this process or of its predecessor.
    pub fn adopt(&mut self, commitment: IntervalCommitment, now: Instant) {
        let IntervalCommitment { lifetime, seconds } = commitment;
        let (until, committed) = self.committed.unwrap_or((now, 0));
        let until = until.max(now + Duration::from_secs(seconds.into()));
        self.committed = Some((until, committed.max(lifetime.min(LONGEST_LIFETIME))));
    }

    /// Removes sources that have not proven their address within the interval, and earlier where
    /// the filter is so full that unknown sources would pass.
    fn renew_known(&mut self, interval: u32, now: Instant) {
        let generation = Duration::from_secs(u64::from(interval) * 5 / 4);
        if let Some((known, since)) = &mut self.known
            && (now.duration_since(*since) >= generation || known.is_crowded())
        {
            known.start_generation();
            *since = now;
        }
    }
}

/// Parts of the time, of [`SLOTS`], in which connects of new sources are answered.
fn open(step: u32) -> u32 {
    (SLOTS - step).max(LEAST_OPEN)
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

    /// An [`Overload`] with a clock and counters that the test advances.
    struct Fixture {
        settings: Settings,
        overload: Overload,
        now: Instant,
        received: u64,
        dropped: u64,
        messages: Vec<String>,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let settings = Settings::for_test(text);
            let (overload, now) = (Overload::default(), Instant::now());
            Self { settings, overload, now, received: 0, dropped: 0, messages: Vec::new() }
        }

        /// Advances by `seconds`, each with 10,000 datagrams of which `percent` are dropped.
        fn seconds(&mut self, seconds: u32, percent: u64) {
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.dropped += 100 * percent;
                self.received += 100 * (100 - percent);
                let (_, message) =
                    self.overload.tick(&self.settings, self.received, self.dropped, self.now);
                self.messages.extend(message);
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
        assert_eq!(rules.shedding.as_ref().map(Shedding::open), Some(7));
        assert!(
            fixture.messages[0].contains("the interval is 2250 s now"),
            "{:?}",
            fixture.messages
        );
        assert!(fixture.messages[0].contains("answered in 7 of 8 parts"), "{:?}", fixture.messages);
        fixture.seconds(100, 90);
        let rules = fixture.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (5400, 10_800));
        assert_eq!(rules.shedding.as_ref().map(Shedding::open), Some(2));
        assert_eq!(fixture.messages.len(), 8, "a line for each step");
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
    fn a_drop_share_of_zero_disables_shedding() {
        let mut fixture = Fixture::new("[overload]\ndrop_share = 0\n");
        fixture.seconds(100, 90);
        assert!(fixture.messages.is_empty());
        assert_eq!(fixture.rules().announce.interval, 1800);
    }
}
