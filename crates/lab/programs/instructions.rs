//! Runs a fixed number of requests through a whole tracker on one thread, over the in-process
//! network, for counting instructions: `scripts/count-instructions` runs it under callgrind.
//!
//! `instructions KIND REQUESTS`: KIND is `connect`, `announce` (30 peers in each reply),
//! `announce-v6` (the same over IPv6), `scrape` (of ten), `scrape-one`, and `split-announce` for
//! the path over the lanes. `watched-KIND` is KIND while another thread writes `/metrics`
//! repeatedly from the worker's counters (`scripts/bench-observe` counts the threads separately);
//! `sampled-KIND` is KIND while the worker samples the sources of requests (`onrush ctl
//! top-sources`).
//! `serve` is the shard's part of an announce alone, and `serve-mix` the same for swarms of one to
//! three peers of which some percent come and go; `unlimited-serve-mix` is that without limits of
//! sources. `full-serve` is for newcomers to a full shard, with `ONRUSH_PEERS` peers (20,000 by
//! default), two in each swarm. `echo-KIND` is the cost of the network and of this program for the
//! same datagrams, without a tracker: it is subtracted.

use std::hint::black_box;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onrush_control::metrics::prometheus;
use onrush_control::metrics::snapshot::StatsSnapshot;
use onrush_net::memory::{Choice, Conditions, Endpoint, Network, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{
    Announce, Connect, ConnectionId, Family, InfoHash, PeerId, Response, Scrape, TransactionId,
};
use onrush_swarm::{Moment, Shard, ShardBatch, ShardSettings, SourceLimits};
use onrush_testing::memory_tracker::{
    TRACKER_V4, TRACKER_V6, TestTracker, announce, at, secrets, settings,
};
use onrush_tracker::member::{Member, MemberThread};
use onrush_tracker::orders::Orders;
use onrush_tracker::source_sample::Sampled;

/// Source addresses; each is in every swarm.
const CLIENTS: usize = 62;
const SWARMS: u8 = 64;
/// Peers in the reply to an announce.
const PEERS: u16 = 30;
/// Sources in a sample.
const SAMPLE: usize = 1 << 14;
/// Datagrams per turn: a batch under load.
const BATCH: usize = 64;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [kind, requests] => Kind::parse(kind).zip(requests.parse().ok()),
        _ => None,
    };
    let Some((kind, requests)) = parsed else {
        eprintln!(
            "usage: instructions \
             [echo-|watched-|sampled-][split-]connect|announce|announce-v6|scrape|scrape-one| \
             [full-]serve|[unlimited-]serve-mix REQUESTS"
        );
        std::process::exit(2);
    };
    match (kind.ask, kind.echo) {
        (Ask::Serve, echo) => shard_alone(requests, !echo),
        (Ask::ServeMix { limited }, echo) => shard_with_churn(requests, limited, !echo),
        (Ask::ServeFull, echo) => full_shard(requests, !echo),
        (_, true) => echo(&kind, requests),
        (_, false) => serve(&kind, requests),
    }
}

/// The work that is counted.
struct Kind {
    ask: Ask,
    family: Family,
    split: bool,
    /// Without a tracker.
    echo: bool,
    /// While another thread reads the counters.
    watched: bool,
    /// While sources are sampled.
    sampled: bool,
}

/// The requests of clients.
#[derive(Clone, Copy)]
enum Ask {
    Connect,
    Announce,
    /// A scrape of this many swarms.
    Scrape(u8),
    /// None: announces are put into batches for a shard.
    Serve,
    /// The same with peers that come and go, with or without limits of sources.
    ServeMix {
        limited: bool,
    },
    /// The same with newcomers to a full shard.
    ServeFull,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        let (echo, text) = text.strip_prefix("echo-").map_or((false, text), |rest| (true, rest));
        let (watched, text) =
            text.strip_prefix("watched-").map_or((false, text), |rest| (true, rest));
        let (sampled, text) =
            text.strip_prefix("sampled-").map_or((false, text), |rest| (true, rest));
        let (split, text) = text.strip_prefix("split-").map_or((false, text), |rest| (true, rest));
        let (ask, family) = match text {
            "connect" => (Ask::Connect, Family::V4),
            "announce" => (Ask::Announce, Family::V4),
            "announce-v6" => (Ask::Announce, Family::V6),
            "scrape" => (Ask::Scrape(10), Family::V4),
            "scrape-one" => (Ask::Scrape(1), Family::V4),
            "serve" if !split => (Ask::Serve, Family::V4),
            "full-serve" if !split => (Ask::ServeFull, Family::V4),
            "serve-mix" if !split => (Ask::ServeMix { limited: true }, Family::V4),
            "unlimited-serve-mix" if !split => (Ask::ServeMix { limited: false }, Family::V4),
            _ => return None,
        };
        Some(Self { ask, family, split, echo, watched, sampled })
    }

    fn tracker(&self) -> SocketAddr {
        let text = match self.family {
            Family::V4 => TRACKER_V4,
            Family::V6 => TRACKER_V6,
        };
        text.parse().expect("an address")
    }

    /// The address of client `number`, from 0, with a network and an interface of its own.
    fn client(&self, number: usize) -> SocketAddr {
        let last = number as u8 + 1;
        match self.family {
            Family::V4 => SocketAddr::from(([198, 51, last, last], 3000)),
            Family::V6 => {
                let last = u16::from(last);
                SocketAddr::from(([0x2001, 0xDB8, last, 0, 0, 0, 0, last], 3000))
            }
        }
    }

    /// The length of a reply.
    fn reply_len(&self) -> usize {
        match self.ask {
            Ask::Connect => 16,
            Ask::Scrape(hashes) => 8 + usize::from(hashes) * 12,
            Ask::Announce | Ask::Serve | Ask::ServeMix { .. } | Ask::ServeFull => {
                20 + usize::from(PEERS) * self.family.peer_len()
            }
        }
    }
}

/// The whole path, tracker included.
fn serve(kind: &Kind, requests: usize) {
    let (network, mut clients) = network(kind);
    let text = match kind.split {
        true => "[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n",
        false => "[workers]\nplacement = \"colocated\"\ntotal = 1\n",
    };
    // The kernel's work is not counted, and a single worker needs no steering.
    let text = format!(
        "{text}[announce]\nmax_peers_v4 = {PEERS}\nmax_peers_v6 = {PEERS}\n[socket]\nbatch = \
         {BATCH}\nsteering = false\n"
    );
    let mut world = TestTracker::new(&settings(&text), &secrets(1), &network, |endpoint| endpoint);
    let ids = connect(kind, &mut world, &mut clients);
    let joins = packets(kind, Ask::Announce, &ids);
    for batch in (0..joins.len()).step_by(BATCH) {
        send(&mut clients, &joins, batch, BATCH.min(joins.len() - batch));
        world.settle(at(10));
        read(&mut clients);
    }
    let packets = packets(kind, kind.ask, &ids);
    let _found = kind.sampled.then(|| {
        let (workers, owners) = (&world.workers, world.workers[0].owners.clone());
        let orders = Orders::new(&workers[0].mailboxes, workers.len(), owners);
        orders.sample_sources(Sampled::All, SAMPLE, || 1).expect("a lane has room")
    });
    let over = AtomicBool::new(false);
    let members = world.workers.iter().enumerate();
    let watched: Arc<[Member]> =
        members.map(|(n, worker)| Member::new(worker.role(), n, worker.metrics.clone())).collect();
    thread::scope(|scope| {
        if kind.watched {
            scope.spawn(|| {
                // At least once, even if all requests were answered before this thread began.
                while {
                    let snapshot = StatsSnapshot::of_members(watched.clone(), settings(&text));
                    black_box(prometheus::write(&snapshot));
                    !over.load(Ordering::Relaxed)
                } {}
            });
        }
        let mut answers = 0;
        for batch in (0..requests).step_by(BATCH) {
            send(&mut clients, &packets, batch, BATCH.min(requests - batch));
            world.settle(at(10));
            answers += read(&mut clients);
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(answers, requests, "every request is answered");
    });
}

/// The same datagrams and replies of the same length, without a tracker.
fn echo(kind: &Kind, requests: usize) {
    let (network, mut clients) = network(kind);
    let mut tracker = network.bind_group(&[kind.tracker()], 1, &Choice::BySource).expect("is free");
    let tracker = &mut tracker[0];
    let packets = packets(kind, kind.ask, &[ConnectionId(1); CLIENTS]);
    let reply = vec![0; kind.reply_len()];
    let mut returns = Vec::with_capacity(BATCH);
    let mut answers = 0;
    for batch in (0..requests).step_by(BATCH) {
        send(&mut clients, &packets, batch, BATCH.min(requests - batch));
        returns
            .extend(tracker.receive(BATCH).expect("works").iter().map(|(_, slot)| slot.reply_to));
        tracker.send(returns.iter().map(|to| Reply { bytes: &reply, to }));
        returns.clear();
        // The tracker receives twice: the second call finds nothing.
        assert!(tracker.receive(BATCH).expect("works").is_empty());
        answers += read(&mut clients);
    }
    assert_eq!(answers, requests, "every request is echoed");
}

type Batch = ShardBatch<u64, u64>;

/// Puts the announces of these numbers into batches. With `serve` the shard serves each, and
/// `served` is called with it.
fn announce_all(
    shard: &mut Shard,
    numbers: Range<u32>,
    serve: bool,
    announce: impl Fn(u32) -> onrush_swarm::Announce,
    served: impl Fn(&Batch),
) {
    let mut batch = Batch::new(BATCH, 0, BATCH * (20 + 200 * 6));
    for first in numbers.clone().step_by(BATCH) {
        batch.clear();
        for number in first..numbers.end.min(first + BATCH as u32) {
            batch.push_announce(announce(number), 0).expect("there is room");
        }
        if serve {
            shard.serve(&mut batch, Moment(10));
            served(&batch);
        }
    }
}

/// Announces in batches, served by a shard; or with `serve` false, batches only.
fn shard_alone(requests: usize, serve: bool) {
    let mut shard = Shard::new(ShardSettings::default(), *b"a key for counts", 1);
    let members = u32::from(SWARMS) * CLIENTS as u32;
    let announce = |number: u32| {
        let number = number % members;
        let (swarm, client) = (number / CLIENTS as u32, number % CLIENTS as u32);
        onrush_swarm::Announce {
            info_hash: InfoHash([swarm as u8; 20]),
            endpoint: onrush_proto::Endpoint::V4([198, 51, client as u8, 1, 0x1A, 0xE1]),
            event: onrush_proto::Event::None,
            seeder: client.is_multiple_of(2),
            want: PEERS,
            transaction_id: TransactionId(number),
        }
    };
    let whole = 20 + usize::from(PEERS) * 6;
    let is_whole = |batch: &Batch| assert!(batch.replies().all(|(reply, _)| reply.len() == whole));
    announce_all(&mut shard, 0..members, true, announce, |_| ());
    announce_all(&mut shard, 0..requests as u32, serve, announce, is_whole);
}

/// Swarms of the mix, and the peers of each that stay.
const MIX_SWARMS: u32 = 2_000;

/// Announces of known peers, of which 3 % are of new peers, half of them in new swarms, and 3 % are
/// stops of these. Peers have addresses of their own.
fn shard_with_churn(requests: usize, limited: bool, serve: bool) {
    let sources = match limited {
        true => SourceLimits { peers_per_swarm: 64, peers: 10_000, new_swarms: 3_000 },
        false => SourceLimits::default(),
    };
    let mut shard =
        Shard::new(ShardSettings { sources, ..Default::default() }, *b"a key for counts", 1);
    let of_mix = |number: u32| match number % 64 {
        // Each of these stops 32 requests later.
        at @ (5 | 37) => {
            let swarm = if at == 5 { number % MIX_SWARMS } else { MIX_SWARMS + number };
            distinct(swarm, 1 << 20 | number, onrush_proto::Event::Started)
        }
        at @ (21 | 53) => {
            let number = number - 16;
            let swarm = if at == 21 { number % MIX_SWARMS } else { MIX_SWARMS + number };
            distinct(swarm, 1 << 20 | number, onrush_proto::Event::Stopped)
        }
        _ => distinct(number % MIX_SWARMS, number % (2 * MIX_SWARMS), onrush_proto::Event::None),
    };
    let known = 4 * MIX_SWARMS;
    announce_all(&mut shard, 0..known, true, of_mix, |_| ());
    announce_all(&mut shard, known..known + requests as u32, serve, of_mix, |_| ());
}

/// An announce of a peer with an address of its own.
fn distinct(swarm: u32, peer: u32, event: onrush_proto::Event) -> onrush_swarm::Announce {
    let mut info_hash = [7; 20];
    info_hash[..4].copy_from_slice(&swarm.to_le_bytes());
    let [a, b, c, d] = peer.wrapping_mul(0x9E37_79B1).to_be_bytes();
    onrush_swarm::Announce {
        info_hash: InfoHash(info_hash),
        endpoint: onrush_proto::Endpoint::V4([a, b, c, d, 0x1A, 0xE1]),
        event,
        seeder: peer.is_multiple_of(3),
        want: PEERS,
        transaction_id: TransactionId(peer),
    }
}

/// Announces of newcomers to known swarms of a full shard. No source occupies more than others, so
/// every newcomer looks at as many peers as there are draws; a few replace one, as the tables that
/// count the peers of sources have errors.
fn full_shard(requests: usize, serve: bool) {
    let peers =
        std::env::var("ONRUSH_PEERS").map_or(20_000, |text| text.parse().expect("a number"));
    let sources = SourceLimits { peers_per_swarm: 64, peers: 10_000, new_swarms: 3_000 };
    let settings = ShardSettings { sources, max_peers: peers.into(), ..Default::default() };
    let mut shard = Shard::new(settings, *b"a key for counts", 1);
    let announce =
        |number: u32| distinct(number % (peers / 2), number, onrush_proto::Event::Started);
    announce_all(&mut shard, 0..peers, true, announce, |_| ());
    announce_all(&mut shard, peers..peers + requests as u32, serve, announce, |_| ());
    let (totals, newcomers) = (shard.totals(), if serve { requests as u64 } else { 0 });
    assert_eq!(totals.refused_full + totals.replaced, newcomers, "the shard is full");
}

fn network(kind: &Kind) -> (Network, Endpoint) {
    let options = Options { batch: BATCH, ..Options::default() };
    let network = Network::with_options(1, Conditions::default(), options);
    let addresses: Vec<SocketAddr> = (0..CLIENTS).map(|number| kind.client(number)).collect();
    let clients = network.bind(&addresses).expect("are free");
    (network, clients)
}

/// Connects every client.
fn connect(
    kind: &Kind,
    world: &mut TestTracker<Endpoint>,
    clients: &mut Endpoint,
) -> [ConnectionId; CLIENTS] {
    let connects = packets(kind, Ask::Connect, &[ConnectionId(0); CLIENTS]);
    let mut ids = [ConnectionId(0); CLIENTS];
    for (number, id) in ids.iter_mut().enumerate() {
        send(clients, &connects, number, 1);
        world.settle(at(10));
        let received = clients.receive(1).expect("works");
        let (answer, _) = received.iter().next().expect("an answer to a connect");
        let Ok(Response::Connect(response)) = Response::parse(answer, kind.family) else {
            panic!("no answer to a connect: {answer:?}")
        };
        *id = response.connection_id;
    }
    ids
}

/// The sender of each packet, and the packet.
fn packets(kind: &Kind, ask: Ask, ids: &[ConnectionId; CLIENTS]) -> Vec<(Return, Vec<u8>)> {
    let mut packets = Vec::new();
    for swarm in 0..SWARMS {
        for (client, id) in ids.iter().enumerate() {
            let to = Return::to(kind.tracker(), client as u16);
            packets.push((to, packet(ask, swarm, client as u8, *id)));
        }
    }
    packets
}

fn packet(ask: Ask, swarm: u8, client: u8, connection_id: ConnectionId) -> Vec<u8> {
    let mut bytes = [0; 2048];
    let transaction_id = TransactionId(u32::from(swarm));
    let len = match ask {
        Ask::Connect => {
            Connect { transaction_id }.write(bytes.first_chunk_mut().expect("is long enough"));
            16
        }
        Ask::Scrape(hashes) => {
            let hashes: Vec<_> =
                (0..hashes).map(|n| InfoHash([(swarm + n) % SWARMS; 20])).collect();
            Scrape::write(connection_id, transaction_id, &hashes, &mut bytes)
        }
        Ask::Announce | Ask::Serve | Ask::ServeMix { .. } | Ask::ServeFull => Announce {
            transaction_id,
            peer_id: PeerId([client; 20]),
            left: u64::from(client % 2),
            num_want: PEERS.into(),
            ..announce(connection_id, InfoHash([swarm; 20]))
        }
        .write(&mut bytes),
    };
    bytes[..len].to_vec()
}

fn send(clients: &mut Endpoint, packets: &[(Return, Vec<u8>)], first: usize, count: usize) {
    let batch = (first..first + count).map(|number| &packets[number % packets.len()]);
    clients.send(batch.map(|(to, bytes)| Reply { bytes, to }));
}

fn read(clients: &mut Endpoint) -> usize {
    let mut answers = 0;
    loop {
        match clients.receive(BATCH).expect("works").len() {
            0 => return answers,
            some => answers += some,
        }
    }
}
