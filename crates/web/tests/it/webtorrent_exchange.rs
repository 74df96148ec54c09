//! The exchange of WebRTC peers between workers: real lanes on one thread, against the naive model
//! of all swarms. The test takes the turns of the workers, in any order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onrush_net::memory::{Conditions, Network};
use onrush_proto::webtorrent::{Answer, Offer, OfferId};
use onrush_proto::{InfoHash, PeerId};
use onrush_testing::memory_tracker::{SPLIT, TestTracker, secrets, settings};
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Waker;
use onrush_web::webtorrent::exchange::{Delivery, Dropped, Exchange, Exhausted, File};
use onrush_web::webtorrent::swarms::{Announce, Socket};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::webtorrent_swarms::Model;
use crate::world::for_each_seed;

const SILENCE: u32 = 100;
const HASHES: u8 = 5;
/// Parcels that are never exhausted.
const MANY: usize = 10_000;

fn fronts(seed: u64, workers: usize, waker: &Arc<dyn Waker>) -> Vec<Front> {
    let network = Network::new(seed, Conditions::default());
    let wakers = vec![waker.clone(); workers];
    TestTracker::with_fronts(&settings(SPLIT), &secrets(seed), &network, |it| it, wakers).1
}

fn exchanges(seed: u64, workers: usize, parcels: usize) -> Vec<Exchange> {
    let waker: Arc<dyn Waker> = Arc::new(|| ());
    Exchange::connect(&fronts(seed, workers, &waker), &secrets(seed), parcels)
}

fn hash(number: u8) -> InfoHash {
    InfoHash([number; 20])
}

fn offer_id(number: usize) -> OfferId {
    OfferId(std::array::from_fn(|at| number.to_le_bytes()[at % 8]))
}

/// An open connection: what a worker knows of it.
struct Connection {
    client: IpAddr,
    peer_id: PeerId,
    member_of: BTreeSet<InfoHash>,
    in_flight: Option<InfoHash>,
    /// Offers to answer: swarm, offerer, its peer id, offer id.
    offers: Vec<(InfoHash, Socket, PeerId, OfferId)>,
}

/// What an owner has to do.
enum Task {
    Announce(Announce, Vec<(OfferId, &'static str)>),
    Remove(Socket, InfoHash, bool),
}

/// Offers of an announce that have not arrived: how many, and at whom.
struct Pending {
    left: usize,
    candidates: BTreeSet<Socket>,
}

/// The open connections, and what has to arrive at which.
#[derive(Default)]
struct Checks {
    model: Model,
    /// Whether all deliveries are known. The model knows no expiry.
    is_exact: bool,
    connections: BTreeMap<Socket, Connection>,
    /// From the owner of a swarm, in order.
    due: BTreeMap<(Socket, InfoHash), VecDeque<Delivery<&'static str>>>,
    pending: Vec<Pending>,
    /// With the place of their announce in `pending`.
    offers: BTreeMap<[u8; 20], (usize, Delivery<&'static str>)>,
    answers: BTreeMap<[u8; 20], (Socket, Delivery<&'static str>)>,
    scraped: Option<(Socket, Vec<File>)>,
    offers_delivered: usize,
    replaced: usize,
}

impl Checks {
    /// The model does what the owner does.
    fn serve(&mut self, task: Task, now: u32) {
        let mut due = |socket, info_hash, delivery| {
            self.due.entry((socket, info_hash)).or_default().push_back(delivery);
        };
        match task {
            Task::Announce(announce, offers) => {
                let Announce { info_hash, socket, peer_id, .. } = announce;
                let Ok(announced) = self.model.announce(&announce, now) else {
                    return due(socket, info_hash, Delivery::Refused { info_hash });
                };
                if let Some(replaced) = announced.replaced {
                    due(replaced, info_hash, Delivery::Forget { info_hash });
                    self.replaced += 1;
                }
                let counts = announced.counts;
                let reply = Delivery::Announced { info_hash, counts, is_member: true };
                due(socket, info_hash, reply);
                let candidates = self.model.candidates(&info_hash, socket);
                for (offer_id, offer) in &offers {
                    let (offer_id, offer) = (*offer_id, *offer);
                    let it = Delivery::Offer { info_hash, from: socket, peer_id, offer_id, offer };
                    self.offers.insert(offer_id.0, (self.pending.len(), it));
                }
                let left = offers.len().min(candidates.len());
                self.pending.push(Pending { left, candidates });
            }
            Task::Remove(socket, info_hash, replies) => {
                self.model.remove(socket, &info_hash);
                if replies {
                    let counts = self.model.counts(&info_hash);
                    let it = Delivery::Announced { info_hash, counts, is_member: false };
                    due(socket, info_hash, it);
                }
            }
        }
    }

    /// A delivery has arrived at the worker of its connection, if that is open.
    fn take(&mut self, to: Socket, delivery: Delivery<&str>) {
        let open = self.connections.get_mut(&to);
        match delivery {
            Delivery::Offer { info_hash, from, peer_id, offer_id, .. } => {
                self.offers_delivered += 1;
                assert_ne!(to, from);
                if self.is_exact {
                    let (pending, expected) = self.offers.remove(&offer_id.0).unwrap();
                    assert_eq!(delivery, expected);
                    let Pending { left, candidates } = &mut self.pending[pending];
                    assert!(candidates.remove(&to), "{to:?} is no candidate, or was chosen before");
                    *left = left.checked_sub(1).expect("no more offers than candidates");
                }
                if let Some(connection) = open {
                    connection.offers.push((info_hash, from, peer_id, offer_id));
                }
            }
            Delivery::Answer { offer_id, .. } => {
                let expected = self.answers.remove(&offer_id.0);
                assert_eq!(Some((to, delivery)), expected);
            }
            Delivery::Scraped(files) => self.scraped = Some((to, files)),
            Delivery::Announced { info_hash, .. }
            | Delivery::Refused { info_hash }
            | Delivery::Forget { info_hash } => {
                if self.is_exact {
                    let due = self.due.get_mut(&(to, info_hash));
                    assert_eq!(Some(&delivery), due.and_then(VecDeque::pop_front).as_ref());
                }
                let Some(Connection { member_of, in_flight, .. }) = open else { return };
                if !matches!(delivery, Delivery::Forget { .. }) {
                    assert_eq!(in_flight.take(), Some(info_hash));
                }
                match delivery {
                    Delivery::Announced { is_member: true, .. } => member_of.insert(info_hash),
                    Delivery::Refused { .. } => false,
                    _ => member_of.remove(&info_hash),
                };
            }
        }
    }
}

struct Simulation {
    rng: SmallRng,
    exchanges: Vec<Exchange>,
    now: u32,
    generation: u32,
    offers: usize,
    checks: Checks,
    /// The tasks in the parcels that the first worker fills for the second.
    open: BTreeMap<(usize, usize), Vec<Task>>,
    /// The tasks in the lane to each worker.
    lanes: Vec<Vec<Task>>,
}

impl Simulation {
    fn new(seed: u64, is_exact: bool) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let workers = rng.random_range(1..5);
        Self {
            rng,
            exchanges: exchanges(seed, workers, MANY),
            now: 5_000,
            generation: 0,
            offers: 0,
            checks: Checks { is_exact, ..Checks::default() },
            open: BTreeMap::new(),
            lanes: (0..workers).map(|_| Vec::new()).collect(),
        }
    }

    fn step(&mut self) {
        let all: Vec<Socket> = self.checks.connections.keys().copied().collect();
        let connection = all.choose(&mut self.rng).copied();
        match (self.rng.random_range(0..20), connection) {
            (0..2, _) | (_, None) if all.len() < 40 => self.connect(),
            (2..8, Some(socket)) => self.announce(socket),
            (8, Some(socket)) => self.stop(socket),
            (9, Some(socket)) => self.close(socket),
            (10..13, Some(socket)) => self.answer(socket),
            (13, _) if !self.checks.is_exact => self.now += self.rng.random_range(1..40),
            _ => {
                let worker = self.rng.random_range(0..self.exchanges.len());
                self.turn(worker);
            }
        }
    }

    fn connect(&mut self) {
        let rng = &mut self.rng;
        self.generation += 1;
        let worker = rng.random_range(0..self.exchanges.len()) as u16;
        let socket = Socket { worker, slot: rng.random_range(0..9), generation: self.generation };
        let connection = Connection {
            client: Ipv4Addr::new(192, 0, 2, rng.random_range(0..3)).into(),
            peer_id: PeerId([rng.random_range(0..8); 20]),
            member_of: BTreeSet::new(),
            in_flight: None,
            offers: Vec::new(),
        };
        self.checks.connections.insert(socket, connection);
    }

    fn announce(&mut self, socket: Socket) {
        let (rng, connection) = (&mut self.rng, self.checks.connections.get_mut(&socket).unwrap());
        if connection.in_flight.is_some() {
            return;
        }
        let peer_id = if rng.random_bool(0.05) { PeerId([9; 20]) } else { connection.peer_id };
        let announce = Announce {
            info_hash: hash(rng.random_range(0..HASHES)),
            socket,
            client: connection.client,
            peer_id,
            seeder: rng.random_bool(0.8).then(|| rng.random()),
            completed: rng.random(),
        };
        let offers: Vec<Offer<'_>> = (0..rng.random_range(0..5))
            .map(|_| {
                self.offers += 1;
                let offer: &'static str = format!("{{\"sdp\":\"ö{}\"}}", self.offers).leak();
                Offer { offer_id: offer_id(self.offers), offer }
            })
            .collect();
        let want = rng.random_range(0..6);
        connection.in_flight = Some(announce.info_hash);
        let exchange = &mut self.exchanges[usize::from(socket.worker)];
        exchange.announce(&announce, &offers, want).unwrap();
        let offers = offers.iter().take(want).map(|it| (it.offer_id, it.offer)).collect();
        self.mirror(socket, announce.info_hash, Task::Announce(announce, offers));
    }

    fn stop(&mut self, socket: Socket) {
        let connection = self.checks.connections.get_mut(&socket).unwrap();
        if connection.in_flight.is_some() {
            return;
        }
        let info_hash = hash(self.rng.random_range(0..HASHES));
        connection.in_flight = Some(info_hash);
        self.exchanges[usize::from(socket.worker)].stop(socket, info_hash).unwrap();
        self.mirror(socket, info_hash, Task::Remove(socket, info_hash, true));
    }

    fn close(&mut self, socket: Socket) {
        let connection = self.checks.connections.remove(&socket).unwrap();
        for info_hash in connection.member_of.into_iter().chain(connection.in_flight) {
            self.exchanges[usize::from(socket.worker)].remove(socket, info_hash);
            self.mirror(socket, info_hash, Task::Remove(socket, info_hash, false));
        }
    }

    fn answer(&mut self, socket: Socket) {
        let connection = self.checks.connections.get_mut(&socket).unwrap();
        let Some((info_hash, to, to_peer_id, offer_id)) = connection.offers.pop() else { return };
        let (peer_id, answer) = (connection.peer_id, "{\"sdp\":\"\"}");
        let expected = Delivery::Answer { info_hash, peer_id, to_peer_id, offer_id, answer };
        self.checks.answers.insert(offer_id.0, (to, expected));
        let answer = Answer { to_peer_id, offer_id, answer };
        self.exchanges[usize::from(socket.worker)].answer(to, info_hash, peer_id, &answer);
    }

    fn mirror(&mut self, from: Socket, info_hash: InfoHash, task: Task) {
        let from = usize::from(from.worker);
        let owner = self.exchanges[from].owner_of(&info_hash);
        self.open.entry((from, owner)).or_default().push(task);
    }

    fn turn(&mut self, worker: usize) {
        let own = self.open.remove(&(worker, worker)).unwrap_or_default();
        for task in own.into_iter().chain(mem::take(&mut self.lanes[worker])) {
            if self.checks.is_exact {
                self.checks.serve(task, self.now);
            }
        }
        let Self { exchanges, checks, .. } = self;
        exchanges[worker].receive(self.now, SILENCE, |to, delivery| {
            assert_eq!(usize::from(to.worker), worker);
            checks.take(to, delivery);
        });
        exchanges[worker].flush();
        for (to, lane) in self.lanes.iter_mut().enumerate().filter(|(to, _)| *to != worker) {
            lane.append(&mut self.open.remove(&(worker, to)).unwrap_or_default());
        }
    }

    /// Takes turns until everything has arrived and all parcels are back.
    fn settle(&mut self) {
        for _ in 0..20 {
            (0..self.exchanges.len()).for_each(|worker| self.turn(worker));
            if self.exchanges.iter().all(Exchange::is_idle) {
                return;
            }
        }
        panic!("messages or parcels are under way without an end");
    }

    /// Both sides agree on the members of all swarms.
    fn check(&mut self) {
        self.settle();
        let Checks { due, pending, answers, connections, .. } = &self.checks;
        assert!(due.values().all(VecDeque::is_empty), "{due:?}");
        assert!(pending.iter().all(|it| it.left == 0) && answers.is_empty());
        assert!(connections.values().all(|it| it.in_flight.is_none()));
        let worker = self.rng.random_range(0..self.exchanges.len());
        let socket = Socket { worker: worker as u16, slot: 77, generation: 1 };
        let mut hashes: Vec<[u8; 20]> = (0..=HASHES).map(|number| hash(number).0).collect();
        hashes.rotate_left(self.rng.random_range(0..=usize::from(HASHES)));
        self.exchanges[worker].scrape(socket, &hashes).unwrap();
        self.settle();
        let (to, files) = self.checks.scraped.take().unwrap();
        assert!(to == socket && files.iter().map(|it| it.0).eq(hashes));
        let mut members = 0;
        for (hash, counts) in files {
            let connections = self.checks.connections.values();
            let known = connections.filter(|it| it.member_of.contains(&InfoHash(hash))).count();
            assert_eq!((counts.seeders + counts.leechers) as usize, known);
            members += known;
            if self.checks.is_exact {
                assert_eq!(counts, self.checks.model.counts(&InfoHash(hash)));
            }
        }
        let totals = self.exchanges.iter().map(Exchange::totals);
        assert_eq!(totals.map(|it| it.seeders + it.leechers).sum::<usize>(), members);
        assert!(self.exchanges.iter_mut().all(|it| it.take_dropped() == Dropped::default()));
    }

    /// The last connections close, and leave nothing.
    fn end(mut self) -> Checks {
        for socket in self.checks.connections.keys().copied().collect::<Vec<_>>() {
            self.close(socket);
        }
        self.check();
        self.checks
    }
}

/// Each announce and removal has the results of the model, each offer reaches a member that the
/// model allows, and each answer its offerer, in whatever order the workers take turns.
#[test]
fn all_workers_together_are_like_the_model() {
    let runs = for_each_seed(100, |seed| {
        let mut simulation = Simulation::new(seed, true);
        for _ in 0..5 {
            (0..200).for_each(|_| simulation.step());
            simulation.check();
        }
        simulation.end()
    });
    let (offers, replaced): (Vec<_>, Vec<_>) =
        runs.map(|checks| (checks.offers_delivered, checks.replaced)).unzip();
    assert!(offers.iter().sum::<usize>() > 1_000 && replaced.iter().sum::<usize>() > 100);
}

/// Silent members are removed while they or others announce, stop and close.
#[test]
fn both_sides_agree_on_members_after_expiry() {
    let runs = for_each_seed(100, |seed| {
        let mut simulation = Simulation::new(seed, false);
        (0..1_000).for_each(|_| simulation.step());
        simulation.check();
        let workers = simulation.exchanges.len();
        for _ in 0..SILENCE + 130 {
            simulation.now += 1;
            (0..workers).for_each(|worker| simulation.turn(worker));
        }
        simulation.check();
        let mut connections = simulation.checks.connections.values();
        assert!(connections.all(|it| it.member_of.is_empty()), "all were silent");
        simulation.end()
    });
    assert_eq!(runs.count(), 100);
}

/// Two workers with two parcels for each other, and an info hash of each.
struct Pair {
    exchanges: [Exchange; 2],
    hashes: [InfoHash; 2],
    /// What arrived at the connections of each.
    offers: usize,
    replies: usize,
    forgotten: usize,
}

/// Each offer has so many bytes.
const OFFER: usize = 1_000;

impl Pair {
    fn new() -> Self {
        let Ok(exchanges) = <[Exchange; 2]>::try_from(exchanges(7, 2, 0)) else { unreachable!() };
        let hashes = [0, 1].map(|owner| {
            (0..=255).map(hash).find(|hash| exchanges[0].owner_of(hash) == owner).unwrap()
        });
        Self { exchanges, hashes, offers: 0, replies: 0, forgotten: 0 }
    }

    /// Announces on a connection of a worker, in the swarm of the `owner`, with three offers.
    fn announce(
        &mut self,
        worker: usize,
        owner: usize,
        slot: u32,
        seeder: bool,
    ) -> Result<(), Exhausted> {
        let announce = Announce {
            info_hash: self.hashes[owner],
            socket: socket(worker, slot),
            client: Ipv4Addr::from_bits(slot).into(),
            peer_id: PeerId([worker as u8; 20]),
            seeder: Some(seeder),
            completed: false,
        };
        let text = "x".repeat(OFFER);
        let offers = [1, 2, 3].map(|it| Offer { offer_id: offer_id(it), offer: &text });
        self.exchanges[worker].announce(&announce, &offers, 3)
    }

    fn turn(&mut self, worker: usize, now: u32) {
        let Self { exchanges, offers, replies, forgotten, .. } = self;
        exchanges[worker].receive(now, SILENCE, |_, delivery| match delivery {
            Delivery::Offer { offer, .. } => *offers += usize::from(offer.len() == OFFER),
            Delivery::Announced { .. } => *replies += 1,
            Delivery::Forget { .. } => *forgotten += 1,
            _ => {}
        });
        exchanges[worker].flush();
    }

    fn settle(&mut self, now: u32) {
        for _ in 0..6 {
            self.turn(0, now);
            self.turn(1, now);
        }
        assert!(self.exchanges.iter().all(Exchange::is_idle));
    }
}

fn socket(worker: usize, slot: u32) -> Socket {
    Socket { worker: worker as u16, slot, generation: 1 }
}

/// Requests wait for a worker that takes no turns; removals are sent all the same, after them. Its
/// lane has room for the parcels that come back to it, too.
#[test]
fn a_worker_without_parcels_loses_no_removal() {
    let mut pair = Pair::new();
    let far = pair.hashes[1];
    // Seeders get no offers of others.
    let before = (0..1_000).find(|slot| pair.announce(1, 0, *slot, true).is_err()).unwrap();
    let bytes = before as usize * 3 * OFFER;
    assert!((80_000..100_000).contains(&bytes), "half of three parcels: {bytes}");
    pair.turn(0, 0);
    let sent = (0..1_000).find(|slot| pair.announce(0, 1, *slot, true).is_err()).unwrap();
    let exchange = &mut pair.exchanges[0];
    assert_eq!(exchange.stop(socket(0, 0), far), Err(Exhausted(1)));
    assert_eq!(exchange.scrape(socket(0, 0), &[far.0]), Err(Exhausted(1)));
    assert!(!exchange.has_room(1) && exchange.has_room(0));
    assert_eq!(pair.announce(0, 0, 0, true), Ok(()), "the other swarm has another owner");
    (0..sent).for_each(|slot| pair.exchanges[0].remove(socket(0, slot), far));
    pair.settle(0);
    assert_eq!(pair.replies as u32, before + sent + 1);
    assert_eq!(pair.exchanges[1].totals().swarms, 0);
    assert!(pair.exchanges[0].has_room(1));
}

/// Offers and answers to a worker that takes no turns are dropped and counted; what ends its
/// memberships is not lost.
#[test]
fn a_worker_without_parcels_drops_offers_and_answers_only() {
    let mut pair = Pair::new();
    for slot in 0..30 {
        pair.announce(1, 0, slot, false).unwrap();
    }
    pair.settle(0);
    (pair.offers, pair.replies) = (0, 0);
    for slot in 100..300 {
        pair.announce(0, 0, slot, false).unwrap();
        pair.turn(0, SILENCE - 10);
    }
    let (to, near) = (socket(1, 0), pair.hashes[0]);
    let peer_id = PeerId([0; 20]);
    let text = "x".repeat(OFFER);
    let answer = Answer { to_peer_id: peer_id, offer_id: offer_id(1), answer: &text };
    (0..100).for_each(|_| pair.exchanges[0].answer(to, near, peer_id, &answer));
    for now in SILENCE..SILENCE + 70 {
        pair.turn(0, now);
    }
    assert_eq!(pair.forgotten, 0, "nothing arrives without turns");
    pair.settle(SILENCE + 70);
    let Dropped { offers, answers } = pair.exchanges[0].take_dropped();
    assert!((1..100).contains(&answers), "{answers}");
    assert!((1..150).contains(&offers), "parcels count by their bytes: {offers}");
    assert_eq!(pair.offers + offers as usize, 3 * 200);
    assert_eq!((pair.replies, pair.forgotten), (200, 30));
    assert_eq!(pair.exchanges[1].take_dropped(), Dropped::default());
}

#[test]
fn a_sleeping_worker_is_woken_by_a_parcel() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = wakes.clone();
    let waker: Arc<dyn Waker> = Arc::new(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    let fronts = fronts(7, 2, &waker);
    let mut exchanges = Exchange::connect(&fronts, &secrets(7), MANY);
    let hash = Pair::new().hashes[1];
    exchanges[0].remove(socket(0, 0), hash);
    let [sender, receiver] = &mut exchanges[..] else { unreachable!() };
    fronts[1].sleep_unless(|| receiver.has_mail(), || sender.flush());
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    assert!(receiver.has_mail());
    assert!(receiver.receive(0, SILENCE, |_, _| ()) && !receiver.has_mail());
    receiver.remove(socket(1, 0), hash);
    assert!(receiver.has_mail(), "what is for itself");
}

#[test]
fn a_worker_that_exits_keeps_no_parcel() {
    let mut exchanges = exchanges(7, 2, MANY);
    exchanges.truncate(1);
    exchanges[0].remove(socket(0, 0), Pair::new().hashes[1]);
    exchanges[0].flush();
    assert!(exchanges[0].is_idle());
}
