//! Peers that behave like real clients: they connect, announce, announce again after the interval,
//! retransmit without a reply (BEP 15, "Time outs"), and leave with or without `stopped`.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::Socket;
use onrush_net::memory::{Endpoint, Network};
use onrush_proto::options::Options as Bep41;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, Scrape,
    TransactionId,
};
use rand::RngExt;
use rand::rngs::SmallRng;

use onrush_testing::memory_tracker::send;

use super::scenario::Addresses;

/// Number of swarms; low numbers have more peers.
pub(crate) const SWARMS: u32 = 24;
/// Time for which a client uses a connection id (BEP 15: one minute).
const ID_LIFETIME: Duration = Duration::from_secs(60);
/// Time-out of the first attempt. BEP 15 specifies 15 s; shorter, so that a run covers more
/// retransmissions.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time-out is that of the first attempt, doubled so often.
const MAX_DOUBLINGS: u32 = 3;
/// Pause after an error reply.
const ERROR_PAUSE: Duration = Duration::from_secs(60);

/// All peers, behind one endpoint with an address for each.
pub(crate) struct Peers {
    rng: SmallRng,
    endpoint: Endpoint,
    peers: Vec<Peer>,
    /// The time of the next action of each peer, the earliest first.
    agenda: BinaryHeap<Reverse<(Duration, usize)>>,
    transactions: u32,
}

struct Peer {
    family: Family,
    swarm: InfoHash,
    port: u16,
    left: u64,
    event: Event,
    id: Option<(ConnectionId, Duration)>,
    /// The request without a reply, and how often it was sent.
    waiting_for: Option<(TransactionId, u32)>,
    /// The time of the peer's next action; agenda entries with another time are outdated.
    due: Duration,
    /// When it last got a reply to an announce.
    answered: Duration,
    gone: bool,
}

impl Peers {
    /// `count` peers, which start within the first minutes.
    pub(crate) fn new(
        mut rng: SmallRng,
        count: usize,
        addresses: Addresses,
        network: &Network,
    ) -> Self {
        let mut peers: Vec<_> = (0..count).map(|_| Peer::new(&mut rng)).collect();
        let mut taken = BTreeSet::new();
        let addresses: Vec<SocketAddr> = peers
            .iter_mut()
            .enumerate()
            .map(|(n, peer)| {
                let address = peer.address(n, count, addresses, &mut rng);
                // Two clients with one address and port would be one peer.
                while !taken.insert((address.ip(), peer.swarm, peer.port)) {
                    peer.port = rng.random_range(1_024..=65_535);
                }
                address
            })
            .collect();
        let endpoint = network.bind(&addresses).unwrap();
        let agenda = peers.iter().enumerate().map(|(n, peer)| Reverse((peer.due, n))).collect();
        Self { rng, endpoint, peers, agenda, transactions: 0 }
    }

    /// The time of the next action of any peer.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.agenda.peek().map(|Reverse((due, _))| *due)
    }

    /// Number of peers that are left and have got no reply to an announce since `earlier`.
    pub(crate) fn unanswered_since(&self, earlier: Duration) -> usize {
        self.peers.iter().filter(|peer| !peer.gone && peer.answered < earlier).count()
    }

    /// Reads all replies, then performs all actions that are due.
    pub(crate) fn act(&mut self, at: Duration) {
        self.read(at);
        while let Some(Reverse((due, n))) = self.agenda.peek().copied()
            && due <= at
        {
            self.agenda.pop();
            if self.peers[n].due == due && !self.peers[n].gone {
                self.send_next(n, at);
            }
        }
    }

    fn read(&mut self, at: Duration) {
        loop {
            let mut replies: Vec<(usize, Vec<u8>)> = Vec::new();
            for (bytes, slot) in self.endpoint.receive(64).unwrap().iter() {
                replies.push((usize::from(slot.reply_to.socket()), bytes.to_vec()));
            }
            if replies.is_empty() {
                return;
            }
            for (n, bytes) in replies {
                self.process_reply(n, &bytes, at);
            }
        }
    }

    fn process_reply(&mut self, n: usize, bytes: &[u8], at: Duration) {
        let peer = &mut self.peers[n];
        let response =
            Response::parse(bytes, peer.family).expect("a reply valid for a strict client");
        let Some((expected, _)) = peer.waiting_for else { return };
        if response.transaction_id() != expected {
            return; // a duplicate, or a reply to an earlier attempt
        }
        peer.waiting_for = None;
        let pause = match response {
            Response::Connect(response) => {
                peer.id = Some((response.connection_id, at));
                Duration::ZERO
            }
            Response::Announce(head, _) => {
                peer.answered = at;
                // Some peers leave with `stopped`, others without it and have to expire.
                peer.gone = peer.event == Event::Stopped || self.rng.random_bool(0.02);
                peer.plan_next(&mut self.rng);
                // Some users press "update now" before the interval has passed.
                Duration::from_millis(
                    self.rng.random_range(5_000..1_000 * u64::from(head.interval)),
                )
            }
            Response::Scrape(..) => Duration::from_secs(1),
            Response::Error(..) => {
                peer.answered = at;
                ERROR_PAUSE
            }
        };
        self.schedule(n, at + pause);
    }

    /// Sends the next request, or retransmits the one without a reply.
    fn send_next(&mut self, n: usize, at: Duration) {
        let tries = self.peers[n].waiting_for.map_or(0, |(_, tries)| tries) + 1;
        self.transactions += 1;
        let id = TransactionId(self.transactions);
        let mut bytes = [0; 2048];
        let len = self.request(n, id, at, &mut bytes);
        send(&mut self.endpoint, n as u16, &bytes[..len]);
        self.peers[n].waiting_for = Some((id, tries));
        self.schedule(n, at + REPLY_TIMEOUT * (1 << tries.min(MAX_DOUBLINGS)));
    }

    fn request(&mut self, n: usize, id: TransactionId, at: Duration, bytes: &mut [u8]) -> usize {
        if self.rng.random_bool(0.01) {
            // No valid request: there is no reply, and the peer tries again.
            let len = self.rng.random_range(0..200);
            self.rng.fill(&mut bytes[..len]);
            return len;
        }
        let peer = &self.peers[n];
        let fresh = peer.id.filter(|(_, since)| at - *since < ID_LIFETIME);
        // Some clients use an old id for much too long, until they get no reply.
        let stubborn = self.rng.random_bool(0.02);
        let Some((connection_id, _)) = fresh.or(peer.id.filter(|_| stubborn)) else {
            Connect { transaction_id: id }.write(bytes.first_chunk_mut().unwrap());
            return 16;
        };
        if self.rng.random_bool(0.05) {
            let hashes: Vec<_> = (0..self.rng.random_range(0..76))
                .map(|_| swarm(self.rng.random_range(0..SWARMS)))
                .collect();
            return Scrape::write(connection_id, id, &hashes, bytes);
        }
        Announce {
            connection_id,
            transaction_id: id,
            info_hash: peer.swarm,
            peer_id: PeerId([n as u8; 20]),
            downloaded: 0,
            left: peer.left,
            uploaded: 0,
            event: peer.event,
            ip: 0x0A0B_0C0D,
            key: 7,
            num_want: [-1, 0, 1, 7, 50, 80, 200, i32::MAX][self.rng.random_range(0..8)],
            port: peer.port,
            options: Bep41(&[2, 9, b'/', b'a', b'n', b'n']),
        }
        .write(bytes)
    }

    fn schedule(&mut self, n: usize, due: Duration) {
        self.peers[n].due = due;
        self.agenda.push(Reverse((due, n)));
    }
}

impl Peer {
    fn new(rng: &mut SmallRng) -> Self {
        // Squared, so that some swarms are large and most are small.
        let draw: f64 = rng.random();
        let number = (draw * draw * f64::from(SWARMS)) as u32;
        Self {
            family: if rng.random_bool(0.3) { Family::V6 } else { Family::V4 },
            swarm: swarm(number),
            port: match rng.random_range(0..50) {
                0 => 0,
                1 => 1,
                _ => rng.random_range(1_024..=65_535),
            },
            left: if rng.random_bool(0.35) { 0 } else { 1 << 30 },
            event: Event::Started,
            id: None,
            waiting_for: None,
            due: Duration::from_millis(rng.random_range(0..100_000)),
            answered: Duration::ZERO,
            gone: false,
        }
    }

    /// The address of the client `n` of `count`. Low numbers of sources have more clients.
    fn address(
        &self,
        n: usize,
        count: usize,
        addresses: Addresses,
        rng: &mut SmallRng,
    ) -> SocketAddr {
        let source = match addresses.clients_per_source {
            1 => n,
            clients => {
                let draw: f64 = rng.random();
                (draw * draw * (count / clients) as f64) as usize
            }
        };
        let network = source / addresses.sources_per_network;
        let host = source % addresses.sources_per_network + 1;
        let text = match self.family {
            Family::V4 => {
                let port = 3_000 + n;
                format!("10.{}.{}.{host}:{port}", network / 250, network % 250 + 1)
            }
            Family::V6 => format!("[2001:db8:{network:x}:{host:x}::{n:x}]:3000"),
        };
        text.parse().expect("an address")
    }

    /// Chooses the fields of the next announce.
    fn plan_next(&mut self, rng: &mut SmallRng) {
        self.event = match rng.random_range(0..100) {
            0..4 => Event::Stopped,
            4..8 => Event::Paused,
            8..20 if self.left > 0 => {
                self.left = 0;
                Event::Completed
            }
            20..22 => Event::Completed, // repeated, or with something left: must not count
            22 => {
                self.left = 5; // selects more files of the torrent
                Event::None
            }
            _ => Event::None,
        };
    }
}

/// The info hash of a swarm.
pub(crate) fn swarm(number: u32) -> InfoHash {
    let mut hash = [0x11; 20];
    hash[16..].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}
