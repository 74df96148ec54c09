//! Anything else: replies leave from the address and port that the request was sent to.

use std::net::{IpAddr, SocketAddr};

use super::support::client::{Client, transaction};
use super::support::network::alone_on_a_network;
use super::support::packets::{self, Ask, hash, scrape};
use super::support::served::{Plan, Served};

/// A host with several addresses, asked at each of them, by a client at each of them. Every kind
/// of reply, through sockets on every address and on single ones. [`Client::receive`] demands the
/// right sender.
#[test]
fn replies_leave_from_the_address_and_port_that_were_asked() {
    let more = ["198.51.100.7", "203.0.113.7", "2001:db8::7", "2001:db8::8"];
    let here = ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"];
    let networks = more.map(|ip| format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 }));
    alone_on_a_network(&networks, || {
        let addresses: Vec<IpAddr> =
            here.iter().chain(&more).map(|ip| ip.parse().unwrap()).collect();
        for plan in Plan::both() {
            for everywhere in ["\":0\"", "\"0.0.0.0:0\", \"[::]:0\""] {
                let tracker = plan.clone().listen(everywhere).start();
                ask_at_each(&tracker, &addresses);
            }
            let single = addresses.iter().map(|ip| format!("\"{}\"", SocketAddr::new(*ip, 0)));
            let tracker = plan.listen(&single.collect::<Vec<_>>().join(", ")).start();
            assert_eq!(tracker.tracker().running.addresses().len(), addresses.len());
            for address in tracker.tracker().running.addresses() {
                for from in addresses.iter().filter(|from| from.is_ipv4() == address.is_ipv4()) {
                    ask_everything(*from, *address);
                }
            }
        }
    });
}

/// On the host's own network: a socket on every address, asked at several.
#[test]
fn a_wildcard_socket_answers_from_where_it_was_asked() {
    let addresses: Vec<IpAddr> =
        ["127.0.0.1", "127.0.0.2", "127.3.4.5", "::1"].map(|ip| ip.parse().unwrap()).to_vec();
    for plan in Plan::both() {
        let tracker = plan.listen("\"0.0.0.0:0\", \"[::]:0\"").start();
        ask_at_each(&tracker, &addresses);
    }
}

fn ask_at_each(tracker: &Served, addresses: &[IpAddr]) {
    for &to in addresses {
        let to = SocketAddr::new(to, tracker.address_for(to).port());
        for from in addresses.iter().filter(|from| from.is_ipv4() == to.is_ipv4()) {
            ask_everything(*from, to);
        }
    }
}

/// Connect, announce, scrape and error, of one hash and of many shards.
fn ask_everything(from: IpAddr, to: SocketAddr) {
    // Several clients: the kernel picks the worker by the ports of both sides.
    for _ in 0..4 {
        let mut client = Client::new(from, to);
        client.connect();
        assert!(client.announce(&Ask::leecher(hash(1), 5000)).leechers > 0);
        assert_eq!(client.announce_refused(&Ask::leecher(hash(1), 0)), "port cannot be 0");
        let hashes: Vec<_> = (0..20).map(hash).collect();
        assert_eq!(client.scrape(&hashes).len(), 20);
        packets::error_text(&client.ask(&scrape(client.id, transaction(), &[])));
    }
}
