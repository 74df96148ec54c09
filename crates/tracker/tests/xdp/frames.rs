//! Frames that the program leaves to the kernel or drops before the checks of intake, and the
//! checksums that it accepts.

use std::net::{IpAddr, SocketAddr};

use onrush_net::clock::monotonic;
use onrush_net::xdp::Verdict;
use onrush_proto::connect::REQUEST_LEN;
use onrush_proto::{Connect, TransactionId};
use onrush_tracker::xdp::{Place, XdpSettings};

use crate::host::{ANSWERING, Host, OWN_MAC, OWN_V4, PORT, VLAN, frame};

const V4: &str = "9.9.9.9:2000";
const V6: &str = "[2a01:4f8::7]:2000";
/// Places in a frame without a VLAN.
const MAC: usize = 0;
const PROTOCOL: usize = 12;
const IP: usize = 14;
const UDP_V4: usize = IP + 20;
const UDP_V6: usize = IP + 40;

fn connect(source: &str, vlan: u16) -> Vec<u8> {
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id: TransactionId(7) }.write(&mut request);
    frame(source.parse().unwrap(), vlan, &request)
}

/// A frame with bytes replaced, and the checksum of its IPv4 header for them.
fn changed(source: &str, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut frame = connect(source, 0);
    for (at, bytes) in changes {
        frame[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    if source == V4 && !changes.iter().any(|(at, _)| *at == IP + 10) {
        frame[IP + 10..IP + 12].fill(0);
        let words =
            frame[IP..UDP_V4].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        let sum = (sum & 0xFFFF) + (sum >> 16);
        frame[IP + 10..IP + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    frame
}

#[test]
fn a_connect_to_an_address_of_the_tracker_is_answered() {
    let mut host = Host::new("");
    for source in [V4, V6] {
        for vlan in [0, VLAN] {
            assert_eq!(host.run(&connect(source, vlan)).0, Verdict::Transmit, "{source} {vlan}");
        }
    }
    let counters = host.program.counters(0).unwrap();
    assert_eq!((counters.v4.answered, counters.v6.answered, counters.passed), (2, 2, 0));
}

#[test]
fn frames_that_are_not_plain_or_not_for_the_tracker_are_the_kernels() {
    let mut host = Host::new("");
    let mut long = connect(V4, 0);
    long.resize(1_701, 0);
    let fragment_of_v6 = changed(V6, &[(IP + 6, &[44])]);
    for (what, frame) in [
        ("another MAC address", changed(V4, &[(MAC, &[2, 0, 0, 0, 0, 9])])),
        ("a broadcast", changed(V4, &[(MAC, &[0xFF; 6])])),
        ("a group as the source", changed(V4, &[(MAC + 6, &[1, 0, 0x5E, 0, 0, 1])])),
        ("another port", changed(V4, &[(UDP_V4 + 2, &[0x1B, 0x3A])])),
        ("another address", changed(V4, &[(IP + 16, &[203, 0, 113, 6])])),
        ("another VLAN", connect(V4, VLAN + 1)),
        ("ARP", changed(V4, &[(PROTOCOL, &[0x08, 0x06])])),
        ("a second tag", changed(V4, &[(PROTOCOL, &[0x81, 0x00, 0, 7, 0x81, 0x00])])),
        ("ICMP", changed(V4, &[(IP + 9, &[1])])),
        ("TCP over IPv6", changed(V6, &[(IP + 6, &[6])])),
        ("an extension header", fragment_of_v6),
        ("IP options", changed(V4, &[(IP, &[0x46])])),
        ("version 5", changed(V4, &[(IP, &[0x55])])),
        ("a first fragment", changed(V4, &[(IP + 6, &[0x20, 0])])),
        ("a later fragment", changed(V4, &[(IP + 6, &[0, 1])])),
        ("a wrong header checksum", changed(V4, &[(IP + 10, &[0x12, 0x34])])),
        ("link-local IPv4", changed(V4, &[(IP + 12, &[169, 254, 1, 1])])),
        ("link-local IPv6", changed(V6, &[(IP + 8, &[0xFE, 0x80])])),
        ("IPv4 shorter than its header", changed(V4, &[(IP + 2, &[0, 19])])),
        ("IPv4 longer than the frame", changed(V4, &[(IP + 2, &[0, 60])])),
        ("UDP shorter than its header", changed(V4, &[(IP + 2, &[0, 27]), (UDP_V4 + 4, &[0, 7])])),
        ("UDP shorter than IP", changed(V4, &[(UDP_V4 + 4, &[0, 23])])),
        ("UDP longer than IPv6", changed(V6, &[(UDP_V6 + 4, &[0, 25])])),
        ("a long frame", long),
        ("a frame that ends within the header", connect(V4, 0)[..UDP_V4 + 7].to_vec()),
        ("a frame that ends within the payload", connect(V4, 0)[..UDP_V4 + 23].to_vec()),
    ] {
        let (verdict, after) = host.run(&frame);
        assert_eq!(verdict, Verdict::Pass, "{what}");
        assert_eq!(after, frame, "{what}");
    }
    let counters = host.program.counters(0).unwrap();
    assert_eq!(counters, Default::default(), "{counters:?}");
}

#[test]
fn addresses_come_and_go() {
    let mut host = Host::new("");
    let address = SocketAddr::new(IpAddr::from(OWN_V4), PORT);
    let place = Place { interface: 1, vlan: 0, address };
    host.program.leave(&place).unwrap();
    assert_eq!(host.run(&connect(V4, 0)).0, Verdict::Pass);
    assert_eq!(host.run(&connect(V4, VLAN)).0, Verdict::Transmit);
    // Places have the counters of their device.
    host.program.serve(&place, OWN_MAC, 15).unwrap();
    assert_eq!(host.run(&connect(V4, 0)).0, Verdict::Transmit);
    let [first, last] = [0, 15].map(|number| host.program.counters(number).unwrap());
    assert_eq!((first.v4.answered, last.v4.answered), (1, 1));
    assert!(host.program.counters(16).is_err());
}

#[test]
fn sources_that_no_host_has_are_dropped() {
    let mut host = Host::new("");
    let sources = [
        "0.1.2.3",
        "127.0.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
        "::ffff:9.9.9.9",
    ];
    for source in sources {
        let source = SocketAddr::new(source.parse().unwrap(), 2_000);
        assert_eq!(host.run(&frame(source, 0, &[0; 16])).0, Verdict::Drop, "{source}");
    }
    let counters = host.program.counters(0).unwrap();
    assert_eq!(counters.martian, sources.len() as u64);
    assert_eq!((counters.v4, counters.v6), Default::default());
}

#[test]
fn checksums_of_connects_are_verified() {
    let mut host = Host::new("");
    // Of the addresses, the protocol and the length, as a device computes the rest.
    let partial = |frame: &[u8], udp: usize| {
        let words = frame[udp - if udp == UDP_V4 { 8 } else { 32 }..udp].chunks(2);
        let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let sum = sum + 17 + 24;
        let sum = (sum & 0xFFFF) + (sum >> 16);
        (((sum & 0xFFFF) + (sum >> 16)) as u16).to_be_bytes()
    };
    for (source, udp) in [(V4, UDP_V4), (V6, UDP_V6)] {
        let partial = partial(&connect(source, 0), udp);
        assert_eq!(host.run(&changed(source, &[(udp + 6, &partial)])).0, Verdict::Transmit);
        let wrong = changed(source, &[(udp + 6, &[partial[0], partial[1] ^ 1])]);
        assert_eq!(host.run(&wrong).0, Verdict::Drop, "{source}");
        let absent = if source == V4 { Verdict::Transmit } else { Verdict::Drop };
        assert_eq!(host.run(&changed(source, &[(udp + 6, &[0, 0])])).0, absent);
    }
    let counters = host.program.counters(0).unwrap();
    assert_eq!((counters.checksum, counters.v4.answered, counters.v6.answered), (3, 2, 1));
}

/// The ids of all transactions give all checksums: 0 would mean that there is none (RFC 768).
#[test]
fn no_reply_is_without_a_checksum() {
    let mut host = Host::new("");
    let mut sums = 0;
    for number in 0..=u32::from(u16::MAX) {
        let mut request = [0; REQUEST_LEN];
        Connect { transaction_id: TransactionId(number) }.write(&mut request);
        let request = frame(V4.parse().unwrap(), 0, &request);
        let (verdict, reply) = host.run(&request);
        let sum = u16::from_be_bytes([reply[UDP_V4 + 6], reply[UDP_V4 + 7]]);
        assert_eq!((verdict, sum == 0), (Verdict::Transmit, false), "{number}");
        sums += u32::from(sum == u16::MAX);
    }
    assert!(sums > 0);
}

#[test]
fn with_rules_of_half_a_minute_ago_everything_is_passed() {
    let mut host = Host::new("");
    let second = 1_000_000_000;
    host.renew_as_of(ANSWERING, monotonic() - 30 * second);
    assert_eq!(host.run(&connect(V4, 0)).0, Verdict::Transmit);
    host.renew_as_of(ANSWERING, monotonic() - 31 * second);
    assert_eq!(host.run(&connect(V4, 0)).0, Verdict::Pass);
    let counters = host.program.counters(0).unwrap();
    assert_eq!((counters.stale, counters.v4.answered), (1, 1));
}

#[test]
fn connects_are_passed_where_the_workers_answer_them_or_no_route_leads_back() {
    let mut host = Host::new("");
    host.renew(XdpSettings { answer_connects: false, next_hop: false });
    assert_eq!(host.run(&connect(V4, 0)).0, Verdict::Pass);
    // A run's device is the loopback device, through which no route leads to a client.
    host.renew(XdpSettings { answer_connects: true, next_hop: true });
    let request = connect(V4, 0);
    let (verdict, after) = host.run(&request);
    assert_eq!((verdict, after), (Verdict::Pass, &request[..]));
    let counters = host.program.counters(0).unwrap();
    assert_eq!((counters.passed, counters.no_route), (2, 1));
}
