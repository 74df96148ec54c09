//! Anything else: what is met with silence, and that nothing is lost unseen.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use onrush_proto::Family;
use socket2::{Domain, Protocol, Socket, Type};

use super::LOOPBACK;
use super::support::client::transaction;
use super::support::network::alone_on_a_network;
use super::support::packets::{Ask, MAGIC, connect, hash, head, scrape};
use super::support::served::{Plan, both};

/// Anything else: an unknown action is met with silence, and counted: whatever its length, and
/// with a good id too. Responses sent to the tracker are among these.
#[test]
fn an_unknown_action_is_ignored() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for action in [3, 4, 5, 255, 256, 0x0100_0000, 0x8000_0001, u32::MAX] {
                for id in [client.id, 0, MAGIC] {
                    for len in [16, 36, 98, 1_400] {
                        let mut request = head(id, action, transaction());
                        request.resize(len, 0x5A);
                        client.is_ignored(tracker, &request, "action");
                    }
                }
            }
        }
    });
}

/// Anything else: a short packet is met with silence, and counted: of any action, and with a good
/// id. (Announces up to 97 bytes are shown beside the others.)
#[test]
fn a_short_packet_is_ignored() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for action in [0, 1, 2, 3, u32::MAX] {
                for len in 0..16 {
                    let request = head(client.id, action, transaction());
                    client.is_ignored(tracker, &request[..len], "short");
                }
            }
        }
    });
}

/// Anything else: source port 0 is met with silence, and counted: nothing can be sent there. Takes
/// a raw socket, and so root.
#[test]
fn source_port_0_is_ignored() {
    // Raw sockets need rights over the network: one of the test's own.
    alone_on_a_network(&[""; 0], || {
        both("", |tracker| {
            for source in LOOPBACK {
                let client = tracker.client(source);
                let raw = RawUdp::open(source.parse().unwrap(), client.family());
                let tracker_at = tracker.address_for(source.parse().unwrap());
                // From a port that exists the same datagram is answered: the header is right.
                raw.send(client.address().port(), tracker_at, &connect(7));
                assert_eq!(client.receive()[..8], [0, 0, 0, 0, 0, 0, 0, 7]);

                tracker.until_all_have_turned();
                let before = (tracker.refused(client.family()), tracker.summary());
                raw.send(0, tracker_at, &connect(transaction()));
                raw.send(0, tracker_at, &Ask::leecher(hash(1), 5000).bytes(client.id, 1));
                raw.send(0, tracker_at, &scrape(client.id, 1, &[hash(1)]));
                raw.send(0, tracker_at, &[]);
                let mut expected = before.0;
                *expected.entry("source_port").or_default() += 4;
                tracker.until("all are counted", || tracker.refused(client.family()) == expected);
                tracker.until_all_have_turned();
                let after = tracker.summary();
                assert_eq!(after.sent, before.1.sent, "nothing was sent");
                assert_eq!(after.unsent(), before.1.unsent(), "nor tried");
                assert_eq!(client.counts(hash(1)), Default::default(), "nor stored");
            }
        });
    });
}

/// Announce: no reply to an unproven address is ever larger than the request. Every action, every
/// length, without a good id; only connects are answered at all.
#[test]
fn no_unproven_address_gets_more_than_it_sent() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let lengths = (0..=120).chain([200, 576, 1_232, 1_496, 1_500, 4_000]);
            for len in lengths {
                for action in [0, 1, 2, 3, 4, u32::MAX] {
                    for id in [0, MAGIC, client.id ^ 1, client.id.rotate_left(1)] {
                        let mut request = head(id, action, transaction());
                        request.resize(len, 0);
                        let heard = client.heard_of(&request);
                        let bytes: usize = heard.iter().map(Vec::len).sum();
                        assert!(bytes <= len, "{bytes} bytes for {len}: {request:02x?}");
                        let answered = len >= 16 && action == 0 && id == MAGIC;
                        assert_eq!(heard.len(), usize::from(answered), "{request:02x?}");
                    }
                }
            }
        }
    });
}

/// Anything else: every reason for silence has a name and a counter, so that nothing is lost
/// unseen: datagrams received are requests served and refusals by reason.
#[test]
fn every_datagram_is_in_a_counter() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let (good, bad) = (client.id, client.id ^ 1);
            let requests = [
                connect(transaction()),
                head(1, 0, transaction()),
                vec![],
                vec![0; 15],
                head(good, 9, transaction()),
                Ask::leecher(hash(1), 5000).bytes(good, transaction()),
                Ask::leecher(hash(1), 5000).bytes(bad, transaction()),
                Ask::leecher(hash(1), 0).bytes(good, transaction()),
                scrape(good, transaction(), &[hash(1)]),
                scrape(good, transaction(), &[]),
                scrape(bad, transaction(), &[]),
            ];
            for request in &requests {
                client.send(request);
            }
            let replies = 5;
            for _ in 0..replies {
                client.receive();
            }
            let family = client.family();
            let counted = |counter: fn(&onrush_tracker::metrics::Incoming) -> u64| {
                tracker.incoming(family, counter)
            };
            // The client's own connect was first.
            let sent = 1 + requests.len() as u64;
            tracker.until("all are received", || counted(|c| c.datagrams.get()) == sent);
            tracker.until_all_have_turned();
            let served = counted(|c| c.connects.get())
                + counted(|c| c.announces.get())
                + counted(|c| c.scrapes.get());
            let refused = tracker.refused(family);
            assert_eq!(served + refused.values().sum::<u64>(), sent);
            let expected = [
                ("short", 2),
                ("magic", 1),
                ("action", 1),
                ("connection_id", 2),
                ("port", 1),
                ("no_hash", 1),
            ];
            let counted_reasons: Vec<_> = refused.into_iter().filter(|(_, n)| *n > 0).collect();
            assert_eq!(BTreeMap::from_iter(counted_reasons), BTreeMap::from(expected));
            let bytes: usize = 16 + requests.iter().map(Vec::len).sum::<usize>();
            assert_eq!(counted(|c| c.bytes.get()), bytes as u64);
            assert!(client.has_heard_nothing());
        }
        // Two connects, and five replies to each.
        tracker.until("all replies are counted", || tracker.summary().sent == 2 * (1 + 5));
    });
}

/// The same for a request that there is no room for: silence, counted as busy, and the client may
/// ask again. Scrapes, of which only one may be under way here.
#[test]
fn a_request_without_room_is_counted() {
    for plan in Plan::both() {
        let tracker = plan.change(|settings| settings.limits.scrapes_in_flight = 1).start();
        let client = tracker.client("127.0.0.1");
        let hashes: Vec<_> = (0..74).map(hash).collect();
        let busy = || tracker.refused(Family::V4)["busy"];
        let scrapes = || tracker.incoming(Family::V4, |incoming| incoming.scrapes.get());
        let sent = Cell::new(0);
        tracker.until("a worker is busy", || {
            (0..32).for_each(|_| client.send(&scrape(client.id, transaction(), &hashes)));
            sent.set(sent.get() + 32);
            busy() > 0
        });
        tracker.until("every scrape is answered or counted", || {
            // The first reply was to the connect.
            let replies = 1 + sent.get() - busy();
            scrapes() == sent.get() && tracker.summary().sent == replies
        });
        let next = tracker.client("127.0.0.1").scrape(&hashes);
        assert_eq!(next.len(), 74, "the next one is served");
    }
}

/// Sends UDP datagrams with headers of its own.
struct RawUdp {
    socket: Socket,
    source: IpAddr,
}

impl RawUdp {
    fn open(source: IpAddr, family: Family) -> Self {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::RAW, Some(Protocol::UDP)).unwrap_or_else(|error| {
            panic!("raw socket (CAP_NET_RAW; scripts/test provides it): {error}")
        });
        socket.bind(&SocketAddr::new(source, 0).into()).expect("an address of this host");
        Self { socket, source }
    }

    fn send(&self, source_port: u16, to: SocketAddr, payload: &[u8]) {
        let len = u16::try_from(8 + payload.len()).unwrap();
        let mut datagram = source_port.to_be_bytes().to_vec();
        datagram.extend(to.port().to_be_bytes());
        datagram.extend(len.to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        let checksum = self.checksum(to.ip(), &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        // The port of a raw socket's address is the protocol's number, or 0.
        let to = SocketAddr::new(to.ip(), 0);
        let sent = self.socket.send_to(&datagram, &to.into()).expect("a raw datagram goes out");
        assert_eq!(sent, datagram.len());
    }

    /// RFC 768; RFC 8200, section 8.1: over addresses, length, protocol and the datagram. IPv6
    /// takes no datagram without it.
    fn checksum(&self, to: IpAddr, datagram: &[u8]) -> u16 {
        let mut bytes = Vec::new();
        for ip in [self.source, to] {
            match ip {
                IpAddr::V4(ip) => bytes.extend(ip.octets()),
                IpAddr::V6(ip) => bytes.extend(ip.octets()),
            }
        }
        bytes.extend((datagram.len() as u32).to_be_bytes());
        bytes.extend([0, 0, 0, 17]);
        bytes.extend(datagram);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum: u32 = words.sum();
        while sum > 0xFFFF {
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        match !(sum as u16) {
            0 => 0xFFFF, // 0 would say that there is none
            checksum => checksum,
        }
    }
}
