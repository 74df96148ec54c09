//! Anything else: replies leave from the address and port that received the request.

use std::net::{IpAddr, SocketAddr};

use super::support::client::{Client, transaction};
use super::support::network::in_network_with;
use super::support::packets::{self, Announce, hash, scrape};
use super::support::tracker::{RunningTracker, TrackerConfig};

/// Every kind of reply on a host with several addresses, between every pair of client and tracker
/// address, through wildcard sockets and through one socket per address. [`Client::receive`]
/// checks the sender of each reply.
#[test]
fn replies_leave_from_the_address_and_port_of_the_request() {
    let added = ["198.51.100.7", "203.0.113.7", "2001:db8::7", "2001:db8::8"];
    let local = ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"];
    let networks = added.map(|ip| format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 }));
    in_network_with(&networks, || {
        let addresses: Vec<IpAddr> =
            local.iter().chain(&added).map(|ip| ip.parse().unwrap()).collect();
        for config in TrackerConfig::both() {
            for wildcards in ["\":0\"", "\"0.0.0.0:0\", \"[::]:0\""] {
                let tracker = config.clone().listen(wildcards).start();
                check_each_address(&tracker, &addresses);
            }
            let single = addresses.iter().map(|ip| format!("\"{}\"", SocketAddr::new(*ip, 0)));
            let tracker = config.listen(&single.collect::<Vec<_>>().join(", ")).start();
            assert_eq!(tracker.tracker().running.addresses().len(), addresses.len());
            for address in tracker.tracker().running.addresses() {
                for from in addresses.iter().filter(|from| from.is_ipv4() == address.is_ipv4()) {
                    check_every_reply(*from, *address);
                }
            }
        }
    });
}

/// The same for wildcard sockets on the host's own network.
#[test]
fn a_wildcard_socket_replies_from_the_requested_address() {
    let addresses: Vec<IpAddr> =
        ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"].map(|ip| ip.parse().unwrap()).to_vec();
    for config in TrackerConfig::both() {
        let tracker = config.listen("\"0.0.0.0:0\", \"[::]:0\"").start();
        check_each_address(&tracker, &addresses);
    }
}

fn check_each_address(tracker: &RunningTracker, addresses: &[IpAddr]) {
    for &to in addresses {
        let to = SocketAddr::new(to, tracker.address_for(to).port());
        for from in addresses.iter().filter(|from| from.is_ipv4() == to.is_ipv4()) {
            check_every_reply(*from, to);
        }
    }
}

/// Checks a connect, an announce, a scrape over many shards, and errors.
fn check_every_reply(from: IpAddr, to: SocketAddr) {
    // Several clients: the kernel picks the worker by the ports of both sides.
    for _ in 0..4 {
        let mut client = Client::new(from, to);
        client.connect();
        assert!(client.announce(&Announce::leecher(hash(1), 5000)).leechers > 0);
        assert_eq!(client.announce_refused(&Announce::leecher(hash(1), 0)), "port cannot be 0");
        let hashes: Vec<_> = (0..20).map(hash).collect();
        assert_eq!(client.scrape(&hashes).len(), 20);
        packets::error_text(&client.exchange(&scrape(client.id, transaction(), &[])));
    }
}
