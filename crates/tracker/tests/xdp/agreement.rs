//! Random and mutated datagrams through the program and through intake.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use onrush_net::xdp::Verdict as Xdp;
use onrush_proto::connect::{MAGIC, REQUEST_LEN};
use onrush_proto::{Family, announce, scrape};
use onrush_tracker::access::addresses::network;
use onrush_tracker::access::blocks::SourceBlocks;
use onrush_tracker::access::member_counts::MemberCounts;
use onrush_tracker::connection::{ConnectionIds, Key, Keys};
use onrush_tracker::intake::Verdict;
use onrush_tracker::xdp::XdpCounters;
use onrush_tracker::xdp::counters::REASONS;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use crate::host::{
    BLOCKED, Host, KEYS, NOW, OWN_MAC, OWN_V4, OWN_V6, PORT, ROUTER_MAC, VLAN, frame,
};

/// Sources: of each kind of bogons, blocked ones, and others.
const SOURCES: [&str; 32] = [
    "9.9.9.9",
    "198.51.7.7",
    "198.51.100.9",
    "10.1.2.3",
    "100.64.0.1",
    "100.128.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "172.32.0.1",
    "198.19.255.255",
    "192.168.7.7",
    "192.0.0.9",
    "192.0.1.9",
    "192.0.2.9",
    "198.18.0.1",
    "198.20.0.1",
    "203.0.113.9",
    "203.0.114.9",
    "223.255.255.255",
    "240.0.0.1",
    "1.1.1.1",
    "2a01:4f8::7",
    "2001:db8::1",
    "2001:db8:bad::1",
    "2001:db9::1",
    "3fff::1",
    "3fff:fff::1",
    "3fff:1000::1",
    "fd00::1",
    "1fff::1",
    "2000::1",
    "4000::1",
];

/// A datagram, before it is known from where.
#[derive(Clone, Debug)]
struct Draft {
    bytes: Vec<u8>,
    id: Id,
}

/// Datagrams of real clients.
const RECORDED: [&str; 3] = [
    include_str!("../../../proto/tests/it/packets/aria2.toml"),
    include_str!("../../../proto/tests/it/packets/libtorrent.toml"),
    include_str!("../../../proto/tests/it/packets/transmission.toml"),
];

/// What is in the place of the connection id.
#[derive(Clone, Copy, Debug)]
enum Id {
    /// What the bytes have.
    Kept,
    /// The magic number.
    Magic,
    /// An id that was issued to this source, under the key with this number, that many seconds ago
    /// (negative: by a clock that is ahead), with bits inverted.
    Issued { key: usize, age: i64, flip: u64 },
}

fn id() -> impl Strategy<Value = Id> {
    let flip = prop_oneof![8 => Just(0), 1 => (0u32..64).prop_map(|bit| 1 << bit)];
    let issued = (0usize..4, -140i64..260, flip);
    prop_oneof![
        1 => Just(Id::Kept),
        2 => Just(Id::Magic),
        6 => issued.prop_map(|(key, age, flip)| Id::Issued { key, age, flip }),
    ]
}

fn draft() -> impl Strategy<Value = Draft> {
    let len = prop_oneof![
        4 => select(vec![15usize, REQUEST_LEN, 17, announce::REQUEST_LEN - 1,
            announce::REQUEST_LEN, scrape::REQUEST_HEAD_LEN + 20, 109]),
        1 => 0usize..1_600,
    ];
    let action = prop_oneof![9 => 0u32..3, 1 => any::<u32>()];
    (len, action, any::<u64>(), id()).prop_map(|(len, action, seed, id)| {
        let mut bytes: Vec<u8> =
            (0..len as u64).map(|n| (seed ^ (n * 0x9E37)).to_le_bytes()[1]).collect();
        if let Some(place) = bytes.get_mut(8..12) {
            place.copy_from_slice(&action.to_be_bytes());
        }
        Draft { bytes, id }
    })
}

/// The datagram, from this address.
fn datagram(draft: Draft, source: IpAddr) -> Vec<u8> {
    let Draft { mut bytes, id } = draft;
    let id = match id {
        Id::Kept => return bytes,
        Id::Magic => MAGIC,
        Id::Issued { key, age, flip } => {
            let keys = [Some(KEYS.current), KEYS.previous, KEYS.next, Some(Key([1; 16]))];
            let current = keys[key].unwrap();
            let ids = ConnectionIds::new(&Keys { current, previous: None, next: None }, 120);
            ids.issue(source, NOW.saturating_add_signed(-age)).0 ^ flip
        }
    };
    if let Some(place) = bytes.first_chunk_mut() {
        *place = id.to_be_bytes();
    }
    bytes
}

#[derive(Clone, Debug)]
struct Case {
    draft: Draft,
    source: SocketAddr,
    vlan: u16,
}

fn case() -> impl Strategy<Value = Case> {
    let port = prop_oneof![1 => Just(0u16), 12 => any::<u16>()];
    (draft(), select(SOURCES.to_vec()), port, select(vec![0, VLAN])).prop_map(
        |(draft, ip, port, vlan)| {
            let source = SocketAddr::new(ip.parse().unwrap(), port);
            Case { draft, source, vlan }
        },
    )
}

/// The count of each refusal, and the bytes of what was refused or answered: of the program, and of
/// intake, for one family.
type Counted = (Vec<(&'static str, u64)>, u64);

fn of_program(counters: &XdpCounters, family: Family) -> Counted {
    let family = if family == Family::V4 { &counters.v4 } else { &counters.v6 };
    let refused = REASONS.into_iter().zip(family.refused).collect();
    (refused, family.answered_bytes + family.refused_bytes)
}

/// Refusals of the program that intake counts under the same name.
fn of_intake(host: &Host, family: Family) -> Counted {
    let incoming = host.metrics.incoming.of(family);
    let count = |reason| incoming.refusals().find(|(name, _)| *name == reason).unwrap().1;
    (REASONS.map(|reason| (reason, count(reason))).to_vec(), incoming.bytes.get())
}

fn difference(after: &Counted, before: &Counted) -> Counted {
    let refused = after.0.iter().zip(&before.0).map(|(now, then)| (now.0, now.1 - then.1));
    (refused.filter(|(_, count)| *count > 0).collect(), after.1 - before.1)
}

/// Runs a case through both.
fn agrees(host: &mut Host, case: Case) -> Result<(), TestCaseError> {
    let Case { draft, source, vlan } = case;
    let datagram = datagram(draft, source.ip());
    let family = Family::of(source.ip());
    let sent = frame(source, vlan, &datagram);
    let before = (of_program(&host.program.counters(0).unwrap(), family), of_intake(host, family));
    let (xdp, frame) = host.run(&sent);
    let frame = frame.to_vec();
    let counters = host.program.counters(0).unwrap();
    let verdict = host.intake.check(&datagram, &source, NOW, &host.metrics);
    match (xdp, &verdict) {
        (Xdp::Transmit, Verdict::Connect(response)) => {
            let mut expected = [0; 16];
            response.write(&mut expected);
            is_reply(&sent, &frame, (source, vlan), &expected)?;
        }
        (Xdp::Drop, Verdict::Silence) => {}
        (Xdp::Pass | Xdp::Redirect, Verdict::Connect(_)) => {
            prop_assert_ne!(datagram.len(), REQUEST_LEN)
        }
        (
            Xdp::Pass | Xdp::Redirect,
            Verdict::Announce(_) | Verdict::Scrape(_) | Verdict::Error(..),
        ) => {}
        (xdp, verdict) => prop_assert!(false, "{xdp:?}, intake {verdict:?}"),
    }
    if matches!(xdp, Xdp::Pass | Xdp::Redirect) {
        prop_assert_eq!(&frame, &sent);
        return Ok(());
    }
    let by_program = difference(&of_program(&counters, family), &before.0);
    prop_assert_eq!(by_program, difference(&of_intake(host, family), &before.1));
    Ok(())
}

/// Whether the frame is a reply with this payload, as an independent parser reads it.
fn is_reply(
    sent: &[u8],
    frame: &[u8],
    (client, vlan): (SocketAddr, u16),
    expected: &[u8],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(frame.len(), sent.len());
    prop_assert_eq!((&frame[..6], &frame[6..12]), (&ROUTER_MAC[..], &OWN_MAC[..]));
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let tag = packet.vlan_ids().first().map_or(0, |tag| tag.value());
    prop_assert_eq!(tag, vlan);
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
    prop_assert_eq!((udp.source_port(), udp.destination_port()), (PORT, client.port()));
    prop_assert_eq!(udp.payload(), expected);
    let header = udp.to_header();
    match packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let ip = ip.header().to_header();
            prop_assert_eq!((ip.source, ip.time_to_live), (OWN_V4.octets(), 64));
            prop_assert_eq!(IpAddr::from(ip.destination), client.ip());
            prop_assert_eq!((ip.dont_fragment, ip.identification), (true, 0));
            prop_assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let sum = header.calc_checksum_ipv4(&ip, expected).unwrap();
            prop_assert_eq!(header.checksum, sum);
        }
        Some(NetSlice::Ipv6(ip)) => {
            let ip = ip.header().to_header();
            prop_assert_eq!((ip.source, ip.hop_limit), (OWN_V6.octets(), 64));
            prop_assert_eq!(IpAddr::from(ip.destination), client.ip());
            let sum = header.calc_checksum_ipv6(&ip, expected).unwrap();
            prop_assert_eq!(header.checksum, sum);
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn all_agree(text: &str) {
    let mut host = Host::new(text);
    let host = std::cell::RefCell::new(&mut host);
    // Rules hold for half a minute.
    let begun = std::cell::Cell::new(0);
    let run = |case| {
        begun.set(begun.get() + 1);
        if begun.get() % 512 == 0 {
            host.borrow_mut().renew(crate::host::ANSWERING);
        }
        agrees(&mut host.borrow_mut(), case)
    };
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&case(), run).unwrap();
}

#[test]
fn without_lists() {
    all_agree("");
}

#[test]
fn with_bogons_and_blocked_sources_refused() {
    all_agree(&format!("{BLOCKED}refuse_bogons = true\n"));
}

/// Recorded requests, under their own id and one of this tracker, whole and cut; and each length
/// with each action.
#[test]
fn of_real_clients_and_of_every_length() {
    let hex = |line: &str| -> Option<Vec<u8>> {
        let digits = line.strip_prefix("hex = \"")?.strip_suffix('"')?;
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        Some(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect())
    };
    let recorded: Vec<_> = RECORDED.iter().flat_map(|text| text.lines()).filter_map(hex).collect();
    assert!(recorded.len() > 10);
    let of_length = |(len, action): (usize, u32)| {
        let mut bytes = vec![7; len];
        bytes.iter_mut().skip(8).zip(action.to_be_bytes()).for_each(|(to, byte)| *to = byte);
        bytes
    };
    let lengths = (0..=1_600).flat_map(|len| (0..4).map(move |action| (len, action)));
    let cut = recorded.iter().flat_map(|bytes| [bytes.clone(), bytes[..bytes.len() - 1].into()]);
    let all: Vec<_> = cut.chain(lengths.map(of_length)).collect();
    let mut host = Host::new("");
    for (number, bytes) in all.into_iter().enumerate() {
        if number % 256 == 0 {
            host.renew(crate::host::ANSWERING);
        }
        for id in [Id::Kept, Id::Issued { key: 0, age: 1, flip: 0 }] {
            for source in ["9.9.9.9:9", "[2a01:4f8::7]:9"] {
                let (draft, source) = (Draft { bytes: bytes.clone(), id }, source.parse().unwrap());
                agrees(&mut host, Case { draft, source, vlan: 0 }).unwrap();
            }
        }
    }
}

#[test]
fn requests_count_at_the_block_of_their_source() {
    const SLOTS: usize = 5;
    let mut host = Host::new(BLOCKED);
    let networks = ["198.51.7.0/24", "198.51.7.7/32", "1.1.0.0/16", "2001:db8:bad:1::/64", "::/0"];
    let counts = Arc::new(MemberCounts::new(2, SLOTS));
    let networks = networks.iter().map(|net| network(net).unwrap()).zip(0..SLOTS);
    let blocks = SourceBlocks::new(networks, &host.rules.blocked, Arc::clone(&counts));
    host.rules.blocked = Arc::clone(blocks.refused());
    host.rules.blocks = Arc::new(blocks);
    host.intake.update(&host.rules);
    host.program.block(&host.rules).unwrap();
    // Until the rules are renewed, the former ones are in force.
    host.run(&frame("[2a01::1]:9".parse().unwrap(), 0, &[0; 16]));
    assert_eq!([0, 1, 2, 3, 4].map(|slot| host.program.of_block(slot).unwrap()), [0; SLOTS]);
    host.renew(crate::host::ANSWERING);
    for (times, source) in [
        (1, "198.51.7.1"),
        (2, "198.51.7.7"),
        (3, "198.51.8.8"),
        (4, "1.1.200.1"),
        (5, "1.2.0.1"),
        (6, "2001:db8:bad:1::7"),
        (7, "2a01:4f8::1"),
        (8, "2001:db8:bad:2::7"),
    ] {
        let source = SocketAddr::new(source.parse().unwrap(), 9);
        for _ in 0..times {
            host.run(&frame(source, 0, &[0; 16]));
            host.intake.check(&[0; 16], &source, NOW, &host.metrics);
        }
    }
    let of_program = [0, 1, 2, 3, 4].map(|slot| host.program.of_block(slot).unwrap());
    assert_eq!(of_program, [1, 2, 4, 6, 15]);
    assert_eq!(of_program, [0, 1, 2, 3, 4].map(|slot| counts.sum(slot)));
    host.program.count_blocks(&host.rules, 1).unwrap();
    assert_eq!(of_program, [0, 1, 2, 3, 4].map(|slot| counts.sum(slot) / 2));
}
