//! Proxies that are trusted to name the client: in a field of each request, or in a header of the
//! PROXY protocol before everything else.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use onrush_net::stream::memory::Client;
use onrush_testing::memory_tracker::{rules, settings};
use onrush_testing::tls::client;
use onrush_tracker::close_cause::CloseCause;

use crate::tls::TlsClient;
use crate::world::{
    ANNOUNCE, CERTIFICATE, Reply, World, binary_header, contains, get, read_all, replies, request,
    source,
};

/// The address of a proxy.
pub(crate) const PROXY: &str = "192.0.2.80";

/// A world that trusts 192.0.2.0/24, with this `client_address` and further keys and tables.
fn world(client_address: &str, more: &str) -> World {
    World::new(&config(client_address, more))
}

fn config(client_address: &str, more: &str) -> String {
    format!("proxies = [\"192.0.2.0/24\"]\nclient_address = \"{client_address}\"\n{more}")
}

/// The reply to a request on a connection, and whether the connection has ended.
fn send(world: &mut World, client: &mut Client, request: &str) -> (Reply, bool) {
    let (mut replies, ended) = world.ask(client, request);
    assert_eq!(replies.len(), 1, "{request}: {replies:?}");
    (replies.remove(0), ended)
}

/// The beginning of a reply to this client, of a swarm without seeders (BEP 24).
fn begin_of_reply(client: &str) -> Vec<u8> {
    let ip = match client.parse().unwrap() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let begin = format!("d8:completei0e11:external ip{}:", ip.len());
    [begin.as_bytes(), &ip, b"10:incomplete"].concat()
}

/// The compact entry of the peer of [`ANNOUNCE`] at an IPv4 address.
fn peer_at(ip: [u8; 4]) -> Vec<u8> {
    [&ip[..], &6881u16.to_be_bytes()].concat()
}

#[test]
fn each_field_names_the_client_of_its_request() {
    for (by, field, other) in [
        ("x-forwarded-for", "X-Forwarded-For: 10.1.1.1, 198.51.100.{N}, 192.0.2.9\r\n", ""),
        ("x-forwarded-for", "x-forwarded-for: 198.51.100.{N}:99\r\n", "Forwarded: for=::1\r\n"),
        ("x-forwarded-for", "X-Forwarded-For: 10.1.1.1\r\nX-Forwarded-For: 198.51.100.{N}\r\n", ""),
        ("x-real-ip", "X-Real-IP: 198.51.100.{N}\r\n", "X-Forwarded-For: 10.1.1.1\r\n"),
        ("forwarded", "Forwarded: for=10.1.1.1, for=198.51.100.{N};proto=https\r\n", ""),
    ] {
        let mut world = world(by, "connections_per_source = 1\n");
        // A proxy may have more connections than a source.
        let [mut proxy, _other] = [1, 2].map(|port| world.connect(source(PROXY, port)));
        // Two clients by one connection, one after the other. The first is listed to the second.
        for (number, peers) in [(7, Vec::new()), (8, peer_at([198, 51, 100, 7]))] {
            let fields = field.replace("{N}", &number.to_string()) + other;
            let (reply, ended) = send(&mut world, &mut proxy, &request(ANNOUNCE, &fields));
            assert!(reply.status == 200 && !ended, "{fields}");
            let begin = begin_of_reply(&format!("198.51.100.{number}"));
            let end = [format!("5:peers{}:", peers.len()).as_bytes(), &peers, b"e"].concat();
            assert!(reply.body.starts_with(&begin) && reply.body.ends_with(&end), "{fields}");
        }
        let announces = world.metrics.incoming.v4.announces.get();
        assert_eq!((announces, world.counters().open.get()), (2, 2));
        world.check();
    }
}

#[test]
fn fields_of_clients_that_are_no_proxies_are_ignored() {
    let fields = "X-Forwarded-For: 10.1.1.1\r\nX-Real-IP: 10.1.1.1\r\nForwarded: for=10.1.1.1\r\n";
    for by in ["x-forwarded-for", "x-real-ip", "forwarded", "proxy-protocol"] {
        let mut world = world(by, "");
        let mut client = world.connect(source("198.51.100.7", 1));
        let (reply, _) = send(&mut world, &mut client, &request(ANNOUNCE, fields));
        assert!(reply.body.starts_with(&begin_of_reply("198.51.100.7")), "{by}: {reply:?}");
    }
}

#[test]
fn an_announce_of_a_proxy_that_names_no_client_is_refused() {
    for (by, fields) in [
        ("x-forwarded-for", ""),
        ("x-forwarded-for", "X-Forwarded-For: unknown\r\n"),
        ("x-forwarded-for", "X-Forwarded-For: 198.51.100.7, secret\r\n"),
        ("x-forwarded-for", "X-Forwarded-For: 192.0.2.7, 192.0.2.8\r\n"),
        ("x-real-ip", "X-Real-IP: 198.51.100.7, 198.51.100.7\r\n"),
        ("x-real-ip", "X-Forwarded-For: 198.51.100.7\r\n"),
        ("forwarded", "Forwarded: for=_hidden\r\n"),
    ] {
        let mut world = world(by, "");
        for target in [ANNOUNCE, "/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"] {
            let mut proxy = world.connect(source(PROXY, 1));
            for target in ["/", "/health"] {
                let (reply, ended) = send(&mut world, &mut proxy, &request(target, fields));
                assert!(reply.status == 200 && !ended);
            }
            // The connection has other clients.
            let (reply, ended) = send(&mut world, &mut proxy, &request(target, fields));
            assert_eq!((reply.status, reply.closes, ended), (400, false, false), "{by} {fields}");
        }
        assert_eq!((world.refused("no_client"), world.closed(CloseCause::BadRequest)), (2, 0));
        let incoming = &world.metrics.incoming;
        assert_eq!(incoming.v4.announces.get() + incoming.v4.scrapes.get(), 0);
        world.check();
    }
}

#[test]
fn a_client_over_ipv6_behind_a_proxy_over_ipv4_gets_peers_of_ipv6() {
    let mut world = world("x-forwarded-for", "");
    let mut proxy = world.connect(source(PROXY, 1));
    for (client, expected) in [
        ("2a00::1", &b"5:peers0:6:peers60:e"[..]),
        ("2a00::2", b"5:peers0:6:peers618:\x2A\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x1A\xE1e"),
    ] {
        let fields = format!("X-Forwarded-For: {client}\r\n");
        let (reply, _) = send(&mut world, &mut proxy, &request(ANNOUNCE, &fields));
        assert!(reply.body.starts_with(&begin_of_reply(client)), "{reply:?}");
        assert!(reply.body.ends_with(expected), "{reply:?}");
    }
    assert_eq!(world.metrics.incoming.v6.announces.get(), 2);
    world.check();
}

#[test]
fn a_client_that_is_not_served_does_not_end_the_connection_that_it_shares() {
    let tables = "[access]\nblocked = [\"198.51.100.7\"]\nrefuse_bogons = true\n";
    let mut world = World::new(&format!("proxies = [\"127.0.0.1\"]\n{tables}"));
    // Its own address is a bogon.
    let mut proxy = world.connect(source("127.0.0.1", 1));
    for (client, status) in [("8.8.8.8", 200), ("10.0.0.1", 403), ("9.9.9.9", 200)] {
        let fields = format!("X-Forwarded-For: {client}\r\n");
        let (reply, ended) = send(&mut world, &mut proxy, &request(ANNOUNCE, &fields));
        assert_eq!((reply.status, ended), (status, false), "{client}");
        assert_eq!(contains(&reply.body, b"8:interval"), status == 200);
    }
    world.update_rules(rules(&settings(
        "[http]\nproxies = [\"127.0.0.1\"]\n[access]\nblocked = [\"9.9.9.9\"]\n",
    )));
    let fields = "X-Forwarded-For: 9.9.9.9\r\n";
    for target in [ANNOUNCE, "/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"] {
        let (reply, ended) = send(&mut world, &mut proxy, &request(target, fields));
        assert_eq!((reply.status, ended), (403, false));
    }
    assert_eq!((world.refused("bogon"), world.refused("blocked")), (1, 2));
    assert_eq!(world.metrics.incoming.v4.announces.get(), 2);
    assert_eq!((world.counters().answered.get(), world.counters().open.get()), (2, 1));
    world.check();
}

#[test]
fn a_reload_of_the_proxies_applies_to_the_next_request() {
    let mut world = world("x-forwarded-for", "");
    let [mut first, mut second] = [PROXY, "198.51.100.80"].map(|ip| world.connect(source(ip, 1)));
    let announce = request(ANNOUNCE, "X-Forwarded-For: 198.51.100.7\r\n");
    let mut check = |world: &mut World, clients: [&str; 2]| {
        for (connection, client) in [&mut first, &mut second].into_iter().zip(clients) {
            let (reply, _) = send(world, connection, &announce);
            assert!(reply.body.starts_with(&begin_of_reply(client)), "{client}: {reply:?}");
        }
    };
    check(&mut world, ["198.51.100.7", "198.51.100.80"]);
    world.update_rules(rules(&settings("[http]\nproxies = [\"198.51.100.80\"]\n")));
    check(&mut world, [PROXY, "198.51.100.7"]);
}

#[test]
fn a_reload_of_how_clients_are_named_applies_to_connections_that_are_open() {
    let keys =
        |ips: &str, by: &str| format!("[http]\nproxies = [{ips}]\nclient_address = \"{by}\"\n");
    let (one, client) = ("\"192.0.2.0/24\"", Some("198.51.100.7"));
    let both = "\"192.0.2.0/24\", \"198.51.100.7\"";
    let announce = request(ANNOUNCE, "X-Real-IP: 8.8.8.8\r\nX-Forwarded-For: 9.9.9.9\r\n");
    for (from, to, before, after) in [
        ("x-forwarded-for", keys(one, "x-real-ip"), "9.9.9.9", Some("8.8.8.8")),
        ("x-forwarded-for", keys(one, "proxy-protocol"), "9.9.9.9", None),
        // A connection that has begun with a header keeps its client, unless that is a proxy now.
        ("proxy-protocol", keys(one, "x-real-ip"), "198.51.100.7", client),
        ("proxy-protocol", keys(both, "proxy-protocol"), "198.51.100.7", None),
    ] {
        let mut world = world(from, "");
        let mut proxy = world.connect(source(PROXY, 1));
        if from == "proxy-protocol" {
            proxy.write_all(&binary_header(source("198.51.100.7", 1))).unwrap();
        }
        let (reply, _) = send(&mut world, &mut proxy, &announce);
        assert!(reply.body.starts_with(&begin_of_reply(before)), "{from} {reply:?}");
        world.update_rules(rules(&settings(&to)));
        let (reply, ended) = send(&mut world, &mut proxy, &announce);
        match after {
            Some(client) => assert!(reply.body.starts_with(&begin_of_reply(client)), "{reply:?}"),
            None => assert_eq!((reply.status, ended), (400, false), "{to}"),
        }
    }
}

/// Both versions of a header that names this client.
fn headers(client: SocketAddr) -> [Vec<u8>; 2] {
    let (family, to) = if client.is_ipv4() { (4, "192.0.2.1") } else { (6, "::1") };
    let (ip, port) = (client.ip(), client.port());
    let line = format!("PROXY TCP{family} {ip} {to} {port} 6969\r\n");
    [line.into_bytes(), binary_header(client)]
}

#[test]
fn a_header_names_the_client_of_its_connection() {
    for client in ["198.51.100.7", "2a00::7", "::ffff:198.51.100.7"] {
        let named = source(client, 40_000);
        for header in headers(named) {
            let mut world = world("proxy-protocol", "");
            // Nothing else names it, and the bytes may arrive in any parts.
            let fields = "X-Forwarded-For: 10.1.1.1\r\n";
            let bytes = [&header[..], request(ANNOUNCE, fields).repeat(2).as_bytes()].concat();
            for part in [1, bytes.len()] {
                let mut proxy = world.connect(source(PROXY, 1));
                for bytes in bytes.chunks(part) {
                    proxy.write_all(bytes).unwrap();
                    world.settle();
                }
                let (received, ended) = read_all(&mut proxy);
                let replies = replies(&received);
                assert!(replies.len() == 2 && !ended);
                let expected = begin_of_reply(&named.ip().to_canonical().to_string());
                assert!(replies.iter().all(|it| it.body.starts_with(&expected)), "{replies:?}");
            }
            world.check();
        }
    }
}

#[test]
fn tls_begins_behind_a_header() {
    for header in headers(source("198.51.100.7", 1)) {
        let mut world = world("proxy-protocol", "");
        let config = client(&[&CERTIFICATE]);
        // Together, and byte by byte.
        for most in [usize::MAX, 1] {
            let stream = world.connect_tls(source(PROXY, 1));
            let mut proxy = TlsClient::behind(header.clone(), stream, &config);
            proxy.write(request(ANNOUNCE, ""));
            while proxy.pump(most) || !proxy.has_sent() {
                world.settle();
            }
            proxy.settle(&mut world);
            let replies = proxy.replies();
            assert!(replies[0].body.starts_with(&begin_of_reply("198.51.100.7")), "{replies:?}");
        }
        assert_eq!(world.counters().full_handshakes.get(), 1);
        // TLS on the plain port is closed behind a header, too.
        let mut plain = world.connect(source(PROXY, 2));
        let bytes = [&header[..], b"\x16\x03\x01"].concat();
        assert_eq!(world.ask(&mut plain, bytes), (Vec::new(), true));
        assert_eq!(world.closed(CloseCause::Tls), 1);
        // What follows a header without TLS is told to use it.
        let mut plain = world.connect_tls(source(PROXY, 2));
        plain.write_all(&header).unwrap();
        let (reply, ended) = send(&mut world, &mut plain, &request(ANNOUNCE, ""));
        assert_eq!((reply.status, ended, world.refused("no_tls")), (400, true, 1));
        world.check();
    }
}

#[test]
fn a_header_without_a_client_is_that_of_a_health_check() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    let of_proxy = headers(source("192.0.2.9", 1)).into_iter();
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), local].into_iter().chain(of_proxy) {
        let mut world = world("proxy-protocol", "");
        let mut proxy = world.connect(source(PROXY, 1));
        proxy.write_all(&header).unwrap();
        let (reply, _) = send(&mut world, &mut proxy, &request("/health", ""));
        assert_eq!((reply.status, &reply.body[..]), (200, &b"ok\n"[..]));
        let (reply, ended) = send(&mut world, &mut proxy, &request(ANNOUNCE, ""));
        assert_eq!((reply.status, ended, world.refused("no_client")), (400, false, 1));
        world.check();
    }
}

#[test]
fn a_proxy_that_sends_no_header_is_closed() {
    let mut world = world("proxy-protocol", "timeout = 5\n");
    for (number, input) in ["GET /health HTTP/1.1\r\n\r\n", "\u{16}\u{3}\u{1}", "PROXY TCP4 x\r\n"]
        .into_iter()
        .enumerate()
    {
        let mut proxy = world.connect(source(PROXY, 1));
        proxy.write_all(input.as_bytes()).unwrap();
        world.settle();
        assert_eq!(read_all(&mut proxy), (Vec::new(), true), "{input}");
        assert_eq!(world.closed(CloseCause::ProxyHeader), number as u64 + 1);
    }
    // One that is slow, and one that ends: a check of the port.
    let mut slow = world.connect(source(PROXY, 2));
    drop(world.connect(source(PROXY, 3)));
    world.settle();
    for byte in b"PROXY" {
        slow.write_all(&[*byte]).unwrap();
        world.pass(1);
    }
    assert!(!read_all(&mut slow).1);
    world.pass(1);
    assert_eq!(read_all(&mut slow), (Vec::new(), true));
    assert_eq!((world.closed(CloseCause::Timeout), world.closed(CloseCause::Client)), (1, 1));
    assert_eq!(world.counters().requests.get(), 0);
    world.check();
}

#[test]
fn a_header_of_somebody_else_is_no_request() {
    for by in ["proxy-protocol", "x-forwarded-for"] {
        for header in headers(source("198.51.100.7", 1)) {
            let mut world = world(by, "");
            let mut client = world.connect(source("198.51.100.9", 1));
            client.write_all(&header).unwrap();
            let (reply, ended) = send(&mut world, &mut client, &request(ANNOUNCE, ""));
            assert_eq!((reply.status, ended, world.refused("malformed")), (400, true, 1));
            world.check();
        }
    }
}

#[test]
fn limits_and_blocks_of_sources_apply_to_those_whom_a_header_names() {
    let more = "connections_per_source = 2\n[access]\nblocked = [\"198.51.100.9\"]\n";
    let tables = format!("{more}refuse_bogons = true\n");
    let mut world = world("proxy-protocol", &tables);
    let mut open = Vec::new();
    for (port, client) in
        ["8.8.8.8", "8.8.8.8", "8.8.8.8", "9.9.9.9", "198.51.100.9", "10.0.0.1"].iter().enumerate()
    {
        let mut proxy = world.connect(source(PROXY, port as u16));
        let [header, _] = headers(source(client, 1));
        proxy.write_all(&header).unwrap();
        let (replies, ended) = world.ask(&mut proxy, get("/health"));
        assert_eq!(replies.len(), usize::from(!ended), "{client}");
        open.push((proxy, ended));
    }
    let ended: Vec<_> = open.iter().map(|(_, ended)| *ended).collect();
    assert_eq!(ended, [false, false, true, false, true, true]);
    let causes = [CloseCause::SourceLimit, CloseCause::Bogon].map(|it| world.closed(it));
    assert_eq!((causes, world.counters().open.get()), ([1, 2], 3));
    // A connection that ends makes place for another of its client.
    drop(open);
    world.settle();
    let mut again = world.connect(source(PROXY, 9));
    again.write_all(&headers(source("8.8.8.8", 1))[1]).unwrap();
    assert_eq!(send(&mut world, &mut again, &request("/health", "")).0.status, 200);
    world.check();
}
