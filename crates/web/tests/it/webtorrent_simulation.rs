//! Web workers with WebRTC peers under faults from a seed: frames split anywhere, short writes,
//! late events, slow readers, resets and closes. Each client gets the replies to its requests, in
//! order; an offer reaches one other member of the swarm at most, and its answer the peer that has
//! offered. When all clients have left, so have all members.

use std::collections::HashSet;
use std::io::{Read, Write};

use onrush_net::stream::memory::{Client, Conditions};
use onrush_web::webtorrent::exchange::PARCELS;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::webtorrent::{KEY, TEXT, UPGRADE, frame, whole_frames};
use crate::world::{CERTIFICATE, World, source, tls};

const STEPS: usize = 2_000;
const SWARMS: usize = 3;

fn swarm(number: usize) -> String {
    format!("{number:020}")
}

fn peer_id(number: usize) -> String {
    format!("peer{number:016}")
}

/// A client, which is a peer in any of the swarms.
struct Peer {
    client: Option<Client>,
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
    fn new(world: &World, number: usize, rng: &mut SmallRng) -> Self {
        let from = source(&format!("198.51.100.{}", number % 250), 40_000);
        let worker = rng.random_range(0..=world.others.len());
        Self {
            client: Some(world.connect_to(worker, from)),
            number,
            unsent: format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}\r\n").into_bytes(),
            received: Vec::new(),
            is_upgraded: false,
            expected: Vec::new(),
            announced: HashSet::new(),
            got: Vec::new(),
        }
    }

    fn write(&mut self, message: &Value) {
        self.unsent.extend(frame(TEXT, message.to_string().as_bytes()));
    }

    /// Writes a message of any kind.
    fn ask(&mut self, offers: &mut usize, rng: &mut SmallRng) {
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
                let list = (*offers..*offers + count).map(|offer| {
                    // An id has the sender, so that the sender of an answer's offer is known.
                    json!({"offer_id": format!("{:010}{offer:010}", self.number),
                           "offer": {"sdp": "x".repeat(rng.random_range(1..300))}})
                });
                announce["offers"] = list.collect();
                *offers += count;
                self.announced.insert(hash.clone());
            }
        }
        self.write(&announce);
        self.expected.push(Some(hash));
    }

    /// Sends and reads parts.
    fn act(&mut self, rng: &mut SmallRng) {
        let Some(client) = &mut self.client else { return };
        let part = rng.random_range(0..=self.unsent.len());
        let sent = client.write(&self.unsent[..part]).unwrap_or(0);
        self.unsent.drain(..sent);
        let mut buffer = vec![0; rng.random_range(1..3_000)];
        if let Ok(read) = client.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// Checks the messages that have arrived.
    fn check(&mut self, delivered: &mut HashSet<String>) {
        if !self.is_upgraded {
            let end = self.received.windows(4).position(|it| it == b"\r\n\r\n");
            let Some(end) = end else { return };
            assert!(self.received.starts_with(b"HTTP/1.1 101 "));
            self.received.drain(..end + 4);
            self.is_upgraded = true;
        }
        for (opcode, payload) in whole_frames(&mut self.received) {
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
                assert!(delivered.insert(format!("{id} {is_answer}")), "once: {message}");
                if !is_answer {
                    self.got.push((id, from, hash));
                }
                continue;
            }
            let expected = self.expected.remove(0);
            assert_eq!(hash, expected, "{message}");
            assert_eq!(message.get("files").is_some(), expected.is_none(), "{message}");
            assert!(message.get("failure reason").is_none(), "{message}");
        }
    }
}

fn run(seed: u64) -> (usize, usize) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let conditions = Conditions {
        short_reads: rng.random_range(0.0..0.8),
        short_writes: rng.random_range(0.0..0.8),
        stalls: rng.random_range(0.0..0.5),
        repeats: rng.random_range(0.0..1.0),
        capacity: rng.random_range(100..3_000),
    };
    let workers = (rng.random_range(1..4), PARCELS);
    let config = "timeout = 300\n";
    let mut world = World::with_workers(seed, config, conditions, tls(&[&CERTIFICATE]), workers);
    let (mut peers, mut offers, mut delivered) = (Vec::<Peer>::new(), 0, HashSet::new());
    for _ in 0..STEPS {
        match rng.random_range(0..20) {
            0 if peers.len() < 20 => peers.push(Peer::new(&world, peers.len(), &mut rng)),
            1 => world.next_second(),
            2..5 => _ = world.turn(),
            5 => _ = world.web.turn(world.now()).unwrap(),
            _ if peers.is_empty() => {}
            _ => {
                let at = rng.random_range(0..peers.len());
                let peer = &mut peers[at];
                match rng.random_range(0..40) {
                    0 if rng.random_bool(0.3) => peer.client = None,
                    1 if rng.random_bool(0.3) => {
                        peer.client.take().into_iter().for_each(Client::reset)
                    }
                    2..20 if peer.unsent.is_empty() => peer.ask(&mut offers, &mut rng),
                    _ => peer.act(&mut rng),
                }
                peer.check(&mut delivered);
            }
        }
    }
    for _ in 0..100_000 {
        let is_done =
            |peer: &Peer| peer.client.is_none() || peer.expected.is_empty() && peer.is_upgraded;
        if peers.iter().all(is_done) {
            break;
        }
        world.turn();
        for peer in &mut peers {
            peer.act(&mut rng);
            peer.check(&mut delivered);
        }
    }
    for peer in peers.iter().filter(|peer| peer.client.is_some()) {
        assert_eq!(peer.expected, [] as [Option<String>; 0], "peer {}", peer.number);
    }
    let answers = delivered.iter().filter(|it| it.ends_with("true")).count();
    drop(peers);
    world.settle();
    world.check();
    let others = world.others.iter().map(|(_, metrics, _)| &metrics.web);
    for counters in others.chain([world.counters()]) {
        let open = [&counters.open, &counters.ws_open, &counters.buffered_bytes];
        assert_eq!(open.map(|gauge| gauge.get()), [0; 3]);
        let members =
            [&counters.webrtc_swarms, &counters.webrtc_seeders, &counters.webrtc_leechers];
        assert_eq!(members.map(|gauge| gauge.get()), [0; 3]);
    }
    (delivered.len() - answers, answers)
}

#[test]
fn every_seed_keeps_the_laws() {
    let (mut offers, mut answers) = (0, 0);
    for seed in 0..60 {
        let run = std::panic::catch_unwind(|| run(seed));
        let (more_offers, more_answers) = run.unwrap_or_else(|_| panic!("seed {seed}"));
        (offers, answers) = (offers + more_offers, answers + more_answers);
    }
    assert!(offers > 1_000 && answers > 100, "{offers} offers, {answers} answers");
}
