//! A whole tracker on one thread, over the in-process network. The test schedules the turns of the
//! workers and sets the time, so that a run is determined by its seeds.

use std::net::SocketAddr;
use std::sync::Arc;

use onrush_config::{Flags, Host, Settings};
use onrush_net::memory::{Choice, Conditions, Endpoint, Network};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{
    Announce, Connect, ConnectionId, Family, InfoHash, PeerId, Response, TransactionId,
};
use onrush_swarm::Moment;
use onrush_tracker::assemble::{Secrets, assemble_with_fronts, shard_map};
use onrush_tracker::clock::Now;
use onrush_tracker::connection::{Key, Keys};
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Waker;
use onrush_tracker::metrics::Summary;
use onrush_tracker::rules::Rules;
use onrush_tracker::worker::Worker;

/// The tracker's address over IPv4.
pub const TRACKER_V4: &str = "192.0.2.1:6969";
/// The tracker's address over IPv6.
pub const TRACKER_V6: &str = "[2001:db8::1]:6969";

/// The wall-clock time at second 0 of the test's clock.
const EPOCH: u64 = 1_800_000_000;

/// Both placements, as configuration text, with at least two shards, so that lanes are used.
pub const SPLIT: &str = "[workers]\nplacement = \"split\"\nsocket = 2\nswarm = 3\n";
/// See [`SPLIT`].
pub const COLOCATED: &str = "[workers]\nplacement = \"colocated\"\ntotal = 3\n";

/// All workers of a tracker.
pub struct TestTracker<S: Socket> {
    /// The workers, in order.
    pub workers: Vec<Worker<S>>,
}

/// The settings of a configuration text.
pub fn settings(text: &str) -> Settings {
    let host = Host { vcpus: (0..8).collect(), ..Host::default() };
    match Settings::parse("test.toml", text, &Flags::default(), &host) {
        Ok((settings, _)) => settings,
        Err(problems) => panic!("{problems}"),
    }
}

/// The access rules of `settings`, with the lists that they name.
pub fn rules(settings: &Settings) -> Rules {
    settings.rules(&onrush_store::lists::load(settings, &mut || {}).unwrap())
}

/// Secrets derived from a seed.
pub fn secrets(seed: u64) -> Secrets {
    let word = |n: u64| (seed.wrapping_add(n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    Secrets {
        keys: Keys { current: Key([seed as u8; 16]), previous: None, next: None },
        shard_key: [1, 2, 3, 4, 5].map(word),
        table_key: [seed as u8 ^ 0x5A; 16],
        seed,
    }
}

/// The time at this second of the test's clock.
pub fn at(seconds: u64) -> Now {
    Now { moment: Moment(seconds as u32), unix: EPOCH + seconds }
}

/// The sockets of a tracker's workers at both of its addresses on `network`, steered when it is
/// colocated.
pub fn endpoints(settings: &Settings, secrets: &Secrets, network: &Network) -> Vec<Endpoint> {
    let map = shard_map(settings.placement.shards(), secrets);
    let colocated = settings.placement.socket_sides() == settings.placement.workers();
    let choice = match colocated && settings.socket.steering {
        true => Choice::By(Arc::new(move |payload: &[u8], _: SocketAddr| {
            let hash = payload.get(16..36)?.try_into().ok()?;
            Some(map.shard_of(&InfoHash(hash)))
        })),
        false => Choice::BySource,
    };
    let addresses = [TRACKER_V4, TRACKER_V6].map(|text| text.parse().unwrap());
    let endpoints = network.bind_group(&addresses, settings.placement.socket_sides(), &choice);
    endpoints.unwrap()
}

impl TestTracker<Endpoint> {
    /// A tracker of a configuration text on a network without faults, and a client's endpoint at
    /// `clients`.
    pub fn with_clients(text: &str, clients: &[SocketAddr]) -> (Self, Endpoint) {
        let network = Network::new(1, Conditions::default());
        let tracker = Self::new(&settings(text), &secrets(1), &network, |endpoint| endpoint);
        (tracker, network.bind(clients).unwrap())
    }
}

impl<S: Socket> TestTracker<S> {
    /// Binds a tracker to both of its addresses on `network`, steered when it is colocated, each
    /// worker's socket wrapped by `wrap`.
    pub fn new(
        settings: &Settings,
        secrets: &Secrets,
        network: &Network,
        wrap: impl FnMut(Endpoint) -> S,
    ) -> Self {
        Self::with_fronts(settings, secrets, network, wrap, Vec::new()).0
    }

    /// Like [`new`](Self::new), with one front for each entry of `fronts`, the front's waker.
    pub fn with_fronts(
        settings: &Settings,
        secrets: &Secrets,
        network: &Network,
        wrap: impl FnMut(Endpoint) -> S,
        fronts: Vec<Arc<dyn Waker>>,
    ) -> (Self, Vec<Front>) {
        let sockets = endpoints(settings, secrets, network).into_iter().map(wrap).collect();
        let (limits, rules) = (settings.workers(), rules(settings));
        let (workers, fronts) = assemble_with_fronts(&limits, secrets, sockets, &rules, fronts);
        (Self { workers }, fronts)
    }

    /// Lets every worker take turns until all are idle.
    pub fn settle(&mut self, now: Now) {
        for _ in 0..10_000 {
            let mut busy = false;
            for worker in &mut self.workers {
                busy |= worker.turn(now).expect("the in-process network does not fail");
            }
            if !busy {
                return;
            }
        }
        panic!("the workers are still busy after 10,000 turns");
    }

    /// The totals of all workers.
    pub fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|worker| &*worker.metrics))
    }
}

/// Sends a datagram from a client's socket to the tracker's address of the same family.
pub fn send(clients: &mut Endpoint, socket: u16, bytes: &[u8]) {
    let tracker = match clients.addresses()[usize::from(socket)] {
        SocketAddr::V4(_) => TRACKER_V4,
        SocketAddr::V6(_) => TRACKER_V6,
    };
    let to = Return::to(tracker.parse().unwrap(), socket);
    clients.send(std::iter::once(Reply { bytes, to: &to }));
}

/// Connects from a client's socket at `now`, and returns the connection id.
pub fn connect(
    world: &mut TestTracker<Endpoint>,
    clients: &mut Endpoint,
    socket: u16,
    now: Now,
) -> ConnectionId {
    let mut bytes = [0; 16];
    Connect { transaction_id: TransactionId(1) }.write(&mut bytes);
    send(clients, socket, &bytes);
    world.settle(now);
    let received = clients.receive(1).unwrap();
    let (reply, _) = received.iter().next().expect("a reply to the connect");
    match Response::parse(reply, Family::V4) {
        Ok(Response::Connect(response)) => response.connection_id,
        other => panic!("{other:?}"),
    }
}

/// A seeder's announce without an event; tests change the fields under test.
pub fn announce(connection_id: ConnectionId, info_hash: InfoHash) -> Announce<'static> {
    Announce {
        connection_id,
        info_hash,
        peer_id: PeerId([1; 20]),
        num_want: 50,
        port: 6881,
        ..Announce::default()
    }
}
