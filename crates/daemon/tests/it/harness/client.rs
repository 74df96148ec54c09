//! A client that sends one request at a time and checks each reply.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::options::Options;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, Scrape,
    ScrapeCounts, TransactionId, announce, connect,
};

/// How long a client repeats a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_secs(5);

/// One client at one address.
pub(crate) struct Client {
    socket: UdpSocket,
    tracker: SocketAddr,
    /// From its last connect; 0 before.
    pub(crate) id: ConnectionId,
}

/// The fields of an announce that tests choose, except the info hash.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) port: u16,
    pub(crate) left: u64,
    pub(crate) event: Event,
    pub(crate) want: i32,
}

/// A seeder at this port.
pub(crate) fn seeder(port: u16) -> Ask {
    Ask { port, left: 0, event: Event::Started, want: 50 }
}

/// A leecher at this port.
pub(crate) fn leecher(port: u16) -> Ask {
    Ask { port, left: 1, event: Event::Started, want: 50 }
}

/// The reply to an announce.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) seeders: u32,
    pub(crate) leechers: u32,
    pub(crate) peers: Vec<SocketAddr>,
}

/// A random info hash.
pub(crate) fn fresh_hash() -> InfoHash {
    InfoHash(rand::random())
}

impl Client {
    /// From the loopback address of the tracker's family.
    pub(crate) fn new(tracker: SocketAddr) -> Self {
        match tracker {
            SocketAddr::V4(_) => Self::at(Ipv4Addr::LOCALHOST.into(), tracker),
            SocketAddr::V6(_) => Self::at(Ipv6Addr::LOCALHOST.into(), tracker),
        }
    }

    /// From this address, at a free port.
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
    pub(crate) fn has_answer(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let came = self.socket.recv_from(&mut [0; 2048]).is_ok();
        self.socket.set_nonblocking(false).unwrap();
        came
    }

    /// Sends a connect; the connection id.
    pub(crate) fn connect(&mut self) -> ConnectionId {
        let transaction_id = TransactionId(rand::random());
        let mut bytes = [0; connect::REQUEST_LEN];
        Connect { transaction_id }.write(&mut bytes);
        self.id = self.exchange(&bytes, transaction_id, |response| match response {
            Response::Connect(response) => response.connection_id,
            other => panic!("to a connect: {other:?}"),
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
    pub(crate) fn announce(&self, info_hash: InfoHash, ask: Ask) -> Announced {
        let (bytes, transaction_id) = self.announcement(info_hash, ask);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Announce(head, peers) => Announced {
                seeders: head.seeders,
                leechers: head.leechers,
                peers: peers.iter().map(|peer| (peer.ip(), peer.port()).into()).collect(),
            },
            other => panic!("to an announce: {other:?}"),
        })
    }

    /// Announces; the interval of the reply, seconds.
    pub(crate) fn interval(&self, info_hash: InfoHash, ask: Ask) -> u32 {
        let (bytes, transaction_id) = self.announcement(info_hash, ask);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Announce(head, _) => head.interval,
            other => panic!("to an announce: {other:?}"),
        })
    }

    /// Announces; the text of the error reply.
    pub(crate) fn announce_refused(&self, info_hash: InfoHash, ask: Ask) -> String {
        let (bytes, transaction_id) = self.announcement(info_hash, ask);
        self.exchange(&bytes, transaction_id, |response| match response {
            Response::Error(_, text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("no error: {other:?}"),
        })
    }

    /// The bytes of an announce.
    pub(crate) fn announcement(&self, info_hash: InfoHash, ask: Ask) -> (Vec<u8>, TransactionId) {
        let transaction_id = TransactionId(rand::random());
        let announce = Announce {
            connection_id: self.id,
            transaction_id,
            info_hash,
            peer_id: PeerId([b'-'; 20]),
            downloaded: 0,
            left: ask.left,
            uploaded: 0,
            event: ask.event,
            ip: 0,
            key: 0,
            num_want: ask.want,
            port: ask.port,
            options: Options(&[]),
        };
        let mut bytes = vec![0; announce::REQUEST_LEN];
        announce.write(&mut bytes);
        (bytes, transaction_id)
    }

    /// Announces to each of these swarms once, all at the same time; the number of replies within
    /// `patience`.
    pub(crate) fn burst(&self, hashes: &[InfoHash], ask: Ask, patience: Duration) -> usize {
        let mut waiting: Vec<TransactionId> = Vec::new();
        for hash in hashes {
            let (bytes, transaction_id) = self.announcement(*hash, ask);
            self.send(&bytes);
            waiting.push(transaction_id);
        }
        let deadline = Instant::now() + patience;
        let mut buffer = [0; 2048];
        while !waiting.is_empty() && Instant::now() < deadline {
            let Ok((len, _)) = self.socket.recv_from(&mut buffer) else { continue };
            let family = Family::of(self.tracker.ip());
            match Response::parse(&buffer[..len], family).unwrap() {
                response @ Response::Announce(..) => {
                    waiting.retain(|it| *it != response.transaction_id());
                }
                other => panic!("to an announce: {other:?}"),
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
            other => panic!("to a scrape: {other:?}"),
        })
    }

    /// Connects, then [`meet`](Self::meet)s.
    pub(crate) fn converse(&mut self) {
        self.connect();
        self.meet();
    }

    /// Announces a seeder and a leecher of a new swarm, and scrapes it, with the current connection
    /// id.
    pub(crate) fn meet(&self) {
        let hash = fresh_hash();
        let alone = self.announce(hash, seeder(4_001));
        assert_eq!(alone, Announced { seeders: 1, leechers: 0, peers: vec![] });
        let both = self.announce(hash, leecher(4_002));
        let first = SocketAddr::new(self.address().ip(), 4_001);
        assert_eq!(both, Announced { seeders: 1, leechers: 1, peers: vec![first] });
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
                // A reply to an earlier attempt is skipped.
                if response.transaction_id() == transaction_id {
                    assert_eq!(from, self.tracker, "the answer comes from elsewhere");
                    return read(response);
                }
            }
        }
        panic!("{} does not answer {}", self.tracker, self.address());
    }
}
