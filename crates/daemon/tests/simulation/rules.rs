//! The rules of a simulated tracker, as a reload or a change of the list sets them.

use std::sync::Arc;

use onrush_config::Settings;
use onrush_proto::InfoHash;
use onrush_tracker::access::overlay::{ListChange, OverlaySet};
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, Lists};
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::rules::Rules;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::peers::{SWARMS, swarm};

/// Settings that may change at run time.
#[derive(Clone)]
pub(crate) struct RuleSet {
    pub(crate) announce: AnnounceSettings,
    pub(crate) max_hashes: usize,
    pub(crate) access: Arc<AccessList>,
}

impl RuleSet {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (announce, max_hashes) = (settings.announce.clone(), settings.scrape.max_hashes);
        Self { announce, max_hashes, access: Arc::new(AccessList::Open) }
    }

    /// The rules of a tracker with `settings`.
    pub(crate) fn rules(&self, settings: &Settings) -> Rules {
        let mut settings = settings.clone();
        settings.announce = self.announce.clone();
        settings.scrape.max_hashes = self.max_hashes;
        settings.rules(&Lists { access: self.access.clone(), ..Lists::open() })
    }

    /// Draws what a reload sets.
    pub(crate) fn draw(&mut self, rng: &mut SmallRng) {
        self.announce.interval = rng.random_range(40..=100);
        self.announce.interval_jitter_percent = rng.random_range(0..=10);
        self.announce.peer_lifetime = rng.random_range(180..=300);
        self.announce.default_peers = rng.random_range(0..=60);
        self.announce.max_peers_v4 = rng.random_range(1..=200);
        self.announce.max_peers_v6 = rng.random_range(1..=67);
        self.max_hashes = [1, 10, 74][rng.random_range(0..3)];
        if rng.random_bool(0.5) {
            self.access = Arc::new(draw_list(rng));
        }
    }
}

impl RuleSet {
    /// Adds info hashes to the list and removes others, unless there is no list or nothing would be
    /// left of an allow list. Returns the changes.
    pub(crate) fn change_list(
        &mut self,
        share: f64,
        rng: &mut SmallRng,
    ) -> Option<Vec<ListChange>> {
        let set = self.access.set()?;
        let drawn = (0..SWARMS).map(swarm).filter(|_| rng.random_bool(share));
        let change = |info_hash| ListChange::new(info_hash, !set.contains(&info_hash));
        let changes: Vec<_> = drawn.map(change).collect();
        let list = self.access.with(&changes);
        if list.is_empty() && matches!(list, AccessList::Allow(_)) {
            return None;
        }
        self.access = Arc::new(list);
        Some(changes)
    }
}

fn draw_list(rng: &mut SmallRng) -> AccessList {
    let share = rng.random_range(0.0..1.0);
    let hashes: Vec<InfoHash> = (0..SWARMS).filter(|_| rng.random_bool(share)).map(swarm).collect();
    let listed = OverlaySet::new(InfoHashSet::new(hashes.iter().map(|hash| hash.0).collect()));
    match rng.random_range(0..3) {
        0 => AccessList::Open,
        1 => AccessList::Deny(listed),
        _ if listed.is_empty() => AccessList::Open,
        _ => AccessList::Allow(listed),
    }
}
