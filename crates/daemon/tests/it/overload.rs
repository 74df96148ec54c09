//! Losses for other reasons than lack of time are no overload. Floods are in
//! `tests/timed/overload.rs`, the reactions to a load in the unit tests of `src/overload`.

use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::messages::{FILTER_ON, KERNEL_DROPPED, OVERLOAD, SUSPENDED};
use crate::harness::{Launch, eventually, in_own_network, leecher, random_hash};

/// Datagrams with a wrong checksum.
const WRONG: u32 = 500;

/// Anybody can send datagrams with a wrong checksum from any address. The kernel counts those above
/// 76 bytes at the socket as it counts those that no buffer has room for.
#[test]
fn wrong_checksums_are_neither_losses_nor_overload() {
    in_own_network(&[], || {
        let mut daemon = Launch::new(&["--listen", "127.0.0.1:0", "--workers", "2"])
            .config("[overload]\ndrop_share = 1\n")
            .admin()
            .serve();
        let client = daemon.client();
        let peer = leecher(random_hash(), 4_001);
        // A worker counts the drops since its first turn.
        eventually("both workers have taken a turn", || {
            let shown = daemon.metrics();
            let turns = |worker| shown.sum("onrush_turns_total", &[worker]);
            turns("worker=\"worker-0\"") >= 2.0 && turns("worker=\"worker-1\"") >= 2.0
        });
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
        for _ in 0..WRONG {
            let (bytes, to) = (wrong_checksum(daemon.address()), daemon.address().into());
            assert_eq!(raw.send_to(&bytes, &to).unwrap(), bytes.len());
            client.announce(&peer);
        }
        let counted = || daemon.metrics().sum("onrush_checksum_errors_total", &[]);
        eventually("all of them are counted", || counted() >= f64::from(WRONG));
        assert_eq!(counted(), f64::from(WRONG));
        let shown = daemon.metrics();
        for (name, expected) in [
            ("onrush_kernel_dropped_datagrams_total", 0.0),
            ("onrush_kernel_shed_datagrams_total", 0.0),
            ("onrush_overload_step", 0.0),
        ] {
            assert_eq!(shown.sum(name, &[]), expected, "{name}");
        }
        daemon.skip();
        for message in [KERNEL_DROPPED, OVERLOAD, FILTER_ON, SUSPENDED] {
            assert!(!daemon.log().iter().any(|line| line.contains(message)), "{message}");
        }
    });
}

/// An IPv4 packet with an announce whose UDP checksum is wrong.
fn wrong_checksum(to: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else { panic!("{to} is IPv4") };
    let payload = [0; 98];
    let len = 28 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 9]);
    packet.extend(ip.octets());
    for word in [40_000, to.port(), len - 20, 0xDEAD] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    packet
}
