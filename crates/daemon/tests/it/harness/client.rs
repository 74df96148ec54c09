//! A client: a UDP socket that sends requests and checks the replies.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onrush_proto::{Family, InfoHash, ScrapeCounts};

use crate::harness::{
    Announce, AnnounceReply, TIMEOUT, eventually, leecher, packets, random_hash, seeder,
};

/// The next transaction id, shared by all clients of the process, so that no reply can be taken for
/// that of another request.
static TRANSACTIONS: AtomicU32 = AtomicU32::new(0x5EED_0000);

/// A transaction id that is unique in the process.
pub(crate) fn transaction() -> u32 {
    TRANSACTIONS.fetch_add(1, Ordering::Relaxed)
}

/// A UDP client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Bound to the client's address and not connected: receives from every sender.
    socket: UdpSocket,
    tracker: SocketAddr,
    /// The connection id of the last connect; 0 before the first.
    pub(crate) id: u64,
    /// Whether a datagram other than the reply that is waited for fails the test.
    strict: bool,
}

impl Client {
    /// A client at the loopback address of the tracker's family.
    pub(crate) fn new(tracker: SocketAddr) -> Self {
        match tracker {
            SocketAddr::V4(_) => Self::at(Ipv4Addr::LOCALHOST.into(), tracker),
            SocketAddr::V6(_) => Self::at(Ipv6Addr::LOCALHOST.into(), tracker),
        }
    }

    /// A client at `source` and a free port.
    pub(crate) fn at(source: IpAddr, tracker: SocketAddr) -> Self {
        let socket = UdpSocket::bind((source, 0)).unwrap_or_else(|e| panic!("{source}: {e}"));
        let client = Self { socket, tracker, id: 0, strict: false };
        client.repeat_after(TIMEOUT);
        client
    }

    /// The same client with a connection id from elsewhere.
    pub(crate) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// The same client, which accepts no other datagram than the reply to its request.
    pub(crate) fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Repeats a request that gets no reply for so long: never within [`TIMEOUT`] by default.
    pub(crate) fn repeat_after(&self, time: Duration) {
        self.socket.set_read_timeout(Some(time)).unwrap();
    }

    /// The client's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// The tracker's address.
    pub(crate) fn tracker(&self) -> SocketAddr {
        self.tracker
    }

    /// The address family of the client.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.tracker.ip())
    }

    /// Sends a datagram without waiting for a reply.
    pub(crate) fn send(&self, datagram: &[u8]) {
        assert_eq!(self.try_send(datagram).expect("send a datagram"), datagram.len());
    }

    /// The same where that may fail.
    pub(crate) fn try_send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.socket.send_to(datagram, self.tracker)
    }

    /// The next datagram, which must come from the tracker's address and port; `None` after the
    /// read time-out.
    pub(crate) fn next_datagram(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 65_535];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    assert_eq!(from, self.tracker, "it comes from the address of the request");
                    return Some(buffer[..len].to_vec());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                // The host was suspended.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Receives the next datagram.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let reply = self.next_datagram();
        reply.unwrap_or_else(|| panic!("{} does not reply to {}", self.tracker, self.address()))
    }

    /// Whether an unread datagram has arrived.
    pub(crate) fn has_datagram(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let arrived = self.next_datagram().is_some();
        self.socket.set_nonblocking(false).unwrap();
        arrived
    }

    /// Sends a request and returns the reply with its transaction id; other datagrams are skipped,
    /// unless the client is [`strict`](Self::strict).
    pub(crate) fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.send(request);
            while let Some(reply) = self.next_datagram() {
                assert!(reply.len() >= 8, "a reply has a transaction id: {reply:02x?}");
                if reply[4..8] == request[12..16] {
                    return reply;
                }
                assert!(!self.strict, "the request's transaction id: {reply:02x?}");
            }
            let waits = Instant::now() < deadline;
            assert!(waits, "{} does not reply to {}", self.tracker, self.address());
        }
    }

    /// Asserts that a connect gets no reply, and that `refused` counts it.
    #[track_caller]
    pub(crate) fn assert_blocked(&self, refused: impl Fn() -> u64) {
        let before = refused();
        self.send(&packets::connect(transaction()));
        eventually("the connect is counted", || refused() > before);
        assert!(!self.has_datagram());
    }

    /// Connects, stores the connection id and returns it.
    pub(crate) fn connect(&mut self) -> u64 {
        let reply = self.exchange(&packets::connect(transaction()));
        assert_eq!((reply.len(), packets::u32_at(&reply, 0)), (16, 0), "a connect response");
        self.id = packets::u64_at(&reply, 8);
        self.id
    }

    /// The same client with a connection id.
    pub(crate) fn connected(mut self) -> Self {
        self.connect();
        self
    }

    /// The same client with a connection id, from a tracker that may not listen yet.
    pub(crate) fn connected_later(self) -> Self {
        self.repeat_after(Duration::from_millis(20));
        let client = self.connected();
        client.repeat_after(TIMEOUT);
        client
    }

    /// Announces with the client's connection id.
    pub(crate) fn announce(&self, request: &Announce) -> AnnounceReply {
        AnnounceReply::read(&self.exchange(&request.bytes(self.id, transaction())), self.family())
    }

    /// Announces with the client's connection id, and returns the text of the error reply.
    pub(crate) fn announce_refused(&self, request: &Announce) -> String {
        packets::error_text(&self.exchange(&request.bytes(self.id, transaction())))
    }

    /// Sends one announce of a seeder to each of these swarms without waiting in between, then
    /// waits for all replies. So few announces fit in a receive buffer.
    pub(crate) fn burst(&self, hashes: &[InfoHash]) {
        let mut waiting = Vec::new();
        for hash in hashes {
            waiting.push(transaction());
            self.send(&seeder(*hash, 4_001).bytes(self.id, waiting[waiting.len() - 1]));
        }
        while !waiting.is_empty() {
            let reply = self.receive();
            assert_eq!(packets::u32_at(&reply, 0), 1, "an announce response: {reply:02x?}");
            waiting.retain(|id| *id != packets::u32_at(&reply, 4));
        }
    }

    /// Scrapes with the client's connection id.
    pub(crate) fn scrape(&self, hashes: &[InfoHash]) -> Vec<ScrapeCounts> {
        packets::counts(&self.exchange(&packets::scrape(self.id, transaction(), hashes)))
    }

    /// Scrapes one swarm.
    pub(crate) fn counts(&self, hash: InfoHash) -> ScrapeCounts {
        match self.scrape(&[hash])[..] {
            [counts] => counts,
            ref other => panic!("one entry for one hash: {other:?}"),
        }
    }

    /// Connects, then calls [`check_swarm`](Self::check_swarm).
    pub(crate) fn connect_and_check(&mut self) {
        self.connect();
        self.check_swarm();
    }

    /// Announces a seeder and a leecher of a new swarm and scrapes it, with the current connection
    /// id, and checks the replies.
    pub(crate) fn check_swarm(&self) {
        let hash = random_hash();
        let alone = self.announce(&seeder(hash, 4_001));
        assert_eq!((alone.counts(), alone.peers), ((1, 0), vec![]));
        let both = self.announce(&leecher(hash, 4_002));
        let first = SocketAddr::new(self.address().ip(), 4_001);
        assert_eq!((both.counts(), both.peers), ((1, 1), vec![first]));
        let counts = ScrapeCounts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(self.counts(hash), counts);
    }
}
