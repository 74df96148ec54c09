//! Connect: the exchange.

use std::net::{Ipv4Addr, SocketAddr};

use onrush_proto::connect::MAGIC;

use crate::harness::client::{Client, transaction};
use crate::harness::packets::{connect, head, u64_at};
use crate::harness::process::Launch;
use crate::harness::tracker::{LOOPBACK, both, each};

/// Packets: request 0: magic, 8: action 0, 12: transaction id; response, exactly 16 bytes, 0: 0,
/// 4: transaction id, 8: connection id, never 0 (BEP 15, "Connect"; rtorrent, aria2).
#[test]
fn a_connect_response_has_sixteen_bytes() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.unconnected_client(source);
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

/// Connect: ids are never 0 (rtorrent rejects 0) and differ between addresses. The one hash in 2^64
/// that is 0 cannot be provoked over a socket: `zero_is_never_an_id` in
/// crates/tracker/src/connection/mod.rs tests its replacement.
#[test]
fn ids_differ_between_addresses_and_are_not_zero() {
    both("", |tracker| {
        let mut ids: Vec<u64> =
            (1..=250).map(|n| tracker.client(&format!("127.9.8.{n}")).id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 250);
        assert_ne!(ids[0], 0);
    });
}

/// Connect: bytes after the first 16 are ignored (BEP 15, "UDP tracker protocol": no exact sizes);
/// the response has 16 bytes.
#[test]
fn bytes_after_a_connect_are_ignored() {
    each("", |tracker, client| {
        for extra in [1, 2, 19, 20, 82, 200, 1_400, 4_000] {
            let mut request = connect(transaction());
            request.resize(16 + extra, 0xFF);
            let reply = client.exchange(&request);
            assert_eq!((reply.len(), &reply[..4]), (16, &[0; 4][..]), "{extra} more");
            // The same address gets the same id, except across a change of bucket, at most once.
            let again = u64_at(&reply, 8);
            let ip = client.address().ip().to_string();
            assert!(again == client.id || again == tracker.client(&ip).id, "{extra} more");
        }
    });
}

/// Connect: a wrong magic number gets no reply and is counted (BEP 15, "Connect").
#[test]
fn a_connect_without_the_magic_number_is_ignored() {
    each("", |tracker, client| {
        for wrong in [0, MAGIC + 1, MAGIC.swap_bytes(), MAGIC << 16, client.id] {
            tracker.assert_ignored(client, &head(wrong, 0, transaction()), "magic");
        }
        let mut long = head(MAGIC ^ 1, 0, transaction());
        long.resize(98, 0);
        tracker.assert_ignored(client, &long, "magic");
    });
}

/// Connect: nothing is stored for a client before its address is proven, so a flood of connects
/// allocates no memory. Runs in a process of its own, so that only the tracker's memory is
/// measured.
#[test]
fn a_flood_of_connects_allocates_no_memory() {
    const CLIENTS: u32 = 60_000;
    // A table with four bytes per client, the smallest possible, would take 240 kB.
    const GROWTH_KB: u64 = 128;
    for placement in ["split", "colocated"] {
        let flags = ["--placement", placement, "--workers", "2"];
        let daemon = Launch::on_loopback().flags(&flags).serve();
        // The first connects allocate the workers' buffers.
        connect_each(daemon.address(), 0..10_000);
        let before = daemon.memory_kb("RssAnon");
        connect_each(daemon.address(), 10_000..10_000 + CLIENTS);
        let grown = daemon.memory_kb("RssAnon").saturating_sub(before);
        assert!(grown < GROWTH_KB, "{placement}: {CLIENTS} connects allocated {grown} kB");
        daemon.stop();
    }
}

/// Connects once from each of many addresses in 127/8.
fn connect_each(tracker: SocketAddr, clients: std::ops::Range<u32>) {
    for client in clients {
        let ip = Ipv4Addr::from(0x7F10_0000 + client);
        assert_ne!(Client::at(ip.into(), tracker).connect(), 0);
    }
}
