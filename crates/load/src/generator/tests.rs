//! Whole conversations with a small tracker over the memory network, in virtual time.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use onrush_net::memory::{Conditions, Endpoint as Host, Network};
use onrush_net::{Received, Return, Sent};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::connect::ConnectResponse;
use onrush_proto::{Endpoint, Event, InfoHash, Request, ScrapeCounts, error, scrape};

use super::*;
use crate::check::Strictness;
use crate::plan::Profile;
use crate::plan::population::{Addresses, Population};
use crate::plan::profile::Swarms;

mod profiles;
mod routes;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// The fault of the tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    OtherTransaction,
    TwoReplies,
    AnswersJunk,
    OtherSocket,
    CutShort,
    AllErrors,
    ConnectForAll,
    ZeroId,
    CountsDouble,
    ListsAsker,
    ListsTwice,
    WrongPorts,
    IgnoresWant,
    ScrapesLess,
    ScrapesDouble,
    NeverScrapes,
    ServesPortZero,
    /// Takes the id of any address.
    AnyId,
    /// Answers nothing between these milliseconds of each second.
    Stalls,
}

/// A tracker of some lines: right, but for its fault.
struct Tracker {
    host: Host,
    fault: Fault,
    /// Peers of a swarm in the order of their arrival, and whether each is a seeder.
    swarms: HashMap<InfoHash, Vec<(Endpoint, bool)>>,
    /// Ids given out, by source address.
    ids: HashMap<IpAddr, u64>,
    waiting: VecDeque<(Vec<u8>, Return)>,
    requests: BTreeMap<&'static str, u64>,
}

impl Tracker {
    fn turn(&mut self, now: Nanos) {
        loop {
            let batch: Vec<_> = self
                .host
                .receive(64)
                .unwrap()
                .iter()
                .map(|(bytes, slot)| (bytes.to_vec(), slot.source, slot.reply_to))
                .collect();
            if batch.is_empty() {
                break;
            }
            for (bytes, source, reply_to) in batch {
                for reply in self.answer(&bytes, source) {
                    self.waiting.push_back((reply, self.way(reply_to)));
                }
            }
        }
        let stalled = self.fault == Fault::Stalls && now % SECOND < 100 * MILLISECOND;
        if !stalled {
            let replies: Vec<_> = self.waiting.drain(..).collect();
            self.host.send(replies.iter().map(|(bytes, to)| Reply { bytes, to }));
        }
    }

    fn way(&self, reply_to: Return) -> Return {
        match self.fault {
            Fault::OtherSocket => Return::to(reply_to.peer(), 1 - reply_to.socket()),
            _ => reply_to,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.requests.entry(what).or_insert(0) += 1;
    }

    fn answer(&mut self, bytes: &[u8], source: SocketAddr) -> Vec<Vec<u8>> {
        let Ok(request) = Request::parse(bytes) else {
            self.count("junk");
            let answers = self.fault == Fault::AnswersJunk && bytes.len() >= 16;
            return answers.then(|| oops(&bytes[12..16])).into_iter().collect();
        };
        let id_is_good = |id: ConnectionId| match self.fault {
            Fault::AnyId => self.ids.values().any(|known| *known == id.0),
            _ => self.ids.get(&source.ip()) == Some(&id.0),
        };
        let mut reply = match request {
            Request::Connect(connect) => {
                self.count("connect");
                self.connect(connect.transaction_id, source.ip())
            }
            Request::Announce(announce) if id_is_good(announce.connection_id) => {
                self.count("announce");
                self.event(&announce);
                if announce.port == 0 && self.fault != Fault::ServesPortZero {
                    self.count("port zero");
                    return vec![oops(&bytes[12..16])];
                }
                self.announce(&announce, source.ip())
            }
            Request::Scrape(scrape) if id_is_good(scrape.connection_id) => {
                self.count("scrape");
                if self.fault == Fault::NeverScrapes {
                    return Vec::new();
                }
                self.scrape(&scrape)
            }
            Request::Announce(announce) => {
                let of_another = self.ids.values().any(|known| *known == announce.connection_id.0);
                self.count(if of_another { "foreign" } else { "unusable" });
                return Vec::new();
            }
            Request::Scrape(_) => {
                self.count("unusable");
                return Vec::new();
            }
        };
        match self.fault {
            Fault::OtherTransaction => reply[4] ^= 0xFF,
            Fault::TwoReplies => return vec![reply.clone(), reply],
            Fault::CutShort => drop(reply.pop()),
            Fault::AllErrors if reply[3] != 0 => return vec![oops(&bytes[12..16])],
            Fault::ConnectForAll if reply[3] != 0 => {
                reply.resize(16, 1);
                reply[..4].fill(0);
            }
            _ => {}
        }
        vec![reply]
    }

    fn event(&mut self, announce: &onrush_proto::Announce<'_>) {
        match announce.event {
            Event::Started => self.count("started"),
            Event::Stopped => self.count("stopped"),
            Event::Completed => self.count("completed"),
            _ => {}
        }
    }

    fn connect(&mut self, transaction_id: TransactionId, ip: IpAddr) -> Vec<u8> {
        let next = 0x1122_3344_0000 + self.ids.len() as u64;
        let id = *self.ids.entry(ip).or_insert(next);
        let id = if self.fault == Fault::ZeroId { 0 } else { id };
        let mut reply = [0; 16];
        ConnectResponse { transaction_id, connection_id: ConnectionId(id) }.write(&mut reply);
        reply.to_vec()
    }

    fn announce(&mut self, announce: &onrush_proto::Announce<'_>, ip: IpAddr) -> Vec<u8> {
        let own = Endpoint::new(ip, announce.port);
        let swarm = self.swarms.entry(announce.info_hash).or_default();
        swarm.retain(|(peer, _)| *peer != own);
        let stopped = announce.event == Event::Stopped;
        let limit = match announce.num_want {
            _ if stopped => 0,
            _ if self.fault == Fault::IgnoresWant => 200,
            want if want < 0 => 50,
            want => want as usize,
        };
        let seeder = announce.left == 0;
        // What a datagram of 1232 bytes holds.
        let limit = limit.min(if ip.is_ipv4() { 200 } else { 67 });
        let useful = swarm.iter().filter(|(_, is_seeder)| !(seeder && *is_seeder));
        let of_family = useful.filter(|(peer, _)| peer.family() == own.family());
        let mut peers: Vec<Endpoint> = of_family.map(|(peer, _)| *peer).take(limit).collect();
        if !stopped {
            swarm.push((own, seeder));
        }
        match self.fault {
            Fault::ListsAsker if !peers.is_empty() => peers[0] = own,
            Fault::ListsTwice if peers.len() > 1 => peers[0] = peers[1],
            Fault::WrongPorts => {
                for peer in &mut peers {
                    *peer = Endpoint::new(peer.ip(), peer.port() ^ 0x100);
                }
            }
            _ => {}
        }
        let times = if self.fault == Fault::CountsDouble { 2 } else { 1 };
        let seeders = swarm.iter().filter(|(_, seeder)| *seeder).count() as u32;
        let leechers = swarm.len() as u32 - seeders;
        let mut head = [0; HEAD_LEN];
        AnnounceHead {
            transaction_id: announce.transaction_id,
            interval: 1800,
            leechers: leechers * times,
            seeders: seeders * times,
        }
        .write(&mut head);
        let mut reply = head.to_vec();
        peers.iter().for_each(|peer| reply.extend_from_slice(peer.as_bytes()));
        reply
    }

    fn scrape(&self, request: &onrush_proto::Scrape<'_>) -> Vec<u8> {
        let mut head = [0; 8];
        scrape::write_head(request.transaction_id, &mut head);
        let mut reply = head.to_vec();
        let less = usize::from(self.fault == Fault::ScrapesLess);
        for hash in request.info_hashes().skip(less) {
            let peers = self.swarms.get(&hash).map_or(0, Vec::len) as u32;
            let leechers = if self.fault == Fault::ScrapesDouble { peers } else { 0 };
            let mut counts = [0; 12];
            ScrapeCounts { seeders: peers, completed: 0, leechers }.write(&mut counts);
            reply.extend_from_slice(&counts);
        }
        reply
    }
}

/// An error packet.
fn oops(transaction: &[u8]) -> Vec<u8> {
    let transaction = u32::from_be_bytes(transaction.try_into().unwrap());
    let mut reply = vec![0; 32];
    let len = error::write(TransactionId(transaction), "oops", &mut reply);
    reply.truncate(len);
    reply
}

/// How a test's run goes.
struct Scene {
    profile: Profile,
    pace: Pace,
    conditions: Conditions,
    fault: Fault,
    window: Window,
    swarms: u32,
    v6: bool,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            profile: Profile::real(),
            pace: Pace::InFlight(64),
            conditions: delayed(1),
            fault: Fault::Nothing,
            window: Window { start: 20 * MILLISECOND, end: 320 * MILLISECOND },
            swarms: 300,
            v6: true,
        }
    }
}

/// A network with so many milliseconds of delay either way.
fn delayed(milliseconds: u64) -> Conditions {
    let delay = Duration::from_millis(milliseconds);
    Conditions { delay: delay..=delay, ..Conditions::default() }
}

/// What came of it.
struct Outcome {
    tally: Tally,
    requests: BTreeMap<&'static str, u64>,
    /// What the load tester sent, in order, without transaction ids and connection ids.
    sent: Vec<Vec<u8>>,
}

/// The load tester's side of the network, which records the sent datagrams.
struct Recorder<'s> {
    host: Host,
    sent: &'s RefCell<Vec<Vec<u8>>>,
}

impl Socket for Recorder<'_> {
    type Waker = <Host as Socket>::Waker;

    fn waker(&self) -> Self::Waker {
        self.host.waker()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.host.wait(timeout)
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.host.receive(limit)
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let mut sent = self.sent.borrow_mut();
        let noted = replies.inspect(|reply| {
            let mut bytes = reply.bytes.to_vec();
            let len = bytes.len();
            bytes[..len.min(8)].fill(0);
            bytes[12.min(len)..16.min(len)].fill(0);
            sent.push(bytes);
        });
        self.host.send(noted)
    }

    fn dropped(&self) -> u64 {
        self.host.dropped()
    }
}

fn play(scene: Scene) -> Outcome {
    let network = Network::new(11, scene.conditions.clone());
    let targets: Vec<SocketAddr> =
        ["10.0.0.1:6969", "[fd00::1]:6969"].map(|target| target.parse().unwrap()).to_vec();
    let targets = if scene.v6 { targets } else { targets[..1].to_vec() };
    // A second socket of the tracker, for replies from elsewhere.
    let mut listen = targets.clone();
    listen.push("10.0.0.1:7000".parse().unwrap());
    if scene.fault == Fault::OtherSocket {
        listen = vec![targets[0], "10.0.0.1:7000".parse().unwrap()];
    }
    let mut tracker = Tracker {
        host: network.bind(&listen).unwrap(),
        fault: scene.fault,
        swarms: HashMap::new(),
        ids: HashMap::new(),
        waiting: VecDeque::new(),
        requests: BTreeMap::new(),
    };
    let mut sources: Vec<IpAddr> = (1..=8u8).map(|n| [10, 0, 1, n].into()).collect();
    if scene.v6 {
        sources.extend(["fd00::100".parse::<IpAddr>().unwrap(), "fd00::101".parse().unwrap()]);
    }
    let addresses = Addresses::new(&sources);
    let mut routes = Vec::new();
    for (socket, source) in sources.iter().enumerate() {
        let (family, address) =
            if source.is_ipv4() { (Family::V4, socket) } else { (Family::V6, socket - 8) };
        routes.extend(crate::sources::routes(
            &addresses,
            &targets,
            family,
            address as u32,
            socket as u16,
        ));
    }
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let swarms = Swarms { count: scene.swarms, mean: 4.0, ..scene.profile.swarms };
    let population = Population::new(&swarms, scene.profile.v6, addresses, 5, false);
    let plan = Plan::new(scene.profile, population, 5);
    let settings = Settings {
        pace: scene.pace,
        limit: 4096,
        burst: 16,
        group: true,
        timeout: 50 * MILLISECOND,
        v6: plan.profile().v6,
        strictness: Strictness { strangers: false, sample: 1 },
        strict: false,
        seed: 5,
        worker: 0,
        workers: 1,
    };
    let sent = RefCell::default();
    let socket = Recorder { host: network.bind(&bound).unwrap(), sent: &sent };
    let mut generator = Generator::new(socket, &plan, routes, settings, scene.window);
    let clock = || network.now().as_nanos() as Nanos;
    while generator.turn(&clock).unwrap() != Next::Done {
        tracker.turn(clock());
        network.advance(Duration::from_micros(100));
        assert!(clock() < scene.window.end + SECOND, "the run does not end");
    }
    let tally = generator.tally().clone();
    assert_eq!(generator.in_flight(), 0);
    drop(generator);
    Outcome { tally, requests: tracker.requests, sent: sent.into_inner() }
}

fn kind(outcome: &Outcome, kind: Kind) -> &crate::tally::OfKind {
    &outcome.tally.kinds[kind as usize]
}

#[test]
fn a_right_tracker_is_found_right() {
    let outcome = play(Scene::default());
    let found: Vec<_> = Finding::ALL
        .into_iter()
        .map(|finding| (finding, &outcome.tally.findings[finding as usize]))
        .filter(|(_, found)| found.count > 0)
        .collect();
    assert!(found.is_empty(), "{found:?}");
    for (kind_of, name) in [(Kind::Connect, "connect"), (Kind::Announce, "announce")] {
        let counted = kind(&outcome, kind_of);
        assert!(counted.requests > 1000, "{} {name}", counted.requests);
        assert_eq!(counted.right, counted.requests);
        assert!(outcome.requests[name] >= counted.requests, "warm-up is not counted");
    }
    assert!(kind(&outcome, Kind::Scrape).right > 10);
    assert!(outcome.requests["unusable"] > 100 && outcome.requests["junk"] > 100);
    assert!(outcome.tally.peers > 1000, "peers find each other");
    assert_eq!(outcome.tally.peers, outcome.tally.peers_checked);
}

#[test]
fn every_request_is_answered_lost_or_wrong() {
    let conditions = Conditions { loss: 0.1, duplicates: 0.02, ..delayed(1) };
    let outcome = play(Scene { conditions, ..Scene::default() });
    for of_kind in &outcome.tally.kinds[..3] {
        assert_eq!(of_kind.requests, of_kind.right + of_kind.wrong + of_kind.lost);
    }
    let announces = kind(&outcome, Kind::Announce);
    let loss = announces.lost as f64 / announces.requests as f64;
    assert!((0.16..0.22).contains(&loss), "a tenth is lost each way: {loss}");
    assert!(announces.repeats > announces.lost / 2, "lost announces are repeated");
}

#[test]
fn late_replies_are_lost_but_not_wrong() {
    let conditions = delayed(30);
    let window = Window { start: 0, end: 300 * MILLISECOND };
    let outcome = play(Scene { conditions, window, ..Scene::default() });
    assert_eq!(kind(&outcome, Kind::Connect).right, 0, "60 ms of way, 50 ms of patience");
    assert!(kind(&outcome, Kind::Connect).lost > 0 && outcome.tally.late > 0);
    assert_eq!(outcome.tally.wrong(true), 0);
}

#[test]
fn a_closed_loop_keeps_so_many_under_way() {
    let window = Window { start: 0, end: 500 * MILLISECOND };
    let outcome = play(Scene {
        pace: Pace::InFlight(32),
        conditions: delayed(5),
        window,
        ..Scene::default()
    });
    let requests: u64 = outcome.tally.kinds[..3].iter().map(|kind| kind.requests).sum();
    // 32 every 10 ms and a bit.
    assert!((1200..=1650).contains(&requests), "{requests}");
}

/// With as few requests in flight as a burst has, a lost request blocks only its own place.
#[test]
fn a_lost_reply_does_not_stop_a_small_closed_loop() {
    let window = Window { start: 0, end: 2 * SECOND };
    let scene = || Scene {
        pace: Pace::InFlight(16),
        profile: Profile::classic(),
        window,
        ..Scene::default()
    };
    let right = |scene| play(scene).tally.kinds.iter().map(|kind| kind.right).sum::<u64>();
    let (all, some) = (right(scene()), {
        right(Scene { conditions: Conditions { loss: 0.01, ..delayed(1) }, ..scene() })
    });
    assert!(some * 2 > all, "{some} with 1 % loss, {all} without");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let window = Window { start: 100 * MILLISECOND, end: 1100 * MILLISECOND };
    let outcome = play(Scene { pace: Pace::rate(5000.0), window, ..Scene::default() });
    let requests: u64 = outcome.tally.kinds.iter().map(|kind| kind.requests).sum();
    assert_eq!(requests, 5000);
    assert_eq!(outcome.tally.unsent, 0);
    let announces = kind(&outcome, Kind::Announce);
    let median = announces.latency.value_at_quantile(0.5);
    assert!((2 * MILLISECOND..3 * MILLISECOND).contains(&median), "{median} ns for 1 ms each way");
}

#[test]
fn a_stall_shows_in_the_open_loops_latency() {
    // The tracker sleeps for a tenth of each second. Those who would have asked meanwhile wait:
    // a tenth of all, evenly between 0 and 100 ms. More patience than that is needed to see it.
    let window = Window { start: 0, end: 2 * SECOND };
    let pace = Pace::rate(2000.0);
    let scene = || Scene { pace: pace.clone(), window, conditions: delayed(0), ..Scene::default() };
    let calm = play(scene());
    let stalls = play(Scene { fault: Fault::Stalls, ..scene() });
    let p99 = |outcome: &Outcome| kind(outcome, Kind::Announce).latency.value_at_quantile(0.99);
    assert!(p99(&calm) < MILLISECOND, "{}", p99(&calm));
    let lost = kind(&stalls, Kind::Announce).lost;
    assert!(p99(&stalls) > 40 * MILLISECOND, "{} ns, {lost} lost", p99(&stalls));
    let median = kind(&stalls, Kind::Announce).latency.value_at_quantile(0.5);
    assert!(median < MILLISECOND, "{median}");
}

#[test]
fn what_an_open_loop_cannot_send_is_counted() {
    // 20 ms of way and back, and no more than 4096 under way: 200,000 per second at most.
    let window = Window { start: 0, end: 100 * MILLISECOND };
    let pace = Pace::rate(400_000.0);
    let outcome = play(Scene { pace, window, conditions: delayed(10), ..Scene::default() });
    let requests: u64 = outcome.tally.kinds.iter().map(|kind| kind.requests).sum();
    assert_eq!(requests + outcome.tally.unsent, 40_000);
    assert!(outcome.tally.unsent > 1000, "{} unsent", outcome.tally.unsent);
    // Those that waited for room have waited from when they were due.
    let p90 = kind(&outcome, Kind::Announce).latency.value_at_quantile(0.9);
    assert!(p90 > 30 * MILLISECOND, "{p90}");
}

/// What was due while nothing could be sent counts from when it was due.
#[test]
fn latency_counts_from_the_intended_time() {
    let pace = Pace::rate(1000.0);
    let network = Network::new(1, Conditions::default());
    let target: SocketAddr = "10.0.0.1:6969".parse().unwrap();
    let mut tracker = Tracker {
        host: network.bind(&[target]).unwrap(),
        fault: Fault::Nothing,
        swarms: HashMap::new(),
        ids: HashMap::new(),
        waiting: VecDeque::new(),
        requests: BTreeMap::new(),
    };
    let addresses = Addresses::new(&["10.0.1.1".parse().unwrap()]);
    let routes = crate::sources::routes(&addresses, &[target], Family::V4, 0, 0).collect();
    let profile = Profile::classic();
    let swarms = Swarms { count: 50, ..profile.swarms };
    let population = Population::new(&swarms, 0.0, addresses, 5, false);
    let plan = Plan::new(profile, population, 5);
    let settings = Settings {
        pace,
        limit: 4096,
        burst: 16,
        group: false,
        timeout: SECOND,
        v6: 0.0,
        strictness: Strictness { strangers: false, sample: 1 },
        strict: false,
        seed: 5,
        worker: 0,
        workers: 1,
    };
    let window = Window { start: 100 * MILLISECOND, end: 300 * MILLISECOND };
    let host = network.bind(&["10.0.1.1:0".parse().unwrap()]).unwrap();
    let mut generator = Generator::new(host, &plan, routes, settings, window);
    let clock = || network.now().as_nanos() as Nanos;
    loop {
        let next = generator.turn(&clock).unwrap();
        tracker.turn(clock());
        if next == Next::Done {
            break;
        }
        // The load tester itself is held up from 100 ms to 200 ms.
        let held_up = (100 * MILLISECOND..101 * MILLISECOND).contains(&clock());
        network.advance(Duration::from_micros(if held_up { 100_000 } else { 100 }));
    }
    let tally = generator.tally();
    let mut all = crate::tally::histogram();
    tally.kinds.iter().for_each(|kind| all.add(&kind.latency).unwrap());
    assert_eq!(all.len(), 200, "everything that was due has been sent");
    let p75 = all.value_at_quantile(0.75);
    assert!((40 * MILLISECOND..60 * MILLISECOND).contains(&p75), "half waited up to 100 ms: {p75}");
}

#[test]
fn ids_are_renewed_before_they_expire() {
    let mut profile = Profile::classic();
    profile.mix.connect = 0.0;
    let window = Window { start: 0, end: 200 * SECOND };
    let pace = Pace::rate(20.0);
    let conditions = Conditions::default();
    let outcome = play(Scene { profile, pace, window, conditions, ..Scene::default() });
    // Ten addresses, four renewals each and the first one.
    let connects = kind(&outcome, Kind::Connect).requests;
    assert!((40..=50).contains(&connects), "{connects}");
    assert_eq!(outcome.requests.get("unusable"), None);
    assert_eq!(kind(&outcome, Kind::Announce).lost, 0);
}

#[test]
fn both_families_have_their_shares() {
    let outcome = play(Scene::default());
    let hosts = |v6: bool| {
        let plan_share = if v6 { 0.2 } else { 0.8 };
        plan_share * outcome.tally.sent.datagrams as f64
    };
    assert!(hosts(true) > 100.0);
    let alone = play(Scene { v6: false, ..Scene::default() });
    assert_eq!(alone.tally.wrong(true), 0);
    assert!(kind(&alone, Kind::Announce).right > 1000);
}

#[test]
fn the_same_seed_sends_the_same() {
    let (one, two) = (play(Scene::default()), play(Scene::default()));
    assert!(one.sent.len() > 5000);
    assert_eq!(one.sent, two.sent);
}

/// Every fault is found under its name and under no other of the wrong kind.
#[test]
fn every_fault_of_a_tracker_is_found() {
    use Finding::*;
    for (fault, finding) in [
        (Fault::OtherTransaction, UnknownTransaction),
        (Fault::TwoReplies, AnsweredTwice),
        (Fault::AnswersJunk, NotSilent),
        (Fault::OtherSocket, FromElsewhere),
        (Fault::CutShort, Layout),
        (Fault::AllErrors, ErrorReply),
        (Fault::ConnectForAll, OtherAction),
        (Fault::ZeroId, ZeroId),
        (Fault::CountsDouble, CountsTooHigh),
        (Fault::ListsTwice, DuplicatePeer),
        (Fault::WrongPorts, UnknownPeer),
        (Fault::IgnoresWant, MorePeersThanWanted),
        (Fault::ScrapesLess, ScrapeEntries),
        (Fault::ScrapesDouble, ScrapeTooHigh),
    ] {
        let v6 = fault != Fault::OtherSocket;
        let outcome = play(Scene { fault, v6, ..Scene::default() });
        for other in Finding::ALL.into_iter().filter(|other| !other.is_open()) {
            let found = &outcome.tally.findings[other as usize];
            let expected = other == finding;
            assert_eq!(found.count > 0, expected, "{fault:?}: {other:?} {found:?}");
            if expected {
                assert!(!found.examples.is_empty(), "{fault:?} without an example");
            }
        }
        assert!(outcome.tally.wrong(false) > 0);
    }
}

#[test]
fn an_asker_in_its_own_list_is_different_and_not_wrong() {
    let outcome = play(Scene { fault: Fault::ListsAsker, ..Scene::default() });
    assert!(outcome.tally.findings[Finding::OwnPeer as usize].count > 0);
    assert_eq!(outcome.tally.wrong(false), 0);
    assert!(outcome.tally.wrong(true) > 0, "with --strict it is wrong");
}

#[test]
fn one_kind_without_replies_holds_up_no_other() {
    let outcome = play(Scene { fault: Fault::NeverScrapes, ..Scene::default() });
    let scrapes = kind(&outcome, Kind::Scrape);
    assert!(scrapes.lost == scrapes.requests && scrapes.lost > 0);
    assert!(kind(&outcome, Kind::Announce).lost == 0 && kind(&outcome, Kind::Announce).right > 500);
}
