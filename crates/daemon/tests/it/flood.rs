//! A flood of invalid and nearly valid packets: the daemon counts every datagram, its memory stays
//! bounded, and the next client is served.

use std::net::SocketAddr;

use onrush_proto::InfoHash;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::harness::client::Client;
use crate::harness::packets::{Announce, leecher, scrape};
use crate::harness::process::{Launch, eventually};

/// Seed of the random numbers.
const SEED: u64 = 0x6969;
/// Datagrams before the first measurement of memory, and between that and the last.
const WARM_UP: usize = 20_000;
const FLOOD: usize = 80_000;
/// Datagrams between two requests whose replies are awaited, so that the receive buffer does not
/// overflow.
const BURST: usize = 64;
/// Bound on the growth of memory, kB: peers of mutated announces that are still valid are stored.
const GROWTH: u64 = 3 * 1024;

#[test]
fn a_flood_of_invalid_packets_is_counted_and_survived() {
    // One worker, whose replies show that it has received everything before.
    let daemon = Launch::on_loopback().flags(&["--workers", "1"]).admin().serve();
    let mut flood = Flood::new(daemon.addresses());
    flood.send(WARM_UP);
    let before = daemon.memory_kb("VmRSS");
    flood.send(FLOOD);
    let after = daemon.memory_kb("VmRSS");
    daemon.check();
    println!("memory from {before} kB to {after} kB");
    assert!(after < before + GROWTH, "from {before} kB to {after} kB");

    // The check has sent eight.
    let sent = flood.sent + flood.awaited + 8;
    let mut shown = daemon.metrics();
    eventually("every datagram is received, and served or refused", || {
        shown = daemon.metrics();
        let received = shown.sum("onrush_received_datagrams_total", &[]);
        let served = shown.sum("onrush_requests_total", &[]);
        let refused = |labels: &[&str]| shown.sum("onrush_refused_requests_total", labels);
        // A request without a free batch is first accepted, then refused as busy.
        let busy = refused(&["reason=\"busy\""]);
        received == sent as f64 && received == served + refused(&[]) - busy
    });
    for reason in ["short", "magic", "action", "connection_id", "port", "no_hash"] {
        let label = format!("reason=\"{reason}\"");
        let refused = shown.sum("onrush_refused_requests_total", &[&label]);
        assert!(refused > 0.0, "nothing refused for {reason}");
    }
    daemon.stop();
}

/// Sends invalid packets, few of which are on their way at any time: no buffer overflows while the
/// tracker gets no CPU time, and each packet is received.
struct Flood {
    rng: SmallRng,
    /// A client for each address.
    clients: Vec<Client>,
    hashes: Vec<InfoHash>,
    sent: u64,
    /// Number of valid requests in between, each of which has got a reply.
    awaited: u64,
}

impl Flood {
    fn new(addresses: &[SocketAddr]) -> Self {
        let mut rng = SmallRng::seed_from_u64(SEED);
        let mut clients = Vec::new();
        for address in addresses {
            let mut client = Client::new(*address);
            client.connect();
            clients.push(client);
        }
        let hashes = (0..100).map(|_| InfoHash(rng.random())).collect();
        let awaited = clients.len() as u64;
        Self { rng, clients, hashes, sent: 0, awaited }
    }

    fn send(&mut self, datagrams: usize) {
        for number in 0..datagrams {
            // Alternates between families.
            let client = number % self.clients.len();
            let datagram = self.datagram(client);
            self.clients[client].send(&datagram);
            self.sent += 1;
            if number % BURST == 0 {
                for client in &mut self.clients {
                    client.connect();
                    self.awaited += 1;
                }
            }
        }
    }

    /// Random bytes, or a request with a fault.
    fn datagram(&mut self, client: usize) -> Vec<u8> {
        if self.rng.random_ratio(2, 5) {
            let mut bytes = vec![0; self.rng.random_range(0..2_000)];
            self.rng.fill(&mut bytes[..]);
            if bytes.len() > 12 && self.rng.random_ratio(1, 2) {
                // Few random datagrams have a valid action.
                bytes[8..12].copy_from_slice(&self.rng.random_range(0u32..4).to_be_bytes());
            }
            return bytes;
        }
        let id = match self.rng.random_ratio(2, 3) {
            true => self.clients[client].id,
            false => self.rng.random(),
        };
        let mut bytes = self.request(id);
        self.mutate(&mut bytes);
        bytes
    }

    /// A request that is valid, possibly except for its connection id. Its transaction id is
    /// random, so that changed bytes do not make it that of a connect in between.
    fn request(&mut self, id: u64) -> Vec<u8> {
        let rng = &mut self.rng;
        let hash = self.hashes[rng.random_range(0..self.hashes.len())];
        if rng.random_ratio(1, 5) {
            return scrape(id, rng.random(), &vec![hash; rng.random_range(0..80)]);
        }
        let announce = Announce {
            left: rng.random_range(0..2),
            event: rng.random_range(0..6),
            num_want: rng.random_range(-2..300),
            ..leecher(hash, rng.random_range(0..20))
        };
        announce.bytes(id, rng.random())
    }

    /// Truncates, extends or changes bytes; rarely those of the info hash, because stored swarms
    /// are not the subject.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let rng = &mut self.rng;
        match rng.random_range(0..4) {
            0 => bytes.truncate(rng.random_range(0..=bytes.len())),
            1 => {
                let more = rng.random_range(0..200);
                bytes.extend((0..more).map(|_| rng.random::<u8>()));
            }
            _ => {
                for _ in 0..rng.random_range(1..5) {
                    let at = rng.random_range(0..bytes.len());
                    if !(16..36).contains(&at) || rng.random_ratio(1, 10) {
                        bytes[at] = rng.random();
                    }
                }
            }
        }
    }
}
