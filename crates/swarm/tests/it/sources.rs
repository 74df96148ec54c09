//! Fair shares: the limits of sources, against a naive model and under attack.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::sources::{BLOCK_SOURCES, NETWORK_SOURCES};
use onrush_swarm::{
    Announce, Moment, PeerView, Shard, ShardBatch, ShardSettings, SourceLimits, SourceSet, Totals,
};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::population::config;

const LIFETIME: u32 = 3_600;

fn shard(max_peers: u64, sources: SourceLimits) -> Shard {
    let settings = ShardSettings {
        peer_lifetime: LIFETIME,
        max_peers,
        max_idle_swarms: 1_000,
        sources,
        ..ShardSettings::default()
    };
    Shard::new(settings, [9; 16], 5)
}

fn info_hash(number: u64) -> InfoHash {
    let mut hash = [0x5A; 20];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    InfoHash(hash)
}

/// An honest client: an address of its own, far from those of others.
fn honest(number: u32) -> Endpoint {
    Endpoint::v4(Ipv4Addr::from(number.wrapping_mul(0x9E37_79B1) | 1), 6_881)
}

const ATTACKER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// A shard that is announced to, one request per batch.
struct Tracker {
    shard: Shard,
    batch: ShardBatch<(), ()>,
    now: u32,
}

struct Reply {
    seeders: u32,
    leechers: u32,
    peers: Vec<Endpoint>,
}

impl Tracker {
    fn new(max_peers: u64, sources: SourceLimits) -> Self {
        let batch = ShardBatch::new(1, 0, HEAD_LEN + 200 * 18);
        Self { shard: shard(max_peers, sources), batch, now: 600 }
    }

    fn announce(&mut self, swarm: u64, endpoint: Endpoint, seeder: bool, event: Event) {
        let (info_hash, transaction_id) = (info_hash(swarm), TransactionId(1));
        let announce = Announce { info_hash, endpoint, event, seeder, want: 50, transaction_id };
        self.batch.clear();
        self.batch.push_announce(announce, ()).unwrap();
        self.shard.serve(&mut self.batch, Moment(self.now));
    }

    fn start(&mut self, swarm: u64, endpoint: Endpoint, seeder: bool) -> Reply {
        self.announce(swarm, endpoint, seeder, Event::Started);
        let (bytes, ()) = self.batch.replies().next().expect("a reply");
        let (head, peers) = bytes.split_first_chunk().expect("a head");
        let AnnounceHead { seeders, leechers, .. } = AnnounceHead::parse(head);
        let v4 = |row: &[u8]| Endpoint::V4(row.try_into().unwrap());
        let v6 = |row: &[u8]| Endpoint::V6(row.try_into().unwrap());
        let peers = match endpoint {
            Endpoint::V4(_) => peers.chunks(6).map(v4).collect(),
            Endpoint::V6(_) => peers.chunks(18).map(v6).collect(),
        };
        Reply { seeders, leechers, peers }
    }

    fn totals(&self) -> Totals {
        self.shard.totals()
    }

    /// The peers of a swarm.
    fn stored(&self, swarm: u64) -> BTreeSet<Endpoint> {
        let swarms = self.shard.swarms(Moment(self.now));
        let mut swarms = swarms.filter(|view| view.info_hash == info_hash(swarm));
        swarms.next().into_iter().flat_map(|view| view.peers).map(|peer| peer.endpoint).collect()
    }
}

/// The peers of two sources' worth of addresses: IPv4 and IPv6, several networks.
fn peer(source: u8, port: u8) -> Endpoint {
    let port = 1_000 + u16::from(port);
    match source {
        0..20 => Endpoint::v4(Ipv4Addr::new(10, 0, 0, source), port),
        20..24 => Endpoint::v4(Ipv4Addr::new(10, 0, source, 1), port),
        // Sources are networks of 64 bits: the port selects the address, too.
        24..44 => Endpoint::v6(Ipv6Addr::new(0x2001, 1, 1, source.into(), 0, 0, 0, port), port),
        _ => Endpoint::v6(Ipv6Addr::new(0x2001, 1, source.into(), 0, 0, 0, 0, port), port),
    }
}

fn prefixes(endpoint: &Endpoint) -> [&[u8]; 3] {
    let lengths = match endpoint {
        Endpoint::V4(_) => [4, 3, 2],
        Endpoint::V6(_) => [8, 6, 4],
    };
    lengths.map(|length| &endpoint.as_bytes()[..length])
}

/// The limits, computed from all peers for each newcomer.
struct Model {
    limits: SourceLimits,
    peers: BTreeMap<(u64, Endpoint), u32>,
    /// The minute and the source of each swarm that was created.
    created: Vec<(u32, Endpoint)>,
    refused: [u64; 3],
}

impl Model {
    fn exceeds(
        limit: u64,
        endpoint: &Endpoint,
        others: impl Iterator<Item = Endpoint> + Clone,
    ) -> bool {
        let alike = |nth: usize| {
            let own = prefixes(endpoint)[nth];
            others.clone().filter(|other| prefixes(other)[nth] == own).count() as u64
        };
        limit > 0
            && (alike(0) >= limit
                || alike(1) >= limit * NETWORK_SOURCES
                || alike(2) >= limit * BLOCK_SOURCES)
    }

    /// Whether a peer in a swarm may give way to a newcomer of its network.
    fn is_replaceable(&self, swarm: u64, peer: &Endpoint, newcomer: &Endpoint) -> bool {
        let here = || self.peers.keys().filter(|(of, _)| *of == swarm).map(|(_, peer)| peer);
        let of_source =
            |of: &Endpoint| here().filter(|other| prefixes(other)[0] == prefixes(of)[0]).count();
        let own = of_source(newcomer);
        prefixes(peer)[1] == prefixes(newcomer)[1] && of_source(peer) > own + own / 4 + 1
    }

    /// An announce after which the shard stores `stored` of the swarm.
    fn start(&mut self, swarm: u64, endpoint: Endpoint, now: u32, stored: &BTreeSet<Endpoint>) {
        if !self.peers.contains_key(&(swarm, endpoint)) {
            let all = self.peers.keys().map(|(_, peer)| *peer);
            let here = self.peers.keys().filter(|(of, _)| *of == swarm).map(|(_, peer)| *peer);
            let minute = self.created.iter().filter(|(minute, _)| *minute == now / 60);
            let new = here.clone().next().is_none();
            let per_swarm: u64 = self.limits.peers_per_swarm.into();
            let of_source =
                here.clone().filter(|other| prefixes(other)[0] == prefixes(&endpoint)[0]);
            let of_source = per_swarm > 0 && of_source.count() as u64 >= per_swarm;
            let of_network = Self::exceeds(per_swarm, &endpoint, here.clone());
            let peers = Self::exceeds(self.limits.peers, &endpoint, all);
            let gone = here.clone().find(|peer| !stored.contains(peer));
            let replaces = of_network && !of_source && !peers && gone.is_some();
            if let Some(gone) = gone.filter(|_| replaces) {
                assert!(self.is_replaceable(swarm, &gone, &endpoint), "{gone:?} for {endpoint:?}");
                self.peers.remove(&(swarm, gone));
                self.refused[0] += 1;
            }
            let exceeded = [
                of_source || of_network && !peers && !replaces,
                new && Self::exceeds(
                    self.limits.new_swarms.into(),
                    &endpoint,
                    minute.map(|(_, peer)| *peer),
                ),
                peers,
            ];
            if let Some(first) = exceeded.into_iter().position(|exceeded| exceeded) {
                self.refused[first] += 1;
                return;
            }
            if new {
                self.created.push((now / 60, endpoint));
            }
        }
        self.peers.insert((swarm, endpoint), now);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Start { swarm: u64, source: u8, port: u8 },
    Stop { swarm: u64, source: u8, port: u8 },
    Wait { seconds: u32 },
    Remove { swarm: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let peer = || (0..6u64, prop_oneof![0..48u8, 0..3u8], 0..12u8);
    prop_oneof![
        40 => peer().prop_map(|(swarm, source, port)| Step::Start { swarm, source, port }),
        10 => peer().prop_map(|(swarm, source, port)| Step::Stop { swarm, source, port }),
        2 => (1..90u32).prop_map(|seconds| Step::Wait { seconds }),
        1 => (0..6u64).prop_map(|swarm| Step::Remove { swarm }),
    ]
}

proptest! {
    #![proptest_config(config(150))]

    /// Swarms stay within a block, where the number of peers per source is exact.
    #[test]
    fn limits_agree_with_the_model(
        per_swarm in 0..5u32,
        in_all in prop_oneof![Just(0), 8..30u64],
        new_swarms in 0..4u32,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let limits = SourceLimits { peers_per_swarm: per_swarm, peers: in_all, new_swarms };
        let mut tracker = Tracker::new(100_000, limits);
        let mut model = Model {
            limits,
            peers: BTreeMap::new(),
            created: Vec::new(),
            refused: [0; 3],
        };
        for step in steps {
            match step {
                Step::Start { swarm, source, port } => {
                    let endpoint = peer(source, port);
                    tracker.start(swarm, endpoint, port % 2 == 0);
                    let stored = tracker.stored(swarm);
                    model.start(swarm, endpoint, tracker.now, &stored);
                }
                Step::Stop { swarm, source, port } => {
                    tracker.announce(swarm, peer(source, port), false, Event::Stopped);
                    model.peers.remove(&(swarm, peer(source, port)));
                }
                Step::Wait { seconds } => {
                    tracker.now += seconds;
                    tracker.shard.sweep(Moment(tracker.now), usize::MAX);
                }
                Step::Remove { swarm } => {
                    tracker.shard.remove(&info_hash(swarm), Moment(tracker.now));
                    while tracker.shard.release(10) {}
                    model.peers.retain(|(of, _), _| *of != swarm);
                }
            }
        }
        tracker.shard.check();
        let stored: BTreeSet<(InfoHash, Endpoint)> = tracker
            .shard
            .swarms(Moment(tracker.now))
            .flat_map(|swarm| {
                swarm.peers.into_iter().map(move |peer| (swarm.info_hash, peer.endpoint))
            })
            .collect();
        let expected = model.peers.keys().map(|(swarm, peer)| (info_hash(*swarm), *peer)).collect();
        prop_assert_eq!(stored, expected);
        let totals = tracker.totals();
        prop_assert_eq!(
            [totals.refused_per_swarm, totals.refused_new_swarms, totals.refused_of_source],
            model.refused
        );
        tracker.now += LIFETIME + 100;
        tracker.shard.sweep(Moment(tracker.now), usize::MAX);
        tracker.shard.check();
        prop_assert_eq!(tracker.totals().peers(), 0);
    }

    /// Large swarms grow and shrink, and their tables count exactly the peers that are stored.
    #[test]
    fn tables_of_large_swarms_count_what_is_stored(
        seed: u64,
        peers in 100u32..3_000,
        rounds in 1usize..6,
    ) {
        let limits = SourceLimits { peers_per_swarm: 64, peers: 1_000, new_swarms: 0 };
        let mut tracker = Tracker::new(100_000, limits);
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..rounds {
            for _ in 0..peers {
                let endpoint = peer(rng.random_range(0..48), rng.random());
                tracker.start(1, endpoint, rng.random());
                tracker.start(1, honest(rng.random_range(0..peers)), rng.random());
            }
            tracker.shard.check();
            for _ in 0..peers {
                let number = rng.random_range(0..peers);
                tracker.announce(1, honest(number), false, Event::Stopped);
            }
            tracker.now += LIFETIME / 4;
            tracker.shard.sweep(Moment(tracker.now), rng.random_range(1..4_000));
            tracker.shard.check();
        }
    }
}

/// The attack: one address announces 65,534 ports, half of them as seeders.
fn honest_share(swarm_size: u32, attackers: impl Iterator<Item = Endpoint>) -> (usize, f64) {
    share_of(honest, swarm_size, attackers)
}

/// The same against a swarm of peers of this kind.
fn share_of(
    honest: fn(u32) -> Endpoint,
    swarm_size: u32,
    attackers: impl Iterator<Item = Endpoint>,
) -> (usize, f64) {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 100_000, new_swarms: 3_000 };
    let mut tracker = Tracker::new(1_000_000, limits);
    for number in 0..swarm_size {
        tracker.start(1, honest(number), number % 2 == 0);
    }
    let mut ports = BTreeSet::new();
    for (number, endpoint) in attackers.enumerate() {
        tracker.start(1, endpoint, number % 2 == 0);
        ports.insert(endpoint);
    }
    tracker.shard.check();
    let stored = tracker.totals().peers() as usize - swarm_size as usize;
    let (mut all, mut good) = (0, 0);
    for client in 0..200 {
        // A known leecher asks again.
        let reply = tracker.start(1, honest((client % swarm_size) | 1), false);
        all += reply.peers.len();
        good += reply.peers.iter().filter(|peer| !ports.contains(peer)).count();
    }
    (stored, good as f64 / all as f64)
}

#[test]
fn one_source_gets_a_bounded_share_of_a_swarm() {
    for (size, least) in [(60, 0.45), (200, 0.7), (2_000, 0.95), (20_000, 0.99)] {
        let ports = (1..=65_534).map(|port| Endpoint::v4(ATTACKER, port + 1));
        let (stored, share) = honest_share(size, ports);
        assert!((56..=72).contains(&stored), "{stored} peers of one source among {size}");
        assert!(share >= least, "{share} of the lists are honest among {size}");
    }
}

/// The same from all sources of a network: 65,536 of them in an IPv6 /48.
#[test]
fn one_network_gets_a_bounded_share_of_a_swarm() {
    let most = 64 * NETWORK_SOURCES as usize;
    let v6 = |n: u16| Endpoint::v6(Ipv6Addr::new(0x2001, 0xdb8, 7, n, 0, 0, 0, 1), 80);
    let (stored, _) = honest_share(4_000, (0..=u16::MAX).map(v6));
    assert!((most * 9 / 10..=most * 11 / 10).contains(&stored), "{stored} peers of one /48");
    let v4 = |n: u32| Endpoint::v4(Ipv4Addr::new(198, 51, 100, n as u8), (n >> 8) as u16 + 2);
    let (stored, _) = honest_share(4_000, (0..1 << 16).map(v4));
    assert!((most * 9 / 10..=most * 11 / 10).contains(&stored), "{stored} peers of one /24");
}

/// The attack: one address announces random info hashes, for a simulated hour. With
/// `ONRUSH_FULL_SIZE` at 20,000 a second to a tracker of the default size; the suite has no time
/// for these 72 million announces.
#[test]
fn one_source_gets_one_percent_of_the_peers() {
    match std::env::var_os("ONRUSH_FULL_SIZE") {
        Some(_) => one_source_announces_for_an_hour(20_000, 20_000_000),
        None => one_source_announces_for_an_hour(2_000, 200_000),
    }
}

fn one_source_announces_for_an_hour(per_second: u64, max_peers: u64) {
    // The default limits of a tracker of this size.
    let most = (max_peers / 100).min(100_000);
    let limits = SourceLimits { peers_per_swarm: 64, peers: most, new_swarms: 3_000 };
    let mut tracker = Tracker::new(max_peers, limits);
    let (mut number, mut greatest) = (0, 0);
    for second in 0..3_600 {
        tracker.now = 600 + second;
        for _ in 0..per_second {
            number += 1;
            tracker.start(1 << 40 | number, Endpoint::v4(ATTACKER, 80), false);
        }
        tracker.shard.sweep(Moment(tracker.now), 4_096);
        greatest = greatest.max(tracker.totals().peers());
    }
    tracker.shard.check();
    assert_eq!(greatest, most, "the source reaches its limit, and no more");
    let totals = tracker.totals();
    assert_eq!(number, totals.peers() + totals.expired + totals.refused());
    // A new swarm of honest clients works.
    assert_eq!(tracker.start(1, honest(1), true).seeders, 1);
    let reply = tracker.start(1, honest(2), false);
    assert_eq!((reply.seeders, reply.leechers, reply.peers), (1, 1, vec![honest(1)]));
    eprintln!("{number} announces of one source: {greatest} peers of {max_peers} stored at most");
}

/// An honest client of IPv6, with a network of its own.
fn honest_v6(number: u32) -> Endpoint {
    let [a, b] = [number >> 16, number].map(|half| half as u16);
    Endpoint::v6(Ipv6Addr::new(0x2a00, a, b, 0, 0, 0, 0, 1), 6_881)
}

/// The first sources of a network, with more ports than their limit each.
fn of_one_network(v6: bool, sources: u16) -> impl Iterator<Item = Endpoint> {
    (0..sources * 128).map(move |number| {
        let (source, port) = (number % sources, 1_000 + number / sources);
        match v6 {
            false => Endpoint::v4(Ipv4Addr::new(198, 51, 100, source as u8), port),
            true => Endpoint::v6(Ipv6Addr::new(0x2001, 0xdb8, 7, source, 0, 0, 0, 1), port),
        }
    })
}

#[test]
fn one_network_gets_an_eighth_of_the_lists_while_others_are_left() {
    for (size, least) in [(100, 0.8), (200, 0.85), (2_000, 0.85)] {
        for (v6, honest) in [(false, honest as fn(u32) -> Endpoint), (true, honest_v6)] {
            let (stored, share) = share_of(honest, size, of_one_network(v6, 16));
            assert!((900..=1_100).contains(&stored), "{stored} peers of one network among {size}");
            assert!(share >= least, "{share} of the lists are honest among {size}, IPv6: {v6}");
        }
    }
}

#[test]
fn neighbours_do_not_keep_each_other_out_of_a_swarm() {
    for v6 in [false, true] {
        let limits = SourceLimits { peers_per_swarm: 64, peers: 100_000, new_swarms: 3_000 };
        let mut tracker = Tracker::new(1_000_000, limits);
        (0..200).for_each(|number| drop(tracker.start(1, honest(number), number % 2 == 0)));
        of_one_network(v6, 16).for_each(|peer| drop(tracker.start(1, peer, false)));
        let before = tracker.totals();
        // One peer of each other source.
        let others = of_one_network(v6, 200).skip(100).take(100);
        let stored = others.filter(|peer| {
            tracker.start(1, *peer, false);
            tracker.stored(1).contains(peer)
        });
        let stored = stored.count();
        tracker.shard.check();
        assert!(stored >= 95, "{stored} of 100 neighbours are stored, IPv6: {v6}");
        assert!(tracker.totals().peers() <= before.peers() + 50, "the network keeps its limit");
    }
}

/// The same for a block: more networks than may occupy their limits.
#[test]
fn one_block_gets_a_bounded_share_of_the_peers() {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 2, new_swarms: 0 };
    let mut tracker = Tracker::new(100_000, limits);
    for number in 0..4_096u32 {
        let [_, _, high, low] = number.to_be_bytes();
        let address = Ipv4Addr::new(198, 51, low, high);
        tracker.start(number.into(), Endpoint::v4(address, 80), false);
        let address = Ipv6Addr::new(0x2001, 0xdb8, number as u16, 0, 0, 0, 0, 1);
        tracker.start(number.into(), Endpoint::v6(address, 80), false);
    }
    tracker.shard.check();
    let totals = tracker.totals();
    assert_eq!([totals.peers_v4, totals.peers_v6], [2 * BLOCK_SOURCES; 2]);
    assert_eq!(totals.refused_of_source, 2 * 4_096 - totals.peers());
}

/// What the tracker knows of the seed box when the attack begins.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It has announced once.
    Once,
    /// It has announced again half an interval later.
    Again,
    /// The tracker has restored it.
    Restored,
}

/// The attack: all sources of a block, with one or two peers each, announce more peers than the
/// shard stores, once a minute; its target is a source with many peers within its limit.
fn box_and_newcomers(known: Known, attacker: impl Fn(u32) -> Endpoint, minutes: u32) -> [u64; 2] {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 200, new_swarms: 0 };
    let mut tracker = Tracker::new(20_000, limits);
    let seed_box = Endpoint::v4(Ipv4Addr::new(203, 0, 113, 9), 6_881);
    (0..160).for_each(|swarm| drop(tracker.start(swarm, seed_box, true)));
    match known {
        Known::Once => {}
        Known::Again => {
            tracker.now += 900;
            (0..160).for_each(|swarm| drop(tracker.start(swarm, seed_box, true)));
        }
        Known::Restored => {
            let stored: Vec<_> = tracker.shard.swarms(Moment(tracker.now)).collect();
            tracker = Tracker::new(20_000, limits);
            for swarm in stored {
                let peers = swarm.peers.into_iter();
                tracker.shard.restore(swarm.info_hash, 0, peers, Moment(tracker.now));
            }
        }
    }
    for minute in 0..minutes {
        for number in 0..26_214 {
            let swarm = 1 << 40 | u64::from(minute) << 32 | u64::from(number);
            tracker.start(swarm, attacker(number), false);
        }
        tracker.now += 60;
    }
    assert_eq!(tracker.totals().peers(), 20_000, "the shard is full");
    let views: Vec<_> = tracker.shard.swarms(Moment(tracker.now)).collect();
    let kept = views.iter().flat_map(|swarm| &swarm.peers);
    let kept = kept.filter(|peer| peer.endpoint == seed_box).count() as u64;
    let stored = (0..500).filter(|number| {
        let reply = tracker.start(1 << 50 | u64::from(*number), honest(*number), true);
        reply.seeders == 1
    });
    let stored = stored.count() as u64;
    tracker.shard.check();
    [kept, stored]
}

#[test]
fn one_block_displaces_no_large_source_and_keeps_no_newcomers_out() {
    let v4 = |n: u32| {
        let [_, _, high, low] = (n / 2).to_be_bytes();
        Endpoint::v4(Ipv4Addr::new(198, 51, low, high), 80 + n as u16 % 2)
    };
    // A /64 each, of as many networks as possible, and 16 of each network.
    let v6 = |n: u32| Endpoint::v6(Ipv6Addr::new(0x2001, 0xdb8, n as u16, 0, 0, 0, 0, 1), 80);
    let v6_networks = |n: u32| {
        let (network, source) = (n as u16 / 16, n as u16 % 16);
        Endpoint::v6(Ipv6Addr::new(0x2001, 0xdb8, network, source, 0, 0, 0, 1), 80)
    };
    for (known, minutes, least) in [(Known::Once, 1, 144), (Known::Again, 3, 160)] {
        for (name, [kept, stored]) in [
            ("/16 of IPv4", box_and_newcomers(known, v4, minutes)),
            ("/32 of IPv6", box_and_newcomers(known, v6, minutes)),
            ("/32 of IPv6, by networks", box_and_newcomers(known, v6_networks, minutes)),
        ] {
            eprintln!("{name}, {known:?}: {kept} of 160 kept, {stored} of 500 stored");
            assert!(kept >= least, "{known:?}: {kept} of 160 peers of the box, {name}");
            assert!(stored >= 400, "{known:?}: {stored} of 500 newcomers, {name}");
        }
    }
    let [kept, _] = box_and_newcomers(Known::Restored, v4, 2);
    assert_eq!(kept, 160, "restored peers are settled");
}

/// Half of the peers are of one block, and settled; the others are honest.
#[test]
fn a_settled_block_keeps_no_newcomers_out() {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 200, new_swarms: 0 };
    let mut tracker = Tracker::new(20_000, limits);
    (0..10_000).for_each(|n| drop(tracker.start(u64::from(n), honest(n), true)));
    for _ in 0..2 {
        for number in 0..10_000u32 {
            let [_, _, high, low] = (number / 2).to_be_bytes();
            let peer = Endpoint::v4(Ipv4Addr::new(198, 51, low, high), 80 + number as u16 % 2);
            tracker.start(1 << 40 | u64::from(number), peer, false);
        }
        tracker.now += 900;
    }
    assert_eq!((tracker.totals().peers(), tracker.totals().replaced), (20_000, 0));
    (0..500).for_each(|n| drop(tracker.start(1 << 50 | u64::from(n), honest(20_000 + n), true)));
    tracker.shard.check();
    let peers = tracker.shard.swarms(Moment(tracker.now)).flat_map(|swarm| swarm.peers);
    let of_block = peers.filter(|peer| matches!(peer.endpoint, Endpoint::V4([198, 51, ..])));
    let (stored, displaced) = (tracker.totals().replaced, 10_000 - of_block.count());
    assert!(
        stored >= 400 && displaced >= 400,
        "{stored} of 500 stored for {displaced} of the block"
    );
}

/// Sources that together fill the shard, each within its limit, make room for newcomers, also if
/// they are settled.
#[test]
fn a_newcomer_replaces_a_peer_of_a_source_that_occupies_most() {
    [false, true].into_iter().for_each(newcomers_replace_peers_of_eleven_sources);
}

fn newcomers_replace_peers_of_eleven_sources(settled: bool) {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 1_000, new_swarms: 0 };
    let mut tracker = Tracker::new(20_000, limits);
    for number in 0..10_000 {
        tracker.start(number / 4, honest(number as u32), number % 2 == 0);
    }
    for _ in 0..1 + u32::from(settled) {
        for number in 0..11_000u64 {
            let address = Ipv4Addr::new(198, 51, (number % 11) as u8, 7);
            tracker.start(1 << 40 | number, Endpoint::v4(address, 80), false);
        }
        tracker.now += 900;
    }
    let refused = tracker.totals().refused_full;
    assert_eq!((tracker.totals().peers(), tracker.totals().replaced), (20_000, 0));
    // A few share the cells of a source that occupies much.
    let tolerated = 10;
    for number in 10_000..14_000 {
        // A source loses a sixteenth of its peers a minute.
        tracker.now += u32::from(number % 4 == 0);
        tracker.start((1 << 50) + number / 4, honest(number as u32), true);
    }
    tracker.shard.check();
    let totals = tracker.totals();
    assert!(totals.replaced >= 4_000 - tolerated && totals.peers() == 20_000, "{totals:?}");
    assert_eq!(totals.replaced + totals.refused_full, 4_000 + refused);
    let refused = totals.refused_full;
    let honest_peers = tracker.shard.swarms(Moment(tracker.now)).flat_map(|swarm| swarm.peers);
    let honest_peers =
        honest_peers.filter(|peer| !matches!(peer.endpoint, Endpoint::V4([198, 51, ..])));
    let honest_peers = honest_peers.count() as u64;
    assert!(honest_peers >= 14_000 - tolerated, "{honest_peers} honest peers are left");
    // The sources that occupy most replace no peer.
    tracker.start(1 << 60, Endpoint::v4(Ipv4Addr::new(198, 51, 1, 7), 80), false);
    assert_eq!(tracker.totals().refused_full, refused + 1);
}

/// Sources that occupy most are found in large swarms as well, among many small ones and many
/// without peers.
#[test]
fn a_source_cannot_hide_its_peers_in_large_swarms() {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 1_000, new_swarms: 0 };
    let mut tracker = Tracker::new(20_000, limits);
    for number in 0..1_000 {
        let peer = honest(number as u32);
        tracker.announce(1 << 45 | number, peer, true, Event::Completed);
        tracker.announce(1 << 45 | number, peer, false, Event::Stopped);
    }
    for number in 0..10_000 {
        tracker.start(number, honest(number as u32), true);
    }
    // Sixteen swarms of 640 peers.
    for number in 0..11_000u64 {
        let address = Ipv4Addr::new(198, 51, (number % 11) as u8, 7);
        let port = (number / 11 / 16) as u16;
        tracker.start((1 << 40) + number / 11 % 16, Endpoint::v4(address, 1_000 + port), false);
    }
    let before = tracker.totals();
    assert_eq!((before.peers(), before.idle_swarms), (20_000, 1_000));
    for number in 10_000..12_000 {
        tracker.now += 1;
        tracker.shard.sweep(Moment(tracker.now), 2_048);
        tracker.start(1 << 50 | number, honest(number as u32), true);
    }
    tracker.shard.check();
    let (now, newcomers) = (tracker.totals(), 2_000);
    let refused = now.refused_full - before.refused_full;
    assert!(refused < newcomers / 20, "{refused} of {newcomers} were refused");
    let peers: Vec<_> =
        tracker.shard.swarms(Moment(tracker.now)).flat_map(|swarm| swarm.peers).collect();
    let hostile = |peer: &&PeerView| matches!(peer.endpoint, Endpoint::V4([198, 51, ..]));
    let honest_peers = (peers.len() - peers.iter().filter(hostile).count()) as u64;
    let expected = 10_000 + newcomers - refused;
    assert!(
        honest_peers + newcomers / 20 >= expected,
        "{honest_peers} of {expected} honest peers are left"
    );
}

/// The other peers of a large swarm or of a crowded table do not count for a source.
#[test]
fn small_limits_do_not_refuse_sources_of_one_peer() {
    let limits = SourceLimits { peers_per_swarm: 4, peers: 0, new_swarms: 0 };
    let mut tracker = Tracker::new(100_000, limits);
    (0..20_000).for_each(|number| drop(tracker.start(1, honest(number), true)));
    let refused = tracker.totals().refused_per_swarm;
    assert!(refused < 400, "{refused} of 20,000 were refused in a large swarm");

    let limits = SourceLimits { peers_per_swarm: 0, peers: 4, new_swarms: 0 };
    let mut tracker = Tracker::new(400_000, limits);
    (0..300_000).for_each(|n| drop(tracker.start(u64::from(n), honest(n), true)));
    assert_eq!(tracker.totals().crowded_tables, 1);
    let refused = tracker.totals().refused_of_source;
    assert!(refused < 3_000, "{refused} of 300,000 were refused by a crowded table");
}

#[derive(Debug)]
struct Trusted;

impl SourceSet for Trusted {
    fn contains(&self, endpoint: &Endpoint) -> bool {
        matches!(endpoint, Endpoint::V4([198, 51, 100, ..]))
    }
}

#[test]
fn no_limit_applies_to_trusted_sources() {
    let limits = SourceLimits { peers_per_swarm: 4, peers: 20, new_swarms: 2 };
    let mut tracker = Tracker::new(100_000, limits);
    tracker.shard.trust(Arc::new(Trusted));
    for number in 0..300 {
        tracker.start(number, Endpoint::v4(ATTACKER, 80), false);
        tracker.start(1, Endpoint::v4(ATTACKER, 81 + number as u16), false);
    }
    tracker.shard.check();
    assert_eq!((tracker.totals().peers(), tracker.totals().refused()), (600, 0));
    for port in 81..84 {
        tracker.announce(1, Endpoint::v4(ATTACKER, port), true, Event::Completed);
    }
    assert_eq!(tracker.totals().completed, 3, "each client of a trusted source counts");
}

/// More sources than a table distinguishes: the limit of networks applies alone.
#[test]
fn a_crowded_table_leaves_the_limits_to_networks() {
    let limits = SourceLimits { peers_per_swarm: 0, peers: 40, new_swarms: 0 };
    let mut tracker = Tracker::new(200_000, limits);
    let mut number = 0;
    while tracker.totals().crowded_tables == 0 {
        tracker.start(u64::from(number), honest(number), false);
        number += 1;
        assert!(number < 100_000, "the table is crowded");
    }
    let stored = |tracker: &mut Tracker, address: Ipv4Addr| {
        let before = tracker.totals().peers();
        for swarm in 0..2_000 {
            tracker.start(1 << 40 | swarm, Endpoint::v4(address, 80), false);
        }
        tracker.totals().peers() - before
    };
    let of_source = stored(&mut tracker, ATTACKER);
    let most = 40 * NETWORK_SOURCES;
    let about = most * 9 / 10..=most * 11 / 10;
    assert!(about.contains(&of_source), "{of_source} of a network's {most}");
    assert_eq!(tracker.totals().refused_of_source, 2_000 - of_source);
    tracker.shard.check();
}
