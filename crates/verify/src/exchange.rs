//! Exchanges with a tracker as one client. Requests are repeated until they are answered. Silence
//! counts as such only beside another request that was answered.
//!
//! A socket also receives datagrams that are no reply to its own requests: those of other programs,
//! and replies that arrive late for a closed socket of the same port. `Client::is_stray` tells
//! them from a tracker's wrong replies.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::{
    AnnounceHead, ConnectionId, Endpoint, Event, Family, InfoHash, PeerId, Request, Response,
    ScrapeCounts, response::BadResponse,
};

use crate::budget::CHECK_TIME;
use crate::message::{
    AnnounceReply, AnnounceRequest, STOPPED, connect_request, describe, hex, scrape_request,
    transaction_of,
};
use crate::target::Target;

/// How long each try of a request is waited for, in timeouts: short at first, as a datagram may be
/// lost; longer then, as the tracker may be distant or slow.
const TRIES: [f64; 8] = [0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0];
/// How long each try of a request that deserves silence is waited for, in timeouts.
const SILENT_TRIES: [f64; 3] = [0.5, 0.5, 1.0];
/// Number of unanswered tries that count as silence where the time ends before all of them.
const MIN_TRIES: usize = 3;
/// Refused datagrams without a reply between them that show a closed port: a tracker may open it
/// after the first.
const MAX_REFUSED: usize = 2;
/// Requests of one client in flight at a time: a tracker's receive buffer holds far more.
const WINDOW: usize = 32;
/// Bytes of the largest UDP datagram.
const MAX_DATAGRAM: usize = 65_536;

/// Why there is no usable reply to a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No reply came.
    #[error("no reply to {to} ({tries} sent)")]
    Silence {
        /// The request.
        to: String,
        /// How often it was sent.
        tries: usize,
    },
    /// Only replies with another transaction id came.
    #[error("a reply with another transaction id: {}", hex(.0))]
    OtherTransaction(Vec<u8>),
    /// Only replies from another address came.
    #[error("a reply from {0}: {bytes}", bytes = hex(.1))]
    Elsewhere(SocketAddr, Vec<u8>),
    /// The datagram is no reply of BEP 15.
    #[error("no reply of BEP 15, {0}: {bytes}", bytes = hex(.1))]
    Layout(BadResponse, Vec<u8>),
    /// A reply of another kind than the request.
    #[error("another kind of reply: {}", hex(.0))]
    Kind(Vec<u8>),
    /// A reply to a scrape of one info hash with this number of entries.
    #[error("{0} entries for a scrape of 1 info hash")]
    Entries(usize),
    /// An error packet.
    #[error("an error to {to}: \"{text}\"")]
    Refused {
        /// The request.
        to: String,
        /// The text of the error.
        text: String,
    },
    /// The kernel of the tracker's host refuses the datagrams (ICMP port unreachable).
    #[error("nothing listens there: the port is closed")]
    Closed,
    /// This host cannot send or receive.
    #[error("this host cannot send: {0}")]
    Local(String),
    /// The time for all checks ended first.
    #[error("the {} s for all checks are used up (see --timeout and --only)", CHECK_TIME.as_secs())]
    OutOfTime,
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self::Local(error.to_string())
    }
}

/// A BitTorrent client: a socket and a connection id. Dropping it removes its peers from the
/// tracker.
#[derive(Debug)]
pub struct Client<'t> {
    target: &'t Target,
    to: SocketAddr,
    socket: UdpSocket,
    local: SocketAddr,
    id: Cell<Option<ConnectionId>>,
    refused: Cell<usize>,
    joined: RefCell<BTreeSet<Membership>>,
}

/// Everything that may distinguish peers: info hash, port, `ip` field, peer id.
type Membership = (InfoHash, u16, u32, PeerId);

impl<'t> Client<'t> {
    /// A client at `local` of the tracker at `to`.
    pub fn new(
        target: &'t Target,
        to: SocketAddr,
        local: impl Into<SocketAddr>,
    ) -> Result<Self, ExchangeError> {
        let socket = UdpSocket::bind(local.into())?;
        let local = socket.local_addr()?;
        let (id, refused, joined) = (Cell::new(None), Cell::new(0), RefCell::default());
        Ok(Self { target, to, socket, local, id, refused, joined })
    }

    /// Reports a closed port as [`ExchangeError::Closed`] from now on, instead of silence.
    pub fn report_refusals(&self) -> io::Result<()> {
        report_refusals(&self.socket, self.to)
    }

    /// Requests a connection id, uses it from now on, and returns it with the reply, which has at
    /// least 16 bytes.
    pub fn connect(&self) -> Result<(ConnectionId, Vec<u8>), ExchangeError> {
        let reply = self.exchange(&connect_request())?;
        match reply.first_chunk::<16>() {
            Some(head) if head[..4] == [0; 4] => {
                let id = u64::from_be_bytes(*head.last_chunk().expect("8 of 16 bytes"));
                self.set_id(ConnectionId(id));
                Ok((ConnectionId(id), reply))
            }
            Some(head) if head[..4] == [0, 0, 0, 3] => Err(refused("a connect", &reply)),
            Some(_) => Err(ExchangeError::Kind(reply)),
            None => Err(ExchangeError::Layout(BadResponse::Short, reply)),
        }
    }

    /// The connection id in use, which is requested first where there is none.
    pub fn id(&self) -> Result<ConnectionId, ExchangeError> {
        self.id.get().map_or_else(|| Ok(self.connect()?.0), Ok)
    }

    /// Uses this connection id from now on.
    pub fn set_id(&self, id: ConnectionId) {
        self.id.set(Some(id));
    }

    /// The endpoint under which the tracker is expected to list a peer that announces `port`.
    pub fn endpoint(&self, port: u16) -> Endpoint {
        Endpoint::new(self.target.external(self.local.ip()), port)
    }

    /// Announces and parses the reply strictly.
    pub fn announce(&self, request: &AnnounceRequest) -> Result<AnnounceReply, ExchangeError> {
        let mut replies = self.announce_all(std::slice::from_ref(request))?;
        Ok(replies.pop().expect("one reply per request"))
    }

    /// Announces several peers, `WINDOW` at a time, and parses the replies strictly.
    pub fn announce_all(
        &self,
        requests: &[AnnounceRequest],
    ) -> Result<Vec<AnnounceReply>, ExchangeError> {
        let id = self.id()?;
        let requests: Vec<_> = requests.iter().map(|request| request.bytes(id)).collect();
        let replies = self.exchange_all(&requests)?;
        let read = |(bytes, request): (Vec<u8>, &Vec<u8>)| {
            let Response::Announce(head, peers) = self.parse(request, &bytes)? else {
                return Err(ExchangeError::Kind(bytes));
            };
            let AnnounceHead { interval, leechers, seeders, .. } = head;
            let peers = peers.iter().collect();
            Ok(AnnounceReply { interval, leechers, seeders, peers, bytes })
        };
        replies.into_iter().zip(&requests).map(read).collect()
    }

    /// Parses the reply to an announce or a scrape; an error packet is an error.
    fn parse<'r>(&self, request: &[u8], reply: &'r [u8]) -> Result<Response<'r>, ExchangeError> {
        match Response::parse(reply, Family::of(self.to.ip())) {
            Ok(Response::Error(..)) => Err(refused(&describe(request), reply)),
            Ok(response) => Ok(response),
            Err(why) => Err(ExchangeError::Layout(why, reply.to_vec())),
        }
    }

    /// Scrapes and parses the reply strictly; returns all entries of the reply.
    pub fn scrape(&self, hashes: &[InfoHash]) -> Result<Vec<ScrapeCounts>, ExchangeError> {
        self.scrape_with(hashes, &[])
    }

    /// [`Self::scrape`] with bytes after the info hashes.
    pub fn scrape_with(
        &self,
        hashes: &[InfoHash],
        more: &[u8],
    ) -> Result<Vec<ScrapeCounts>, ExchangeError> {
        let mut request = scrape_request(self.id()?, hashes);
        request.extend_from_slice(more);
        let reply = self.exchange(&request)?;
        match self.parse(&request, &reply)? {
            Response::Scrape(_, counts) => Ok(counts.iter().collect()),
            _ => Err(ExchangeError::Kind(reply)),
        }
    }

    /// Sends a request with a transaction id of its own until it is answered.
    pub fn exchange(&self, request: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let mut replies = self.exchange_all(&[request.to_vec()])?;
        Ok(replies.pop().expect("one reply per request"))
    }

    /// [`Self::exchange`] of several requests, `WINDOW` at a time; returns the replies in the
    /// order of the requests.
    pub fn exchange_all(&self, requests: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut all = Vec::with_capacity(requests.len());
        for window in requests.chunks(WINDOW) {
            let mut requests = window.to_vec();
            let transactions: Vec<u32> =
                requests.iter_mut().map(|request| self.number(request)).collect();
            all.extend(self.window(&requests, &transactions)?);
        }
        Ok(all)
    }

    fn window(
        &self,
        requests: &[Vec<u8>],
        transactions: &[u32],
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let places: HashMap<u32, usize> =
            transactions.iter().enumerate().map(|(at, number)| (*number, at)).collect();
        let mut replies: Vec<Option<Vec<u8>>> = vec![None; requests.len()];
        let mut odd = None;
        let mut tries = 0;
        for wait in TRIES {
            if self.target.budget.is_over() {
                break;
            }
            tries += 1;
            for (request, _) in requests.iter().zip(&replies).filter(|(_, reply)| reply.is_none()) {
                self.send(request)?;
            }
            let until = self.target.budget.deadline(wait);
            while let Some((bytes, from)) = self.receive(until)? {
                match transaction_of(&bytes).and_then(|number| places.get(&number)) {
                    _ if from != self.to => odd = Some(ExchangeError::Elsewhere(from, bytes)),
                    Some(&at) => _ = replies[at].get_or_insert(bytes),
                    None if self.is_stray(&bytes, from) => {}
                    None => odd = Some(ExchangeError::OtherTransaction(bytes)),
                }
                if replies.iter().all(Option::is_some) {
                    return Ok(replies.into_iter().flatten().collect());
                }
            }
        }
        let unanswered = replies.iter().position(Option::is_none).expect("a reply is missing");
        Err(odd.unwrap_or_else(|| silence(&requests[unanswered], tries)))
    }

    /// Sends a request until a datagram comes back, each time with another transaction id, and
    /// returns all replies to one of the sent requests, so that late replies do not count as
    /// second ones.
    pub fn all_replies(&self, request: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut request = request.to_vec();
        let mut sent: Vec<(u32, Vec<Vec<u8>>)> = Vec::new();
        for _ in TRIES {
            if self.target.budget.is_over() {
                break;
            }
            sent.push((self.number(&mut request), Vec::new()));
            self.send(&request)?;
            let until = self.target.budget.deadline(1.0);
            while let Some((bytes, from)) = self.receive(until)? {
                let number = transaction_of(&bytes);
                match sent.iter_mut().find(|(asked, _)| Some(*asked) == number) {
                    Some((_, replies)) => replies.push(bytes),
                    None if self.is_stray(&bytes, from) => {}
                    None => sent.last_mut().expect("a request is sent").1.push(bytes),
                }
            }
            let most = sent.iter().map(|(_, replies)| replies).max_by_key(|replies| replies.len());
            if let Some(replies) = most.filter(|replies| !replies.is_empty()) {
                return Ok(replies.clone());
            }
        }
        Err(silence(&request, sent.len()))
    }

    /// Sends a request that deserves silence, followed by a connect each time. Returns the reply to
    /// it, or `None` for silence, once a connect was answered.
    pub fn reply_to_bad(&self, request: &[u8]) -> Result<Option<Vec<u8>>, ExchangeError> {
        let mut answered = false;
        let (mut bad_sent, mut good_sent) = (Vec::new(), Vec::new());
        for (tried, wait) in SILENT_TRIES.iter().chain(&TRIES[2..]).enumerate() {
            if answered && tried >= SILENT_TRIES.len() {
                return Ok(None);
            }
            if self.target.budget.is_over() {
                return Err(ExchangeError::OutOfTime);
            }
            let mut bad = request.to_vec();
            bad_sent.push(self.number(&mut bad));
            self.send(&bad)?;
            let mut good = connect_request();
            good_sent.push(self.number(&mut good));
            self.send(&good)?;
            let until = self.target.budget.deadline(*wait);
            while let Some((bytes, from)) = self.receive(until)? {
                match transaction_of(&bytes) {
                    Some(number) if good_sent.contains(&number) => answered = true,
                    Some(number) if bad_sent.contains(&number) => return Ok(Some(bytes)),
                    _ if self.is_stray(&bytes, from) => {}
                    _ => return Ok(Some(bytes)),
                }
            }
        }
        match answered {
            true => Ok(None),
            false => Err(silence(&connect_request(), good_sent.len())),
        }
    }

    /// Whether a datagram that answers none of the awaited requests is no fault of the tracker: it
    /// comes from another address, or has the transaction id of an earlier request from this port,
    /// of this client or of one that is closed.
    fn is_stray(&self, bytes: &[u8], from: SocketAddr) -> bool {
        let is_used = |number| self.target.has_used_transaction(self.local, number);
        from != self.to || transaction_of(bytes).is_some_and(is_used)
    }

    /// Writes an unused transaction id into a request of at least 16 bytes, and returns it.
    fn number(&self, request: &mut [u8]) -> u32 {
        let number = self.target.new_transaction(self.local);
        if let Some(field) = request.get_mut(12..16) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        number
    }

    fn send(&self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.target.count_datagram();
        self.remember(bytes);
        match send(&self.socket, bytes, self.to) {
            // It is about an earlier datagram.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.count_refusal(),
            sent => Ok(sent?),
        }
    }

    fn count_refusal(&self) -> Result<(), ExchangeError> {
        self.refused.update(|refused| refused + 1);
        if self.refused.get() < MAX_REFUSED { Ok(()) } else { Err(ExchangeError::Closed) }
    }

    /// Notes which peer an announce adds or removes. Invalid announces count too: a tracker may
    /// store a peer that it should refuse.
    fn remember(&self, bytes: &[u8]) {
        let Ok(Request::Announce(announce)) = Request::parse(bytes) else { return };
        let (hash, port) = (announce.info_hash, announce.port);
        let peer = (hash, port, announce.ip, announce.peer_id);
        match announce.event {
            Event::Stopped => _ = self.joined.borrow_mut().remove(&peer),
            _ => _ = self.joined.borrow_mut().insert(peer),
        }
    }

    fn receive(&self, until: Instant) -> Result<Option<(Vec<u8>, SocketAddr)>, ExchangeError> {
        if self.target.budget.is_over() {
            return Ok(None);
        }
        loop {
            match receive(&self.socket, until) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.count_refusal()?;
                }
                received => {
                    let received = received?;
                    if received.is_some() {
                        self.refused.set(0);
                    }
                    return Ok(received);
                }
            }
        }
    }

    /// Leaves this client's peers in their swarms when it is dropped.
    pub fn keep_peers(&self) {
        self.joined.borrow_mut().clear();
    }

    /// Removes all peers of this client. Where info hashes are used again this waits for replies,
    /// so that the next check finds empty swarms.
    fn remove_peers(&self) {
        let joined = self.joined.take();
        let stop = |(hash, port, ip, peer_id)| {
            let mut stop = AnnounceRequest::leecher(hash, port).event(STOPPED).want(0);
            (stop.fields.ip, stop.fields.peer_id) = (ip, peer_id);
            stop.bytes(self.id.get().unwrap_or_default())
        };
        let mut requests: Vec<_> = joined.into_iter().map(stop).collect();
        if self.target.shares_hashes && !self.target.budget.is_over() {
            let _ = self.exchange_all(&requests);
        } else {
            for request in &mut requests {
                // The reply arrives at a closed socket, or at the next one of this port.
                self.number(request);
                // A peer whose removal is lost expires.
                let _ = self.send(request);
            }
        }
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.remove_peers();
    }
}

/// Sends a datagram. An error that the kernel has kept of an earlier datagram, and that may pass,
/// does not prevent it.
pub(crate) fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    match socket.send_to(bytes, to) {
        Err(error) if may_pass(&error) => socket.send_to(bytes, to),
        sent => sent,
    }
    .map(drop)
}

/// Whether a router or this host reports that a datagram did not arrive, which may be different for
/// the next one (RFC 1122, section 4.1.3.3).
fn may_pass(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable)
}

/// The next datagram, or `None` at the deadline. A datagram that is in the socket's buffer by then
/// is still returned, as this host may have been late to read it.
pub(crate) fn receive(
    socket: &UdpSocket,
    until: Instant,
) -> io::Result<Option<(Vec<u8>, SocketAddr)>> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let mut bytes = vec![0; MAX_DATAGRAM];
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(rest.max(Duration::from_millis(1))))?;
        match socket.recv_from(&mut bytes) {
            Ok((len, from)) => {
                bytes.truncate(len);
                return Ok(Some((bytes, from)));
            }
            Err(error) => match error.kind() {
                WouldBlock | TimedOut if rest.is_zero() => return Ok(None),
                WouldBlock | TimedOut | Interrupted => {}
                _ if may_pass(&error) => {}
                _ => return Err(error),
            },
        }
    }
}

/// Makes the socket report datagrams that the host of `to` refuses, as if it were connected, which
/// would hide replies from other addresses.
pub(crate) fn report_refusals(socket: &UdpSocket, to: SocketAddr) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    match to {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true)?,
    }
    Ok(())
}

fn refused(to: &str, reply: &[u8]) -> ExchangeError {
    let text = String::from_utf8_lossy(reply.get(8..).unwrap_or_default());
    ExchangeError::Refused {
        to: to.to_owned(),
        text: text.trim_end_matches('\0').escape_debug().to_string(),
    }
}

/// The error of an unanswered request: silence after enough tries, else the end of the time.
fn silence(request: &[u8], tries: usize) -> ExchangeError {
    match tries {
        MIN_TRIES.. => ExchangeError::Silence { to: describe(request), tries },
        _ => ExchangeError::OutOfTime,
    }
}

#[cfg(test)]
mod tests {
    use onrush_proto::TransactionId;
    use onrush_proto::announce::HEAD_LEN;

    use super::*;
    use crate::message::fresh_hash;

    /// A socket of a tracker or a stranger.
    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    fn target(tracker: &UdpSocket) -> Target {
        let address = tracker.local_addr().unwrap();
        Target::new(address, &[], address.ip(), Duration::from_secs(1))
    }

    /// The reply to an announce of a swarm of 214 leechers.
    fn announce_reply(transaction_id: TransactionId) -> [u8; HEAD_LEN] {
        let mut reply = [0; HEAD_LEN];
        AnnounceHead { transaction_id, interval: 1800, leechers: 214, seeders: 0 }
            .write(&mut reply);
        reply
    }

    /// Answers connects, and calls `also` with the client of each, until an empty datagram comes.
    fn answer_connects(tracker: &UdpSocket, also: impl Fn(SocketAddr)) {
        let mut bytes = [0; 128];
        loop {
            let (len, from) = tracker.recv_from(&mut bytes).unwrap();
            if len == 0 {
                break;
            }
            if let Ok(Request::Connect(connect)) = Request::parse(&bytes[..len]) {
                also(from);
                let mut reply = [0; 16];
                reply[4..8].copy_from_slice(&connect.transaction_id.0.to_be_bytes());
                tracker.send_to(&reply, from).unwrap();
            }
        }
    }

    /// The reply to a bad request, where `also` sends further datagrams to the client.
    fn reply_to_bad_while(
        client: &Client<'_>,
        tracker: &UdpSocket,
        also: impl Fn(SocketAddr) + Send,
    ) -> Option<Vec<u8>> {
        std::thread::scope(|scope| {
            scope.spawn(|| answer_connects(tracker, also));
            let reply = client.reply_to_bad(&[0xA5; 16]);
            socket().send_to(&[], tracker.local_addr().unwrap()).unwrap();
            reply.unwrap()
        })
    }

    #[test]
    fn a_refusal_before_a_reply_is_forgotten() {
        let tracker = socket();
        let target = target(&tracker);
        let client = Client::new(&target, target.address, (target.sources[0], 0)).unwrap();
        client.count_refusal().unwrap();
        tracker.send_to(&[0; 16], client.socket.local_addr().unwrap()).unwrap();
        let reply = client.receive(Instant::now() + Duration::from_secs(60));
        assert!(matches!(reply, Ok(Some(_))), "{reply:?}");
        client.count_refusal().unwrap();
        assert_eq!(client.count_refusal(), Err(ExchangeError::Closed));
    }

    #[test]
    fn datagrams_of_other_programs_do_not_break_silence() {
        let (tracker, stranger) = (socket(), socket());
        let target = target(&tracker);
        let client = Client::new(&target, target.address, (target.sources[0], 0)).unwrap();
        let reply = announce_reply(TransactionId(0));
        let send = |from: &UdpSocket, to| _ = from.send_to(&reply, to).unwrap();
        assert_eq!(reply_to_bad_while(&client, &tracker, |to| send(&stranger, to)), None);
        let wrong = reply_to_bad_while(&client, &tracker, |to| send(&tracker, to));
        assert_eq!(wrong.as_deref(), Some(&reply[..]), "the tracker itself breaks it");
    }

    #[test]
    fn a_late_reply_to_a_closed_socket_of_the_same_port_does_not_break_silence() {
        let tracker = socket();
        let target = target(&tracker);
        let first = Client::new(&target, target.address, (target.sources[0], 0)).unwrap();
        let local = first.local;
        first.send(&AnnounceRequest::leecher(fresh_hash(), 40_001).bytes(ConnectionId(0))).unwrap();
        drop(first);
        let mut bytes = [0; 128];
        let mut last = || tracker.recv(&mut bytes).map(|len| bytes[..len].to_vec()).unwrap();
        let (_, stop) = (last(), last());
        let Ok(Request::Announce(stop)) = Request::parse(&stop) else { panic!("{stop:?}") };
        assert_eq!(stop.event, Event::Stopped);
        let reply = announce_reply(stop.transaction_id);
        let second = Client::new(&target, target.address, local).unwrap();
        let late =
            reply_to_bad_while(&second, &tracker, |to| _ = tracker.send_to(&reply, to).unwrap());
        assert_eq!(late, None);
    }
}
