//! Web workers with WebRTC peers under faults from a seed: frames split anywhere, short writes,
//! late events, slow readers, workers that are far behind, resets and closes, in half of the runs
//! limits and time-outs, and in half of them pauses. Some clients use TLS. Each client gets the
//! replies to its requests, in order, unless a limit or a pause ends its connection; an offer
//! reaches one other member of the swarm at most, and its answer the peer that has offered. When
//! all clients have left, so have all members.

use std::collections::HashSet;
use std::sync::Arc;

use onrush_testing::tls::client;
use onrush_web::webtorrent::exchange::PARCELS;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::simulation::Link;
use crate::tls::TlsClient;
use crate::webtorrent::{CLOSE, KEY, TEXT, UPGRADE, frame, whole_frames};
use crate::world::{CERTIFICATE, World, faults, for_each_seed, source, tls};

const STEPS: usize = 2_000;
const SWARMS: usize = 3;
/// Steps after which the other workers take no turns for as many.
const STRETCH: usize = 500;

/// What a run is like, and what has happened in it.
#[derive(Default)]
struct Run {
    /// Whether limits and whether pauses may end connections.
    is_limited: bool,
    is_paused: bool,
    /// The longest session description of an offer.
    len: usize,
    /// Offers that were sent.
    offers: usize,
    /// Ids of offers and answers that have arrived.
    delivered: HashSet<(String, bool)>,
    /// Requests that were refused, as a worker was far behind.
    busy: usize,
}

fn swarm(number: usize) -> String {
    format!("{number:020}")
}

fn peer_id(number: usize) -> String {
    format!("peer{number:016}")
}

/// A client, which is a peer in any of the swarms.
#[derive(Default)]
struct Peer {
    link: Option<Link>,
    number: usize,
    unsent: Vec<u8>,
    received: Vec<u8>,
    is_upgraded: bool,
    /// What the replies due are: the info hash of an announce, or none of a scrape.
    expected: Vec<Option<String>>,
    /// Swarms that it has announced to.
    announced: HashSet<String>,
    /// Offers that it has got and not answered: their ids, senders and swarms.
    got: Vec<(String, String, String)>,
}

impl Peer {
    fn new(w: &World, number: usize, config: &Arc<ClientConfig>, rng: &mut SmallRng) -> Self {
        let from = source(&format!("198.51.100.{}", number % 250), 40_000);
        // Half of them at the first worker, which is the one that is ahead of others.
        let worker = rng.random_range(0..=w.others.len()) * rng.random_range(0..2);
        let link = match rng.random_bool(0.3) {
            true => Link::Tls(TlsClient::new(w.connect_to(worker, 1, from), config).into()),
            false => Link::Plain(w.connect_to(worker, 0, from)),
        };
        let unsent = format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}\r\n").into_bytes();
        Self { link: Some(link), number, unsent, ..Self::default() }
    }

    fn write(&mut self, message: &Value) {
        self.unsent.extend(frame(TEXT, message.to_string().as_bytes()));
    }

    /// Writes a message of any kind.
    fn ask(&mut self, run: &mut Run, rng: &mut SmallRng) {
        let hash = swarm(rng.random_range(0..SWARMS));
        let id = peer_id(self.number);
        let mut announce = json!({"action": "announce", "info_hash": hash, "peer_id": id});
        match rng.random_range(0..10) {
            0 => {
                self.write(&json!({"action": "scrape", "info_hash": [hash, swarm(0)]}));
                self.expected.push(None);
                return;
            }
            1 => announce["event"] = "stopped".into(),
            2..6 if !self.got.is_empty() => {
                let (offer_id, to, hash) = self.got.remove(0);
                announce["info_hash"] = hash.into();
                announce["answer"] = json!({"sdp": "answer"});
                (announce["offer_id"], announce["to_peer_id"]) = (offer_id.into(), to.into());
                self.write(&announce);
                return;
            }
            _ => {
                announce["left"] = rng.random_range(0..2).into();
                let count = rng.random_range(0..4);
                let list = (run.offers..run.offers + count).map(|offer| {
                    // An id has the sender, so that the sender of an answer's offer is known.
                    json!({"offer_id": format!("{:010}{offer:010}", self.number),
                           "offer": {"sdp": "x".repeat(rng.random_range(1..run.len))}})
                });
                announce["offers"] = list.collect();
                run.offers += count;
                self.announced.insert(hash.clone());
            }
        }
        self.write(&announce);
        self.expected.push(Some(hash));
    }

    /// Sends and reads parts, and checks what has arrived.
    fn act(&mut self, run: &mut Run, rng: &mut SmallRng) {
        let Some(link) = &mut self.link else { return };
        let len = self.unsent.len();
        let part = if rng.random() { len } else { rng.random_range(0..=len) };
        let sent = link.send(&self.unsent[..part]);
        self.unsent.drain(..sent);
        let has_ended = link.read(rng.random_range(1..3_000), &mut self.received);
        self.check(run);
        if has_ended && self.link.take().is_some() {
            // After a pause it may be reset while it sends, and lose the close frame.
            assert!(run.is_limited || run.is_paused, "peer {}", self.number);
        }
    }

    /// Checks the messages that have arrived.
    fn check(&mut self, run: &mut Run) {
        if !self.is_upgraded {
            let end = self.received.windows(4).position(|it| it == b"\r\n\r\n");
            let Some(end) = end else { return };
            assert!(self.received.starts_with(b"HTTP/1.1 101 "));
            self.received.drain(..end + 4);
            self.is_upgraded = true;
        }
        for (opcode, payload) in whole_frames(&mut self.received) {
            assert!(self.link.is_some(), "nothing follows a close frame");
            if opcode == CLOSE {
                let codes = [(run.is_paused, 1012u16), (run.is_limited, 1008)];
                assert!(codes.iter().any(|(may, code)| *may && payload == code.to_be_bytes()));
                self.link = None;
            }
            if opcode != TEXT {
                continue;
            }
            let message: Value = serde_json::from_slice(&payload).unwrap();
            let text = |key: &str| message[key].as_str().map(str::to_owned);
            let (hash, offer_id) = (text("info_hash"), text("offer_id"));
            if let (Some(id), Some(hash), Some(from)) = (offer_id, hash.clone(), text("peer_id")) {
                let sender: usize = id[..10].parse().unwrap();
                let is_answer = message.get("answer").is_some();
                assert_eq!(is_answer, sender == self.number, "{message}");
                assert!(is_answer || from == peer_id(sender), "{message}");
                assert!(self.announced.contains(&hash));
                assert!(run.delivered.insert((id.clone(), is_answer)), "once: {message}");
                if !is_answer {
                    self.got.push((id, from, hash));
                }
                continue;
            }
            let expected = self.expected.remove(0);
            assert_eq!(hash, expected, "{message}");
            if message.get("failure reason").is_some() {
                assert_eq!(message["retry in"], 5, "{message}");
                run.busy += 1;
            } else {
                assert_eq!(message.get("files").is_some(), expected.is_none(), "{message}");
            }
        }
    }

    /// Whether it has got all replies.
    fn is_done(&self) -> bool {
        self.link.is_none() || self.expected.is_empty() && self.is_upgraded
    }
}

fn run(seed: u64) -> Run {
    let mut rng = SmallRng::seed_from_u64(seed);
    // Few parcels are full in the one case, and many have room in the other.
    let (capacity, len, parcels) =
        if rng.random() { (100_000, 20_000, 4) } else { (3_000, 300, PARCELS) };
    let conditions = faults(rng.random_range(100..capacity), &mut rng);
    let workers = (rng.random_range(1..4), rng.random_range(0..parcels));
    let (is_limited, is_paused) = (rng.random(), rng.random());
    let mut run = Run { is_limited, is_paused, len, ..Run::default() };
    let limits = match is_limited {
        true => format!("connections = {}\ntimeout = 3\n", rng.random_range(2..20)),
        false => "timeout = 300\n".to_owned(),
    };
    let mut world = World::with_workers(seed, &limits, conditions, tls(&[&CERTIFICATE]), workers);
    let config = client(&[&CERTIFICATE]);
    let mut peers = Vec::<Peer>::new();
    for step in 0..STEPS {
        let is_alone = step / STRETCH % 2 == 1;
        match rng.random_range(0..20) {
            _ if is_paused && rng.random_bool(0.005) => match rng.random_bool(0.3) {
                true => drop(world.orders().pause_fronts().unwrap()),
                false => world.orders().resume().unwrap(),
            },
            0 if peers.iter().filter(|it| it.link.is_some()).count() < 20 => {
                peers.push(Peer::new(&world, peers.len(), &config, &mut rng));
            }
            1 => world.next_second(),
            2..5 if !is_alone => _ = world.turn(),
            2..6 => _ = world.web.turn(world.now()).unwrap(),
            _ => {
                let mut open: Vec<_> = peers.iter_mut().filter(|it| it.link.is_some()).collect();
                if open.is_empty() {
                    continue;
                }
                let peer = open.swap_remove(rng.random_range(0..open.len()));
                let has_sent = peer.link.as_ref().is_some_and(Link::has_sent);
                match rng.random_range(0..40) {
                    0 if rng.random_bool(0.3) => peer.link = None,
                    1 if rng.random_bool(0.3) => peer.link.take().into_iter().for_each(Link::reset),
                    2..20 if peer.unsent.is_empty() && has_sent => peer.ask(&mut run, &mut rng),
                    _ => peer.act(&mut run, &mut rng),
                }
            }
        }
    }
    world.orders().resume().unwrap();
    for _ in 0..100_000 {
        if peers.iter().all(Peer::is_done) {
            break;
        }
        world.turn();
        peers.iter_mut().for_each(|peer| peer.act(&mut run, &mut rng));
    }
    assert!(peers.iter().all(Peer::is_done), "a reply is missing");
    drop(peers);
    world.settle();
    world.check();
    for counters in world.all_counters() {
        let open = [&counters.open, &counters.https_open, &counters.ws_open, &counters.wss_open];
        let members =
            [&counters.webrtc_swarms, &counters.webrtc_seeders, &counters.webrtc_leechers];
        let left = open.into_iter().chain(members).chain([&counters.buffered_bytes]);
        assert_eq!(left.map(|gauge| gauge.get()).sum::<u64>(), 0);
    }
    run
}

#[test]
fn every_seed_keeps_the_laws() {
    let mut counts = [0; 3];
    for Run { delivered, busy, .. } in for_each_seed(60, run) {
        let answers = delivered.iter().filter(|(_, is_answer)| *is_answer).count();
        let more = [delivered.len() - answers, answers, busy];
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    let [offers, answers, busy] = counts;
    assert!(offers > 1_000 && answers > 100 && busy > 0, "{counts:?}");
}
