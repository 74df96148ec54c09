//! A shard: the swarms of its share of the info hashes, served by the batch.

use std::hint::black_box;

use onrush_proto::{AnnounceHead, Endpoint, Event, InfoHash, ScrapeCounts, announce};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::batch::{Announce, ShardBatch};
use crate::keys::Keys;
use crate::peers::{Announcer, Counts, Peers, Stamp, TICK, Tick, Wanted};
use crate::sample;
use crate::store::Store;
use crate::swarm::Swarm;
use crate::sweep::Cursor;
use crate::time::Moment;
use crate::totals::Totals;

/// The longest lifetime of a peer, seconds: half of the 36 hours after which stored ages wrap
/// around, so that sweeps have as long again to find it.
pub const MAX_PEER_LIFETIME: u32 = 65_536;

/// Swarms that one shard may hold: their places are 32-bit numbers.
pub const MAX_SWARMS: u64 = u32::MAX as u64 - 1;

/// Requests whose cache misses are made to overlap. A core has between 10 and 50 under way.
const GROUP: usize = 32;

/// What a shard is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSettings {
    /// Seconds that a client is told to wait until its next announce.
    pub interval: u32,
    /// Up to this many percent more or less, anew in each reply, 0 to 100.
    pub interval_jitter_percent: u32,
    /// Seconds after its last announce at which a peer may be forgotten, 1 to
    /// [`MAX_PEER_LIFETIME`]. It is forgotten at most 8 s and one full pass of sweeps later.
    pub peer_lifetime: u32,
    /// Seconds for which `completed` outlives a swarm's last peer.
    pub completed_retention: u32,
    /// Peers stored at most, both families together. Beyond, who is not known yet gets peers and
    /// counts but is not stored.
    pub max_peers: u64,
    /// Swarms without peers kept at most for their `completed`; the oldest leave first.
    pub max_idle_swarms: u64,
}

/// The swarms of one share of the info hashes. Has one owner: no locks.
#[derive(Debug)]
pub struct Shard {
    pub(crate) settings: ShardSettings,
    pub(crate) store: Store,
    pub(crate) totals: Totals,
    pub(crate) cursor: Cursor,
    rng: SmallRng,
    /// The shortest interval given out, and how many there are from it on.
    intervals: (u32, u32),
}

/// A swarm as [`Shard::swarms`] shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmView {
    /// Its name.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Seconds since its last peer left, when it has none.
    pub idle_for: Option<u32>,
    /// Its peers in no particular order.
    pub peers: Vec<PeerView>,
}

/// A peer as [`Shard::swarms`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whether it misses nothing.
    pub seeder: bool,
    /// Seconds since its last announce, to within 4.
    pub age: u32,
}

impl Shard {
    /// An empty shard. `key` keys the hashes of its tables and is secret; `seed` starts the
    /// sequence that peers and intervals are drawn from.
    ///
    /// # Panics
    /// When settings are out of the ranges that they state, or allow more than 2^32 - 2 swarms.
    pub fn new(settings: ShardSettings, key: [u8; 16], seed: u64) -> Self {
        assert!(
            (1..=MAX_PEER_LIFETIME).contains(&settings.peer_lifetime),
            "peer_lifetime is 1 to {MAX_PEER_LIFETIME} seconds"
        );
        assert!(settings.interval_jitter_percent <= 100, "interval_jitter_percent is 0 to 100");
        let swarms = settings.max_peers.saturating_add(settings.max_idle_swarms);
        assert!(swarms <= MAX_SWARMS, "max_peers and max_idle_swarms are {MAX_SWARMS} at most");
        let spread = u64::from(settings.interval) * u64::from(settings.interval_jitter_percent);
        let spread = u32::try_from(spread / 100).expect("at most the interval");
        let width = spread.saturating_mul(2).saturating_add(1);
        Self {
            settings,
            store: Store::new(Keys::new(key), swarms),
            totals: Totals::default(),
            cursor: Cursor::default(),
            rng: SmallRng::seed_from_u64(seed),
            intervals: (settings.interval - spread, width),
        }
    }

    /// Answers everything in the batch: its announces in order, then its parts of scrapes.
    /// Replies are written into the batch's own memory; what was there from an earlier call is
    /// gone.
    pub fn serve<R: Copy, P: Copy>(&mut self, batch: &mut ShardBatch<R, P>, now: Moment) {
        batch.replies.clear();
        batch.ends.clear();
        for group in batch.announces.chunks(GROUP) {
            let ahead = self.look_ahead(group.iter().map(|(announce, _)| &announce.info_hash));
            for ((announce, _), guess) in group.iter().zip(ahead) {
                self.announce(announce, guess, now, &mut batch.replies);
                batch.ends.push(batch.replies.len() as u32);
            }
        }
        for group in batch.scrapes.chunks_mut(GROUP) {
            let mut guesses = [Guess::default(); GROUP];
            self.guess(group.iter().map(|part| &part.info_hash), &mut guesses);
            for (part, guess) in group.iter_mut().zip(guesses) {
                part.counts = self.scrape(&part.info_hash, guess);
            }
        }
    }

    /// What the shard holds and has done. Costs nothing.
    pub fn totals(&self) -> Totals {
        let idle = self.store.idle();
        Totals { swarms: (self.store.len() - idle) as u64, idle_swarms: idle as u64, ..self.totals }
    }

    /// Forgets a swarm with all of its peers and its `completed`; false when it is not known.
    /// Takes as long as it has peers.
    pub fn forget(&mut self, info_hash: &InfoHash) -> bool {
        let [guess, ..] = self.look_ahead(std::iter::once(info_hash));
        let Some(place) = self.store.find(guess.hash, info_hash, guess.place) else {
            return false;
        };
        let Self { store, totals, .. } = self;
        store.get(place).peers.each(&mut |endpoint, stamp| {
            totals.left(endpoint.family(), stamp.seeder());
        });
        store.remove(place);
        true
    }

    /// Every swarm with its peers, in no particular order: for tests and snapshots, not for the
    /// path of a packet.
    pub fn swarms(&self, now: Moment) -> impl Iterator<Item = SwarmView> + '_ {
        let tick = Tick::of(now);
        self.store.iter().map(move |swarm| {
            let mut peers = Vec::with_capacity(swarm.peers.len());
            swarm.peers.each(&mut |endpoint, stamp| {
                let age = u32::from(tick.since(stamp.seen())) * TICK;
                peers.push(PeerView { endpoint, seeder: stamp.seeder(), age });
            });
            let idle_for = match swarm.peers {
                Peers::Idle(idle) => Some(now.since(idle.since)),
                _ => None,
            };
            SwarmView { info_hash: swarm.info_hash, completed: swarm.completed, idle_for, peers }
        })
    }

    /// Looks at everything and panics when the parts disagree: for tests and simulations.
    pub fn check(&self) {
        self.store.check();
        let mut counted = Totals::default();
        for swarm in self.store.iter() {
            swarm.peers.each(&mut |endpoint, stamp| {
                counted.joined(endpoint.family(), stamp.seeder());
            });
        }
        let totals = self.totals();
        assert_eq!(totals.swarms + totals.idle_swarms, self.store.len() as u64);
        assert_eq!((totals.peers_v4, totals.seeders_v4), (counted.peers_v4, counted.seeders_v4));
        assert_eq!((totals.peers_v6, totals.seeders_v6), (counted.peers_v6, counted.seeders_v6));
        assert!(totals.peers() <= self.settings.max_peers);
        assert!(totals.idle_swarms <= self.settings.max_idle_swarms);
    }

    /// Hashes up to [`GROUP`] names and guesses where their swarms are, in passes: first the
    /// index, then the entries. Within a pass no read waits for another, so the processor has many
    /// cache misses under way at once; when the requests are served, what they need is there.
    /// Plain reads do what prefetching would, without `unsafe`. Returns how many names there
    /// were.
    #[inline]
    fn guess<'a>(
        &self,
        names: impl Iterator<Item = &'a InfoHash>,
        guesses: &mut [Guess; GROUP],
    ) -> usize {
        let mut count = 0;
        for (guess, name) in guesses.iter_mut().zip(names) {
            guess.hash = self.store.keys().info_hash(name);
            count += 1;
        }
        let known = &mut guesses[..count];
        for guess in &mut *known {
            guess.place = self.store.likely(guess.hash);
        }
        let mut read = 0;
        for guess in &*known {
            read ^= self.store.touch(guess.place);
        }
        black_box(read);
        count
    }

    /// Guesses for announces, which need the peers as well: what hangs on the entries is read in a
    /// pass of its own.
    #[inline]
    fn look_ahead<'a>(&self, names: impl Iterator<Item = &'a InfoHash>) -> [Guess; GROUP] {
        let mut guesses = [Guess::default(); GROUP];
        let count = self.guess(names, &mut guesses);
        let mut read = 0;
        for guess in &guesses[..count] {
            read ^= self.store.touch_peers(guess.place);
        }
        black_box(read);
        guesses
    }

    /// Answers one announce (BEP 15, "Announce").
    #[inline]
    fn announce(&mut self, announce: &Announce, guess: Guess, now: Moment, out: &mut Vec<u8>) {
        let place = self.store.find(guess.hash, &announce.info_hash, guess.place);
        if announce.event == Event::Stopped {
            let counts = place.map(|place| self.leave(place, &announce.endpoint, now));
            self.write_head(announce, counts.unwrap_or_default(), out);
            return;
        }
        let may_join = self.totals.peers() < self.settings.max_peers;
        let Some(place) = place else {
            let counts = self.found_swarm(announce, guess.hash, may_join, now);
            self.write_head(announce, counts, out);
            return;
        };
        if may_join {
            self.store.rouse(place);
        }
        let Announce { endpoint, seeder, .. } = announce;
        let announcer = Announcer { endpoint, seeder: *seeder, seen: Tick::of(now), may_join };
        let (swarm, keys) = self.store.with_keys(place);
        let found = swarm.peers.announce(announcer, keys);
        let stored = found.before.is_some() || may_join;
        // Once per peer that was not a seeder before. A seeder by event only, with something
        // left, has not completed anything.
        let completes = announce.event == Event::Completed
            && announce.seeder
            && found.before != Some(true)
            && stored;
        if completes {
            swarm.completed = swarm.completed.saturating_add(1);
            self.totals.completed += 1;
        }
        let counts = swarm.peers.counts();
        match found.before {
            Some(before) => self.totals.turned(endpoint.family(), before, *seeder),
            None if stored => self.totals.joined(endpoint.family(), *seeder),
            None => self.totals.refused_full += 1,
        }
        self.write_head(announce, counts, out);
        let wanted =
            Wanted { endpoint, own: found.own, seeder: *seeder, want: usize::from(announce.want) };
        self.store.get(place).peers.sample(wanted, &mut self.rng, out);
    }

    /// A swarm's first peer announces itself. It is alone, so there is nobody to hand out.
    fn found_swarm(
        &mut self,
        announce: &Announce,
        hash: u64,
        may_join: bool,
        now: Moment,
    ) -> Counts {
        if !may_join {
            self.totals.refused_full += 1;
            return Counts::default();
        }
        let completed = u32::from(announce.event == Event::Completed && announce.seeder);
        let stamp = Stamp::new(Tick::of(now), announce.seeder);
        let peers = Peers::one(&announce.endpoint, stamp);
        let counts = peers.counts();
        self.store.add(hash, Swarm { info_hash: announce.info_hash, completed, peers });
        self.totals.joined(announce.endpoint.family(), announce.seeder);
        self.totals.completed += u64::from(completed);
        counts
    }

    /// A peer says that it stops; what the swarm has without it.
    fn leave(&mut self, place: u32, endpoint: &Endpoint, now: Moment) -> Counts {
        let (swarm, keys) = self.store.with_keys(place);
        let Some(seeder) = swarm.peers.remove(endpoint, keys) else {
            return swarm.peers.counts();
        };
        let counts = swarm.peers.counts();
        self.totals.left(endpoint.family(), seeder);
        if counts == Counts::default() {
            self.emptied(place, now);
        }
        counts
    }

    /// A swarm has lost its last peer. If it has a `completed`, that stays for a while.
    pub(crate) fn emptied(&mut self, place: u32, now: Moment) {
        if self.store.get(place).completed == 0 {
            self.store.remove(place);
            return;
        }
        self.store.retire(place, now);
        if self.store.idle() as u64 > self.settings.max_idle_swarms
            && let Some((oldest, _)) = self.store.oldest_idle()
        {
            self.store.remove(oldest);
            self.totals.idle_evicted += 1;
        }
    }

    /// Answers one question of a scrape (BEP 15, "Scrape"). Whoever is not known has zeros.
    #[inline]
    fn scrape(&self, info_hash: &InfoHash, guess: Guess) -> ScrapeCounts {
        match self.store.find(guess.hash, info_hash, guess.place) {
            Some(place) => self.store.get(place).scrape(),
            None => ScrapeCounts::default(),
        }
    }

    #[inline]
    fn write_head(&mut self, announce: &Announce, counts: Counts, out: &mut Vec<u8>) {
        let (shortest, width) = self.intervals;
        let interval = shortest + sample::below(width as usize, &mut self.rng) as u32;
        let mut head = [0; announce::HEAD_LEN];
        let Counts { seeders, leechers } = counts;
        let transaction_id = announce.transaction_id;
        AnnounceHead { transaction_id, interval, leechers, seeders }.write(&mut head);
        out.extend_from_slice(&head);
    }
}

/// A name's keyed hash, and where its swarm is if everything went as usual.
#[derive(Clone, Copy, Default)]
struct Guess {
    hash: u64,
    place: u32,
}
