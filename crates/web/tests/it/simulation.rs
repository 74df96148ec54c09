//! The web worker under faults from a seed: bytes split anywhere, short writes, late events, slow
//! readers, full batches, new certificates, and in half of the runs resets, time-outs, limits,
//! pauses and new rules. Half of the clients use TLS, of 1.3 or 1.2. Some clients are behind a
//! proxy, which names them in a header or in each request. Each client gets the replies to its
//! requests, in order. It may get a part of them only if it, a limit, a pause or a rule may have
//! ended its connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use onrush_net::stream::memory::Client;
use onrush_testing::memory_tracker::{rules, settings};
use onrush_testing::tls::{Issued, client, client_1_2};
use onrush_tracker::rules::Rules;
use onrush_web::tls::Tls;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustls::ClientConfig;

use crate::tls::TlsClient;
use crate::world::{
    ANNOUNCE, CERTIFICATE, HASH, World, binary_header, contains, faults, for_each_seed, loaded,
    whole_replies,
};

const STEPS: usize = 400;
/// The address of all proxies.
const PROXY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// The client that is blocked at times.
const BLOCKED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 0);
/// What the reply to an announce begins with.
const ANNOUNCED: &[u8] = b"d8:complete";

/// The certificate that replaces that of all trackers, and is replaced by it.
static RENEWED: LazyLock<Issued> = LazyLock::new(|| Issued::of(&["t"]));

/// A client's connection.
pub(crate) enum Link {
    Plain(Client),
    Tls(Box<TlsClient>),
}

impl Link {
    /// Sends a part of these bytes; how many. Until a handshake is over, it sends that.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Plain(client) => client.write(bytes).unwrap_or(0),
            Self::Tls(client) => {
                let len = if client.tls.is_handshaking() { 0 } else { bytes.len() };
                // It encrypts all of them, and sends a part of that.
                client.write(&bytes[..len]);
                client.send(bytes.len().max(20));
                len
            }
        }
    }

    /// Appends up to `len` bytes of what has arrived. Whether the connection has ended.
    pub(crate) fn read(&mut self, len: usize, received: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain(client) => {
                let mut buffer = vec![0; len];
                let read = client.read(&mut buffer);
                received.extend_from_slice(&buffer[..*read.as_ref().unwrap_or(&0)]);
                read.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |read| read == 0)
            }
            Self::Tls(client) => {
                // The handshake goes on.
                client.receive(len);
                client.send(len);
                received.append(&mut client.received);
                client.ended.is_some()
            }
        }
    }

    fn client(&mut self) -> &mut Client {
        match self {
            Self::Plain(client) => client,
            Self::Tls(client) => &mut client.client,
        }
    }

    pub(crate) fn reset(self) {
        match self {
            Self::Plain(client) => client.reset(),
            Self::Tls(client) => client.client.reset(),
        }
    }

    pub(crate) fn has_sent(&self) -> bool {
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
    /// Whether it is behind a proxy, and whether that names it by a header.
    is_behind_proxy: bool,
    has_header: bool,
    /// Whether it, a limit or a rule may end its connection.
    is_harsh: bool,
}

impl Peer {
    fn new(
        world: &World,
        config: &Arc<ClientConfig>,
        (by_header, is_harsh): (bool, bool),
        rng: &mut SmallRng,
    ) -> Self {
        let any_client = |rng: &mut SmallRng| Ipv4Addr::new(198, 51, 100, rng.random_range(0..8));
        let (mut client, is_behind_proxy) = (any_client(rng), rng.random_bool(0.4));
        let from = if is_behind_proxy { PROXY } else { client };
        let from = SocketAddr::new(from.into(), rng.random());
        let has_header = is_behind_proxy && by_header;
        let header = match has_header {
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
        let (link, received) = (Some(link), Vec::new());
        Self { link, rest, expected, received, is_behind_proxy, has_header, is_harsh }
    }

    /// Sends or reads a part, or ends if it may.
    fn act(&mut self, rng: &mut SmallRng) {
        let Some(link) = &mut self.link else { return };
        match rng.random_range(if self.is_harsh { 0 } else { 3 }..20) {
            0 => self.link.take().into_iter().for_each(Link::reset),
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
        self.link.as_mut().map(|link| link.read(len, &mut self.received));
    }

    /// Checks what was received: whole replies of the kinds that are due, and a part of the next.
    /// Returns how many are whole.
    fn check(&self) -> usize {
        // Unless its proxy is trusted, its header is neither a request nor TLS.
        let may_be_unknown = self.is_harsh && self.has_header;
        if let Some(Link::Tls(client)) = &self.link {
            assert!(client.error.is_none() || may_be_unknown, "{:?}", client.error);
        }
        let (got, _) = whole_replies(&self.received);
        assert!(got.len() <= self.expected.len());
        for (number, (reply, (begin, client))) in got.iter().zip(&self.expected).enumerate() {
            let is_from = |ip: &Ipv4Addr| {
                contains(&reply.body, &[b"11:external ip4:", &ip.octets()[..]].concat())
            };
            let is_proxy = self.is_harsh && self.is_behind_proxy && !self.has_header;
            let is_busy = reply.body.ends_with(b"8:retry ini5ee");
            let is_due = match reply.status {
                200 if reply.body.starts_with(ANNOUNCED) => {
                    *begin == ANNOUNCED && (is_from(client) || is_proxy && is_from(&PROXY))
                }
                200 => reply.body.starts_with(begin) || is_busy,
                400 => may_be_unknown && number == 0 && got.len() == 1,
                403 => is_proxy && *client == BLOCKED,
                _ => false,
            };
            assert!(is_due, "{number}: {reply:?}");
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

/// Rules by which proxies may be trusted, and a client may be blocked.
fn any_rules(by: &str, rng: &mut SmallRng) -> Rules {
    let mut list = |ip: Ipv4Addr| if rng.random() { format!("\"{ip}\"") } else { String::new() };
    let (proxies, blocked) = (list(PROXY), list(BLOCKED));
    rules(&settings(&format!(
        "[http]\nproxies = [{proxies}]\nclient_address = \"{by}\"\n\
         [access]\nblocked = [{blocked}]\n"
    )))
}

/// Returns how many requests had to wait too long for a batch.
fn run(seed: u64) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let conditions = faults(rng.random_range(20..2_000), &mut rng);
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
    let certificates = [&*CERTIFICATE, &*RENEWED];
    let loaded = certificates.map(|issued| loaded(&[issued]));
    let tls = Tls::new(loaded[0].clone()).unwrap();
    let mut world = World::with_tls(seed, &config, conditions, tls.clone());
    let config = if rng.random() { client } else { client_1_2 }(&certificates);
    let mut peers = Vec::new();
    for _ in 0..STEPS {
        match rng.random_range(0..10) {
            _ if is_harsh && rng.random_bool(0.08) => match rng.random_range(0..3) {
                0 => drop(world.orders().pause_fronts().unwrap()),
                1 => world.orders().resume().unwrap(),
                _ => world.update_rules(any_rules(by, &mut rng)),
            },
            _ if rng.random_bool(0.02) => tls.replace(loaded[rng.random_range(0..2)].clone()),
            0 => peers.push(Peer::new(&world, &config, (by_header, is_harsh), &mut rng)),
            1 => world.next_second(),
            2..5 => _ = world.web.turn(world.now()).unwrap(),
            5 => _ = world.turn(),
            _ if peers.is_empty() => {}
            _ => {
                let at = rng.random_range(0..peers.len());
                peers[at].act(&mut rng);
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
    assert!(for_each_seed(300, run).sum::<u64>() > 0, "full batches have occurred");
}
