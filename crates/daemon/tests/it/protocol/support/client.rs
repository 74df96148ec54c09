//! A client: a UDP socket that sends requests and checks the replies.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use onrush_proto::Family;

use super::packets::{self, Announce, AnnounceReply, Counts};
use super::tracker::{RunningTracker, TIMEOUT};

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
    /// The tracker's address.
    tracker: SocketAddr,
    /// The connection id of the last connect; 0 before the first.
    pub(crate) id: u64,
}

impl Client {
    /// A client at `ip` and a free port, for the tracker at `tracker`.
    pub(crate) fn new(ip: IpAddr, tracker: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).unwrap_or_else(|error| panic!("{ip}: {error}"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("set the timeout");
        Self { socket, tracker, id: 0 }
    }

    /// The same client with a connection id from elsewhere.
    pub(crate) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// The client's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("a bound socket")
    }

    /// The address family of the client.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.tracker.ip())
    }

    /// Sends a datagram.
    pub(crate) fn send(&self, datagram: &[u8]) {
        let sent = self.socket.send_to(datagram, self.tracker).expect("send a datagram");
        assert_eq!(sent, datagram.len());
    }

    /// Receives the next datagram, which must come from the tracker's address and port.
    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 65_535];
        let (len, from) = self.socket.recv_from(&mut buffer).unwrap_or_else(|error| {
            panic!("no reply from {} within {TIMEOUT:?}: {error}", self.tracker)
        });
        assert_eq!(from, self.tracker, "the reply comes from the address of the request");
        buffer[..len].to_vec()
    }

    /// Whether no unread datagram has arrived.
    pub(crate) fn has_no_datagram(&self) -> bool {
        self.socket.set_nonblocking(true).expect("set the mode");
        let result = self.socket.recv_from(&mut [0; 65_535]);
        self.socket.set_nonblocking(false).expect("set the mode");
        match result {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a request and returns its reply: the next datagram, which must have the request's
    /// transaction id.
    pub(crate) fn exchange(&self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        let reply = self.receive();
        assert!(reply.len() >= 8, "a reply has an action and a transaction id: {reply:02x?}");
        assert_eq!(reply[4..8], request[12..16], "the request's transaction id");
        reply
    }

    /// Connects, stores the connection id and returns it.
    pub(crate) fn connect(&mut self) -> u64 {
        let reply = self.exchange(&packets::connect(transaction()));
        assert_eq!((reply.len(), packets::u32_at(&reply, 0)), (16, 0), "a connect response");
        self.id = packets::u64_at(&reply, 8);
        self.id
    }

    /// Announces with the client's connection id.
    pub(crate) fn announce(&self, request: &Announce) -> AnnounceReply {
        AnnounceReply::read(&self.exchange(&request.bytes(self.id, transaction())), self.family())
    }

    /// Announces with the client's connection id, and returns the text of the error reply.
    pub(crate) fn announce_refused(&self, request: &Announce) -> String {
        packets::error_text(&self.exchange(&request.bytes(self.id, transaction())))
    }

    /// Scrapes with the client's connection id.
    pub(crate) fn scrape(&self, hashes: &[[u8; 20]]) -> Vec<Counts> {
        packets::counts(&self.exchange(&packets::scrape(self.id, transaction(), hashes)))
    }

    /// Scrapes one swarm.
    pub(crate) fn counts(&self, hash: [u8; 20]) -> Counts {
        match self.scrape(&[hash])[..] {
            [counts] => counts,
            ref other => panic!("one entry for one hash: {other:?}"),
        }
    }

    /// Sends a datagram and returns the replies to it, without waiting for a time-out: requests
    /// that take the same path follow, and once they have replies the datagram has been processed.
    /// The client must be connected.
    pub(crate) fn replies_to(&self, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.send(datagram);
        let mut waiting = vec![transaction()];
        // From the same socket and without an info hash: the same path through the kernel.
        self.send(&packets::connect(waiting[0]));
        if let Some(hash) = datagram.get(16..36) {
            // With the same bytes at the place of the info hash: the same worker where the kernel
            // steers, and the same shard.
            waiting.push(transaction());
            let hash = hash.try_into().expect("20 bytes");
            self.send(&packets::scrape(self.id, waiting[1], &[hash]));
        }
        let mut replies = Vec::new();
        while !waiting.is_empty() {
            let reply = self.receive();
            let before = waiting.len();
            waiting.retain(|id| reply.get(4..8) != Some(&id.to_be_bytes()[..]));
            if waiting.len() == before {
                replies.push(reply);
            }
        }
        replies
    }

    /// Asserts that a datagram gets no reply and is counted once, for this reason and the client's
    /// family only. The client must be connected.
    pub(crate) fn assert_ignored(
        &self,
        tracker: &RunningTracker,
        datagram: &[u8],
        reason: &'static str,
    ) {
        let family = self.family();
        let before = tracker.refused(family);
        let replies = self.replies_to(datagram);
        assert!(replies.is_empty(), "{}: unexpected reply {replies:02x?}", reason);
        let mut expected = before.clone();
        *expected.entry(reason).or_default() += 1;
        tracker.until(&format!("{} is counted", reason), || tracker.refused(family) != before);
        assert_eq!(tracker.refused(family), expected, "counted once, as {}", reason);
    }
}
