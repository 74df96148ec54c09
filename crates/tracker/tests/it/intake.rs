//! Which datagrams get no reply or an error, and the counter of each; which sources are refused;
//! and the settings of replies. crates/daemon/tests runs the checks of crates/verify: the rules of
//! BEP 15 that a client can see.

use std::collections::{BTreeMap, BTreeSet};

use onrush_net::Socket;
use onrush_net::memory::Endpoint;
use onrush_proto::connect::MAGIC;
use onrush_proto::{
    Announce, AnnounceHead, ConnectionId, Event, Family, InfoHash, Response, Scrape, ScrapeCounts,
    TransactionId,
};
use onrush_testing::memory_tracker::{
    COLOCATED, SPLIT, TestTracker, announce, at, connect, rules, secrets, send, settings,
};
use onrush_tracker::connection::ConnectionIds;
use onrush_tracker::intake::{Intake, Verdict};
use onrush_tracker::metrics::{Incoming, Summary, WorkerMetrics};

const PLACEMENTS: [&str; 2] = [SPLIT, COLOCATED];
/// The transaction id of all requests.
const NUMBER: u32 = 0xCAFE_BABE;
const HASH: InfoHash = InfoHash([1; 20]);
const FORBIDDEN: InfoHash = InfoHash([7; 20]);
/// A client of each family.
const CLIENTS: [&str; 2] = ["198.51.100.1:3000", "[2001:db8::2]:3000"];

/// A tracker, and clients that send one request at a time.
struct World {
    tracker: TestTracker<Endpoint>,
    clients: Endpoint,
    second: u64,
}

impl World {
    fn new(text: &str, clients: &[&str]) -> Self {
        let clients: Vec<_> = clients.iter().map(|client| client.parse().unwrap()).collect();
        let (tracker, clients) = TestTracker::with_clients(text, &clients);
        Self { tracker, clients, second: 1 }
    }

    fn connect(&mut self, client: u16) -> ConnectionId {
        connect(&mut self.tracker, &mut self.clients, client, at(self.second))
    }

    /// The replies to a datagram.
    fn replies(&mut self, client: u16, datagram: &[u8]) -> Vec<Vec<u8>> {
        send(&mut self.clients, client, datagram);
        self.tracker.settle(at(self.second));
        let received = self.clients.receive(8).unwrap();
        received.iter().map(|(bytes, _)| bytes.to_vec()).collect()
    }

    /// The head of the reply to an announce, and the number of peers in it.
    fn announce(&mut self, client: u16, request: &Announce<'_>) -> (AnnounceHead, usize) {
        let replies = self.replies(client, &bytes(request));
        match Response::parse(&replies[0], self.family(client)) {
            Ok(Response::Announce(head, peers)) => (head, peers.len()),
            other => panic!("{other:?}"),
        }
    }

    fn scrape(&mut self, id: ConnectionId, hashes: &[InfoHash]) -> Vec<ScrapeCounts> {
        let replies = self.replies(0, &scrape(id, hashes));
        match Response::parse(&replies[0], Family::V4) {
            Ok(Response::Scrape(_, counts)) => counts.iter().collect(),
            other => panic!("{other:?}"),
        }
    }

    fn family(&self, client: u16) -> Family {
        Family::of(self.clients.addresses()[usize::from(client)].ip())
    }

    /// A counter of the client's family, over all workers.
    fn counted(&self, client: u16, counter: impl Fn(&Incoming) -> u64) -> u64 {
        let family = self.family(client);
        self.tracker.workers.iter().map(|worker| counter(worker.metrics.incoming.of(family))).sum()
    }

    /// The refusals of the client's family that are counted, by reason.
    fn refused(&self, client: u16) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for worker in &self.tracker.workers {
            for (reason, count) in worker.metrics.incoming.of(self.family(client)).refusals() {
                *counts.entry(reason).or_default() += count;
            }
        }
        counts.retain(|_, count| *count > 0);
        counts
    }
}

/// The first 16 bytes of a request.
fn head(id: u64, action: u32) -> Vec<u8> {
    let parts = [&id.to_be_bytes()[..], &action.to_be_bytes(), &NUMBER.to_be_bytes()];
    parts.concat()
}

/// The first 16 bytes of a request, and as many more as it takes.
fn padded(id: u64, action: u32, len: usize) -> Vec<u8> {
    let mut bytes = head(id, action);
    bytes.resize(len, 0x5A);
    bytes
}

/// A leecher with port 6881.
fn leecher(id: ConnectionId, info_hash: InfoHash) -> Announce<'static> {
    Announce { left: 1, transaction_id: TransactionId(NUMBER), ..announce(id, info_hash) }
}

fn bytes(announce: &Announce<'_>) -> Vec<u8> {
    let mut bytes = [0; 128];
    let len = announce.write(&mut bytes);
    bytes[..len].to_vec()
}

fn scrape(id: ConnectionId, hashes: &[InfoHash]) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let len = Scrape::write(id, TransactionId(NUMBER), hashes, &mut bytes);
    bytes[..len].to_vec()
}

/// The datagrams that get no reply, or an error with a text, and the reason that is counted. The
/// connection id is checked before anything else in an announce or a scrape.
fn refused_datagrams(id: ConnectionId, other: ConnectionId) -> Vec<(Vec<u8>, &'static str)> {
    let mut all = Vec::new();
    for (id, action) in [(MAGIC, 0), (id.0, 0), (id.0, 1), (id.0, 2), (id.0, 3), (id.0, u32::MAX)] {
        all.extend((0..16).map(|len| (head(id, action)[..len].to_vec(), "short")));
    }
    let whole = bytes(&leecher(id, HASH));
    all.extend((16..98).map(|len| (whole[..len].to_vec(), "short")));
    for wrong in [0, MAGIC + 1, MAGIC.swap_bytes(), MAGIC << 16, id.0] {
        all.extend([16, 98].map(|len| (padded(wrong, 0, len), "magic")));
    }
    for action in [3, 4, 5, 255, 256, 0x0100_0000, 0x8000_0001, u32::MAX] {
        for id in [id.0, 0, MAGIC] {
            all.extend([16, 36, 98, 1_400].map(|len| (padded(id, action, len), "action")));
        }
    }
    let bits = [id.0 ^ 1, id.0.swap_bytes(), 0].map(ConnectionId);
    for bad in bits.into_iter().chain([other]) {
        let good = leecher(bad, HASH);
        let announces = [good, Announce { port: 0, ..good }, leecher(bad, FORBIDDEN)];
        all.extend(announces.map(|announce| (bytes(&announce), "connection_id")));
        for hashes in [&[][..], &[FORBIDDEN], &[HASH; 74]] {
            all.push((scrape(bad, hashes), "connection_id"));
        }
    }
    for event in [Event::None, Event::Completed, Event::Started, Event::Stopped] {
        let seeder = Announce { left: 0, event, ..leecher(id, HASH) };
        all.push((bytes(&Announce { port: 0, ..seeder }), "port"));
        all.push((bytes(&Announce { info_hash: FORBIDDEN, ..seeder }), "forbidden"));
    }
    all.extend((16..36).map(|len| (scrape(id, &[HASH])[..len].to_vec(), "no_hash")));
    all
}

/// Every datagram is served or counted once as refused, with its reason; nothing is stored for a
/// refused one.
#[test]
fn every_datagram_is_in_a_counter() {
    let text = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{FORBIDDEN}\"]\n");
    let errors = BTreeMap::from([
        ("port", "port cannot be 0"),
        ("forbidden", "info hash is not allowed on this tracker"),
        ("no_hash", "scrape without an info hash"),
    ]);
    for (placement, client) in PLACEMENTS.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
        let mut world = World::new(&format!("{placement}{text}"), &CLIENTS);
        let other = world.connect(1 - client);
        let id = world.connect(client);
        let (mut expected, mut sent, mut sent_bytes) = (BTreeMap::new(), 1, 16);
        for (datagram, reason) in refused_datagrams(id, other) {
            let replies = world.replies(client, &datagram);
            let error = errors
                .get(reason)
                .map(|text| [&[0, 0, 0, 3][..], &NUMBER.to_be_bytes(), text.as_bytes()].concat());
            assert_eq!(replies, Vec::from_iter(error), "{reason}: {datagram:02x?}");
            *expected.entry(reason).or_default() += 1;
            assert_eq!(world.refused(client), expected, "{datagram:02x?}");
            (sent, sent_bytes) = (sent + 1, sent_bytes + datagram.len());
        }
        assert_eq!(world.counted(client, |incoming| incoming.datagrams.get()), sent);
        assert_eq!(world.counted(client, |incoming| incoming.bytes.get()), sent_bytes as u64);
        let served = |incoming: &Incoming| {
            incoming.connects.get() + incoming.announces.get() + incoming.scrapes.get()
        };
        assert_eq!(world.counted(client, served), 1);
        let summary = world.tracker.summary();
        assert_eq!((summary.peers_v4 + summary.peers_v6, summary.swarms), (0, 0));
        assert_eq!(world.announce(client, &leecher(id, HASH)).0.leechers, 1);
        assert_eq!(world.counted(client, served), 2);
    }
}

/// A source that has not proven its address gets a reply to a connect only, and none that is longer
/// than the request.
#[test]
fn no_reply_to_an_unproven_address_exceeds_its_request() {
    for (placement, client) in PLACEMENTS.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
        let mut world = World::new(placement, &CLIENTS);
        let id = world.connect(client).0;
        for len in (0..=120).chain([200, 576, 1_232, 1_496, 1_500, 4_000]) {
            for action in [0, 1, 2, 3, 4, u32::MAX] {
                for id in [0, MAGIC, id ^ 1, id.rotate_left(1)] {
                    let request = padded(id, action, len);
                    let replies = world.replies(client, &request);
                    let answered = len >= 16 && action == 0 && id == MAGIC;
                    assert_eq!(replies.len(), usize::from(answered), "{request:02x?}");
                    assert!(replies.iter().all(|reply| reply.len() <= len), "{request:02x?}");
                }
            }
        }
    }
}

/// No reply can be sent to port 0.
#[test]
fn source_port_0_gets_no_reply() {
    let ids = ConnectionIds::new(&secrets(1).keys, 120);
    let intake = Intake::new(&rules(&settings(SPLIT)), 0, ids);
    let (metrics, request) = (WorkerMetrics::default(), head(MAGIC, 0));
    for (count, source) in (1..).zip(["198.51.100.1:0", "[2001:db8::2]:0"]) {
        let source = source.parse().unwrap();
        let verdict = intake.check(&request, &source, at(1).unix, &metrics);
        assert!(matches!(verdict, Verdict::Silence), "{verdict:?}");
        let counted = Summary::of([&metrics]).refusals().find(|(name, _)| *name == "source_port");
        assert_eq!(counted, Some(("source_port", count)));
    }
}

/// Sources that cannot be peers on the internet are served unless the configuration refuses them;
/// blocked sources and neither of their neighbours get no reply.
#[test]
fn sources_are_refused_as_configured() {
    // The last is IPv4-mapped: it counts as its IPv4 address.
    let private = [
        "10.1.2.3:1",
        "127.0.0.1:1",
        "169.254.1.1:1",
        "[fd00::1]:1",
        "[::1]:1",
        "[::ffff:10.0.0.1]:1",
    ];
    let public = ["9.9.9.0:1", "9.9.7.255:1", "[2a01:4f9::1]:1", "[::ffff:8.8.8.8]:1"];
    let blocked = ["9.9.9.1:1", "9.9.8.255:1", "[2a01:4f8::5]:1"];
    let blocks = "[access]\nblocked = [\"9.9.9.1\", \"9.9.8.0/24\", \"2a01:4f8::/32\"]\n";
    let all = [&private[..], &public, &blocked].concat();
    for (text, refused, reason) in [
        ("", &[][..], ""),
        ("[access]\nrefuse_bogons = true\n", &private, "bogon"),
        (blocks, &blocked, "blocked"),
    ] {
        for placement in PLACEMENTS {
            // With ids of a tracker that serves all of them.
            let mut lenient = World::new(placement, &all);
            let mut world = World::new(&format!("{placement}{text}"), &all);
            for (client, source) in (0..).zip(&all) {
                let id = lenient.connect(client);
                let requests = [head(MAGIC, 0), bytes(&leecher(id, HASH)), scrape(id, &[HASH])];
                let before = world.refused(client).get(reason).copied().unwrap_or(0);
                let replies = requests.map(|request| world.replies(client, &request).len());
                let after = world.refused(client).get(reason).copied().unwrap_or(0);
                let (served, counted) = if refused.contains(source) { (0, 3) } else { (1, 0) };
                assert_eq!((replies, after - before), ([served; 3], counted), "{source}: {text}");
            }
        }
    }
}

#[test]
fn scrapes_of_forbidden_hashes_give_zeros() {
    let none = ScrapeCounts::default();
    let one = ScrapeCounts { leechers: 1, ..none };
    for (mode, permitted, forbidden) in [("deny", HASH, FORBIDDEN), ("allow", FORBIDDEN, HASH)] {
        let list = format!("[access]\nmode = \"{mode}\"\ninfo_hashes = [\"{FORBIDDEN}\"]\n");
        for placement in PLACEMENTS {
            let mut world = World::new(&format!("{placement}{list}"), &CLIENTS);
            let id = world.connect(0);
            world.announce(0, &leecher(id, permitted));
            let given = world.scrape(id, &[forbidden, permitted, forbidden]);
            assert_eq!(given, [none, one, none]);
            assert_eq!(world.scrape(id, &[forbidden; 74]), [none; 74]);
            assert_eq!(world.tracker.summary().refused_in_all(), 0);
        }
    }
}

/// Undefined events count as none.
#[test]
fn events_and_unconnectable_peers_are_counted() {
    for (placement, client) in PLACEMENTS.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
        let mut world = World::new(placement, &CLIENTS);
        let id = world.connect(client);
        for (event, port) in [0, 1, 2, 3, 4, 5, 6, 255, 1 << 24, u32::MAX].into_iter().zip(1..) {
            let mut request = bytes(&Announce { port, ..leecher(id, HASH) });
            request[80..84].copy_from_slice(&event.to_be_bytes());
            assert_eq!(world.replies(client, &request).len(), 1, "event {event}");
        }
        let events = [0, 1, 2, 3, 4]
            .map(|event: usize| world.counted(client, |incoming| incoming.events[event].get()));
        assert_eq!(events, [6, 1, 1, 1, 1]);
        assert_eq!(world.tracker.summary().unconnectable, 1);
    }
}

#[test]
fn lists_have_the_configured_lengths() {
    let lower = "[announce]\nmax_peers_v4 = 31\nmax_peers_v6 = 7\ndefault_peers = 9\n";
    for (text, caps, defaults) in [("", [200, 67], [50, 50]), (lower, [31, 7], [9, 7])] {
        for (placement, client) in PLACEMENTS.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let text = format!("{placement}{text}[limits]\nsource_peers_per_swarm = 0\n");
            let mut world = World::new(&text, &CLIENTS);
            let (id, cap) = (world.connect(client), caps[usize::from(client)]);
            for port in 2_000..2_210 {
                world.announce(client, &Announce { port, ..leecher(id, HASH) });
            }
            let default = defaults[usize::from(client)];
            for (num_want, peers) in [
                (0, 0),
                (5, 5),
                (cap, cap),
                (cap + 1, cap),
                (65_536, cap),
                (i32::MAX, cap),
                (-1, default),
                (i32::MIN, default),
            ] {
                let reply = world.announce(client, &Announce { num_want, ..leecher(id, HASH) });
                assert_eq!(reply.1, peers as usize, "num_want {num_want}");
            }
        }
    }
}

#[test]
fn scrapes_have_the_configured_number_of_entries() {
    for (text, most) in [("", 74), ("[scrape]\nmax_hashes = 3\n", 3)] {
        let mut world = World::new(&format!("{COLOCATED}{text}"), &CLIENTS);
        let id = world.connect(0);
        assert_eq!(world.scrape(id, &[HASH; 100]).len(), most);
    }
}

/// The interval and its jitter are as configured, and so is the time for which completions of a
/// swarm without peers are kept.
#[test]
fn times_are_as_configured() {
    let short = "[announce]\ninterval = 1000\ninterval_jitter_percent = 2\n\
                 completed_retention = 60\n";
    for (text, intervals, kept) in [("", 1710..=1890, 1), (short, 980..=1020, 0)] {
        let mut world = World::new(&format!("{COLOCATED}{text}"), &CLIENTS);
        let id = world.connect(0);
        let heads = (0..400).map(|_| world.announce(0, &leecher(id, HASH)).0.interval);
        let found: BTreeSet<u32> = heads.collect();
        let (first, last) = (found.first().unwrap(), found.last().unwrap());
        assert!(intervals.contains(first) && intervals.contains(last), "{found:?}");
        assert!(found.len() > 20, "{found:?}");
        let seeder = Announce { left: 0, ..leecher(id, HASH) };
        world.announce(0, &Announce { event: Event::Completed, ..seeder });
        world.announce(0, &Announce { event: Event::Stopped, ..seeder });
        for second in 2..400 {
            world.tracker.settle(at(second));
        }
        world.second = 400;
        let id = world.connect(0);
        assert_eq!(world.scrape(id, &[HASH])[0].completed, kept, "{text}");
    }
}

/// An id is valid for one to two periods; afterwards requests with it get no reply and are counted.
#[test]
fn an_id_expires() {
    for placement in PLACEMENTS {
        let text = format!("{placement}[connection]\nvalidity = 600\n");
        let mut world = World::new(&text, &CLIENTS);
        let id = world.connect(0);
        world.second = 601;
        assert_eq!(world.replies(0, &scrape(id, &[HASH])).len(), 1);
        world.second = 1_201;
        assert_eq!(world.replies(0, &scrape(id, &[HASH])).len(), 0);
        assert_eq!(world.refused(0), BTreeMap::from([("connection_id", 1)]));
        assert_ne!(world.connect(0), id);
    }
}
