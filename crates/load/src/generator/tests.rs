//! Whole conversations with a small tracker over the memory network, in virtual time.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use onrush_net::Return;
use onrush_net::memory::{self, Conditions, Network};
use onrush_proto::{Event, Request};

use super::*;
use crate::check::Strictness;
use crate::plan::Profile;
use crate::plan::population::{Addresses, Population};
use crate::plan::profile::Swarms;
use crate::tally::Tally;
use crate::worker::Pace;
use faulty::{Fault, Tracker};

mod faults;
#[path = "../../../verify/tests/it/faulty.rs"]
mod faulty;
mod profiles;
mod routes;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// The conforming tracker with one fault at a time on the memory network.
struct Host {
    socket: memory::Endpoint,
    tracker: Tracker,
    /// Connection ids of source addresses.
    ids: HashMap<IpAddr, ConnectionId>,
    waiting: Vec<(Vec<u8>, Return)>,
    /// Number of requests by kind, event and peculiarity.
    requests: BTreeMap<&'static str, u64>,
    /// The requests in order, without transaction ids and connection ids.
    received: Vec<Vec<u8>>,
}

impl Host {
    fn turn(&mut self, silence: Silence, now: Nanos) {
        loop {
            let batch = self.socket.receive(64).unwrap();
            if batch.is_empty() {
                break;
            }
            for (bytes, slot) in batch.iter() {
                for name in names(bytes, slot.source.ip(), &self.ids) {
                    *self.requests.entry(name).or_insert(0) += 1;
                }
                let mut request = bytes.to_vec();
                request[..bytes.len().min(8)].fill(0);
                request[bytes.len().min(12)..bytes.len().min(16)].fill(0);
                self.received.push(request);
                for reply in self.tracker.answer(bytes, slot.source) {
                    if reply[..4] == [0; 4] {
                        let id = u64::from_be_bytes(*reply[8..].first_chunk().unwrap());
                        self.ids.insert(slot.source.ip(), ConnectionId(id));
                    }
                    self.waiting.push((reply, slot.reply_to));
                }
            }
        }
        match silence {
            Silence::Stalls if now % SECOND < 100 * MILLISECOND => return,
            Silence::Scrapes => self.waiting.retain(|(reply, _)| reply[3] != 2),
            _ => {}
        }
        self.socket.send(self.waiting.iter().map(|(bytes, to)| Reply { bytes, to }));
        self.waiting.clear();
    }
}

/// The names under which a request is counted.
fn names(bytes: &[u8], source: IpAddr, ids: &HashMap<IpAddr, ConnectionId>) -> Vec<&'static str> {
    let is_valid = |id| ids.get(&source) == Some(&id);
    let mut names = match Request::parse(bytes) {
        Err(_) => vec!["junk"],
        Ok(Request::Connect(_)) => vec!["connect"],
        Ok(Request::Scrape(scrape)) if is_valid(scrape.connection_id) => vec!["scrape"],
        Ok(Request::Announce(announce)) if is_valid(announce.connection_id) => {
            let event = match announce.event {
                Event::Started => Some("started"),
                Event::Stopped => Some("stopped"),
                Event::Completed => Some("completed"),
                _ => None,
            };
            let port_zero = (announce.port == 0).then_some("port zero");
            ["announce"].into_iter().chain(event).chain(port_zero).collect()
        }
        Ok(Request::Announce(announce)) if ids.values().any(|id| *id == announce.connection_id) => {
            vec!["foreign"]
        }
        Ok(_) => vec!["unusable"],
    };
    if source.is_ipv6() {
        names.push("over IPv6");
    }
    names
}

/// The replies that the tracker withholds.
#[derive(Clone, Copy)]
enum Silence {
    Never,
    /// All until a tenth of each second has passed.
    Stalls,
    /// No scrape gets a reply.
    Scrapes,
}

/// The conditions of a run.
struct Scene {
    profile: Profile,
    pace: Pace,
    conditions: Conditions,
    fault: Fault,
    silence: Silence,
    window: Window,
    timeout: Nanos,
    /// The load tester does nothing within this time.
    pause: Range<Nanos>,
    /// From this time on the window ends a millisecond ago.
    ended: Nanos,
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
            silence: Silence::Never,
            window: Window { start: 20 * MILLISECOND, end: 320 * MILLISECOND },
            timeout: 50 * MILLISECOND,
            pause: 0..0,
            ended: Nanos::MAX,
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

/// The result of a run.
struct PlayOutcome {
    tally: Tally,
    requests: BTreeMap<&'static str, u64>,
    /// The requests in order, without transaction ids and connection ids.
    received: Vec<Vec<u8>>,
}

fn play(scene: Scene) -> PlayOutcome {
    let network = Network::new(11, scene.conditions.clone());
    let targets: [SocketAddr; 2] =
        ["10.0.0.1:6969", "[fd00::1]:6969"].map(|target| target.parse().unwrap());
    let targets = if scene.v6 { &targets[..] } else { &targets[..1] };
    let mut tracker = Host {
        socket: network.bind(targets).unwrap(),
        tracker: Tracker::new(scene.fault),
        ids: HashMap::new(),
        waiting: Vec::new(),
        requests: BTreeMap::new(),
        received: Vec::new(),
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
        let (address, socket) = (address as u32, socket as u16);
        routes.extend(crate::sources::routes(&addresses, targets, family, address, socket));
    }
    let bound: Vec<SocketAddr> = sources.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
    let swarms = Swarms { count: scene.swarms, mean: 4.0, ..scene.profile.swarms };
    let population = Population::new(&swarms, scene.profile.v6, addresses, 5, false);
    let plan = Plan::new(scene.profile, population, 5);
    let settings = LoadSettings {
        pace: scene.pace,
        burst: 16,
        limit: Some(4096),
        timeout: scene.timeout as f64 / 1e9,
        strictness: Strictness { strangers: false, sample: 1 },
        ..LoadSettings::default()
    };
    let socket = network.bind(&bound).unwrap();
    let mut generator = Generator::new(socket, &plan, routes, settings, 0, scene.window);
    let clock = || network.now().as_nanos() as Nanos;
    while generator.turn(&clock).unwrap() != Next::Done {
        tracker.turn(scene.silence, clock());
        let pause = if scene.pause.contains(&clock()) { scene.pause.end - clock() } else { 0 };
        network.advance(Duration::from_nanos(pause.max(100_000)));
        if clock() >= scene.ended {
            generator.end_at(scene.ended - MILLISECOND);
        }
        assert!(clock() < scene.window.end + SECOND, "the run does not end");
    }
    let tally = generator.counts().tally.clone();
    assert_eq!(generator.session.flight.len(), 0);
    PlayOutcome { tally, requests: tracker.requests, received: tracker.received }
}

fn kind(outcome: &PlayOutcome, kind: Kind) -> &crate::tally::OfKind {
    &outcome.tally.kinds[kind as usize]
}

#[test]
fn a_right_tracker_is_found_right() {
    let outcome = play(Scene::default());
    assert!(outcome.tally.findings.iter().all(|found| found.count == 0), "{:?}", outcome.tally);
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
    assert_eq!(kind(&outcome, Kind::Connect).right, 0, "60 ms of way, 50 ms of timeout");
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
        profile: Profile::named("classic").unwrap(),
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
    let median = announces.latency.0.value_at_quantile(0.5);
    assert!((2 * MILLISECOND..3 * MILLISECOND).contains(&median), "{median} ns for 1 ms each way");
}

#[test]
fn a_stall_shows_in_the_open_loops_latency() {
    // The tracker sleeps for a tenth of each second. Requests of that time wait: a tenth of
    // all, evenly between 0 and 100 ms. The time-out has to be longer than that.
    let window = Window { start: 0, end: 2 * SECOND };
    let pace = Pace::rate(2000.0);
    let scene = || Scene { pace: pace.clone(), window, conditions: delayed(0), ..Scene::default() };
    let calm = play(scene());
    let stalls = play(Scene { silence: Silence::Stalls, ..scene() });
    let p99 =
        |outcome: &PlayOutcome| kind(outcome, Kind::Announce).latency.0.value_at_quantile(0.99);
    assert!(p99(&calm) < MILLISECOND, "{}", p99(&calm));
    let lost = kind(&stalls, Kind::Announce).lost;
    assert!(p99(&stalls) > 40 * MILLISECOND, "{} ns, {lost} lost", p99(&stalls));
    let median = kind(&stalls, Kind::Announce).latency.0.value_at_quantile(0.5);
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
    // Requests that waited for room have waited from when they were due.
    let p90 = kind(&outcome, Kind::Announce).latency.0.value_at_quantile(0.9);
    assert!(p90 > 30 * MILLISECOND, "{p90}");
}

/// A request that was due while nothing could be sent counts from the time at which it was due.
#[test]
fn latency_counts_from_the_intended_time() {
    let outcome = play(Scene {
        profile: Profile::named("classic").unwrap(),
        pace: Pace::rate(1000.0),
        conditions: delayed(0),
        window: Window { start: 100 * MILLISECOND, end: 300 * MILLISECOND },
        timeout: SECOND,
        pause: 100 * MILLISECOND..200 * MILLISECOND,
        v6: false,
        ..Scene::default()
    });
    let mut all = crate::latency::Latencies::<3>::default().0;
    outcome.tally.kinds.iter().for_each(|kind| all += &kind.latency.0);
    assert_eq!(all.len(), 200, "everything that was due has been sent");
    let p75 = all.value_at_quantile(0.75);
    assert!((40 * MILLISECOND..60 * MILLISECOND).contains(&p75), "half waited up to 100 ms: {p75}");
}

/// A worker that is late to read the end of an interrupted run has sent requests after it.
#[test]
fn an_end_that_is_read_late_leaves_no_request_uncounted() {
    for pace in [Pace::InFlight(64), Pace::rate(5000.0)] {
        let outcome = play(Scene { pace, ended: 100 * MILLISECOND, ..Scene::default() });
        let counted = |count: fn(&crate::tally::OfKind) -> u64| -> u64 {
            outcome.tally.kinds[..3].iter().map(count).sum()
        };
        let requests = counted(|kind| kind.requests);
        assert!(requests > 100, "{requests}");
        assert_eq!(counted(|kind| kind.right), requests);
    }
}

#[test]
fn ids_are_renewed_before_they_expire() {
    let mut profile = Profile::named("classic").unwrap();
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
    let share = outcome.requests["over IPv6"] as f64 / outcome.tally.sent.datagrams as f64;
    assert!((share - Profile::real().v6).abs() < 0.05, "{share}");
    let alone = play(Scene { v6: false, ..Scene::default() });
    assert_eq!(alone.tally.wrong(true), 0);
    assert!(kind(&alone, Kind::Announce).right > 1000);
}

#[test]
fn the_same_seed_sends_the_same() {
    let (one, two) = (play(Scene::default()), play(Scene::default()));
    assert!(one.received.len() > 5000);
    assert_eq!(one.received, two.received);
}

#[test]
fn one_kind_without_replies_holds_up_no_other() {
    let outcome = play(Scene { silence: Silence::Scrapes, ..Scene::default() });
    let scrapes = kind(&outcome, Kind::Scrape);
    assert!(scrapes.lost == scrapes.requests && scrapes.lost > 0);
    assert!(kind(&outcome, Kind::Announce).lost == 0 && kind(&outcome, Kind::Announce).right > 500);
}
