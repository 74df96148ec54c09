//! Proxies in front of HTTP over real sockets: the peer that is stored is the client that the proxy
//! names. Each rule in detail: crates/web/tests.

use std::net::SocketAddr;

use crate::harness::messages::RELOADED;
use crate::harness::{Client, TOKEN_FILE, leecher, random_hash};
use crate::http::{Connection, announce, await_sum, check_sums, get, refused, serve};

const TRUSTED: &str = "[http]\nkeep_alive = 300\nproxies = [\"127.0.0.1\", \"::1\"]\n";

/// A header of version 2, which names the client 203.0.113.9.
pub(crate) const BINARY_HEADER: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C\xCB\0\x71\x09\x7F\0\0\x01\x04\xD2\x1B\x39";

/// The request of an announce with these further fields.
fn announce_with(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
}

#[test]
fn a_field_of_each_request_names_its_client() {
    for (client_address, before, after) in [
        ("x-forwarded-for", "X-Forwarded-For: 10.0.0.1, ", ", ::1"),
        ("x-real-ip", "x-real-IP: ", ""),
        ("forwarded", "Forwarded: for=10.0.0.1, For=\"", ":4711\";proto=http"),
    ] {
        let (daemon, addresses) = serve(&format!("{TRUSTED}client_address = {client_address:?}\n"));
        let udp = Client::new(daemon.addresses()[0]).connected();
        for address in addresses {
            let (hash, mut proxy) = (random_hash(), Connection::to(address));
            let target = announce(hash, 7_001, "&left=0");
            let clients = ["198.51.100.7", "203.0.113.9"];
            for client in clients {
                let fields = format!("{before}{client}{after}\r\n");
                proxy.send(announce_with(&target, &fields));
                assert_eq!(proxy.next_reply().expect("a reply").0, 200);
            }
            let mut peers = udp.announce(&leecher(hash, 7_002)).peers;
            peers.sort_unstable();
            let expected = clients.map(|ip| SocketAddr::new(ip.parse().unwrap(), 7_001));
            assert_eq!(peers, expected, "{client_address}");
            // Without the field the proxy itself is refused, and not stored.
            proxy.send(get(&target));
            assert_eq!(proxy.next_reply().expect("a reply").0, 400);
            assert_eq!(udp.announce(&leecher(hash, 7_002)).counts(), (2, 1));
        }
        assert_eq!(refused(&daemon, "no_client"), 2);
        check_sums(&daemon);
    }
}

#[test]
fn a_header_before_everything_else_names_the_client() {
    let (mut daemon, [v4, v6]) = serve(TRUSTED);
    let mut of_field = Connection::to(v4);
    of_field.get("/health");
    let keys = format!("{TRUSTED}client_address = \"proxy-protocol\"\n");
    daemon.configure(&format!("{TOKEN_FILE}{keys}"));
    daemon.signal("HUP");
    daemon.line(RELOADED);
    let (hash, udp) = (random_hash(), Client::new(daemon.addresses()[0]).connected());
    let target = announce(hash, 7_001, "");
    for (address, header) in
        [(v4, &b"PROXY TCP4 198.51.100.7 127.0.0.1 1234 6969\r\n"[..]), (v6, BINARY_HEADER)]
    {
        let mut proxy = Connection::to(address);
        proxy.send(header);
        proxy.get(&target);
        proxy.get(&target);
    }
    let mut peers = udp.announce(&leecher(hash, 7_002)).peers;
    peers.sort_unstable();
    let expected = ["198.51.100.7:7001", "203.0.113.9:7001"];
    assert_eq!(peers, expected.map(|text| text.parse::<SocketAddr>().unwrap()));
    // A check of health, and a proxy that sends no header.
    let mut check = Connection::to(v4);
    check.send("PROXY UNKNOWN\r\n");
    check.get("/health");
    let without = Connection::to(v6);
    without.send(get("/health"));
    await_sum(&daemon, "closed_connections_total", "cause=\"proxy_header\"", 1);
    // A connection that was open before goes on without a header, and names no client.
    of_field.send(get(&target));
    assert_eq!(
        (of_field.next_reply().expect("a reply").0, refused(&daemon, "no_client")),
        (400, 1)
    );
    check_sums(&daemon);
}
