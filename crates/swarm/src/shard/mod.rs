//! A shard: the swarms of its share of the info hashes, served in batches.
//!
//! | module | contents |
//! |---|---|
//! | [`change_log`] | changes since a reader subscribed, for replicas |
//! | [`sweep`] | removes expired peers and swarms, in bounded steps |
//! | [`removal`] | removes swarms by request, large ones in steps |
//! | `newcomers` | who is stored: the limits of sources, and the ceiling on peers |
//! | [`walk`] | visits every swarm once, in steps |
//! | [`restore`] | stores swarms that a walk has shown |

pub mod change_log;
mod newcomers;
pub mod removal;
pub mod restore;
pub mod sweep;
pub mod walk;

use std::hint::black_box;
use std::sync::Arc;

use onrush_proto::scrape::{COUNTS_LEN, HASH_LEN};
use onrush_proto::{Endpoint, Event, InfoHash};

use crate::batch::{Announce, ShardBatch};
use crate::completions::Completions;
use crate::keys::{Keys, SourceHashes};
use crate::peers::{Announcer, Counts, Found, Peers, Place, Stamp, Tick, head};
use crate::sample::Sampler;
use crate::sources::{SourceLimits, SourceSet, Sources, table_cells};
use crate::store::{Candidate, Store};
use crate::swarm::Swarm;
use crate::time::{Moment, TICK};
use crate::totals::Totals;
use change_log::ChangeLog;
use newcomers::PassedSwarms;
use removal::RemovedSwarm;
use sweep::{Cursor, SwarmsByFamily};

/// The longest lifetime of a peer, seconds: half of the 36 hours after which stored ages wrap
/// around, so that sweeps have as long again to find an expired peer.
pub const MAX_PEER_LIFETIME: u32 = 65_536;

/// The most swarms of one shard: their places are 32-bit numbers.
pub const MAX_SWARMS: u64 = u32::MAX as u64 - 1;

/// The shortest period in which a source counts once as completed in a swarm, seconds.
const SHORTEST_PERIOD: u32 = 3_600;

/// The most completions that are remembered: 16 MiB.
const MAX_COMPLETIONS: u64 = 1 << 22;

/// Requests whose cache misses overlap. A core has between 10 and 50 outstanding misses.
const GROUP: usize = 32;

/// Settings of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSettings {
    /// The announce interval in replies, seconds.
    pub interval: u32,
    /// Random variation of the interval in each reply, plus or minus percent, 0 to 100.
    pub interval_jitter_percent: u32,
    /// Seconds after its last announce at which a peer expires, 1 to [`MAX_PEER_LIFETIME`]. It is
    /// removed at most 16 s and two full passes of sweeps later.
    pub peer_lifetime: u32,
    /// Seconds for which `completed` is retained after a swarm's last peer; also the period in
    /// which a source counts once as completed in a swarm, if it is an hour or more.
    pub completed_retention: u32,
    /// The most peers stored, both families together. Beyond it, a new peer gets peers and counts
    /// but is stored only in place of a peer whose source occupies more, if
    /// [`SourceLimits::peers`] is on.
    pub max_peers: u64,
    /// The most swarms without peers, which are kept for their `completed`. Beyond it, those of the
    /// least magnitude are evicted (1, 2 to 3, 4 to 15 and so on), the oldest first.
    pub max_idle_swarms: u64,
    /// The limits of one source in this shard.
    pub sources: SourceLimits,
}

impl Default for ShardSettings {
    /// Settings of a small tracker, for tests and experiments.
    fn default() -> Self {
        Self {
            interval: 1_800,
            interval_jitter_percent: 5,
            peer_lifetime: 2_400,
            completed_retention: 86_400,
            max_peers: 1_000_000,
            max_idle_swarms: 1_000,
            sources: SourceLimits::default(),
        }
    }
}

/// The swarms of one share of the info hashes. It has one owner: no locks.
#[derive(Debug)]
pub struct Shard {
    settings: ShardSettings,
    store: Store,
    totals: Totals,
    cursor: Cursor,
    by_family: SwarmsByFamily,
    sampler: Sampler,
    /// The most peers after a restore, at least `max_peers`.
    max_restored: u64,
    /// Peers of each source, if they are limited.
    sources: Option<Box<Sources>>,
    /// Sources that no limit applies to.
    trusted: Option<Arc<dyn SourceSet>>,
    /// Sources that have completed swarms in this period.
    completions: Completions,
    /// Swarms whose peers newcomers to the full shard may replace.
    passed: PassedSwarms,
    /// Memory for the peers that a step of a sweep removes.
    expired: Vec<Endpoint>,
    /// The change log, while it has readers.
    changes: Option<Box<ChangeLog>>,
    /// Large swarms that were removed, and whose peers are not all released yet.
    removed: Vec<RemovedSwarm>,
}

fn assert_in_range(settings: &ShardSettings) {
    assert!(
        (1..=MAX_PEER_LIFETIME).contains(&settings.peer_lifetime),
        "peer_lifetime is 1 to {MAX_PEER_LIFETIME} seconds"
    );
    assert!(settings.interval_jitter_percent <= 100, "interval_jitter_percent is 0 to 100");
}

/// A swarm as [`Shard::swarms`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmView {
    /// The info hash.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`, once per source and period.
    pub completed: u32,
    /// Seconds since its last peer left, if it has none.
    pub idle_for: Option<u32>,
    /// Its peers, in no particular order.
    pub peers: Vec<PeerView>,
}

/// A peer as [`Shard::swarms`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The peer's address and port.
    pub endpoint: Endpoint,
    /// Whether the peer has the whole torrent.
    pub seeder: bool,
    /// Seconds since its last announce, to within 8.
    pub age: u32,
}

impl Shard {
    /// An empty shard. `key` is the secret key of its hash tables; `seed` starts the sequence from
    /// which peers and intervals are drawn.
    ///
    /// # Panics
    /// When settings are out of their documented ranges, or allow more than 2^32 - 2 swarms.
    pub fn new(settings: ShardSettings, key: [u8; 16], seed: u64) -> Self {
        assert_in_range(&settings);
        let swarms = settings.max_peers.saturating_add(settings.max_idle_swarms);
        assert!(swarms <= MAX_SWARMS, "max_peers and max_idle_swarms are {MAX_SWARMS} at most");
        let sampler = Sampler::new(seed, settings.interval, settings.interval_jitter_percent);
        // Each idle swarm has been completed, also where few peers are stored.
        let completions = table_cells(settings.max_peers)
            .max(settings.max_idle_swarms.saturating_mul(2))
            .min(MAX_COMPLETIONS);
        let mut keys = Keys::new(key);
        keys.counts_sources = settings.sources.peers_per_swarm > 0;
        Self {
            sources: Sources::new(settings.sources, settings.max_peers).map(Box::new),
            trusted: None,
            passed: PassedSwarms::default(),
            expired: Vec::new(),
            max_restored: settings.max_peers,
            settings,
            store: Store::new(keys, swarms),
            completions: Completions::new(completions),
            totals: Totals::default(),
            cursor: Cursor::default(),
            by_family: SwarmsByFamily::default(),
            sampler,
            changes: None,
            removed: Vec::new(),
        }
    }

    /// Applies other settings from now on, except the two ceilings and the limits of sources: index
    /// and tables are sized for them.
    ///
    /// # Panics
    /// When settings are out of their documented ranges.
    pub fn update(&mut self, settings: ShardSettings) {
        assert_in_range(&settings);
        let ShardSettings { max_peers, max_idle_swarms, sources, .. } = self.settings;
        self.settings = ShardSettings { max_peers, max_idle_swarms, sources, ..settings };
        self.sampler.set_intervals(settings.interval, settings.interval_jitter_percent);
    }

    /// From now on, no limit applies to sources of this set. Their peers are counted, as those of
    /// all sources.
    pub fn trust(&mut self, trusted: Arc<dyn SourceSet>) {
        self.trusted = Some(trusted);
    }

    /// Serves a batch: its announces in order, then its parts of scrapes. Replies are written into
    /// the batch's own memory and replace those of an earlier call.
    pub fn serve<R: Copy, P: Copy>(&mut self, batch: &mut ShardBatch<R, P>, now: Moment) {
        batch.replies.clear();
        batch.ends.clear();
        for group in batch.announces.chunks(GROUP) {
            let ahead = self.look_ahead(group);
            let removals = self.store.removals;
            for ((announce, _), &candidate) in group.iter().zip(&ahead) {
                let candidate =
                    if self.store.removals == removals { candidate } else { Candidate::NOWHERE };
                self.announce(announce, candidate, now, &mut batch.replies);
                batch.ends.push(batch.replies.len() as u32);
            }
        }
        if self.changes.is_some() {
            self.log_announces(&batch.announces, now);
        }
        batch.counts.clear();
        for group in batch.scraped.chunks(GROUP) {
            self.scrape(group, &mut batch.counts);
        }
    }

    /// Answers up to [`GROUP`] info hashes of scrapes (BEP 15, "Scrape"), in passes like announces:
    /// first the index, then the entries.
    #[inline]
    fn scrape(&self, group: &[[u8; HASH_LEN]], counts: &mut Vec<[u8; COUNTS_LEN]>) {
        let mut ahead = [Candidate::NOWHERE; GROUP];
        for (candidate, name) in ahead.iter_mut().zip(group) {
            *candidate = self.store.candidate(self.store.keys.info_hash(&InfoHash(*name)));
        }
        counts.extend(group.iter().zip(&ahead).map(|(name, &candidate)| {
            // The answer for unknown swarms is zeros.
            self.store.lookup(name, candidate).map_or([0; COUNTS_LEN], Swarm::scrape)
        }));
    }

    /// The shard's counters. Costs nothing.
    pub fn totals(&self) -> Totals {
        let idle = self.store.idle;
        Totals {
            swarms: (self.store.len() - idle) as u64,
            idle_swarms: idle as u64,
            crowded_tables: self
                .sources
                .as_ref()
                .is_some_and(|sources| sources.is_crowded())
                .into(),
            ..self.totals
        }
    }

    /// Swarms that have peers of each family, as counted by the last full pass of
    /// [`sweep`](Self::sweep); zero before the first. Exact numbers would cost work in every
    /// announce.
    pub fn swarms_by_family(&self) -> SwarmsByFamily {
        self.by_family
    }

    /// Every swarm with its peers, in no particular order: for tests and snapshots, not for
    /// serving.
    pub fn swarms(&self, now: Moment) -> impl Iterator<Item = SwarmView> + '_ {
        let tick = Tick::of(now);
        self.store.iter().map(move |swarm| {
            let mut peers = Vec::with_capacity(swarm.peers.len());
            swarm.peers.each(&mut |endpoint, stamp| {
                let age = u32::from(tick.since(stamp.seen())) * TICK;
                peers.push(PeerView { endpoint, seeder: stamp.seeder(), age });
            });
            let idle_for = swarm.idle_for(now);
            SwarmView { info_hash: swarm.info_hash, completed: swarm.completed, idle_for, peers }
        })
    }

    /// Checks all internal invariants and panics when one is violated: for tests and simulations.
    pub fn check(&self) {
        self.store.check();
        let mut counted = Totals::default();
        let mut count = |endpoint: Endpoint, stamp: Stamp| {
            counted.peer_added(endpoint.family(), stamp.seeder());
        };
        self.store.iter().for_each(|swarm| swarm.peers.each(&mut count));
        self.removed.iter().for_each(|removed| removed.peers.each(&mut count));
        let totals = self.totals();
        assert_eq!(totals.swarms + totals.idle_swarms, self.store.len() as u64);
        assert_eq!((totals.peers_v4, totals.seeders_v4), (counted.peers_v4, counted.seeders_v4));
        assert_eq!((totals.peers_v6, totals.seeders_v6), (counted.peers_v6, counted.seeders_v6));
        assert!(totals.peers() <= self.max_restored);
        assert!(totals.idle_swarms <= self.settings.max_idle_swarms);
        if let Some(sources) = &self.sources {
            let mut stored = Vec::new();
            let mut add = |endpoint: Endpoint, _| stored.push(self.store.keys.source(&endpoint));
            self.store.iter().for_each(|swarm| swarm.peers.each(&mut add));
            self.removed.iter().for_each(|removed| removed.peers.each(&mut add));
            sources.check(stored.into_iter());
        }
    }

    /// Predicts the places of the swarms of up to [`GROUP`] announces, in passes: first the index,
    /// then the entries and their peers. Within a pass no read depends on another, so the processor
    /// overlaps many cache misses, and the data is in the cache when the announces are served.
    /// Plain reads replace prefetch instructions, which need `unsafe`.
    #[inline]
    fn look_ahead<R>(&self, group: &[(Announce, R)]) -> [Candidate; GROUP] {
        let mut hashes = [0; GROUP];
        for (hash, (announce, _)) in hashes.iter_mut().zip(group) {
            *hash = self.store.keys.info_hash(&announce.info_hash);
        }
        let mut ahead = [Candidate::NOWHERE; GROUP];
        for ((candidate, &hash), _) in ahead.iter_mut().zip(&hashes).zip(group) {
            *candidate = self.store.candidate(hash);
        }
        let mut read = 0;
        for (candidate, (announce, _)) in ahead.iter_mut().zip(group) {
            *candidate = self.store.verified(&announce.info_hash, *candidate);
            read ^= self.store.touch_peers(*candidate);
        }
        black_box(read);
        ahead
    }

    /// Answers one announce (BEP 15, "Announce").
    #[inline]
    fn announce(
        &mut self,
        announce: &Announce,
        candidate: Candidate,
        now: Moment,
        out: &mut Vec<u8>,
    ) {
        if let Some(place) = candidate.place()
            && announce.event != Event::Stopped
            && self.store.get_mut(place).peers.refresh(
                announce,
                Tick::of(now),
                &mut self.sampler,
                out,
            )
        {
            return;
        }
        self.announce_any(announce, candidate, now, out);
    }

    #[inline(never)]
    fn announce_any(
        &mut self,
        announce: &Announce,
        candidate: Candidate,
        now: Moment,
        out: &mut Vec<u8>,
    ) {
        let place = candidate.place().or_else(|| self.store.find(&announce.info_hash));
        let stored = match place {
            Some(place) if announce.event != Event::Stopped => {
                self.store_announcer(announce, place, now)
            }
            _ => None,
        };
        let Some((place, own)) = stored else {
            let counts = self.first_or_stopped(announce, place, now);
            let (interval, _) = self.sampler.draw();
            return out.extend_from_slice(&head(announce, interval, counts));
        };
        self.store.get(place).peers.reply(announce, own, &mut self.sampler, out);
    }

    /// Stores the announcer in the swarm at a place, if it may be stored. `None` if a newcomer has
    /// replaced the last peer of the swarm, which is then unknown.
    fn store_announcer(
        &mut self,
        announce: &Announce,
        place: u32,
        now: Moment,
    ) -> Option<(u32, Option<Place>)> {
        // Without limits no newcomer has to be told from a known peer beforehand.
        let at_once = self.sources.is_none() && self.has_space();
        let mut admitted = at_once.then(SourceHashes::default);
        let mut place = place;
        let mut found = self.announce_at(announce, place, at_once, now);
        if found.before.is_none() && !at_once {
            admitted = self.admit(announce, Some(place), now);
            if admitted.is_some() {
                // Another peer may have gone, and with it its swarm.
                place = self.store.find(&announce.info_hash)?;
                found = self.announce_at(announce, place, true, now);
            }
        }
        if found.before != Some(announce.seeder) && (found.before.is_some() || admitted.is_some()) {
            let hashes = admitted.unwrap_or_default();
            self.stored_announcer(announce, found.before, hashes, place, now);
        }
        Some((place, found.own))
    }

    /// Counts an announcer that was added or has changed; `before` is whether it was a seeder.
    #[inline(never)]
    fn stored_announcer(
        &mut self,
        announce: &Announce,
        before: Option<bool>,
        hashes: SourceHashes,
        place: u32,
        now: Moment,
    ) {
        let Announce { endpoint, seeder, .. } = announce;
        match before {
            Some(before) => self.totals.peer_changed(endpoint.family(), before, *seeder),
            None => self.peer_added(endpoint, hashes, *seeder),
        }
        if self.completes(announce, now) {
            let completed = &mut self.store.get_mut(place).completed;
            *completed = completed.saturating_add(1);
            self.totals.completed += 1;
        }
    }

    /// Whether an announcer that was no seeder before counts as completed: once per swarm, source
    /// and period. A peer with the event but with bytes left has not completed the torrent.
    fn completes(&mut self, announce: &Announce, now: Moment) -> bool {
        let Announce { info_hash, endpoint, event, seeder, .. } = announce;
        if *event != Event::Completed || !seeder {
            return false;
        }
        let period = now.0 / self.settings.completed_retention.max(SHORTEST_PERIOD);
        let keys = &self.store.keys;
        let key = keys.info_hash(info_hash) ^ keys.source(endpoint).source;
        self.completions.enter(key, period) || self.is_trusted(endpoint)
    }

    /// Refreshes or changes a known announcer, and stores a newcomer if that is permitted.
    #[inline]
    fn announce_at(
        &mut self,
        announce: &Announce,
        place: u32,
        may_store: bool,
        now: Moment,
    ) -> Found {
        if may_store {
            self.store.activate(place);
        }
        let Announce { endpoint, seeder, .. } = announce;
        let (stamp, settles) = (Stamp::new(Tick::of(now), *seeder), self.sampler.settles);
        let announcer = Announcer { endpoint, stamp, settles, may_store };
        let (swarm, keys) = self.store.with_keys(place);
        swarm.peers.announce(announcer, keys)
    }

    /// Serves the announces that get no peers: a stop, and the first peer of a swarm. Returns the
    /// swarm's counts afterwards.
    fn first_or_stopped(&mut self, announce: &Announce, place: Option<u32>, now: Moment) -> Counts {
        match place {
            Some(place) if announce.event == Event::Stopped => {
                self.stop(place, &announce.endpoint, now)
            }
            None if announce.event == Event::Stopped => Counts::default(),
            _ => {
                let admitted = match place {
                    // It was removed for this newcomer.
                    Some(_) => Some(self.store.keys.source(&announce.endpoint)),
                    None => self.admit(announce, None, now),
                };
                admitted.map_or(Counts::default(), |it| self.create_swarm(announce, it, now))
            }
        }
    }

    /// Creates a swarm with its first peer, to which there are no other peers to return.
    fn create_swarm(&mut self, announce: &Announce, hashes: SourceHashes, now: Moment) -> Counts {
        let stamp = Stamp::new(Tick::of(now), announce.seeder);
        let peers = Peers::single(&announce.endpoint, stamp);
        let counts = peers.counts();
        let info_hash = announce.info_hash;
        let place = self.store.add(Swarm { info_hash, completed: 0, peers });
        self.stored_announcer(announce, None, hashes, place, now);
        counts
    }

    /// Removes a peer that stopped; the counts of the swarm without it.
    fn stop(&mut self, place: u32, endpoint: &Endpoint, now: Moment) -> Counts {
        let (swarm, keys) = self.store.with_keys(place);
        let removed = swarm.peers.remove(endpoint, keys);
        let counts = swarm.peers.counts();
        let Some(seeder) = removed else { return counts };
        self.peer_removed(endpoint, seeder);
        if counts == Counts::default() {
            self.emptied(place, now);
        }
        counts
    }

    /// Counts an added peer.
    #[inline]
    fn peer_added(&mut self, endpoint: &Endpoint, hashes: SourceHashes, seeder: bool) {
        self.totals.peer_added(endpoint.family(), seeder);
        self.sources.iter_mut().for_each(|sources| sources.peer_added(hashes));
    }

    /// Takes a removed peer out of all counts.
    fn peer_removed(&mut self, endpoint: &Endpoint, seeder: bool) {
        self.totals.peer_removed(endpoint.family(), seeder);
        self.sources.iter_mut().for_each(|it| it.peer_removed(self.store.keys.source(endpoint)));
    }

    /// Handles the loss of a swarm's last peer: the swarm is kept for a while if it has a
    /// `completed`.
    fn emptied(&mut self, place: u32, now: Moment) {
        if self.store.get(place).completed == 0 {
            self.store.remove(place);
            return;
        }
        self.store.make_idle(place, now);
        if self.store.idle as u64 > self.settings.max_idle_swarms
            && let Some(place) = self.store.least_idle()
        {
            self.store.remove(place);
            self.totals.idle_evicted += 1;
        }
    }
}
