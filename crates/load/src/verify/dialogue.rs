//! Talking with a tracker as one peer: questions are repeated until they are answered, silence is
//! believed only beside a good question that was answered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use onrush_proto::announce::REQUEST_LEN;
use onrush_proto::connect::MAGIC;
use onrush_proto::{
    ConnectionId, Endpoint, Event, Family, InfoHash, Request, Response, Scrape, ScrapeCounts,
    TransactionId, response::BadResponse,
};

use super::Inquiry;
use super::ask::{Announced, Ask, STOPPED};
use super::scene::Crowd;

/// How long each try of a question is waited for, in timeouts: soon once more, as a datagram may
/// be lost; then with patience, as the tracker may be far or slow.
const TRIES: [f64; 8] = [0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0];
/// How long each try to break a silence is waited for, in timeouts.
const SILENCES: [f64; 3] = [0.5, 0.5, 1.0];
/// Tries after which no reply is silence, where there is no time for all of them.
const ENOUGH: usize = 3;
/// How long all checks may take: a run is over within a minute, whatever the tracker does.
const CHECKING: Duration = Duration::from_secs(45);
/// The same with taking the peers off again.
const LEAVING: Duration = Duration::from_secs(53);
/// Questions of one peer under way at a time: a tracker's receive buffer holds far more.
const WINDOW: usize = 32;
/// Source addresses of 127/8 to ask a tracker there from.
const LOOPBACK_SOURCES: u8 = 4;
/// Bytes of the largest datagram that can come.
const LARGEST: usize = 65_536;
/// Bytes of a reply that are shown.
const SHOWN: usize = 40;

/// The tracker that is asked, and what all checks share.
#[derive(Debug)]
pub struct Tracker {
    /// Its address.
    pub address: SocketAddr,
    /// Its address of the other family, if it answers there.
    pub also: Option<SocketAddr>,
    /// Where questions come from, of the family of `address`.
    pub sources: Vec<IpAddr>,
    /// How long a reply may take.
    pub timeout: Duration,
    /// The hashes that it serves; empty for any.
    pub(super) given: Vec<InfoHash>,
    pub(super) free: Mutex<Vec<InfoHash>>,
    pub(super) freed: Condvar,
    pub(super) crowd: OnceLock<Result<Crowd, Trouble>>,
    /// Of the first two sources, the address under which the tracker lists who asks from there.
    outside: HashMap<IpAddr, IpAddr>,
    sent: AtomicU64,
    start: Instant,
    leaving: AtomicBool,
}

impl Tracker {
    pub(super) fn new(
        inquiry: &Inquiry,
        also: Option<SocketAddr>,
        routed: IpAddr,
        start: Instant,
    ) -> Self {
        let local = inquiry.target.ip().is_loopback() && inquiry.target.is_ipv4();
        let sources = match (&inquiry.sources[..], local && cfg!(target_os = "linux")) {
            ([], true) => (1..=LOOPBACK_SOURCES).map(|n| [127, 0, 77, n].into()).collect(),
            ([], false) => vec![routed],
            (given, _) => given.to_vec(),
        };
        let mut tracker = Self {
            address: inquiry.target,
            also,
            sources,
            timeout: inquiry.timeout,
            given: inquiry.hashes.clone(),
            free: Mutex::new(inquiry.hashes.clone()),
            freed: Condvar::new(),
            crowd: OnceLock::new(),
            outside: HashMap::new(),
            sent: AtomicU64::new(0),
            start,
            leaving: AtomicBool::new(false),
        };
        if !inquiry.target.ip().is_loopback() {
            let known = |source: &IpAddr| Some((*source, tracker.seen_as(*source)?));
            tracker.outside = tracker.sources.iter().take(2).filter_map(known).collect();
        }
        tracker
    }

    /// The address under which the tracker knows `source`: behind a NAT, another.
    fn seen_as(&self, source: IpAddr) -> Option<IpAddr> {
        let party = Party::join(self, self.address, source).ok()?;
        let hash = self.given.last().copied().unwrap_or_else(fresh_hash);
        party.announce(&Ask::new(hash, 40_001)).ok()?;
        let listed = party.announce(&Ask::new(hash, 40_002)).ok()?.peers;
        listed.iter().find(|peer| peer.port() == 40_001).map(Endpoint::ip)
    }

    /// The address as which the tracker is expected to know `source`.
    pub(super) fn outside_of(&self, source: IpAddr) -> IpAddr {
        self.outside.get(&source).copied().unwrap_or(source)
    }

    /// When the time for what is under way is over.
    fn end(&self) -> Instant {
        self.start + if self.leaving.load(Ordering::Relaxed) { LEAVING } else { CHECKING }
    }

    /// From now on there is time to leave, but for nothing else.
    pub(super) fn begin_to_leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// The end of a wait of so many timeouts.
    fn until(&self, timeouts: f64) -> Instant {
        (Instant::now() + self.timeout.mul_f64(timeouts)).min(self.end())
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end()
    }

    /// Why the tracker serves no announce, where it serves none: an error or silence.
    pub(super) fn refusal(&self) -> Option<String> {
        let party = Party::join(self, self.address, self.sources[0]).ok()?;
        let hash = self.given.first().copied().unwrap_or_else(fresh_hash);
        match party.announce(&Ask::new(hash, 40_001)) {
            Err(Trouble::Refused { text, .. }) => Some(format!("refuses them: \"{text}\"")),
            Err(Trouble::Silence { tries, .. }) => Some(format!("answers none ({tries} sent)")),
            _ => None,
        }
    }

    /// The family it is asked over.
    pub fn family(&self) -> Family {
        Family::of(self.address.ip())
    }

    /// Datagrams sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

/// Why there is no usable reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// None came.
    Silence {
        /// To what.
        to: String,
        /// How often it was sent.
        tries: usize,
    },
    /// Only replies with another transaction id came.
    OtherTransaction(Vec<u8>),
    /// Only replies from another address came.
    Elsewhere(SocketAddr, Vec<u8>),
    /// What came is no reply.
    Layout(BadResponse, Vec<u8>),
    /// Another kind of reply than was asked for.
    Kind(Vec<u8>),
    /// An error packet.
    Refused {
        /// To what.
        to: String,
        /// Its text.
        text: String,
    },
    /// This host cannot ask.
    Here(String),
    /// The time for all checks was over first.
    Late,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence { to, tries } => write!(f, "no reply to {to} ({tries} sent)"),
            Self::OtherTransaction(bytes) => {
                write!(f, "a reply with another transaction id: {}", hex(bytes))
            }
            Self::Elsewhere(from, bytes) => write!(f, "a reply from {from}: {}", hex(bytes)),
            Self::Layout(why, bytes) => write!(f, "no reply of BEP 15, {why}: {}", hex(bytes)),
            Self::Kind(bytes) => write!(f, "another kind of reply: {}", hex(bytes)),
            Self::Refused { to, text } => write!(f, "an error to {to}: \"{text}\""),
            Self::Here(why) => write!(f, "this host cannot ask: {why}"),
            Self::Late => {
                let seconds = CHECKING.as_secs();
                write!(f, "the {seconds} s for all checks were over (see --timeout and --only)")
            }
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Here(error.to_string())
    }
}

/// A peer's own socket, with a connection id for it.
#[derive(Debug)]
pub struct Party<'t> {
    tracker: &'t Tracker,
    to: SocketAddr,
    socket: UdpSocket,
    source: IpAddr,
    id: Cell<ConnectionId>,
    spent: RefCell<HashSet<u32>>,
    joined: RefCell<BTreeSet<Membership>>,
}

/// All that can tell one peer from another: hash, port, the named address, peer id.
type Membership = (InfoHash, u16, u32, [u8; 20]);

impl<'t> Party<'t> {
    /// A socket at `source` without a connection id.
    pub fn mute(tracker: &'t Tracker, to: SocketAddr, source: IpAddr) -> Result<Self, Trouble> {
        let socket = UdpSocket::bind((source, 0))?;
        Ok(Self {
            tracker,
            to,
            socket,
            source,
            id: Cell::new(ConnectionId(0)),
            spent: RefCell::default(),
            joined: RefCell::default(),
        })
    }

    /// A socket at `source` that has connected.
    pub fn join(tracker: &'t Tracker, to: SocketAddr, source: IpAddr) -> Result<Self, Trouble> {
        let party = Self::mute(tracker, to, source)?;
        party.connect()?;
        Ok(party)
    }

    /// Gets a connection id, keeps it and returns it with the reply, which is only known to have 16
    /// bytes at least.
    pub fn connect(&self) -> Result<(ConnectionId, Vec<u8>), Trouble> {
        let reply = self.exchange(&connect_request())?;
        match reply.first_chunk::<16>() {
            Some(head) if head[..4] == [0; 4] => {
                let id = u64::from_be_bytes(*head.last_chunk().expect("8 of 16 bytes"));
                self.id.set(ConnectionId(id));
                Ok((ConnectionId(id), reply))
            }
            Some(head) if head[..4] == [0, 0, 0, 3] => Err(refused("a connect", &reply)),
            Some(_) => Err(Trouble::Kind(reply)),
            None => Err(Trouble::Layout(BadResponse::Short, reply)),
        }
    }

    /// The connection id in use.
    pub fn id(&self) -> ConnectionId {
        self.id.get()
    }

    /// Uses this connection id from now on.
    pub fn take_id(&self, id: ConnectionId) {
        self.id.set(id);
    }

    /// The peer that announces `port` from here, as the tracker is expected to list it.
    pub fn endpoint(&self, port: u16) -> Endpoint {
        Endpoint::new(self.tracker.outside_of(self.source), port)
    }

    /// Announces and reads the reply strictly.
    pub fn announce(&self, ask: &Ask) -> Result<Announced, Trouble> {
        let mut replies = self.announce_all(std::slice::from_ref(ask))?;
        Ok(replies.pop().expect("a reply to each"))
    }

    /// Announces several, many at a time.
    pub fn announce_all(&self, asks: &[Ask]) -> Result<Vec<Announced>, Trouble> {
        let requests: Vec<_> = asks.iter().map(|ask| ask.bytes(self.id())).collect();
        let replies = self.exchange_all(&requests)?;
        let family = Family::of(self.to.ip());
        let read = |(reply, request): (Vec<u8>, &Vec<u8>)| match Response::parse(&reply, family) {
            Ok(Response::Announce(head, peers)) => Ok(Announced {
                interval: head.interval,
                leechers: head.leechers,
                seeders: head.seeders,
                peers: peers.iter().collect(),
                bytes: reply.clone(),
            }),
            Ok(Response::Error(..)) => Err(refused(&describe(request), &reply)),
            Ok(_) => Err(Trouble::Kind(reply)),
            Err(why) => Err(Trouble::Layout(why, reply)),
        };
        replies.into_iter().zip(&requests).map(read).collect()
    }

    /// Scrapes and reads the reply strictly; as many entries as the tracker gives.
    pub fn scrape(&self, hashes: &[InfoHash]) -> Result<Vec<ScrapeCounts>, Trouble> {
        self.scrape_with(hashes, &[])
    }

    /// Scrapes with bytes behind the hashes.
    pub fn scrape_with(
        &self,
        hashes: &[InfoHash],
        more: &[u8],
    ) -> Result<Vec<ScrapeCounts>, Trouble> {
        let mut request = scrape_request(self.id(), hashes);
        request.extend_from_slice(more);
        let reply = self.exchange(&request)?;
        match Response::parse(&reply, Family::of(self.to.ip())) {
            Ok(Response::Scrape(_, counts)) => Ok(counts.iter().collect()),
            Ok(Response::Error(..)) => Err(refused(&describe(&request), &reply)),
            Ok(_) => Err(Trouble::Kind(reply)),
            Err(why) => Err(Trouble::Layout(why, reply)),
        }
    }

    /// Sends a request, which gets a transaction id of its own, until it is answered.
    pub fn exchange(&self, request: &[u8]) -> Result<Vec<u8>, Trouble> {
        let mut replies = self.exchange_all(&[request.to_vec()])?;
        Ok(replies.pop().expect("a reply to each"))
    }

    /// The same for several requests, many at a time; the replies come in the order of these.
    pub fn exchange_all(&self, requests: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut all = Vec::with_capacity(requests.len());
        for window in requests.chunks(WINDOW) {
            let mut requests = window.to_vec();
            let transactions: Vec<u32> =
                requests.iter_mut().map(|request| self.number(request)).collect();
            all.extend(self.window(&requests, &transactions)?);
        }
        Ok(all)
    }

    fn window(&self, requests: &[Vec<u8>], transactions: &[u32]) -> Result<Vec<Vec<u8>>, Trouble> {
        let places: HashMap<u32, usize> =
            transactions.iter().enumerate().map(|(at, number)| (*number, at)).collect();
        let mut replies: Vec<Option<Vec<u8>>> = vec![None; requests.len()];
        let mut odd = None;
        let mut tries = 0;
        for wait in TRIES {
            if self.tracker.is_over() {
                break;
            }
            tries += 1;
            for (request, _) in requests.iter().zip(&replies).filter(|(_, reply)| reply.is_none()) {
                self.send(request)?;
            }
            let until = self.tracker.until(wait);
            while let Some((bytes, from)) = self.receive(until)? {
                match transaction_of(&bytes).and_then(|number| places.get(&number)) {
                    _ if from != self.to => odd = Some(Trouble::Elsewhere(from, bytes)),
                    Some(&at) => _ = replies[at].get_or_insert(bytes),
                    None if self.is_old(&bytes) => {}
                    None => odd = Some(Trouble::OtherTransaction(bytes)),
                }
                if replies.iter().all(Option::is_some) {
                    return Ok(replies.into_iter().flatten().collect());
                }
            }
        }
        let unanswered = replies.iter().position(Option::is_none).expect("one is missing");
        Err(odd.unwrap_or_else(|| silence(&requests[unanswered], tries)))
    }

    /// Sends a request until something comes back, each time with another transaction id, and
    /// returns all that came back to one of these: what is late is not taken for a second reply.
    pub fn everything(&self, request: &[u8]) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut request = request.to_vec();
        let mut sent: Vec<(u32, Vec<Vec<u8>>)> = Vec::new();
        for _ in TRIES {
            if self.tracker.is_over() {
                break;
            }
            sent.push((self.number(&mut request), Vec::new()));
            self.send(&request)?;
            let until = self.tracker.until(1.0);
            while let Some((bytes, _)) = self.receive(until)? {
                let number = transaction_of(&bytes);
                match sent.iter_mut().find(|(asked, _)| Some(*asked) == number) {
                    Some((_, replies)) => replies.push(bytes),
                    None if self.is_old(&bytes) => {}
                    None => sent.last_mut().expect("one is sent").1.push(bytes),
                }
            }
            let most = sent.iter().map(|(_, replies)| replies).max_by_key(|replies| replies.len());
            if let Some(replies) = most.filter(|replies| !replies.is_empty()) {
                return Ok(replies.clone());
            }
        }
        Err(silence(&request, sent.len()))
    }

    /// Sends what deserves silence, with a good request behind it each time. Returns what came
    /// back to it, `None` for silence, which is believed once a good request was answered.
    pub fn reply_to_bad(&self, request: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        let (mut answered, mut bad_ones, mut good_ones) = (false, Vec::new(), Vec::new());
        for (tried, wait) in SILENCES.iter().chain(&TRIES[2..]).enumerate() {
            if answered && tried >= SILENCES.len() {
                return Ok(None);
            }
            if self.tracker.is_over() {
                return Err(Trouble::Late);
            }
            let mut bad = request.to_vec();
            bad_ones.push(self.number(&mut bad));
            self.send(&bad)?;
            let mut good = connect_request();
            good_ones.push(self.number(&mut good));
            self.send(&good)?;
            let until = self.tracker.until(*wait);
            while let Some((bytes, _)) = self.receive(until)? {
                match transaction_of(&bytes) {
                    Some(number) if good_ones.contains(&number) => answered = true,
                    Some(number) if bad_ones.contains(&number) => return Ok(Some(bytes)),
                    _ if self.is_old(&bytes) => {}
                    _ => return Ok(Some(bytes)),
                }
            }
        }
        match answered {
            true => Ok(None),
            false => Err(silence(&connect_request(), good_ones.len())),
        }
    }

    /// Whether it carries the transaction id of an earlier request: a second or a late reply.
    fn is_old(&self, bytes: &[u8]) -> bool {
        transaction_of(bytes).is_some_and(|number| self.spent.borrow().contains(&number))
    }

    /// Writes a transaction id that was not used before into a request that has room for one.
    fn number(&self, request: &mut [u8]) -> u32 {
        let mut spent = self.spent.borrow_mut();
        let number = loop {
            let number = rand::random();
            if spent.insert(number) {
                break number;
            }
        };
        if let Some(field) = request.get_mut(12..16) {
            field.copy_from_slice(&u32::to_be_bytes(number));
        }
        number
    }

    fn send(&self, bytes: &[u8]) -> Result<(), Trouble> {
        self.tracker.count();
        self.remember(bytes);
        match self.socket.send_to(bytes, self.to) {
            // The answer of a closed port to an earlier datagram.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    /// Notes which peer an announce makes or takes off, whoever sends it and for what: a tracker
    /// may store what it should refuse.
    fn remember(&self, bytes: &[u8]) {
        let Ok(Request::Announce(announce)) = Request::parse(bytes) else { return };
        let (hash, port) = (announce.info_hash, announce.port);
        let peer = (hash, port, announce.ip, announce.peer_id.0);
        match announce.event {
            Event::Stopped => _ = self.joined.borrow_mut().remove(&peer),
            _ => _ = self.joined.borrow_mut().insert(peer),
        }
    }

    /// The next datagram, or `None` when none comes in time. What lies there already is taken
    /// even when the time is over: this host may have been too slow to look.
    fn receive(&self, until: Instant) -> Result<Option<(Vec<u8>, SocketAddr)>, Trouble> {
        use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
        let mut bytes = vec![0; LARGEST];
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let last = rest.is_zero();
            if last && self.tracker.is_over() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(rest.max(Duration::from_millis(1))))?;
            match self.socket.recv_from(&mut bytes) {
                Ok((len, from)) => {
                    bytes.truncate(len);
                    return Ok(Some((bytes, from)));
                }
                Err(error) => match error.kind() {
                    WouldBlock | TimedOut if last => return Ok(None),
                    WouldBlock | TimedOut | Interrupted | ConnectionRefused => {}
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// Its peers stay in their swarms when it goes.
    pub fn stay(&self) {
        self.joined.borrow_mut().clear();
    }

    /// Leaves all swarms. Where hashes are used again it is made sure that the tracker knows.
    fn leave(&self) {
        let joined = self.joined.take();
        let leave = |(hash, port, ip, peer_id)| Ask {
            ip: Ipv4Addr::from_bits(ip),
            peer_id,
            ..Ask::new(hash, port).event(STOPPED).want(0)
        };
        let asks: Vec<_> = joined.into_iter().map(leave).collect();
        if self.tracker.given.is_empty() || self.tracker.is_over() {
            for ask in &asks {
                // Nobody waits for it, and a peer that is not taken off expires.
                let _ = self.send(&ask.bytes(self.id()));
            }
        } else {
            let requests: Vec<_> = asks.iter().map(|ask| ask.bytes(self.id())).collect();
            let _ = self.exchange_all(&requests);
        }
    }
}

impl Drop for Party<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The address of this host that routing picks for datagrams to `target`.
///
/// # Errors
/// When there is no route.
pub fn route_to(target: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether a connect to `target` is answered, though from another address or port.
pub fn answers_from_elsewhere(target: SocketAddr, local: IpAddr) -> bool {
    let ask = || {
        let socket = UdpSocket::bind((local, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        for _ in 0..3 {
            socket.send_to(&connect_request(), target)?;
            if let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                return Ok(from.ip() == target.ip());
            }
        }
        io::Result::Ok(false)
    };
    ask().unwrap_or(false)
}

/// A connect without a transaction id.
pub fn connect_request() -> Vec<u8> {
    let mut request = MAGIC.to_be_bytes().to_vec();
    request.extend_from_slice(&[0; 8]);
    request
}

/// A scrape without a transaction id.
pub fn scrape_request(id: ConnectionId, hashes: &[InfoHash]) -> Vec<u8> {
    let mut request = vec![0; 16 + 20 * hashes.len()];
    Scrape::write(id, TransactionId(0), hashes, &mut request);
    request
}

/// A hash that nobody else has.
pub fn fresh_hash() -> InfoHash {
    InfoHash(rand::random())
}

fn transaction_of(reply: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(reply.get(4..8)?.try_into().ok()?))
}

fn refused(to: &str, reply: &[u8]) -> Trouble {
    let text = String::from_utf8_lossy(reply.get(8..).unwrap_or_default());
    Trouble::Refused {
        to: to.to_owned(),
        text: text.trim_end_matches('\0').escape_debug().to_string(),
    }
}

/// No reply to a request that was sent so often: too few times for a verdict, where the time was
/// over.
fn silence(request: &[u8], tries: usize) -> Trouble {
    match tries {
        ENOUGH.. => Trouble::Silence { to: describe(request), tries },
        _ => Trouble::Late,
    }
}

/// A request in words.
fn describe(request: &[u8]) -> String {
    let field = |at: usize| request.get(at..at + 4).and_then(|field| field.try_into().ok());
    let number = |at| field(at).map_or(0, u32::from_be_bytes);
    let len = request.len();
    match field(8).map(u32::from_be_bytes) {
        Some(0) => format!("a connect of {len} bytes"),
        Some(1) if len >= REQUEST_LEN => {
            let port = u16::from_be_bytes([request[96], request[97]]);
            let (event, want) = (number(80), number(92) as i32);
            format!("an announce of {len} bytes (event {event}, num_want {want}, port {port})")
        }
        Some(2) => format!("a scrape of {} hashes", len.saturating_sub(16) / 20),
        _ => format!("a datagram of {len} bytes"),
    }
}

/// Bytes as people read them, four at a time and not too many.
pub fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes[..bytes.len().min(SHOWN)]
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    format!("{}{more} ({} bytes)", words.join(" "), bytes.len())
}
