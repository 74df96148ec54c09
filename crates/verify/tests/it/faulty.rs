//! A small conforming tracker with one fault at a time, which the checks of `verify` and of the
//! load tester have to find.
//!
//! [`Tracker`] answers datagrams without sockets; [`Server`] runs it on a thread with sockets.

#![allow(dead_code, reason = "two crates use parts of this module")]

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket};
use onrush_proto::announce::{AnnounceHead, HEAD_LEN, REQUEST_LEN};
use onrush_proto::connect::{ConnectResponse, MAGIC};
use onrush_proto::scrape::{self, MAX_HASHES};
use onrush_proto::{
    Announce, Connect, ConnectionId, Endpoint, Event, Family, InfoHash, Request, Scrape,
    ScrapeCounts, TransactionId, error,
};

/// The fault of the tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Nothing,
    // Any reply
    OtherTransaction,
    TwoReplies,
    OtherSocket,
    AllFromOtherSocket,
    CutShort,
    AllErrors,
    WrongKind,
    LosesDatagrams,
    OnlyConnects,
    // Connect
    /// The first [`LOST`] connects get no reply, as under overload.
    LosesFirstConnects,
    LongConnect,
    ZeroId,
    OneIdForAll,
    IdPerPort,
    StrictLength,
    AnyMagic,
    IdServesOnce,
    NewIdEndsOld,
    // Requests without an expected reply
    AnswersBadIds,
    ServesBadIds,
    AnswersJunk,
    AnswersShort,
    AnswersShortAnnounces,
    AnswersUnknownActions,
    // Announces
    RefusesOptions,
    DropsPaused,
    RefusesUnknownEvents,
    UsesIpField,
    AcceptsPortZero,
    ListsPortOne,
    ZeroInterval,
    ShortInterval,
    SameInterval,
    SwapsCounts,
    CountsDouble,
    CountsZero,
    CountsMax,
    CountsAtMost100,
    Stores100,
    OwnPeerNotCounted,
    PeersByPeerId,
    StaysSeeder,
    KeepsStopped,
    PeersForStopped,
    StoresStopped,
    NeverCompletes,
    CompletesAgain,
    CompletesUnfinished,
    UnknownPeersNeverComplete,
    ForgetsCompleted,
    FamiliesApart,
    // Peer lists
    ListsOwnPeer,
    ListsTwice,
    PortsReversed,
    SeedersForSeeders,
    NoSeeders,
    OldestOnly,
    PeersUnasked,
    NoDefault,
    OneTooFew,
    /// To tens: fewer than wanted of a few, more of seven.
    RoundsWant,
    IgnoresWant,
    NoCap,
    ListsStoppedAbove100,
    // Scrapes
    ScrapeSwapped,
    ScrapeReversed,
    ScrapeOnce,
    ScrapeUnknownFails,
    ScrapeCreates,
    ScrapesFew,
    ScrapesLess,
    ScrapesDouble,
    RefusesTrailing,
    AnswersEmptyScrape,
    ErrorWithoutText,
}

/// More connects than are sent in two seconds without a wait for replies.
const LOST: u64 = 8;

#[derive(Clone, Copy)]
struct Peer {
    endpoint: Endpoint,
    seeder: bool,
    id: [u8; 20],
}

#[derive(Default)]
struct Swarm {
    peers: Vec<Peer>,
    /// Peers that stopped, for [`Fault::ListsStoppedAbove100`].
    stopped: Vec<Endpoint>,
    completed: u32,
}

impl Swarm {
    fn counts(&self) -> (u32, u32) {
        self.counts_of(|_| true)
    }

    /// Seeders and leechers among some of the peers.
    fn counts_of(&self, counts: impl Fn(&Peer) -> bool) -> (u32, u32) {
        let peers = self.peers.iter().filter(|peer| counts(peer));
        let (seeders, leechers): (Vec<&Peer>, Vec<&Peer>) = peers.partition(|peer| peer.seeder);
        (seeders.len() as u32, leechers.len() as u32)
    }
}

/// A tracker without sockets.
pub(crate) struct Tracker {
    fault: Fault,
    swarms: HashMap<InfoHash, Swarm>,
    /// Announces so far.
    turn: usize,
    /// Datagrams so far.
    received: u64,
    /// Issued connection ids, for faults that need them.
    given: Vec<(SocketAddr, ConnectionId)>,
}

impl Tracker {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, swarms: HashMap::new(), turn: 0, received: 0, given: Vec::new() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The replies to a datagram from `source`.
    pub(crate) fn answer(&mut self, bytes: &[u8], source: SocketAddr) -> Vec<Vec<u8>> {
        self.received += 1;
        // 7 of 100 datagrams are lost on the way here, and 7 of 100 replies on the way back.
        let chance = if self.has(Fault::LosesDatagrams) { mix(self.received) % 100 } else { 100 };
        if chance < 7 {
            return Vec::new();
        }
        let Some(mut reply) = self.reply(bytes, source) else { return Vec::new() };
        if self.has(Fault::OnlyConnects) && reply[3] != 0 {
            return Vec::new();
        }
        if chance < 14 {
            return Vec::new();
        }
        match self.fault {
            Fault::OtherTransaction if reply[3] != 0 => reply[4] ^= 0xFF,
            Fault::TwoReplies => return vec![reply.clone(), reply],
            Fault::CutShort if reply[3] != 0 => drop(reply.pop()),
            Fault::AllErrors if reply[3] != 0 => return vec![error_reply(bytes, "broken")],
            Fault::WrongKind if reply[3] != 0 => {
                reply.resize(16, 1);
                reply[..4].fill(0);
            }
            _ => {}
        }
        vec![reply]
    }

    fn reply(&mut self, bytes: &[u8], source: SocketAddr) -> Option<Vec<u8>> {
        let mut patched = bytes.to_vec();
        if self.has(Fault::AnyMagic) && bytes.len() >= 16 && bytes[8..12] == [0; 4] {
            patched[..8].copy_from_slice(&MAGIC.to_be_bytes());
        }
        if self.has(Fault::AnswersShort) && bytes.len() < 16 {
            return Some(error_reply(&[0; 16], "short"));
        }
        let Ok(request) = Request::parse(&patched) else {
            let proven = bytes.first_chunk() == Some(&self.id_of(source).0.to_be_bytes());
            let answers = match self.fault {
                Fault::AnswersJunk => true,
                Fault::AnswersShortAnnounces => proven && bytes.get(11) == Some(&1),
                Fault::AnswersUnknownActions => proven && bytes.get(11) > Some(&2),
                _ => false,
            };
            return (answers && bytes.len() >= 16).then(|| error_reply(bytes, "junk"));
        };
        let id = match &request {
            Request::Connect(connect) => {
                return self.connect(connect, bytes.len(), source);
            }
            Request::Announce(announce) => announce.connection_id,
            Request::Scrape(scrape) => scrape.connection_id,
        };
        if !self.accepts(id, source) && !self.has(Fault::ServesBadIds) {
            return self.has(Fault::AnswersBadIds).then(|| error_reply(bytes, "bad connection id"));
        }
        match request {
            Request::Announce(announce) => self.announce(&announce, bytes, source.ip()),
            Request::Scrape(scrape) => self.scrape(&scrape, bytes),
            Request::Connect(_) => None,
        }
    }

    /// The connection id of an address.
    fn id_of(&self, source: SocketAddr) -> ConnectionId {
        let port = if self.has(Fault::IdPerPort) { source.port() } else { 1 };
        let endpoint = Endpoint::new(source.ip(), port);
        let spread = |sum: u64, byte: &u8| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23)
        };
        let id = endpoint.as_bytes().iter().fold(7, spread) | 1;
        ConnectionId(match self.fault {
            Fault::ZeroId => 0,
            Fault::OneIdForAll => 0x1122_3344_5566_7788,
            _ => id,
        })
    }

    /// Whether a connection id is valid.
    fn accepts(&mut self, id: ConnectionId, source: SocketAddr) -> bool {
        match self.fault {
            Fault::IdServesOnce => {
                let found = self.given.iter().position(|(_, given)| *given == id);
                found.is_some_and(|at| self.given.swap_remove(at).1 == id)
            }
            Fault::NewIdEndsOld => {
                let last = self.given.iter().rev().find(|(to, _)| *to == source);
                last.is_some_and(|(_, given)| *given == id)
            }
            _ => id == self.id_of(source),
        }
    }

    fn connect(&mut self, connect: &Connect, len: usize, source: SocketAddr) -> Option<Vec<u8>> {
        if self.has(Fault::StrictLength) && len != 16
            || self.has(Fault::LosesFirstConnects) && self.received <= LOST
        {
            return None;
        }
        let mut reply = [0; 16];
        let mut connection_id = self.id_of(source);
        if self.has(Fault::IdServesOnce) || self.has(Fault::NewIdEndsOld) {
            connection_id.0 ^= self.received << 8;
            self.given.push((source, connection_id));
        }
        let transaction_id = connect.transaction_id;
        ConnectResponse { transaction_id, connection_id }.write(&mut reply);
        let mut reply = reply.to_vec();
        if self.has(Fault::LongConnect) {
            reply.extend_from_slice(&[0; 4]);
        }
        Some(reply)
    }

    /// The text of the error to an announce, if it is refused.
    fn refusal(&self, announce: &Announce<'_>, bytes: &[u8]) -> Option<&'static str> {
        let event = u32::from_be_bytes(*bytes[80..].first_chunk().expect("98 bytes"));
        match self.fault {
            Fault::RefusesOptions if bytes.len() > REQUEST_LEN => Some("too long"),
            Fault::DropsPaused if event == 4 => Some("unknown event"),
            Fault::RefusesUnknownEvents if event > 4 => Some("unknown event"),
            Fault::AcceptsPortZero => None,
            _ => (announce.port == 0).then_some("port cannot be 0"),
        }
    }

    fn refuse(&self, bytes: &[u8], text: &str) -> Vec<u8> {
        error_reply(bytes, if self.has(Fault::ErrorWithoutText) { "" } else { text })
    }

    fn announce(&mut self, announce: &Announce<'_>, bytes: &[u8], ip: IpAddr) -> Option<Vec<u8>> {
        if let Some(text) = self.refusal(announce, bytes) {
            return Some(self.refuse(bytes, text));
        }
        self.turn += 1;
        let ip = match announce.ip {
            named if named != 0 && self.has(Fault::UsesIpField) => {
                IpAddr::from(named.to_be_bytes())
            }
            _ => ip,
        };
        let own = Endpoint::new(ip, announce.port);
        let stopped = announce.event == Event::Stopped;
        let known = self.swarms.contains_key(&announce.info_hash);
        let before = self.swarms.get(&announce.info_hash).map_or((0, 0), Swarm::counts);
        if known || !stopped || self.has(Fault::StoresStopped) {
            self.store(announce, own, stopped);
        }
        let empty = Swarm::default();
        let swarm = self.swarms.get(&announce.info_hash).unwrap_or(&empty);
        let peers = self.pick(swarm, announce, own, stopped);
        let (seeders, leechers) = self.counts(swarm, before, own);
        let interval = match self.fault {
            Fault::ZeroInterval => 0,
            Fault::ShortInterval => 10 + (self.turn % 20) as u32,
            Fault::SameInterval => 1800,
            _ => 1800 + (self.turn % 60) as u32,
        };
        let mut head = [0; HEAD_LEN];
        let transaction_id = announce.transaction_id;
        AnnounceHead { transaction_id, interval, leechers, seeders }.write(&mut head);
        let mut reply = head.to_vec();
        for peer in peers {
            let mut wire = peer.as_bytes().to_vec();
            if self.has(Fault::PortsReversed) {
                let len = wire.len();
                wire.swap(len - 2, len - 1);
            }
            reply.extend_from_slice(&wire);
        }
        Some(reply)
    }

    /// The counts of an announce reply: `before` are those without the announce.
    fn counts(&self, swarm: &Swarm, before: (u32, u32), own: Endpoint) -> (u32, u32) {
        let (seeders, leechers) = swarm.counts();
        match self.fault {
            Fault::OwnPeerNotCounted => before,
            Fault::CountsAtMost100 => (seeders.min(100), leechers.min(100)),
            Fault::CountsDouble => (2 * seeders, 2 * leechers),
            Fault::CountsZero => (0, 0),
            Fault::CountsMax => (u32::MAX, u32::MAX),
            Fault::SwapsCounts => (leechers, seeders),
            Fault::FamiliesApart => swarm.counts_of(|peer| peer.endpoint.family() == own.family()),
            _ => (seeders, leechers),
        }
    }

    fn store(&mut self, announce: &Announce<'_>, own: Endpoint, stopped: bool) {
        let fault = self.fault;
        let swarm = self.swarms.entry(announce.info_hash).or_default();
        let is_own = |peer: &Peer| {
            let same = fault != Fault::PeersByPeerId || peer.id == announce.peer_id.0;
            peer.endpoint == own && same
        };
        let known = swarm.peers.iter().find(|peer| is_own(peer)).map(|peer| peer.seeder);
        if stopped && fault == Fault::KeepsStopped && known.is_some() {
            return;
        }
        swarm.peers.retain(|peer| !is_own(peer));
        if stopped && swarm.peers.len() > 100 {
            swarm.stopped.push(own);
        }
        if stopped && fault != Fault::StoresStopped {
            if fault == Fault::ForgetsCompleted && swarm.peers.is_empty() {
                swarm.completed = 0;
            }
            return;
        }
        let finished = announce.left == 0 || fault == Fault::CompletesUnfinished;
        let again = (known == Some(true) && fault != Fault::CompletesAgain)
            || (known.is_none() && fault == Fault::UnknownPeersNeverComplete);
        if announce.event == Event::Completed
            && finished
            && !again
            && fault != Fault::NeverCompletes
        {
            swarm.completed += 1;
        }
        let seeder = announce.left == 0 || (fault == Fault::StaysSeeder && known == Some(true));
        if fault == Fault::Stores100 && swarm.peers.len() >= 100 {
            return;
        }
        swarm.peers.push(Peer { endpoint: own, seeder, id: announce.peer_id.0 });
    }

    fn pick(
        &self,
        swarm: &Swarm,
        announce: &Announce<'_>,
        own: Endpoint,
        stopped: bool,
    ) -> Vec<Endpoint> {
        let cap = if self.has(Fault::NoCap) { 1000 } else { own.family().max_peers() };
        let limit = match announce.num_want {
            _ if stopped && self.has(Fault::PeersForStopped) => 50,
            _ if stopped => 0,
            _ if self.has(Fault::IgnoresWant) => cap,
            0 if self.has(Fault::PeersUnasked) => 50,
            want if want < 0 && self.has(Fault::NoDefault) => 0,
            want if want < 0 => 50,
            want if self.has(Fault::OneTooFew) => (want as usize / 2 * 2).min(cap),
            want if self.has(Fault::RoundsWant) => ((want as usize + 5) / 10 * 10).min(cap),
            want => (want as usize).min(cap),
        };
        let seeder = announce.left == 0;
        let useful = |peer: &&Peer| {
            let both_seed = seeder && peer.seeder && !self.has(Fault::SeedersForSeeders);
            let hidden = (peer.seeder && self.has(Fault::NoSeeders))
                || (peer.endpoint.port() == 1 && !self.has(Fault::ListsPortOne));
            let own_peer = peer.endpoint == own && !self.has(Fault::ListsOwnPeer);
            !both_seed && !hidden && !own_peer && peer.endpoint.family() == own.family()
        };
        let all: Vec<Endpoint> =
            swarm.peers.iter().filter(useful).map(|peer| peer.endpoint).collect();
        // The list rotates from one announce to the next, so that every peer is listed. The
        // announcing peer is stored last.
        let start = match self.fault {
            Fault::OldestOnly => 0,
            Fault::ListsOwnPeer => all.len().saturating_sub(1),
            _ => self.turn * 7,
        };
        let mut picked: Vec<Endpoint> =
            (0..all.len().min(limit)).map(|n| all[(start + n) % all.len()]).collect();
        if self.has(Fault::ListsTwice) && picked.len() > 1 {
            picked[0] = picked[1];
        }
        if self.has(Fault::ListsStoppedAbove100)
            && let ([first, ..], Some(stopped)) = (&mut picked[..], swarm.stopped.last())
        {
            *first = *stopped;
        }
        picked
    }

    fn scrape(&mut self, request: &Scrape<'_>, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut hashes: Vec<InfoHash> = request.info_hashes().collect();
        let broken = !(bytes.len() - 16).is_multiple_of(20);
        if hashes.is_empty() && !self.has(Fault::AnswersEmptyScrape) {
            return Some(self.refuse(bytes, "no info hash"));
        }
        if broken && self.has(Fault::RefusesTrailing) {
            return None;
        }
        hashes.truncate(if self.has(Fault::ScrapesFew) { 50 } else { MAX_HASHES });
        if self.has(Fault::ScrapeReversed) {
            hashes.reverse();
        }
        if self.has(Fault::ScrapeOnce) {
            let mut seen = HashSet::new();
            hashes.retain(|hash| seen.insert(*hash));
        }
        if self.has(Fault::ScrapesLess) {
            hashes.pop();
        }
        let mut head = [0; scrape::HEAD_LEN];
        scrape::write_head(request.transaction_id, &mut head);
        let mut reply = head.to_vec();
        for hash in hashes {
            if self.has(Fault::ScrapeUnknownFails) && !self.swarms.contains_key(&hash) {
                return Some(error_reply(bytes, "unknown torrent"));
            }
            if self.has(Fault::ScrapeCreates) {
                let phantom = Endpoint::new([127, 0, 0, 1].into(), 7);
                let swarm = self.swarms.entry(hash).or_default();
                if swarm.peers.is_empty() {
                    swarm.peers.push(Peer { endpoint: phantom, seeder: false, id: [0; 20] });
                }
            }
            let swarm = self.swarms.get(&hash);
            let (seeders, leechers) = swarm.map_or((0, 0), Swarm::counts);
            let completed = swarm.map_or(0, |swarm| swarm.completed);
            let (seeders, completed, leechers) = match self.fault {
                Fault::ScrapeSwapped => (leechers, completed, seeders),
                Fault::ScrapesDouble => (2 * seeders, completed, 2 * leechers),
                Fault::CountsMax => (u32::MAX, u32::MAX, u32::MAX),
                _ => (seeders, completed, leechers),
            };
            let mut counts = [0; 12];
            ScrapeCounts { seeders, completed, leechers }.write(&mut counts);
            reply.extend_from_slice(&counts);
        }
        Some(reply)
    }
}

/// A hash of a number.
fn mix(number: u64) -> u64 {
    let spread = (number ^ number >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (spread ^ spread >> 32).wrapping_mul(0x94D0_49BB_1331_11EB) >> 11
}

/// An error reply to a request.
fn error_reply(request: &[u8], text: &str) -> Vec<u8> {
    let transaction = u32::from_be_bytes(*request[12..].first_chunk().expect("16 bytes"));
    let mut reply = vec![0; 64];
    let len = error::write(TransactionId(transaction), text, &mut reply);
    reply.truncate(len);
    reply
}

/// A [`Tracker`] on a thread, at unused ports of 127.0.0.1 and ::1.
pub(crate) struct Server {
    /// Its addresses: IPv4, then IPv6 where the host has it.
    pub(crate) addresses: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(fault: Fault) -> Self {
        Self::paced(fault, 128, |_| ())
    }

    /// A server without a fault at these addresses of IPv4 and IPv6.
    pub(crate) fn at(ips: [IpAddr; 2]) -> Self {
        Self::paced_at(ips, Fault::Nothing, 128, |_| ())
    }

    /// A server that receives at most `limit` datagrams at a time, and sends their replies after
    /// `pause`, which gets their number.
    pub(crate) fn paced(
        fault: Fault,
        limit: usize,
        pause: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let ips = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        Self::paced_at(ips, fault, limit, pause)
    }

    fn paced_at(
        ips: [IpAddr; 2],
        fault: Fault,
        limit: usize,
        pause: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let listen = ips.map(|ip| SocketAddr::new(ip, 0));
        let buffers = Buffers { receive: 4 << 20, send: 0 };
        let (four, _) = bind_client(listen[0], buffers).unwrap();
        let mut sockets = vec![four];
        match bind_client(listen[1], buffers) {
            Ok((six, _)) => sockets.push(six),
            Err(error) => println!("IPv4 only: {error}"),
        }
        let addresses = sockets.iter().map(|socket| socket.address()).collect();
        // A further IPv4 socket, for replies from another port.
        sockets.push(bind_client(listen[0], buffers).unwrap().0);
        let other = sockets.len() as u16 - 1;
        let backend = Backend::new(sockets, Options::default()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread =
            std::thread::spawn(move || serve(backend, fault, other, limit, pause, &stopped));
        Self { addresses, stop, thread: Some(thread) }
    }

    /// Its addresses as arguments of `onrush-load`.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("--target={address}")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn serve(
    mut backend: Backend,
    fault: Fault,
    other: u16,
    limit: usize,
    mut pause: impl FnMut(usize),
    stop: &AtomicBool,
) {
    let mut tracker = Tracker::new(fault);
    while !stop.load(Ordering::Relaxed) {
        let batch = backend.receive(limit).unwrap();
        let mut answers = Vec::new();
        for (bytes, slot) in batch.iter() {
            for reply in tracker.answer(bytes, slot.source) {
                let other_socket = match fault {
                    Fault::OtherSocket => reply[3] != 0,
                    Fault::AllFromOtherSocket => true,
                    _ => false,
                };
                // Only IPv4 has a second socket.
                let four = Family::of(slot.source.ip()) == Family::V4;
                let to = match other_socket && four {
                    true => Return::to(slot.source, other),
                    false => slot.reply_to,
                };
                answers.push((reply, to));
            }
        }
        match batch.len() {
            0 => backend.wait(Duration::from_millis(20)).unwrap(),
            count => pause(count),
        }
        backend.send(answers.iter().map(|(bytes, to)| Reply { bytes, to }));
    }
}
