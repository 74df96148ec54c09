//! Fronts beside UDP: an in-memory front shares swarms, access rules and limits with UDP peers, in
//! both placements, and its exit affects no other member.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onrush_net::memory::{Conditions, Endpoint, Network};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{
    Announce, ConnectionId, Event, Family, InfoHash, PeerId, Response, ScrapeCounts, TransactionId,
};
use onrush_swarm::Shard;
use onrush_testing::memory_tracker::{
    COLOCATED, SPLIT, TRACKER_V4, TestTracker, announce, at, connect, rules, secrets, settings,
};
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::front::Front;
use onrush_tracker::intake::{Admission, AnnounceFields, Source};
use onrush_tracker::lanes::{Order, Ticket, Waker};
use onrush_tracker::member::{MemberThread, Role};
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::orders::Orders;
use onrush_tracker::orders::WorkerUnresponsive;
use onrush_tracker::refusal::Refusal;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::{Addresses, Running};

const FORBIDDEN: InfoHash = InfoHash([0xFF; 20]);
const BLOCKED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const UDP_CLIENT: &str = "198.51.100.1:3000";
const FRONT_CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// An announce over a front; tests change the fields under test.
const SEEDER: AnnounceFields = AnnounceFields {
    info_hash: InfoHash([0; 20]),
    peer_id: PeerId([2; 20]),
    port: 7000,
    seeder: true,
    event: Event::Started,
    num_want: -1,
    transaction_id: TransactionId(0),
};

/// A waker that counts its calls.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Waker for CountingWaker {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A front without sockets: requests are calls, and replies are kept in a list.
struct MemoryFront {
    front: Front,
    admission: Admission,
    replies: Vec<(Ticket, Vec<u8>)>,
    next: u64,
}

impl MemoryFront {
    /// Announces a seeder with port 7000 from `ip`.
    fn announce(&mut self, ip: Ipv4Addr, info_hash: InfoHash) -> Result<Ticket, Refusal> {
        self.announce_fields(ip, AnnounceFields { info_hash, ..SEEDER })
    }

    fn announce_fields(&mut self, ip: Ipv4Addr, fields: AnnounceFields) -> Result<Ticket, Refusal> {
        let metrics = self.front.metrics.clone();
        let checks = self.admission.of(Source { ip, port: 50_000 }, &metrics.incoming.v4);
        checks.source()?;
        let announce = checks.announce(fields)?;
        self.next += 1;
        let ticket = Ticket { slot: 1, generation: 2, sequence: self.next };
        match self.front.announce(&announce, ticket) {
            Ok(()) => Ok(ticket),
            Err(_) => Err(checks.refused(Refusal::Busy)),
        }
    }

    /// Sends requests and reads replies.
    fn turn(&mut self) {
        self.front.dispatch(|ticket| panic!("the request of {ticket:?} was dropped"));
        let replies = &mut self.replies;
        self.front.receive(|bytes, ticket| replies.push((ticket, bytes.to_vec())));
    }

    /// The reply to one request.
    fn reply(&mut self, ticket: Ticket) -> Vec<u8> {
        let at = self.replies.iter().position(|(of, _)| *of == ticket).expect("a reply");
        self.replies.remove(at).1
    }
}

/// A tracker with `count` fronts, and one UDP client with its connection id.
struct TestSetup {
    tracker: TestTracker<Endpoint>,
    fronts: Vec<MemoryFront>,
    wakers: Vec<Arc<CountingWaker>>,
    client: Endpoint,
    id: ConnectionId,
    rules: Arc<Rules>,
}

impl TestSetup {
    fn new(placement: &str, count: usize) -> Self {
        let settings = settings(&format!(
            "{placement}[access]\nmode = \"deny\"\ninfo_hashes = [\"{FORBIDDEN}\"]\n\
             blocked = [\"{BLOCKED}\"]\n[limits]\nbatches_in_flight = 8\n"
        ));
        let network = Network::new(1, Conditions::default());
        let wakers: Vec<Arc<CountingWaker>> = (0..count).map(|_| Arc::default()).collect();
        let dyn_wakers = wakers.iter().map(|waker| waker.clone() as Arc<dyn Waker>).collect();
        let secrets = secrets(1);
        let (mut tracker, fronts) =
            TestTracker::with_fronts(&settings, &secrets, &network, |socket| socket, dyn_wakers);
        let rules = Arc::new(rules(&settings));
        let front = |front: Front| MemoryFront {
            admission: Admission::new(&rules, front.index),
            front,
            replies: Vec::new(),
            next: 0,
        };
        let mut client = network.bind(&[UDP_CLIENT.parse().unwrap()]).unwrap();
        let id = connect(&mut tracker, &mut client, 0, at(1));
        let fronts = fronts.into_iter().map(front).collect();
        Self { tracker, fronts, wakers, client, id, rules }
    }

    /// The control side of all members.
    fn orders(&self) -> Orders {
        let workers = &self.tracker.workers;
        Orders::new(&workers[0].mailboxes, workers.len(), workers[0].owners.clone())
    }

    /// Runs all members until no request is in flight.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.fronts.iter_mut().for_each(MemoryFront::turn);
            self.tracker.settle(at(2));
        }
        self.fronts.iter_mut().for_each(MemoryFront::turn);
        assert!(self.fronts.iter().all(|front| front.front.is_idle()));
    }

    /// Announces a seeder with port 6881 over UDP, and returns the peers of the reply.
    fn announce_over_udp(&mut self, info_hash: InfoHash) -> Vec<SocketAddr> {
        let request = Announce { transaction_id: TransactionId(9), ..announce(self.id, info_hash) };
        let mut bytes = [0; 256];
        let len = request.write(&mut bytes);
        let to = Return::to(TRACKER_V4.parse().unwrap(), 0);
        self.client.send(std::iter::once(Reply { bytes: &bytes[..len], to: &to }));
        self.settle();
        let received = self.client.receive(8).unwrap();
        let (reply, _) = received.iter().next().expect("a reply over UDP");
        peers_in(reply)
    }
}

/// The peers of an announce reply.
fn peers_in(reply: &[u8]) -> Vec<SocketAddr> {
    let Ok(Response::Announce(_, peers)) = Response::parse(reply, Family::V4) else {
        panic!("{reply:?}")
    };
    peers.iter().map(|peer| SocketAddr::new(peer.ip(), peer.port())).collect()
}

#[test]
fn peers_of_a_front_and_of_udp_share_swarms() {
    for placement in [SPLIT, COLOCATED] {
        let mut world = TestSetup::new(placement, 1);
        for swarm in 0..20 {
            let info_hash = InfoHash([swarm; 20]);
            assert_eq!(world.announce_over_udp(info_hash), []);
            let leecher = AnnounceFields { info_hash, seeder: false, num_want: 50, ..SEEDER };
            let ticket = world.fronts[0].announce_fields(FRONT_CLIENT, leecher).unwrap();
            world.settle();
            let reply = world.fronts[0].reply(ticket);
            assert_eq!(peers_in(&reply), ["198.51.100.1:6881".parse().unwrap()], "{placement}");
            let to_udp = world.announce_over_udp(info_hash);
            assert_eq!(to_udp, ["198.51.100.7:7000".parse().unwrap()], "{placement}");
        }
        assert_eq!(world.fronts[0].front.metrics.incoming.v4.announces.get(), 20);
        assert_eq!(world.tracker.summary().announces, 40, "the front counts its own announces");
    }
}

#[test]
fn a_scrape_of_a_front_spans_shards() {
    for placement in [SPLIT, COLOCATED] {
        let mut world = TestSetup::new(placement, 1);
        let mut hashes: Vec<[u8; 20]> = (0..40).map(|n| [n; 20]).collect();
        for hash in &hashes[..30] {
            world.announce_over_udp(InfoHash(*hash));
        }
        hashes.insert(5, FORBIDDEN.0);
        let front = &mut world.fronts[0];
        let metrics = front.front.metrics.clone();
        let source = Source { ip: FRONT_CLIENT, port: 50_000 };
        let checks = front.admission.of(source, &metrics.incoming.v4);
        assert_eq!(checks.scrape(0), Err(Refusal::NoHash));
        assert_eq!(checks.scrape(hashes.len()), Ok(()));
        let ticket = Ticket { slot: 7, generation: 0, sequence: 1 };
        let access = &front.admission.rules.access;
        front.front.scrape(TransactionId(0), &hashes, access, ticket).unwrap();
        world.settle();
        let reply = world.fronts[0].reply(ticket);
        let (counts, rest) = reply[8..].as_chunks();
        assert!(rest.is_empty());
        let seeders: Vec<u32> = counts.iter().map(|c| ScrapeCounts::parse(c).seeders).collect();
        let expected: Vec<u32> = (0..41).map(|n| u32::from(n != 5 && n < 31)).collect();
        assert_eq!(seeders, expected, "{placement}");
    }
}

#[test]
fn a_front_that_exits_loses_only_its_own_replies() {
    for placement in [SPLIT, COLOCATED] {
        let mut world = TestSetup::new(placement, 2);
        let hashes: Vec<InfoHash> = (0..30).map(|n| InfoHash([n; 20])).collect();
        let of_first: Vec<_> =
            hashes.iter().map(|hash| world.fronts[0].announce(FRONT_CLIENT, *hash)).collect();
        let of_second: Vec<_> =
            hashes.iter().map(|hash| world.fronts[1].announce(FRONT_CLIENT, *hash)).collect();
        assert!(of_first.iter().all(Result::is_ok));
        world.fronts.iter_mut().for_each(MemoryFront::turn);
        // The first front exits with all of its requests in flight.
        world.fronts.remove(0);
        world.settle();
        for ticket in of_second {
            world.fronts[0].reply(ticket.unwrap());
        }
        let orphaned: u64 = world.tracker.workers.iter().map(|w| w.metrics.orphaned.get()).sum();
        assert_eq!(orphaned, 30, "{placement}: each lost reply is counted");
        assert_eq!(world.tracker.summary().refused_for(Refusal::Busy), 0);
        // Its announces were served; UDP and the other front are not affected.
        assert_eq!(world.announce_over_udp(hashes[0]), [], "seeders get no seeders");
        let again = world.fronts[0].announce(FRONT_CLIENT, hashes[1]).unwrap();
        world.settle();
        world.fronts[0].reply(again);
        // The control side reaches all others.
        let orders = world.orders();
        orders.update_rules(&world.rules).unwrap();
        assert!(matches!(world.fronts[0].front.order(), Some(Order::Rules(_))), "{placement}");
        let gone = world.tracker.workers.len();
        assert_eq!(orders.resume(), Err(WorkerUnresponsive(gone)));
        assert!(matches!(world.fronts[0].front.order(), Some(Order::Resume)), "{placement}");
    }
}

#[test]
fn refusals_of_a_front_are_counted_by_the_front() {
    let mut world = TestSetup::new(SPLIT, 1);
    let front = &mut world.fronts[0];
    assert_eq!(front.announce(BLOCKED, InfoHash([1; 20])), Err(Refusal::Blocked));
    assert_eq!(front.announce(FRONT_CLIENT, FORBIDDEN), Err(Refusal::Forbidden));
    // A shard has its share of batches; beyond them a request is refused, not queued.
    let busy = (0..4_000).find_map(|_| front.announce(FRONT_CLIENT, InfoHash([1; 20])).err());
    assert_eq!(busy, Some(Refusal::Busy));
    let counted: Vec<_> = front.front.metrics.incoming.v4.refusals().filter(|r| r.1 > 0).collect();
    assert_eq!(counted, [("blocked", 1), ("forbidden", 1), ("busy", 1)]);
    world.settle();
    assert!(
        world.fronts[0].announce(FRONT_CLIENT, InfoHash([1; 20])).is_ok(),
        "batches are free again"
    );
    assert_eq!(world.tracker.summary().refused_in_all(), 0);
}

#[test]
fn a_sleeping_front_is_woken_by_replies_and_orders() {
    let mut world = TestSetup::new(COLOCATED, 1);
    let wakes = |world: &TestSetup| world.wakers[0].0.load(Ordering::SeqCst);
    world.fronts[0].announce(FRONT_CLIENT, InfoHash([1; 20])).unwrap();
    world.fronts[0].turn();
    let (tracker, front) = (&mut world.tracker, &world.fronts[0].front);
    front.sleep_unless(|| false, || tracker.settle(at(2)));
    assert_eq!(wakes(&world), 1);
    world.fronts[0].front.sleep_unless(|| false, || panic!("sleep with a waiting reply"));
    world.settle();
    let orders = world.orders();
    world.fronts[0].front.sleep_unless(|| false, || orders.update_rules(&world.rules).unwrap());
    assert_eq!(wakes(&world), 2);
    assert!(matches!(world.fronts[0].front.order(), Some(Order::Rules(_))));
}

/// A front on a thread: announces once, and fails once it has the reply.
struct ThreadFront(MemoryFront);

impl MemberThread for ThreadFront {
    fn role(&self) -> Role {
        Role::Web
    }

    fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.0.front.metrics
    }

    fn turn(&mut self, _: Now) -> io::Result<bool> {
        let front = &mut self.0;
        if front.next == 0 {
            front.announce(FRONT_CLIENT, InfoHash([1; 20])).unwrap();
        }
        front.turn();
        if front.replies.is_empty() { Ok(false) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        self.0.front.sleep_unless(|| false, std::thread::yield_now);
        Ok(())
    }

    fn end(&mut self) -> Option<Shard> {
        while self.0.front.order().is_some() {}
        None
    }
}

#[test]
fn fronts_start_fail_and_stop_as_workers_do() {
    let TestSetup { tracker, fronts, .. } = TestSetup::new(SPLIT, 2);
    let fronts = fronts.into_iter().map(ThreadFront).collect();
    let limits = settings(SPLIT).workers();
    let (workers, clock) = (tracker.workers, Clock::start());
    let mut running =
        Running::prepare(&limits, Addresses::default(), workers, fronts, clock).unwrap();
    let names: Vec<_> = running.members().iter().map(|member| member.name.as_str()).collect();
    let expected = ["socket-0", "socket-1", "swarm-0", "swarm-1", "swarm-2", "web-0", "web-1"];
    assert_eq!(names, expected);
    let roles = [Role::Socket, Role::Socket, Role::Shard, Role::Shard, Role::Shard];
    assert!(
        running
            .members()
            .iter()
            .map(|member| member.role)
            .eq([&roles[..], &[Role::Web; 2]].concat())
    );
    running.begin();
    let failed = || running.failures().recv_timeout(Duration::from_secs(60)).unwrap();
    let mut failures = [failed(), failed()].map(|failure| failure.name);
    failures.sort();
    assert_eq!(failures, ["web-0", "web-1"]);
    let (summary, shards) = running.stop_and_take_shards();
    // Of UDP's client, and of each front.
    assert_eq!((summary.connects, summary.announces, shards.len()), (1, 2, 3));
}
