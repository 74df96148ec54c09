//! Connect: the exchange.

use std::net::{Ipv4Addr, SocketAddr};

use super::LOOPBACK;
use super::support::client::{Client, transaction};
use super::support::packets::{MAGIC, connect, head};
use super::support::served::both;
use crate::harness::process::{Daemon, Launch};

/// Packets: request 0: magic, 8: action 0, 12: transaction id; response, exactly 16 bytes, 0: 0,
/// 4: transaction id, 8: connection id, never 0 (BEP 15, "Connect"; rtorrent, aria2).
#[test]
fn a_connect_is_answered_with_sixteen_bytes() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.stranger(source);
            client.send(&[
                0, 0, 4, 0x17, 0x27, 0x10, 0x19, 0x80, // magic
                0, 0, 0, 0, // action
                0xDE, 0xAD, 0xBE, 0xEF, // transaction id
            ]);
            let reply = client.receive();
            assert_eq!(reply.len(), 16);
            assert_eq!(reply[..8], [0, 0, 0, 0, 0xDE, 0xAD, 0xBE, 0xEF]);
            assert_ne!(reply[8..], [0; 8]);
        }
        tracker.until("both are counted", || tracker.summary().connects == 2);
    });
}

/// Connect: the id is never 0 (rtorrent rejects it), and another for each address. What the one
/// hash in 2^64 that is 0 becomes cannot be shown over a socket: `zero_is_never_an_id`, a test of
/// crates/tracker/src/connection/mod.rs, holds it.
#[test]
fn ids_differ_from_address_to_address_and_are_not_zero() {
    both("", |tracker| {
        let mut ids: Vec<u64> =
            (1..=250).map(|n| tracker.client(&format!("127.9.8.{n}")).id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 250);
        assert_ne!(ids[0], 0);
    });
}

/// Connect: extra bytes after 16 are fine (BEP 15, "UDP tracker protocol": no exact sizes); the
/// response stays 16 bytes.
#[test]
fn bytes_behind_a_connect_change_nothing() {
    both("", |tracker| {
        for source in LOOPBACK {
            let mut client = tracker.stranger(source);
            let id = client.connect();
            for extra in [1, 2, 19, 20, 82, 200, 1_400, 4_000] {
                let mut request = connect(transaction());
                request.resize(16 + extra, 0xFF);
                let reply = client.ask(&request);
                assert_eq!((reply.len(), &reply[..4]), (16, &[0; 4][..]), "{extra} more");
                // The same address at the same time (or at the turn of a bucket, once).
                let again = u64::from_be_bytes(reply[8..].try_into().unwrap());
                assert!(again == id || again == client.connect(), "{extra} more");
            }
        }
    });
}

/// Connect: wrong magic is met with silence, and counted (BEP 15, "Connect").
#[test]
fn a_connect_without_the_magic_number_is_ignored() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for wrong in [0, MAGIC + 1, MAGIC.swap_bytes(), MAGIC << 16, client.id] {
                client.is_ignored(tracker, &head(wrong, 0, transaction()), "magic");
            }
            let mut long = head(MAGIC ^ 1, 0, transaction());
            long.resize(98, 0);
            client.is_ignored(tracker, &long, "magic");
        }
    });
}

/// Connect: fewer bytes than 16 are met with silence, and counted (BEP 15, "Connect").
#[test]
fn a_connect_that_breaks_off_is_ignored() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for len in 0..16 {
                client.is_ignored(tracker, &connect(transaction())[..len], "short");
            }
        }
    });
}

/// Connect: nothing is stored per client before its address is proven: a flood of connects costs
/// no memory. A process of its own, so that the memory is the tracker's alone.
#[test]
fn a_flood_of_connects_costs_no_memory() {
    const CLIENTS: u32 = 60_000;
    // Four bytes for each client, the least that could be kept, would be 240 kB.
    const GROWTH_KB: u64 = 128;
    for placement in ["split", "colocated"] {
        let mut daemon =
            Launch::on_loopback().flag("--placement", placement).flag("--workers", "2").start();
        let address = daemon.serving()[0];
        // The first ones fill the workers' own buffers.
        connect_each(address, 0..10_000);
        let before = memory_kb(&daemon);
        connect_each(address, 10_000..10_000 + CLIENTS);
        let grown = memory_kb(&daemon).saturating_sub(before);
        assert!(grown < GROWTH_KB, "{placement}: {CLIENTS} connects cost {grown} kB");
        daemon.stop();
    }
}

/// Connects once from each of many addresses in 127/8.
fn connect_each(tracker: SocketAddr, clients: std::ops::Range<u32>) {
    for client in clients {
        let ip = Ipv4Addr::from(0x7F10_0000 + client);
        assert_ne!(Client::new(ip.into(), tracker).connect(), 0);
    }
}

/// Memory of its own that a process has touched.
fn memory_kb(daemon: &Daemon) -> u64 {
    daemon.status("RssAnon").strip_suffix(" kB").unwrap().trim().parse().unwrap()
}
