//! Anything else: requests that get no reply, and the counters of all datagrams.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use onrush_proto::Family;
use onrush_proto::connect::MAGIC;
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::client::transaction;
use crate::harness::network::in_own_network;
use crate::harness::packets::{connect, hash, head, leecher, scrape};
use crate::harness::tracker::each;

/// Anything else: an unknown action gets no reply and is counted, at any length and with a valid id
/// too. Responses sent to the tracker are unknown actions.
#[test]
fn an_unknown_action_is_ignored() {
    each("", |tracker, client| {
        for action in [3, 4, 5, 255, 256, 0x0100_0000, 0x8000_0001, u32::MAX] {
            for id in [client.id, 0, MAGIC] {
                for len in [16, 36, 98, 1_400] {
                    let mut request = head(id, action, transaction());
                    request.resize(len, 0x5A);
                    tracker.assert_ignored(client, &request, "action");
                }
            }
        }
    });
}

/// Anything else: a short packet gets no reply and is counted, for any action, with the magic
/// number (BEP 15, "Connect") and with a valid id. (Announces up to 97 bytes: module `announce`.)
#[test]
fn a_short_packet_is_ignored() {
    each("", |tracker, client| {
        let unconnected = (MAGIC, 0);
        let connected = [0, 1, 2, 3, u32::MAX].map(|action| (client.id, action));
        for (id, action) in [unconnected].into_iter().chain(connected) {
            for len in 0..16 {
                let request = head(id, action, transaction());
                tracker.assert_ignored(client, &request[..len], "short");
            }
        }
    });
}

/// Anything else: source port 0 gets no reply and is counted, as no reply can be sent there. Needs
/// root for a raw socket.
#[test]
fn source_port_0_is_ignored() {
    // Raw sockets need CAP_NET_RAW in the network namespace: the test creates one.
    in_own_network(&[], || {
        each("", |tracker, client| {
            let raw = RawUdp::open(client.address().ip(), client.family());
            // The same datagram from a valid port gets a reply, so the header is correct.
            raw.send(client.address().port(), client.tracker(), &connect(7));
            assert_eq!(client.receive()[..8], [0, 0, 0, 0, 0, 0, 0, 7]);

            tracker.until_all_have_turned();
            let before = (tracker.refused(client.family()), tracker.summary());
            for datagram in [
                connect(transaction()),
                leecher(hash(1), 5000).bytes(client.id, 1),
                scrape(client.id, 1, &[hash(1)]),
                vec![],
            ] {
                raw.send(0, client.tracker(), &datagram);
            }
            let mut expected = before.0;
            *expected.entry("source_port").or_default() += 4;
            tracker.until("all datagrams are counted", || {
                tracker.refused(client.family()) == expected
            });
            tracker.until_all_have_turned();
            let after = tracker.summary();
            assert_eq!(after.sent, before.1.sent, "no datagram was sent");
            assert_eq!(after.unsent_in_all(), before.1.unsent_in_all(), "no send has failed");
            assert_eq!(client.counts(hash(1)), Default::default(), "no peer is stored");
        });
    });
}

/// Announce: no reply to an unproven address is larger than its request. Every action and length
/// without a valid id; only connects get a reply.
#[test]
fn no_reply_to_an_unproven_address_exceeds_its_request() {
    each("", |_, client| {
        let lengths = (0..=120).chain([200, 576, 1_232, 1_496, 1_500, 4_000]);
        for len in lengths {
            for action in [0, 1, 2, 3, 4, u32::MAX] {
                for id in [0, MAGIC, client.id ^ 1, client.id.rotate_left(1)] {
                    let mut request = head(id, action, transaction());
                    request.resize(len, 0);
                    let replies = client.replies_to(&request);
                    let bytes: usize = replies.iter().map(Vec::len).sum();
                    assert!(bytes <= len, "{bytes} bytes in reply to {len}: {request:02x?}");
                    let answered = len >= 16 && action == 0 && id == MAGIC;
                    assert_eq!(replies.len(), usize::from(answered), "{request:02x?}");
                }
            }
        }
    });
}

/// Anything else: every refusal has a reason and a counter: the number of received datagrams is the
/// sum of requests served and refusals.
#[test]
fn every_datagram_is_in_a_counter() {
    each("", |tracker, client| {
        let (good, bad) = (client.id, client.id ^ 1);
        let requests = [
            connect(transaction()),
            head(1, 0, transaction()),
            vec![],
            vec![0; 15],
            head(good, 9, transaction()),
            leecher(hash(1), 5000).bytes(good, transaction()),
            leecher(hash(1), 5000).bytes(bad, transaction()),
            leecher(hash(1), 0).bytes(good, transaction()),
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
        tracker.until("all datagrams are received", || counted(|c| c.datagrams.get()) == sent);
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
        assert!(!client.has_datagram());
        tracker.until("all replies are counted", || tracker.summary().sent == 1 + replies);
    });
}

/// Sends UDP datagrams with chosen headers.
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
        socket.bind(&SocketAddr::new(source, 0).into()).expect("bind to an address of this host");
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
        // The port of a raw socket's address is the protocol number, or 0.
        let to = SocketAddr::new(to.ip(), 0);
        let sent = self.socket.send_to(&datagram, &to.into()).expect("send a raw datagram");
        assert_eq!(sent, datagram.len());
    }

    /// The UDP checksum over addresses, length, protocol and datagram (RFC 768; RFC 8200, section
    /// 8.1), mandatory over IPv6.
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
            0 => 0xFFFF, // 0 means no checksum
            checksum => checksum,
        }
    }
}
