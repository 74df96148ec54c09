//! Anything else: replies leave from the address and port that received the request.

use std::net::{IpAddr, SocketAddr};

use crate::harness::client::{Client, transaction};
use crate::harness::network::in_own_network;
use crate::harness::packets::{self, hash, leecher, scrape};
use crate::harness::tracker::TrackerConfig;

/// Every kind of reply on a host with several addresses, between every pair of client and tracker
/// address, through wildcard sockets and through one socket per address. [`Client::receive`]
/// checks the sender of each reply.
#[test]
fn replies_leave_from_the_address_and_port_of_the_request() {
    let added = ["198.51.100.7", "203.0.113.7", "2001:db8::7", "2001:db8::8"];
    let local = ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"];
    in_own_network(&added, || {
        let addresses: Vec<IpAddr> =
            local.iter().chain(&added).map(|ip| ip.parse().unwrap()).collect();
        for config in TrackerConfig::both() {
            for wildcards in ["\":0\"", "\"0.0.0.0:0\", \"[::]:0\""] {
                let tracker = config.clone().listen(wildcards).start();
                for &to in &addresses {
                    check_from_each(
                        &addresses,
                        SocketAddr::new(to, tracker.address_for(to).port()),
                    );
                }
            }
            let single = addresses.iter().map(|ip| format!("\"{}\"", SocketAddr::new(*ip, 0)));
            let tracker = config.listen(&single.collect::<Vec<_>>().join(", ")).start();
            assert_eq!(tracker.addresses().len(), addresses.len());
            for address in tracker.addresses() {
                check_from_each(&addresses, *address);
            }
        }
    });
}

fn check_from_each(addresses: &[IpAddr], to: SocketAddr) {
    for from in addresses.iter().filter(|from| from.is_ipv4() == to.is_ipv4()) {
        check_every_reply(*from, to);
    }
}

/// Checks a connect, an announce, a scrape over many shards, and errors.
fn check_every_reply(from: IpAddr, to: SocketAddr) {
    // Several clients: the kernel picks the worker by the ports of both sides.
    for _ in 0..4 {
        let mut client = Client::at(from, to).strict();
        client.connect();
        assert!(client.announce(&leecher(hash(1), 5000)).leechers > 0);
        assert_eq!(client.announce_refused(&leecher(hash(1), 0)), "port cannot be 0");
        let hashes: Vec<_> = (0..20).map(hash).collect();
        assert_eq!(client.scrape(&hashes).len(), 20);
        packets::error_text(&client.exchange(&scrape(client.id, transaction(), &[])));
    }
}
