//! What happens when there is more to do than the host can: not whatever the kernel drops, but what is decided
//! here. Past a configured share of dropped datagrams clients are told to come back later, and connects of sources
//! that have not proven themselves since are answered in some of the time only, so that what is dropped is not the
//! announce of a client that has its id already.
//!
//! | room | what is in it |
//! |---|---|
//! | [`advertised_interval`] | what clients were told outlives the process |
//! | [`policy`] | from counters and time to how hard it is pressed |
//! | [`onrush_tracker::shedding`] | whose connects are answered then |

pub mod advertised_interval;
pub mod policy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use onrush_config::settings::{OverloadSettings, Settings};
use onrush_control::view::Pressure;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::rules::Rules;
use onrush_tracker::shedding::{ProvenSources, SLOTS, Shedding};
use policy::{Change, Policy};

/// The longest that a peer can be remembered, seconds.
const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;
/// In how many parts of the time new sources are answered at least: with a quarter of it, three of four clients
/// get through by the fourth time that they ask, within two minutes.
const LEAST_OPEN: u32 = 2;

/// The main thread's part in it.
#[derive(Debug)]
pub struct Overload {
    policy: Policy,
    /// Made with the first pressure.
    known: Option<Arc<ProvenSources>>,
    generation_at: Instant,
    /// Clients were told of a longer interval: peers have to be remembered for longer until this time.
    held: Option<(Instant, u32)>,
}

/// What clients were told under pressure, and a process that follows has to keep: for so many seconds from now on
/// peers are remembered for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// Seconds after their last announce.
    pub lifetime: u32,
    /// Seconds until all who were told so have come back, or could have.
    pub seconds: u32,
}

impl Promise {
    /// Both.
    fn and(self, other: Self) -> Self {
        Self {
            lifetime: self.lifetime.max(other.lifetime),
            seconds: self.seconds.max(other.seconds),
        }
    }
}

impl Overload {
    /// Of a tracker that starts.
    pub fn new(now: Instant) -> Self {
        Self { policy: Policy::default(), known: None, generation_at: now, held: None }
    }

    /// To be called once a second with what was received and what the kernel dropped since the start. Returns
    /// whether rules have to be made anew, and what to say.
    pub fn second(
        &mut self,
        settings: &Settings,
        received: u64,
        dropped: u64,
        now: Instant,
    ) -> (bool, Option<String>) {
        let Settings { overload, announce, .. } = settings;
        let peers = settings.limits.peers;
        let before = self.pressure(overload, announce);
        let change = self.policy.second(overload.drop_share, received, dropped);
        let after = self.pressure(overload, announce);
        let ended = self.held.take_if(|(until, _)| now >= *until).is_some();
        match change {
            None => {
                self.renew(after.interval, now);
                (ended, None)
            }
            Some(Change::Harder(share)) => {
                if self.known.is_none() {
                    (self.known, self.generation_at) =
                        (Some(Arc::new(ProvenSources::new(peers))), now);
                }
                let what = format!(
                    "overload: {share} % of the datagrams of the last seconds were dropped; the interval is \
                     {} s now, and connects of new sources are answered in {} of {SLOTS} parts of the time",
                    after.interval,
                    open(after.step),
                );
                (true, Some(what))
            }
            Some(Change::Easier) => {
                self.hold(announce, before.interval, now);
                if after.step == 0 {
                    self.known = None;
                }
                let what = format!(
                    "overload: hardly anything is dropped any more; the interval is {} s now, and connects of \
                     new sources are answered in {} of {SLOTS} parts of the time",
                    after.interval,
                    open(after.step),
                );
                (true, Some(what))
            }
        }
    }

    /// How hard it is pressed.
    pub fn pressure(&self, overload: &OverloadSettings, announce: &AnnounceSettings) -> Pressure {
        let step = self.policy.step();
        let longest = overload.longest_interval.max(announce.interval);
        let more = u64::from(longest - announce.interval) * u64::from(step) / u64::from(SLOTS);
        Pressure { step, interval: announce.interval + more as u32 }
    }

    /// Changes `rules` to what holds under pressure.
    pub fn press(&self, overload: &OverloadSettings, rules: &mut Rules) {
        let pressure = self.pressure(overload, &rules.announce);
        let lifetime = lifetime(&rules.announce, pressure.interval);
        let held = self.held.map_or(0, |(_, lifetime)| lifetime);
        rules.set_peer_lifetime(lifetime.max(held));
        rules.set_interval(pressure.interval);
        rules.shedding = match (&self.known, pressure.step) {
            (Some(known), 1..) => Some(Shedding::new(known.clone(), open(pressure.step))),
            _ => None,
        };
    }

    /// Peers that were told to come back after `interval` are remembered for as long, though others are told
    /// of a shorter one from now on.
    pub fn hold(&mut self, announce: &AnnounceSettings, interval: u32, now: Instant) {
        let seconds = longest_wait(announce, interval);
        self.keep(Promise { lifetime: lifetime(announce, interval), seconds }, now);
    }

    /// What was told to clients beyond what is configured; `None` where nothing was.
    pub fn promise(
        &self,
        overload: &OverloadSettings,
        announce: &AnnounceSettings,
        now: Instant,
    ) -> Option<Promise> {
        let pressure = self.pressure(overload, announce);
        let told = (pressure.step > 0).then(|| Promise {
            lifetime: lifetime(announce, pressure.interval),
            seconds: longest_wait(announce, pressure.interval),
        });
        let held = self.held.map(|(until, lifetime)| {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            Promise { lifetime, seconds: left as u32 }
        });
        match (told, held) {
            (Some(told), Some(held)) => Some(told.and(held)),
            (told, held) => told.or(held),
        }
    }

    /// What was told to clients, as configured or beyond that: for a process that may be configured otherwise.
    pub fn whole_promise(
        &self,
        overload: &OverloadSettings,
        announce: &AnnounceSettings,
        now: Instant,
    ) -> Promise {
        let usual = Promise {
            lifetime: announce.peer_lifetime,
            seconds: longest_wait(announce, announce.interval),
        };
        self.promise(overload, announce, now).map_or(usual, |promise| promise.and(usual))
    }

    /// Keeps what a process before this one has promised.
    pub fn keep(&mut self, promise: Promise, now: Instant) {
        let Promise { lifetime, seconds } = promise;
        let (until, held) = self.held.unwrap_or((now, 0));
        let until = until.max(now + Duration::from_secs(seconds.into()));
        self.held = Some((until, held.max(lifetime.min(LONGEST_LIFETIME))));
    }

    /// Forgets sources that have not proven themselves for longer than they are told to wait, and sooner where
    /// there are so many that strangers would be taken for them.
    fn renew(&mut self, interval: u32, now: Instant) {
        let generation = Duration::from_secs(u64::from(interval) * 5 / 4);
        if let Some(known) = &self.known
            && (now.duration_since(self.generation_at) >= generation || known.is_crowded())
        {
            known.start_generation();
            self.generation_at = now;
        }
    }
}

/// In how many parts of the time connects of new sources are answered.
fn open(step: u32) -> u32 {
    (SLOTS - step).max(LEAST_OPEN)
}

/// The longest that a client waits that is told to wait for `interval`.
fn longest_wait(announce: &AnnounceSettings, interval: u32) -> u32 {
    let longest = u64::from(interval) * u64::from(100 + announce.interval_jitter_percent) / 100;
    u32::try_from(longest).unwrap_or(u32::MAX)
}

/// How long peers are remembered that are told to wait for `interval`: longer than configured by as much as the
/// interval is, and where that cannot be, as long as can be.
fn lifetime(announce: &AnnounceSettings, interval: u32) -> u32 {
    let scaled =
        u64::from(announce.peer_lifetime) * u64::from(interval) / u64::from(announce.interval);
    scaled.clamp(announce.peer_lifetime.into(), LONGEST_LIFETIME.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::file::Config;
    use onrush_config::flags::Flags;
    use onrush_config::settings::Host;
    use onrush_tracker::access::Lists;

    /// A tracker's main thread, with a clock and counters that the test moves.
    struct Pressed {
        settings: Settings,
        overload: Overload,
        now: Instant,
        received: u64,
        dropped: u64,
        said: Vec<String>,
    }

    impl Pressed {
        fn new(text: &str) -> Self {
            let host = Host { vcpus: vec![0], ..Host::default() };
            let config = Config::parse("test.toml", text);
            let (settings, _) = Settings::resolve(config, &Flags::default(), &host).unwrap();
            let now = Instant::now();
            let overload = Overload::new(now);
            Self { settings, overload, now, received: 0, dropped: 0, said: Vec::new() }
        }

        /// So many seconds, each with 10,000 datagrams of which so many percent are dropped.
        fn seconds(&mut self, seconds: u32, percent: u64) {
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                self.dropped += 100 * percent;
                self.received += 100 * (100 - percent);
                let second =
                    self.overload.second(&self.settings, self.received, self.dropped, self.now);
                self.said.extend(second.1);
            }
        }

        fn rules(&self) -> Rules {
            let mut rules = self.settings.rules(&Lists::open());
            self.overload.press(&self.settings.overload, &mut rules);
            rules
        }
    }

    #[test]
    fn under_pressure_the_interval_grows_and_peers_live_longer() {
        let mut pressed = Pressed::new("[overload]\ndrop_share = 5\nlongest_interval = 5400\n");
        let calm = pressed.rules();
        assert_eq!((calm.announce.interval, calm.shard.peer_lifetime), (1800, 3600));
        pressed.seconds(60, 4);
        assert!(pressed.said.is_empty() && pressed.rules().shedding.is_none());
        pressed.seconds(5, 20);
        let rules = pressed.rules();
        assert_eq!((rules.announce.interval, rules.shard.interval), (2250, 2250));
        assert_eq!((rules.announce.peer_lifetime, rules.shard.peer_lifetime), (4500, 4500));
        assert_eq!(rules.shedding.as_ref().map(Shedding::open), Some(7));
        assert!(pressed.said[0].contains("the interval is 2250 s now"), "{:?}", pressed.said);
        assert!(pressed.said[0].contains("answered in 7 of 8 parts"), "{:?}", pressed.said);
        pressed.seconds(100, 90);
        let rules = pressed.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (5400, 10_800));
        assert_eq!(rules.shedding.as_ref().map(Shedding::open), Some(2));
        assert_eq!(pressed.said.len(), 8, "a line for each step");
    }

    #[test]
    fn who_was_told_to_wait_longer_is_remembered_for_as_long() {
        let mut pressed = Pressed::new("[overload]\nlongest_interval = 3600\n");
        pressed.seconds(100, 90);
        assert_eq!(pressed.rules().shard.peer_lifetime, 7200);
        // Down again, a step at a time.
        pressed.seconds(8 * 40, 0);
        let rules = pressed.rules();
        assert!(rules.shedding.is_none());
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (1800, 7200));
        pressed.seconds(3600 * 21 / 20, 0);
        assert_eq!(pressed.rules().shard.peer_lifetime, 3600);
    }

    /// One process follows another, before or after the pressure has gone.
    #[test]
    fn what_was_promised_is_kept_by_who_follows() {
        let text = "[overload]\nlongest_interval = 3600\n";
        let mut pressed = Pressed::new(text);
        let promise = |pressed: &Pressed| {
            let Settings { overload, announce, .. } = &pressed.settings;
            pressed.overload.promise(overload, announce, pressed.now)
        };
        assert_eq!(promise(&pressed), None);
        pressed.seconds(100, 90);
        assert_eq!(promise(&pressed), Some(Promise { lifetime: 7200, seconds: 3780 }));
        pressed.seconds(8 * 40, 0);
        let left = promise(&pressed).unwrap();
        assert!(left.lifetime == 7200 && (3400..3780).contains(&left.seconds), "{left:?}");
        // What is configured is told too: the one that follows may be configured otherwise.
        let whole = |pressed: &Pressed| {
            let Settings { overload, announce, .. } = &pressed.settings;
            pressed.overload.whole_promise(overload, announce, pressed.now)
        };
        assert_eq!(whole(&pressed), left);
        let usual = Promise { lifetime: 3600, seconds: 1890 };
        assert_eq!(whole(&Pressed::new(text)), usual);
        let mut follower = Pressed::new(text);
        follower.overload.keep(left, follower.now);
        let rules = follower.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (1800, 7200));
        assert_eq!(promise(&follower).unwrap().lifetime, 7200, "a third one keeps it too");
        follower.seconds(left.seconds + 1, 0);
        assert_eq!((follower.rules().shard.peer_lifetime, promise(&follower)), (3600, None));
    }

    #[test]
    fn no_lifetime_is_longer_than_can_be_stored() {
        let config = "[announce]\ninterval = 30000\n[overload]\nlongest_interval = 43200\n";
        let mut pressed = Pressed::new(config);
        pressed.seconds(100, 90);
        let rules = pressed.rules();
        assert_eq!((rules.announce.interval, rules.shard.peer_lifetime), (43_200, 65_536));
    }

    #[test]
    fn a_share_of_zero_switches_it_off() {
        let mut pressed = Pressed::new("[overload]\ndrop_share = 0\n");
        pressed.seconds(100, 90);
        assert!(pressed.said.is_empty());
        assert_eq!(pressed.rules().announce.interval, 1800);
    }
}
