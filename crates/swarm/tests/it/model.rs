//! Any sequence of batches, time steps and sweeps has the result of a naive model: a map of maps
//! with the simplest algorithms. The model defines correct behaviour.

use std::collections::{BTreeMap, BTreeSet};

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::response::{Peers, Response};
use onrush_proto::{AnnounceHead, Endpoint, Event, Family, InfoHash, ScrapeCounts, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings, SourceLimits, Totals};
use proptest::prelude::*;

use crate::population::config;

/// The model of a swarm.
#[derive(Clone, Default)]
struct ModelSwarm {
    completed: u32,
    /// Whether the peer is a seeder, and the second of its last announce.
    peers: BTreeMap<Endpoint, (bool, u32)>,
    /// When it lost its last peer, and a sequence number of that.
    idle: Option<(u32, u64)>,
}

struct Model {
    settings: ShardSettings,
    swarms: BTreeMap<InfoHash, ModelSwarm>,
    totals: Totals,
    retired: u64,
    /// The swarms that each source has completed, by period.
    completions: BTreeSet<(InfoHash, Vec<u8>, u32)>,
}

/// A step of a test.
#[derive(Clone, Debug)]
enum Step {
    Announce {
        swarm: u8,
        peer: Peer,
        event: Event,
        seeder: bool,
        want: u16,
    },
    /// Many consecutive peers of one swarm, so that the large forms are reached.
    Crowd {
        swarm: u8,
        from: u16,
        peers: u16,
        event: Event,
        seeders: u8,
        v6: u8,
    },
    /// A scrape of this swarm and the following ones.
    Scrape {
        swarm: u8,
        more: u8,
    },
    /// Ends the batch; time passes.
    Wait {
        seconds: u32,
    },
    /// Ends the batch.
    Sweep {
        budget: usize,
    },
    /// Ends the batch.
    FullSweep,
    /// Ends the batch.
    Remove {
        swarm: u8,
    },
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    number: u16,
    v6: bool,
    port_1: bool,
}

impl Peer {
    fn endpoint(self) -> Endpoint {
        let [high, low] = self.number.to_be_bytes();
        // Pairs of peers share an address.
        let port = if self.port_1 { [0, 1] } else { [0x1A, low & 1] };
        if self.v6 {
            let mut row = [0x20; 18];
            (row[14], row[15]) = (high, low & !1);
            row[16..].copy_from_slice(&port);
            Endpoint::V6(row)
        } else {
            Endpoint::V4([192, 0, high, low & !1, port[0], port[1]])
        }
    }
}

fn info_hash(swarm: u8) -> InfoHash {
    InfoHash([swarm; 20])
}

fn ticks(seconds: u32) -> u32 {
    seconds / 8
}

impl Model {
    fn counts(&self, info_hash: &InfoHash) -> (u32, u32) {
        self.swarms.get(info_hash).map_or((0, 0), |swarm| {
            let seeders = swarm.peers.values().filter(|(seeder, _)| *seeder).count();
            (seeders as u32, (swarm.peers.len() - seeders) as u32)
        })
    }

    /// Stores an announce; the peers afterwards decide the reply.
    fn announce(&mut self, announce: &Announce, now: u32) {
        let full = self.totals.peers() >= self.settings.max_peers;
        let known = self.swarms.get(&announce.info_hash);
        let before = known.and_then(|swarm| swarm.peers.get(&announce.endpoint)).map(|peer| peer.0);
        if announce.event == Event::Stopped {
            if before.is_some() {
                let swarm = self.swarms.get_mut(&announce.info_hash).unwrap();
                swarm.peers.remove(&announce.endpoint);
                if swarm.peers.is_empty() {
                    self.make_idle(announce.info_hash, now);
                    self.evict();
                }
            }
        } else if before.is_none() && full {
            self.totals.refused_full += 1;
        } else {
            let swarm = self.swarms.entry(announce.info_hash).or_default();
            swarm.idle = None;
            swarm.peers.insert(announce.endpoint, (announce.seeder, now));
            let period = now / self.settings.completed_retention.max(3_600);
            let source = match &announce.endpoint {
                Endpoint::V4(row) => row[..4].to_vec(),
                Endpoint::V6(row) => row[..8].to_vec(),
            };
            if announce.event == Event::Completed
                && announce.seeder
                && before != Some(true)
                && self.completions.insert((announce.info_hash, source, period))
            {
                swarm.completed += 1;
                self.totals.completed += 1;
            }
        }
        self.count();
    }

    fn make_idle(&mut self, info_hash: InfoHash, now: u32) {
        let swarm = self.swarms.get_mut(&info_hash).unwrap();
        if swarm.completed == 0 {
            self.swarms.remove(&info_hash);
        } else {
            self.retired += 1;
            swarm.idle = Some((now, self.retired));
        }
    }

    fn evict(&mut self) {
        let mut idle: Vec<_> = self.idle().collect();
        idle.sort_unstable();
        let excess = idle.len().saturating_sub(self.settings.max_idle_swarms as usize);
        for (_, info_hash) in &idle[..excess] {
            self.swarms.remove(info_hash);
        }
        self.totals.idle_evicted += excess as u64;
    }

    /// Swarms without peers, in the order of their eviction: by the magnitude of their `completed`.
    fn idle(&self) -> impl Iterator<Item = ((usize, u32, u64), InfoHash)> + '_ {
        self.swarms.iter().filter_map(|(hash, swarm)| {
            let (since, number) = swarm.idle?;
            let least = [1, 2, 4, 16, 256, 65_536];
            let magnitude = least.iter().filter(|least| swarm.completed >= **least).count();
            Some(((magnitude, since, number), *hash))
        })
    }

    fn count(&mut self) {
        let ever = self.totals;
        self.totals = Totals {
            completed: ever.completed,
            refused_full: ever.refused_full,
            expired: ever.expired,
            idle_evicted: ever.idle_evicted,
            ..Totals::default()
        };
        for swarm in self.swarms.values() {
            let now = &mut self.totals;
            let has_peers = !swarm.peers.is_empty();
            *(if has_peers { &mut now.swarms } else { &mut now.idle_swarms }) += 1;
            for (endpoint, (seeder, _)) in &swarm.peers {
                let (peers, seeders) = match endpoint.family() {
                    Family::V4 => (&mut now.peers_v4, &mut now.seeders_v4),
                    Family::V6 => (&mut now.peers_v6, &mut now.seeders_v6),
                };
                *peers += 1;
                *seeders += u64::from(*seeder);
            }
        }
    }

    /// Checks a reply against the current peers.
    fn check_reply(&self, announce: &Announce, reply: &[u8]) {
        let family = announce.endpoint.family();
        let Ok(Response::Announce(head, peers)) = Response::parse(reply, family) else {
            panic!("no announce response: {reply:?}");
        };
        let (seeders, leechers) = self.counts(&announce.info_hash);
        let spread = self.settings.interval * self.settings.interval_jitter_percent / 100;
        assert!(head.interval.abs_diff(self.settings.interval) <= spread);
        let transaction_id = announce.transaction_id;
        assert_eq!(
            head,
            AnnounceHead { transaction_id, interval: head.interval, leechers, seeders }
        );
        assert!(reply.len() >= HEAD_LEN);
        if announce.event == Event::Stopped {
            assert!(peers.is_empty(), "a stop gets no peers");
        } else {
            self.check_peers(announce, peers);
        }
    }

    fn check_peers(&self, announce: &Announce, peers: Peers<'_>) {
        let none = BTreeMap::new();
        let stored = self.swarms.get(&announce.info_hash).map_or(&none, |swarm| &swarm.peers);
        let may_get: BTreeMap<Endpoint, bool> = stored
            .iter()
            .filter(|(endpoint, _)| {
                endpoint.family() == announce.endpoint.family()
                    && endpoint.port() != 1
                    && **endpoint != announce.endpoint
            })
            .filter(|(_, (seeder, _))| !(announce.seeder && *seeder))
            .map(|(endpoint, (seeder, _))| (*endpoint, *seeder))
            .collect();
        let got: BTreeSet<Endpoint> = peers.iter().collect();
        assert_eq!(got.len(), peers.len(), "no peer twice");
        assert_eq!(
            got.len(),
            may_get.len().min(announce.want.into()),
            "as many peers as available"
        );
        assert!(got.iter().all(|endpoint| may_get.contains_key(endpoint)), "only eligible peers");
        if announce.want >= 2 {
            for kind in [false, true] {
                let exists = may_get.values().any(|seeder| *seeder == kind);
                let given = got.iter().any(|endpoint| may_get[endpoint] == kind);
                assert_eq!(exists, given, "both kinds if both exist");
            }
        }
    }

    fn scrape(&self, info_hash: &InfoHash) -> ScrapeCounts {
        let (seeders, leechers) = self.counts(info_hash);
        let completed = self.swarms.get(info_hash).map_or(0, |swarm| swarm.completed);
        ScrapeCounts { seeders, completed, leechers }
    }

    /// Compares with the shard after a sweep and adopts the shard's free choices: which expired
    /// peers a partial sweep has removed, and which of several equally old swarms was evicted.
    fn follow_sweep(&mut self, shard: &Shard, now: u32, full: bool) {
        let there: BTreeMap<_, _> = shard
            .swarms(Moment(now))
            .map(|swarm| {
                let peers: BTreeSet<_> = swarm.peers.iter().map(|peer| peer.endpoint).collect();
                (swarm.info_hash, peers)
            })
            .collect();
        let none = BTreeSet::new();
        let mut emptied = Vec::new();
        for (hash, swarm) in &mut self.swarms {
            let left = there.get(hash).unwrap_or(&none);
            let had_peers = !swarm.peers.is_empty();
            let settings = self.settings;
            let over = |seen| ticks(now) - ticks(seen) > settings.peer_lifetime.div_ceil(8);
            swarm.peers.retain(|endpoint, (_, seen)| {
                let stays = left.contains(endpoint);
                assert!(stays || over(*seen), "{endpoint:?} expired too early");
                assert!(
                    !(full && stays && over(*seen)),
                    "{endpoint:?} expired and was not removed"
                );
                self.totals.expired += u64::from(!stays);
                stays
            });
            if had_peers && swarm.peers.is_empty() {
                emptied.push(*hash);
            }
        }
        self.follow_idle(emptied, &there, now, full);
        assert!(there.keys().eq(self.swarms.keys()), "the same swarms");
        self.count();
    }

    fn follow_idle(
        &mut self,
        emptied: Vec<InfoHash>,
        there: &BTreeMap<InfoHash, BTreeSet<Endpoint>>,
        now: u32,
        full: bool,
    ) {
        let retention = self.settings.completed_retention;
        let due: BTreeSet<InfoHash> = self
            .idle()
            .filter(|((_, since, _), _)| now - since >= retention)
            .map(|(_, hash)| hash)
            .collect();
        emptied.into_iter().for_each(|hash| self.make_idle(hash, now));
        let (stay, removed): (Vec<_>, Vec<_>) =
            self.idle().partition(|(_, hash)| there.contains_key(hash));
        assert!(!full || stay.iter().all(|(_, hash)| !due.contains(hash)), "idle for too long");
        let evicted: Vec<_> = removed.iter().filter(|(_, hash)| !due.contains(hash)).collect();
        for ((magnitude, since, _), hash) in &evicted {
            let later =
                |(others, other, _): (usize, u32, u64)| (*magnitude, *since) <= (others, other);
            assert!(stay.iter().all(|(order, _)| later(*order)), "{hash} is not the first");
        }
        assert!(evicted.is_empty() || stay.len() as u64 == self.settings.max_idle_swarms);
        self.totals.idle_evicted += evicted.len() as u64;
        removed.iter().for_each(|(_, hash)| drop(self.swarms.remove(hash)));
    }

    /// Whether two swarms became idle in one sweep: only the shard defines their order.
    fn has_ties(&self) -> bool {
        let since: Vec<_> = self.idle().map(|((_, since, _), _)| since).collect();
        since.iter().collect::<BTreeSet<_>>().len() < since.len()
    }
}

/// A shard and its model.
struct Pair {
    shard: Shard,
    model: Model,
    batch: ShardBatch<usize, usize>,
    waiting: Vec<Request>,
    now: u32,
}

enum Request {
    Announce(Announce),
    Scrape(Vec<[u8; 20]>),
}

impl Pair {
    fn new(settings: ShardSettings, seed: u64) -> Self {
        Self {
            shard: Shard::new(settings, seed.to_le_bytes().repeat(2).try_into().unwrap(), seed),
            model: Model {
                settings,
                swarms: BTreeMap::new(),
                totals: Totals::default(),
                retired: 0,
                completions: BTreeSet::new(),
            },
            batch: ShardBatch::new(64, 5 * 64, 64 * (HEAD_LEN + 67 * 18)),
            waiting: Vec::new(),
            // Near the wrap-around of stored ages.
            now: (1 << 17) - 50,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Announce { swarm, peer, event, seeder, want } => {
                self.push(swarm, peer, event, seeder, want);
            }
            Step::Crowd { swarm, from, peers, event, seeders, v6 } => {
                for number in from..from + peers {
                    let part = (number.wrapping_mul(40_503) >> 8) as u8;
                    let peer = Peer { number, v6: part % 100 < v6, port_1: part % 50 == 49 };
                    let seeder = (number.wrapping_mul(25_173) >> 8) as u8 % 100 < seeders;
                    self.push(swarm, peer, event, seeder, number % 40);
                }
            }
            Step::Scrape { swarm, more } => {
                let hashes = (swarm..=swarm.saturating_add(more)).map(|it| info_hash(it).0);
                self.waiting.push(Request::Scrape(hashes.collect()));
            }
            Step::Wait { seconds } => {
                self.serve();
                self.now += seconds;
            }
            Step::Sweep { budget } => self.sweep(budget),
            Step::FullSweep => self.sweep(usize::MAX),
            Step::Remove { swarm } => {
                self.serve();
                let known = self.model.swarms.remove(&info_hash(swarm)).is_some();
                assert_eq!(self.shard.remove(&info_hash(swarm), Moment(self.now)), known);
                self.shard.check();
                // The peers of a large swarm are released in steps.
                let mut before = self.shard.totals().peers();
                while self.shard.release(50) {
                    let after = self.shard.totals().peers();
                    assert!(before - after <= 50 + 165, "{} at once", before - after);
                    before = after;
                    self.shard.check();
                }
                self.model.count();
            }
        }
        self.compare();
    }

    fn push(&mut self, swarm: u8, peer: Peer, event: Event, seeder: bool, want: u16) {
        let endpoint = peer.endpoint();
        let transaction_id = TransactionId(self.waiting.len() as u32 * 7);
        let info_hash = info_hash(swarm);
        let announce = Announce { info_hash, endpoint, event, seeder, want, transaction_id };
        self.waiting.push(Request::Announce(announce));
    }

    /// Serves the pending requests in batches, one by one where the model has to follow each.
    fn serve(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = &waiting[..];
        while !rest.is_empty() {
            let ties = self.model.has_ties();
            let (batch, after) = rest.split_at(if ties { 1 } else { rest.len().min(50) });
            self.serve_batch(batch);
            rest = after;
            if ties {
                self.follow_eviction();
            }
        }
    }

    fn serve_batch(&mut self, requests: &[Request]) {
        self.batch.clear();
        for (number, request) in requests.iter().enumerate() {
            match request {
                Request::Announce(announce) => self.batch.push_announce(*announce, number).unwrap(),
                Request::Scrape(hashes) => self.batch.push_scrape(hashes, number).unwrap(),
            }
        }
        self.shard.serve(&mut self.batch, Moment(self.now));
        assert_eq!(self.batch.replies().count(), self.batch.announces().len());
        for ((announce, _), (reply, number)) in
            self.batch.announces().iter().zip(self.batch.replies())
        {
            assert!(matches!(requests[*number], Request::Announce(it) if it == *announce));
            self.model.announce(announce, self.now);
            self.model.check_reply(announce, reply);
        }
        for part in self.batch.scrapes() {
            assert!(
                matches!(&requests[part.place], Request::Scrape(it) if *it == part.info_hashes)
            );
            let counts: Vec<_> = part.counts.iter().map(ScrapeCounts::parse).collect();
            let expected = part.info_hashes.iter().map(|hash| self.model.scrape(&InfoHash(*hash)));
            assert_eq!(counts, expected.collect::<Vec<_>>());
        }
    }

    /// The model has evicted one of several equally old idle swarms; the shard may have evicted
    /// another one of them.
    fn follow_eviction(&mut self) {
        let there: BTreeMap<_, _> = self
            .shard
            .swarms(Moment(self.now))
            .filter_map(|swarm| Some((swarm.info_hash, (swarm.idle_for?, swarm.completed))))
            .collect();
        let mine: BTreeSet<_> = self.model.idle().map(|(_, hash)| hash).collect();
        let Some(hash) = mine.iter().find(|hash| !there.contains_key(hash)) else { return };
        let evicted = self.model.swarms.remove(hash).unwrap();
        let (other, (age, completed)) =
            there.iter().find(|(hash, _)| !mine.contains(hash)).expect("as many idle swarms");
        assert_eq!(evicted.idle.unwrap().0, self.now - age, "{hash} was not the oldest");
        let kept = ModelSwarm { completed: *completed, idle: evicted.idle, ..Default::default() };
        self.model.swarms.insert(*other, kept);
    }

    fn sweep(&mut self, budget: usize) {
        self.serve();
        let before = self.shard.totals();
        let swept = self.shard.sweep(Moment(self.now), budget);
        assert!(swept.visited <= budget.saturating_add(255), "{swept:?} with {budget}");
        let after = self.shard.totals();
        assert_eq!(after.expired - before.expired, before.peers() - after.peers());
        let full = budget == usize::MAX;
        assert!(swept.pass_finished || !full);
        self.model.follow_sweep(&self.shard, self.now, full);
        // So that no other swarm becomes idle in the same second.
        self.now += 1;
    }

    fn compare(&mut self) {
        self.shard.check();
        if !self.waiting.is_empty() {
            return;
        }
        assert_eq!(self.shard.totals(), self.model.totals);
        let mut swarms = 0;
        for view in self.shard.swarms(Moment(self.now)) {
            swarms += 1;
            let swarm = &self.model.swarms[&view.info_hash];
            assert_eq!(view.completed, swarm.completed);
            assert_eq!(view.idle_for, swarm.idle.map(|(since, _)| self.now - since));
            assert_eq!(view.peers.len(), swarm.peers.len());
            for peer in view.peers {
                let (seeder, seen) = swarm.peers[&peer.endpoint];
                assert_eq!(peer.seeder, seeder);
                assert_eq!(peer.age, (ticks(self.now) - ticks(seen)) * 8);
            }
        }
        assert_eq!(swarms, self.model.swarms.len());
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::None),
        2 => Just(Event::Started),
        2 => Just(Event::Completed),
        3 => Just(Event::Stopped),
        1 => Just(Event::Paused),
    ]
}

fn peer(numbers: u16) -> impl Strategy<Value = Peer> {
    (0..numbers, any::<bool>(), prop::bool::weighted(0.15)).prop_map(|(number, v6, port_1)| Peer {
        number,
        v6,
        port_1,
    })
}

fn step(swarms: u8, numbers: u16, crowd: u16) -> impl Strategy<Value = Step> {
    let seeder = prop::bool::weighted(0.4);
    let announce = (0..swarms, peer(numbers), event(), seeder, 0..60u16).prop_map(
        |(swarm, peer, event, seeder, want)| Step::Announce { swarm, peer, event, seeder, want },
    );
    let crowds = (
        0..swarms.min(3),
        0..crowd.max(1),
        0..crowd.max(1),
        event(),
        prop_oneof![Just(0), Just(2), Just(50), Just(100)],
        prop_oneof![Just(0), Just(30), Just(100)],
    );
    let crowds = crowds.prop_map(|(swarm, from, peers, event, seeders, v6)| Step::Crowd {
        swarm,
        from,
        peers,
        event,
        seeders,
        v6,
    });
    prop_oneof![
        30 => announce,
        u32::from(crowd > 0) * 6 => crowds,
        3 => (0..swarms, 0..5u8).prop_map(|(swarm, more)| Step::Scrape { swarm, more }),
        4 => (0..40u32).prop_map(|seconds| Step::Wait { seconds }),
        1 => (40..400u32).prop_map(|seconds| Step::Wait { seconds }),
        3 => (0..60usize).prop_map(|budget| Step::Sweep { budget }),
        1 => Just(Step::FullSweep),
        1 => (0..swarms).prop_map(|swarm| Step::Remove { swarm }),
    ]
}

fn settings() -> impl Strategy<Value = ShardSettings> {
    let max_peers = prop_oneof![3 => Just(100_000), 1 => Just(0), 2 => 1..20u64, 1 => 100..300u64];
    let max_idle = prop_oneof![2 => Just(1_000), 1 => Just(0), 2 => 1..4u64];
    let lifetime = prop_oneof![Just(1), 20..300u32, Just(65_536)];
    (max_peers, max_idle, lifetime, 0..300u32, 0..=100u32).prop_map(
        |(max_peers, max_idle_swarms, peer_lifetime, completed_retention, percent)| ShardSettings {
            interval: 1_800,
            interval_jitter_percent: percent,
            peer_lifetime,
            completed_retention,
            max_peers,
            max_idle_swarms,
            sources: SourceLimits {
                // Beyond every test, so that peers of sources are counted and never refused.
                peers_per_swarm: if percent % 2 == 0 { 1_000_000 } else { 0 },
                new_swarms: 1_000_000,
                // Other peers would be replaced in a full shard.
                peers: if max_peers == 100_000 { 1_000_000 } else { 0 },
            },
        },
    )
}

fn run(settings: ShardSettings, seed: u64, steps: &[Step]) {
    let mut pair = Pair::new(settings, seed);
    for step in steps {
        pair.step(step);
    }
    pair.step(&Step::FullSweep);
    pair.now += settings.peer_lifetime + 16;
    pair.step(&Step::FullSweep);
    assert_eq!(pair.shard.totals().peers(), 0, "all peers have expired");
    pair.now += settings.completed_retention;
    pair.step(&Step::FullSweep);
    assert_eq!(pair.shard.swarms(Moment(pair.now)).count(), 0, "nothing is left");
}

proptest! {
    #![proptest_config(config(400))]

    /// A few peers that come and go: the forms within the entry and the first blocks.
    #[test]
    fn small_swarms_agree_with_the_model(
        settings in settings(),
        seed: u64,
        steps in prop::collection::vec(step(12, 6, 0), 1..300),
    ) {
        run(settings, seed, &steps);
    }

    /// Many peers that come and go: from the entry to chunked sets and back.
    #[test]
    fn large_swarms_agree_with_the_model(
        settings in settings(),
        seed: u64,
        steps in prop::collection::vec(step(4, 300, 400), 1..60),
    ) {
        run(settings, seed, &steps);
    }
}
