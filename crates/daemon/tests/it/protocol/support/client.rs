//! One client: a UDP socket that asks and checks what it hears.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use onrush_proto::Family;

use super::packets::{self, Announced, Ask, Counts};
use super::served::{Served, TIMEOUT};

/// The next transaction id of anybody: never twice the same, so that no reply is taken for
/// another's.
static TRANSACTIONS: AtomicU32 = AtomicU32::new(0x5EED_0000);

/// A transaction id that nobody else has.
pub(crate) fn transaction() -> u32 {
    TRANSACTIONS.fetch_add(1, Ordering::Relaxed)
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Bound to the client's address, not connected: it hears every sender.
    socket: UdpSocket,
    /// Where the tracker is.
    tracker: SocketAddr,
    /// From the last connect; 0 before.
    pub(crate) id: u64,
}

impl Client {
    /// A client at `ip` on a port of its own that asks `tracker`.
    pub(crate) fn new(ip: IpAddr, tracker: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap_or_else(|error| panic!("{ip}: {error}"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Self { socket, tracker, id: 0 }
    }

    /// The same client under an id that it got elsewhere.
    pub(crate) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// The client's own address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket")
    }

    /// The family that it speaks.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.tracker.ip())
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, datagram: &[u8]) {
        let sent = self.socket.send_to(datagram, self.tracker).expect("a datagram goes out");
        assert_eq!(sent, datagram.len());
    }

    /// The next datagram, which must come from the very address and port that were asked.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 65_535];
        let (len, from) = self.socket.recv_from(&mut buffer).unwrap_or_else(|error| {
            panic!("no reply from {} within {TIMEOUT:?}: {error}", self.tracker)
        });
        assert_eq!(from, self.tracker, "a reply leaves from where the request went to");
        buffer[..len].to_vec()
    }

    /// Whether nothing has arrived that was not received.
    pub(crate) fn has_heard_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).expect("a mode");
        let result = self.socket.recv_from(&mut [0; 65_535]);
        self.socket.set_nonblocking(false).expect("a mode");
        match result {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a request and returns its reply: the next datagram, with the request's transaction
    /// id.
    pub(crate) fn ask(&self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        let reply = self.receive();
        assert!(reply.len() >= 8, "a reply has an action and a transaction id: {reply:02x?}");
        assert_eq!(reply[4..8], request[12..16], "the transaction id comes back");
        reply
    }

    /// Connects; keeps the id and returns it.
    pub(crate) fn connect(&mut self) -> u64 {
        let reply = self.ask(&packets::connect(transaction()));
        assert_eq!((reply.len(), packets::u32_at(&reply, 0)), (16, 0), "a connect response");
        self.id = packets::u64_at(&reply, 8);
        self.id
    }

    /// Announces under the client's id.
    pub(crate) fn announce(&self, ask: &Ask) -> Announced {
        Announced::read(&self.ask(&ask.bytes(self.id, transaction())), self.family())
    }

    /// Announces something that is refused with an error, and returns its text.
    pub(crate) fn announce_refused(&self, ask: &Ask) -> String {
        packets::error_text(&self.ask(&ask.bytes(self.id, transaction())))
    }

    /// Scrapes under the client's id.
    pub(crate) fn scrape(&self, hashes: &[[u8; 20]]) -> Vec<Counts> {
        packets::counts(&self.ask(&packets::scrape(self.id, transaction(), hashes)))
    }

    /// Scrapes one swarm.
    pub(crate) fn counts(&self, hash: [u8; 20]) -> Counts {
        match self.scrape(&[hash])[..] {
            [counts] => counts,
            ref other => panic!("one entry for one hash: {other:?}"),
        }
    }

    /// Sends a datagram, and returns what was heard of it. Waits for no time to pass: requests
    /// are sent after it that take the same way, and once they are answered it is dealt with. The
    /// client must be connected.
    pub(crate) fn heard_of(&self, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.send(datagram);
        let mut waiting = vec![transaction()];
        // From one socket and without an info hash: the same way through the kernel.
        self.send(&packets::connect(waiting[0]));
        if let Some(hash) = datagram.get(16..36) {
            // With the same bytes in the place of the info hash: the same worker where the kernel
            // steers, and the same shard.
            waiting.push(transaction());
            let hash = hash.try_into().expect("20 bytes");
            self.send(&packets::scrape(self.id, waiting[1], &[hash]));
        }
        let mut heard = Vec::new();
        while !waiting.is_empty() {
            let reply = self.receive();
            let before = waiting.len();
            waiting.retain(|id| reply.get(4..8) != Some(&id.to_be_bytes()[..]));
            if waiting.len() == before {
                heard.push(reply);
            }
        }
        heard
    }

    /// Sends a datagram that must be met with silence, and counted once for this reason, under
    /// the client's family, and for no other. The client must be connected.
    pub(crate) fn is_ignored(&self, served: &Served, datagram: &[u8], reason: &'static str) {
        let family = self.family();
        let before = served.refused(family);
        let heard = self.heard_of(datagram);
        assert!(heard.is_empty(), "{} must be silence, not {heard:02x?}", reason);
        let mut expected = before.clone();
        *expected.entry(reason).or_default() += 1;
        served.until(&format!("{} is counted", reason), || served.refused(family) != before);
        assert_eq!(served.refused(family), expected, "counted once, as {}", reason);
    }
}
