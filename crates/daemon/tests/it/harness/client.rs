//! A client that sends one request at a time and checks each reply.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::options::Options;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, Scrape,
    ScrapeCounts, TransactionId, announce, connect,
};

/// Deadline for the reply to a request, over all attempts.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two attempts.
const AGAIN: Duration = Duration::from_secs(5);

/// A UDP client with one socket.
pub(crate) struct Client {
    socket: UdpSocket,
    tracker: SocketAddr,
    /// The connection id of the last connect; 0 before the first.
    pub(crate) id: ConnectionId,
}

/// The fields of an announce that tests choose, except the info hash.
#[derive(Clone, Copy)]
pub(crate) struct AnnounceParams {
    pub(crate) port: u16,
    pub(crate) left: u64,
    pub(crate) event: Event,
    pub(crate) want: i32,
}

/// A seeder at `port`.
pub(crate) fn seeder(port: u16) -> AnnounceParams {
    AnnounceParams { port, left: 0, event: Event::Started, want: 50 }
}

/// A leecher at `port`.
pub(crate) fn leecher(port: u16) -> AnnounceParams {
    AnnounceParams { port, left: 1, event: Event::Started, want: 50 }
}

/// The reply to an announce.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AnnounceReply {
    pub(crate) seeders: u32,
    pub(crate) leechers: u32,
    pub(crate) peers: Vec<SocketAddr>,
}

/// A random info hash.
pub(crate) fn random_hash() -> InfoHash {
    InfoHash(rand::random())
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
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.set_read_timeout(Some(AGAIN)).unwrap();
        Self { socket, tracker, id: ConnectionId(0) }
    }

    /// The client's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// The tracker's address.
    pub(crate) fn tracker(&self) -> SocketAddr {
        self.tracker
    }

    /// Sends bytes without waiting for a reply.
    pub(crate) fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.tracker).unwrap();
    }

    /// Whether an unread datagram has arrived.
    pub(crate) fn has_reply(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let came = self.socket.recv_from(&mut [0; 2048]).is_ok();
        self.socket.set_nonblocking(false).unwrap();
        came
    }

    /// Sends a connect and returns the connection id.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        let transaction_id = TransactionId(rand::random());
        let mut bytes = [0; connect::REQUEST_LEN];
        Connect { transaction_id }.write(&mut bytes);
        self.id = self.exchange(&bytes, transaction_id, |response| match response {
            Response::Connect(response) => response.connection_id,
            other => panic!("reply to a connect: {other:?}"),
        });
        self.id
    }

    /// Connects to a tracker that may not listen yet.
    pub(crate) fn await_tracker(&mut self) {
        self.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        self.connect();
        self.socket.set_read_timeout(Some(AGAIN)).unwrap();
    }

    /// Announces with the last connection id.
    pub(crate) fn announce(&self, info_hash: InfoHash, params: AnnounceParams) -> AnnounceReply {
        let (bytes, transaction_id) = self.announce_datagram(info_hash, params);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Announce(head, peers) => AnnounceReply {
                seeders: head.seeders,
                leechers: head.leechers,
                peers: peers.iter().map(|peer| (peer.ip(), peer.port()).into()).collect(),
            },
            other => panic!("reply to an announce: {other:?}"),
        })
    }

    /// Announces and returns the interval of the reply in seconds.
    pub(crate) fn interval(&self, info_hash: InfoHash, params: AnnounceParams) -> u32 {
        let (bytes, transaction_id) = self.announce_datagram(info_hash, params);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Announce(head, _) => head.interval,
            other => panic!("reply to an announce: {other:?}"),
        })
    }

    /// Announces and returns the text of the error reply.
    pub(crate) fn announce_refused(&self, info_hash: InfoHash, params: AnnounceParams) -> String {
        let (bytes, transaction_id) = self.announce_datagram(info_hash, params);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Error(_, text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("not an error reply: {other:?}"),
        })
    }

    /// An announce as a datagram, and its transaction id.
    pub(crate) fn announce_datagram(
        &self,
        info_hash: InfoHash,
        params: AnnounceParams,
    ) -> (Vec<u8>, TransactionId) {
        let transaction_id = TransactionId(rand::random());
        let announce = Announce {
            connection_id: self.id,
            transaction_id,
            info_hash,
            peer_id: PeerId([b'-'; 20]),
            downloaded: 0,
            left: params.left,
            uploaded: 0,
            event: params.event,
            ip: 0,
            key: 0,
            num_want: params.want,
            port: params.port,
            options: Options(&[]),
        };
        let mut bytes = vec![0; announce::REQUEST_LEN];
        announce.write(&mut bytes);
        (bytes, transaction_id)
    }

    /// Sends one announce to each of these swarms without waiting in between, and returns the
    /// number of replies within `timeout`.
    pub(crate) fn burst(
        &self,
        hashes: &[InfoHash],
        params: AnnounceParams,
        timeout: Duration,
    ) -> usize {
        let mut waiting: Vec<TransactionId> = Vec::new();
        for hash in hashes {
            let (bytes, transaction_id) = self.announce_datagram(*hash, params);
            self.send(&bytes);
            waiting.push(transaction_id);
        }
        let deadline = Instant::now() + timeout;
        let mut buffer = [0; 2048];
        while !waiting.is_empty() && Instant::now() < deadline {
            let Ok((len, _)) = self.socket.recv_from(&mut buffer) else { continue };
            let family = Family::of(self.tracker.ip());
            match Response::parse(&buffer[..len], family).unwrap() {
                response @ Response::Announce(..) => {
                    waiting.retain(|it| *it != response.transaction_id());
                }
                other => panic!("reply to an announce: {other:?}"),
            }
        }
        hashes.len() - waiting.len()
    }

    /// Scrapes with the last connection id.
    pub(crate) fn scrape(&self, hashes: &[InfoHash]) -> Vec<ScrapeCounts> {
        let transaction_id = TransactionId(rand::random());
        let mut bytes = vec![0; 16 + 20 * hashes.len()];
        Scrape::write(self.id, transaction_id, hashes, &mut bytes);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Scrape(_, counts) => counts.iter().collect(),
            other => panic!("reply to a scrape: {other:?}"),
        })
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
        let first_reply = self.announce(hash, seeder(4_001));
        assert_eq!(first_reply, AnnounceReply { seeders: 1, leechers: 0, peers: vec![] });
        let both = self.announce(hash, leecher(4_002));
        let first = SocketAddr::new(self.address().ip(), 4_001);
        assert_eq!(both, AnnounceReply { seeders: 1, leechers: 1, peers: vec![first] });
        let counts = ScrapeCounts { seeders: 1, completed: 0, leechers: 1 };
        assert_eq!(self.scrape(&[hash]), [counts]);
    }

    /// Repeats a request until a reply with its transaction id arrives.
    fn exchange<T>(
        &self,
        request: &[u8],
        transaction_id: TransactionId,
        read: impl Fn(Response<'_>) -> T,
    ) -> T {
        let deadline = Instant::now() + TIMEOUT;
        let mut buffer = [0; 2048];
        while Instant::now() < deadline {
            self.send(request);
            loop {
                let (len, from) = match self.socket.recv_from(&mut buffer) {
                    Ok(received) => received,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                };
                let family = Family::of(self.tracker.ip());
                let response = Response::parse(&buffer[..len], family).unwrap();
                // Replies to earlier attempts are skipped.
                if response.transaction_id() == transaction_id {
                    assert_eq!(from, self.tracker, "the reply comes from another address");
                    return read(response);
                }
            }
        }
        panic!("{} does not reply to {}", self.tracker, self.address());
    }
}
