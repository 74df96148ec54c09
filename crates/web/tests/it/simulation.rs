//! The web worker under faults from a seed: bytes split anywhere, short writes, late events, slow
//! readers, full batches, and in half of the runs resets, time-outs, limits and pauses. Half of the
//! clients use TLS, of 1.3 or 1.2. Some clients are behind a proxy, which names them in a header or
//! in each request. Each client gets the replies to its requests, in order. It may get a part of
//! them only if it, a limit or a pause may have ended its connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use onrush_net::stream::memory::{Client, Conditions};
use onrush_testing::tls::{client, client_1_2};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustls::ClientConfig;

use crate::tls::TlsClient;
use crate::world::{ANNOUNCE, CERTIFICATE, HASH, World, binary_header, contains, whole_replies};

const STEPS: usize = 400;
/// The address of all proxies.
const PROXY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// What the reply to an announce begins with.
const ANNOUNCED: &[u8] = b"d8:complete";

/// A client's connection.
enum Link {
    Plain(Client),
    Tls(Box<TlsClient>),
}

impl Link {
    /// Sends a part of these bytes; how many.
    fn send(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Plain(client) => client.write(bytes).unwrap_or(0),
            Self::Tls(client) => {
                // It encrypts all of them, and sends a part of that.
                client.write(bytes);
                client.send(bytes.len().max(20));
                bytes.len()
            }
        }
    }

    /// Appends up to `len` bytes of what has arrived.
    fn read(&mut self, len: usize, received: &mut Vec<u8>) {
        match self {
            Self::Plain(client) => {
                let mut buffer = vec![0; len];
                if let Ok(read) = client.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..read]);
                }
            }
            Self::Tls(client) => {
                // The handshake goes on.
                client.receive(len);
                client.send(len);
                received.append(&mut client.received);
            }
        }
    }

    fn client(&mut self) -> &mut Client {
        match self {
            Self::Plain(client) => client,
            Self::Tls(client) => &mut client.client,
        }
    }

    fn has_sent(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(client) => client.has_sent(),
        }
    }
}

/// A client with the requests that it sends one after the other, without waiting.
struct Peer {
    link: Option<Link>,
    /// What was not sent yet.
    rest: Vec<u8>,
    /// What the replies to its requests begin with, and the clients that send these.
    expected: Vec<(&'static [u8], Ipv4Addr)>,
    received: Vec<u8>,
}

impl Peer {
    fn new(world: &World, config: &Arc<ClientConfig>, by_header: bool, rng: &mut SmallRng) -> Self {
        let any_client = |rng: &mut SmallRng| Ipv4Addr::new(198, 51, 100, rng.random_range(0..8));
        let (mut client, is_behind_proxy) = (any_client(rng), rng.random_bool(0.4));
        let from = if is_behind_proxy { PROXY } else { client };
        let from = SocketAddr::new(from.into(), rng.random());
        let header = match is_behind_proxy && by_header {
            true => binary_header(SocketAddr::new(client.into(), 1)),
            false => Vec::new(),
        };
        let (mut rest, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..rng.random_range(1..6) {
            let (target, begin): (String, &[u8]) = match rng.random_range(0..5) {
                0 => ("/health".to_owned(), b"ok\n"),
                1 => (format!("/scrape?info_hash={HASH}"), b"d5:files"),
                2 => ("/announce".to_owned(), b"d14:failure reason"),
                _ => (ANNOUNCE.to_owned(), ANNOUNCED),
            };
            let mut field = String::new();
            if is_behind_proxy && !by_header {
                client = any_client(rng);
                field = format!("X-Forwarded-For: 10.0.0.1, {client}\r\n");
            }
            write!(rest, "GET {target} HTTP/1.1\r\n{field}\r\n").unwrap();
            expected.push((begin, client));
        }
        let link = match rng.random_bool(0.5) {
            true => {
                rest.splice(..0, header);
                Link::Plain(world.connect(from))
            }
            false => Link::Tls(TlsClient::behind(header, world.connect_tls(from), config).into()),
        };
        Self { link: Some(link), rest, expected, received: Vec::new() }
    }

    /// Sends or reads a part, or ends if it `may_end`.
    fn act(&mut self, may_end: bool, rng: &mut SmallRng) {
        let Some(link) = &mut self.link else { return };
        match rng.random_range(if may_end { 0 } else { 3 }..20) {
            0 => match self.link.take() {
                Some(Link::Plain(client)) => client.reset(),
                Some(Link::Tls(client)) => client.client.reset(),
                None => {}
            },
            1 => self.link = None,
            2 => _ = link.client().finish(),
            3..12 => {
                let part = rng.random_range(0..=self.rest.len());
                let sent = link.send(&self.rest[..part]);
                self.rest.drain(..sent);
            }
            _ => self.read(rng.random_range(1..500)),
        }
    }

    fn read(&mut self, len: usize) {
        if let Some(link) = &mut self.link {
            link.read(len, &mut self.received);
        }
    }

    /// Checks what was received: whole replies of the kinds that are due, and a part of the next.
    /// Returns how many are whole.
    fn check(&self) -> usize {
        if let Some(Link::Tls(client)) = &self.link {
            assert_eq!(client.error, None);
        }
        let (got, _) = whole_replies(&self.received);
        assert!(got.len() <= self.expected.len());
        for (reply, (begin, client)) in got.iter().zip(&self.expected) {
            let is_busy = reply.body.ends_with(b"8:retry ini5ee");
            assert!(reply.status == 200 && (reply.body.starts_with(begin) || is_busy));
            let external = [b"11:external ip4:", &client.octets()[..]].concat();
            assert!(!reply.body.starts_with(ANNOUNCED) || contains(&reply.body, &external));
        }
        got.len()
    }

    /// Sends the rest and reads all replies.
    fn finish(&mut self, world: &mut World) {
        for _ in 0..100_000 {
            let is_whole = self.check() == self.expected.len();
            let Some(link) = &mut self.link else { return };
            if is_whole && self.rest.is_empty() && link.has_sent() {
                return;
            }
            let sent = link.send(&self.rest);
            self.rest.drain(..sent);
            world.settle();
            self.read(1 << 16);
        }
        panic!("a reply is missing");
    }
}

/// Returns how many requests had to wait too long for a batch.
fn run(seed: u64) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let conditions = Conditions {
        short_reads: rng.random_range(0.0..0.8),
        short_writes: rng.random_range(0.0..0.8),
        stalls: rng.random_range(0.0..0.5),
        repeats: rng.random_range(0.0..1.0),
        capacity: rng.random_range(20..2_000),
    };
    // In the others, nothing but a client's own requests decides what it gets.
    let is_harsh = rng.random_bool(0.5);
    let limits = match is_harsh {
        true => format!(
            "connections = {}\nconnections_per_source = {}\nkeep_alive = {}\ntimeout = 3",
            rng.random_range(2..20),
            rng.random_range(1..8),
            rng.random_range(0..4),
        ),
        false => "keep_alive = 3600\ntimeout = 300".to_owned(),
    };
    let by_header = rng.random_bool(0.5);
    let by = if by_header { "proxy-protocol" } else { "x-forwarded-for" };
    let config = format!(
        "proxies = [\"{PROXY}\"]\nclient_address = \"{by}\"\n{limits}\n\
         [limits]\nbatches_in_flight = {}\nbatch_requests = {}\n",
        rng.random_range(6..12),
        rng.random_range(1..5),
    );
    let mut world = World::with(seed, &config, conditions);
    let config = if rng.random() { client } else { client_1_2 }(&[&CERTIFICATE]);
    let mut peers = Vec::new();
    for _ in 0..STEPS {
        match rng.random_range(0..10) {
            _ if is_harsh && rng.random_bool(0.05) => match rng.random() {
                true => drop(world.orders().pause_fronts().unwrap()),
                false => world.orders().resume().unwrap(),
            },
            0 => peers.push(Peer::new(&world, &config, by_header, &mut rng)),
            1 => world.next_second(),
            2..5 => _ = world.web.turn(world.now()).unwrap(),
            5 => _ = world.turn(),
            _ if peers.is_empty() => {}
            _ => {
                let at = rng.random_range(0..peers.len());
                peers[at].act(is_harsh, &mut rng);
            }
        }
    }
    if is_harsh {
        world.orders().resume().unwrap();
        // Without clients that act, everything ends within the time-outs.
        world.pass(12);
    }
    for peer in &mut peers {
        match is_harsh {
            true => peer.read(1 << 16),
            false => peer.finish(&mut world),
        }
        peer.check();
    }
    drop(peers);
    world.settle();
    let counters = world.counters();
    let open = counters.open.get() + counters.https_open.get();
    assert_eq!((open, counters.buffered_bytes.get()), (0, 0));
    world.check();
    world.refused("busy")
}

#[test]
fn every_seed_keeps_the_laws() {
    let mut busy = 0;
    for seed in 0..300 {
        let run = std::panic::catch_unwind(|| run(seed));
        busy += run.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(busy > 0, "full batches have occurred");
}
