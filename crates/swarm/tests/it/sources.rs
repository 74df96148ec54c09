//! Fair shares: the limits of sources, against a naive model and under attack.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{AnnounceHead, Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::sources::NETWORK_SOURCES;
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

fn prefixes(endpoint: &Endpoint) -> [Vec<u8>; 2] {
    let bytes = endpoint.as_bytes();
    match endpoint {
        Endpoint::V4(_) => [bytes[..4].to_vec(), bytes[..3].to_vec()],
        Endpoint::V6(_) => [bytes[..8].to_vec(), bytes[..6].to_vec()],
    }
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
        let [source, network] = prefixes(endpoint);
        let alike = |nth: usize, own: &Vec<u8>| {
            others.clone().filter(|other| prefixes(other)[nth] == *own).count() as u64
        };
        limit > 0 && (alike(0, &source) >= limit || alike(1, &network) >= limit * NETWORK_SOURCES)
    }

    fn start(&mut self, swarm: u64, endpoint: Endpoint, now: u32) {
        if !self.peers.contains_key(&(swarm, endpoint)) {
            let all = self.peers.keys().map(|(_, peer)| *peer);
            let here = self.peers.keys().filter(|(of, _)| *of == swarm).map(|(_, peer)| *peer);
            let minute = self.created.iter().filter(|(minute, _)| *minute == now / 60);
            let new = here.clone().next().is_none();
            let exceeded = [
                !new && Self::exceeds(self.limits.peers_per_swarm.into(), &endpoint, here),
                new && Self::exceeds(
                    self.limits.new_swarms.into(),
                    &endpoint,
                    minute.map(|(_, peer)| *peer),
                ),
                Self::exceeds(self.limits.peers, &endpoint, all),
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
        let mut model =
            Model { limits, peers: BTreeMap::new(), created: Vec::new(), refused: [0; 3] };
        for step in steps {
            match step {
                Step::Start { swarm, source, port } => {
                    let endpoint = peer(source, port);
                    tracker.start(swarm, endpoint, port % 2 == 0);
                    model.start(swarm, endpoint, tracker.now);
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

/// Sources that together fill the shard, each within its limit, make room for newcomers.
#[test]
fn a_newcomer_replaces_a_peer_of_a_source_that_occupies_most() {
    let limits = SourceLimits { peers_per_swarm: 64, peers: 1_000, new_swarms: 0 };
    let mut tracker = Tracker::new(20_000, limits);
    for number in 0..10_000 {
        tracker.start(number / 4, honest(number as u32), number % 2 == 0);
    }
    for number in 0..11_000u64 {
        let address = Ipv4Addr::new(198, 51, (number % 11) as u8, 7);
        tracker.start(1 << 40 | number, Endpoint::v4(address, 80), false);
    }
    let refused = tracker.totals().refused_full;
    assert_eq!((tracker.totals().peers(), tracker.totals().replaced), (20_000, 0));
    // A few share the cells of a source that occupies much.
    let tolerated = 10;
    for number in 10_000..14_000 {
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
