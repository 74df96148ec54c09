//! What the contract does not say: which way a datagram takes, counters, and queues that fail.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use onrush_net::bind::{BoundSocket, Buffers, bind_client};
use onrush_net::filter::{Check, Filter, Kind};
use onrush_net::raw::{Checksum, RawSender};
use onrush_net::socket::QueueCounts;
use onrush_net::xdp::{Backend, Mode, OpenError, Program, Queue, QueueOptions};
use onrush_net::{QueueId, Reply, Return, Socket, mio};

use crate::link::{DEVICE, Link, ip, options, until};

pub(crate) const RING: u32 = 64;

/// A server with one queue at one address, whose program is attached, and a client.
pub(crate) struct Pair {
    link: Link,
    pub(crate) program: Program,
    pub(crate) server: Backend,
    pub(crate) there: SocketAddr,
    client: mio::Backend,
    here: SocketAddr,
    /// What another owner needs: the UDP socket, and the queue.
    pub(crate) socket: BoundSocket,
    pub(crate) queue: (QueueId, Vec<OwnedFd>),
}

impl Pair {
    pub(crate) fn new(loopback: &str) -> Self {
        let link = Link::new(Mode::Native, 1);
        let there = SocketAddr::new(link.server_ip(loopback), 0);
        let socket = bind_client(there, Buffers::default()).unwrap().0;
        let there = socket.address();
        let program = link.program([there.port()]);
        let queues = link.open(RING, 32);
        let queue = queues[0].1.as_ref().unwrap();
        let queue = (queue.id(), queue.share().unwrap());
        let server = backend(&socket, queues, &program);
        let (client, here) = link.client(&[loopback.to_owned()]);
        Self { link, program, server, there, client, here: here[0], socket, queue }
    }

    pub(crate) fn counts(&mut self) -> QueueCounts {
        self.server.queues().next().unwrap().counts
    }

    pub(crate) fn ask(&mut self, payload: &[u8]) {
        let to = Return::to(self.there, 0);
        self.client.send([Reply { bytes: payload, to: &to }].into_iter());
    }

    /// Lets many more requests be answered than there are frames, none of which is lost. Returns
    /// the counters.
    pub(crate) fn use_all_frames(&mut self) -> QueueCounts {
        for _ in 0..40 {
            (0..32).for_each(|_| self.ask(b"request"));
            self.answer(32, b"reply");
            assert_eq!(self.replies(32).len(), 32);
        }
        let queue = self.server.queues().next().unwrap();
        assert_eq!((queue.frames, queue.waiting, queue.missing), (4 * RING, 0, 0));
        // Beside the fill ring and the last replies.
        assert!(queue.free >= 2 * RING - 32 - 32, "{queue:?}");
        queue.counts
    }

    /// Replies to each request until there have been `count`.
    pub(crate) fn answer(&mut self, count: usize, reply: &[u8]) {
        let mut answered = 0;
        until(|| {
            answered += answer(&mut self.server, reply);
            answered >= count
        });
        assert_eq!(answered, count);
    }

    /// Lets a request be answered with `len` bytes. Returns what the queue has received and sent.
    fn exchange(&mut self, len: usize) -> (u64, u64) {
        let before = self.counts();
        self.ask(b"request");
        self.answer(1, &vec![7; len]);
        assert_eq!(self.replies(1), [len]);
        let after = self.counts();
        (after.received - before.received, after.sent - before.sent)
    }

    /// Lengths of the next `count` replies, and of which the last one is from the server.
    pub(crate) fn replies(&mut self, count: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        let there = self.there;
        until(|| {
            for (bytes, slot) in self.client.receive(64).unwrap().iter() {
                assert_eq!(slot.source, there);
                lengths.push(bytes.len());
            }
            lengths.len() >= count
        });
        lengths
    }
}

/// A backend of a copy of this socket and these queues.
pub(crate) fn backend(
    socket: &BoundSocket,
    queues: Vec<(QueueOptions, Option<Queue>)>,
    program: &Program,
) -> Backend {
    let socket = socket.try_clone().unwrap();
    let sockets = mio::Backend::new(vec![socket], mio::Options::default()).unwrap();
    Backend::new(sockets, queues, program.sockets().unwrap()).unwrap()
}

/// Replies to the requests of a batch; returns their number.
fn answer(server: &mut Backend, reply: &[u8]) -> usize {
    let tokens: Vec<_> =
        server.receive(64).unwrap().iter().map(|(_, slot)| slot.reply_to).collect();
    let sent = server.send(tokens.iter().map(|to| Reply { bytes: reply, to }));
    assert_eq!(sent.datagrams, tokens.len() as u64);
    tokens.len()
}

#[test]
fn replies_that_fit_leave_by_the_queue_and_others_by_the_socket() {
    for (loopback, longest) in [("127.0.0.1", 1472), ("::1", 1232)] {
        let mut pair = Pair::new(loopback);
        for (len, by_queue) in [(10, 1), (548, 1), (549, 1), (longest, 1), (longest + 1, 0)] {
            assert_eq!(pair.exchange(len), (1, by_queue));
        }
    }
}

/// The MTU is that of the device, whatever its name is.
#[test]
fn a_queue_whose_device_is_renamed_serves() {
    let mut pair = Pair::new("127.0.0.1");
    ip(&format!("link set {DEVICE} name onrush2"));
    ip("link set onrush2 mtu 1400");
    pair.server.dropped();
    assert_eq!((pair.exchange(1372), pair.exchange(1373)), ((1, 1), (1, 0)));
    assert_eq!(pair.counts().failures, 0);
}

/// Before that they leave by the UDP socket.
#[test]
fn a_datagram_of_a_peer_shows_a_client_where_requests_go() {
    for loopback in ["127.0.0.1", "::1"] {
        let mut pair = Pair::new(loopback);
        pair.server = pair.server.with_peers(&[pair.here]);
        let to = Return::to(pair.here, 0);
        for by_queue in [0, 1] {
            let sent = pair.server.send([Reply { bytes: b"request", to: &to }].into_iter());
            assert_eq!(sent.datagrams, 1);
            assert_eq!((pair.replies(1), pair.counts().sent), (vec![7], by_queue));
            pair.ask(b"reply");
            until(|| !pair.server.receive(64).unwrap().is_empty());
        }
    }
}

/// In copy mode one call sends 32 frames.
#[test]
fn more_replies_than_one_call_sends_are_sent() {
    let mut pair = Pair::new("127.0.0.1");
    pair.ask(b"request");
    let mut token = None;
    until(|| {
        token = pair.server.receive(1).unwrap().iter().next().map(|(_, slot)| slot.reply_to);
        token.is_some()
    });
    let token = token.unwrap();
    for _ in 0..10 {
        let sent = pair.server.send((0..150).map(|_| Reply { bytes: b"reply", to: &token }));
        assert_eq!((sent.datagrams, sent.unsent), (150, 0));
        assert!((1..20).contains(&sent.calls), "{sent:?}");
        assert_eq!(pair.replies(150).len(), 150);
    }
    assert_eq!(pair.counts().sent, 1500);
}

/// After many frames that are dropped here or by the kernel, all frames still receive and send.
#[test]
fn frames_with_wrong_checksums_are_dropped_and_no_frame_is_lost() {
    const ROUNDS: u64 = 400;
    for loopback in ["127.0.0.1", "::1"] {
        let mut pair = Pair::new(loopback);
        let (here, there) = (pair.here, pair.there);
        let mut wrong = pair.link.in_the_clients_namespace(|| RawSender::open(there, 50).unwrap());
        for round in 0..ROUNDS {
            for number in 0..50 {
                wrong.push(here, &[7; 100][..2 * number], Checksum::Wrong);
            }
            assert_eq!(wrong.send().datagrams, 50);
            // The rings run full in some rounds.
            if round % 4 == 3 {
                assert!(pair.server.receive(64).unwrap().is_empty());
            }
        }
        until(|| {
            assert!(pair.server.receive(64).unwrap().is_empty());
            let counts = pair.counts();
            counts.checksum + counts.full == 50 * ROUNDS
        });
        let counts = pair.counts();
        assert!(counts.checksum > 1000 && counts.full > 1000, "{counts:?}");
        assert_eq!((counts.received, counts.invalid, counts.unserved), (0, 0, 0));
        let dropped = pair.server.dropped();
        assert_eq!((dropped.checksum, dropped.full_buffer), (counts.checksum, counts.full));
        let after = pair.use_all_frames();
        assert_eq!((after.sent, after.full), (1280, counts.full));
    }
}

#[test]
fn the_filter_holds_for_frames_and_those_to_other_addresses_are_dropped() {
    let mut pair = Pair::new("127.0.0.1");
    let kind = |value| Kind { value, min_len: 8, check: Check::Head([1, value]) };
    let filter = Filter { kind_at: 4, kinds: [kind(2), kind(3), kind(4)] };
    pair.server.set_filter(Some(&filter)).unwrap();
    pair.ask(&[0, 0, 0, 1, 0, 0, 0, 9]);
    pair.ask(&[0, 0, 0, 1, 0, 0, 0, 3]);
    pair.answer(1, b"reply");
    assert_eq!((pair.counts().filter, pair.server.dropped().filter), (1, 1));
    pair.server.set_filter(None).unwrap();
    pair.there.set_ip(pair.link.server_ip("127.0.0.2"));
    pair.ask(b"request");
    until(|| {
        assert_eq!(answer(&mut pair.server, b"reply"), 0);
        pair.counts().unserved == 1
    });
}

/// The worker goes on with its sockets, also on a device that is created later: that lacks the
/// program.
#[test]
fn a_queue_whose_device_was_deleted_is_closed() {
    let mut pair = Pair::new("127.0.0.1");
    assert_eq!(pair.exchange(5), (1, 1));
    ip(&format!("link delete {DEVICE}"));
    until(|| {
        pair.server.dropped();
        pair.server.wait(Duration::from_millis(1)).unwrap();
        !pair.server.queues().next().unwrap().is_open
    });
    assert_eq!(pair.counts().failures, 1);
    pair.link.create();
    pair.client = pair.link.client(&["127.0.0.1".to_owned()]).0;
    pair.server.dropped();
    assert_eq!(pair.exchange(5), (0, 0));
    assert!(!pair.server.queues().next().unwrap().is_open);
}

#[test]
fn a_queue_that_cannot_be_opened_is_named() {
    let _link = Link::new(Mode::Native, 1);
    let open = |options| Queue::open(options, Duration::ZERO);
    let options = |queue| options(queue, RING, 32);
    let error = open(QueueOptions { interface: "onrush9".to_owned(), ..options(0) }).unwrap_err();
    assert!(matches!(&error, OpenError::NoInterface(name) if name == "onrush9"), "{error:?}");
    let error = open(options(1)).unwrap_err();
    assert!(matches!(error, OpenError::NoQueue(..)), "{error:?}");
    let error = open(QueueOptions { zero_copy: true, ..options(0) }).unwrap_err();
    assert!(matches!(error, OpenError::NoZeroCopy(..)), "{error:?}");
    let first = open(options(0)).unwrap();
    let error = open(options(0)).unwrap_err();
    assert!(matches!(error, OpenError::Busy(..)), "{error:?}");
    // Its release takes the kernel a while.
    drop(first);
    Queue::open(options(0), Duration::from_secs(5)).unwrap();
}
