//! Losses for other reasons than lack of time are no overload, connections without a place are.
//! Floods are in `tests/timed/overload.rs`, the reactions to a load in the unit tests of
//! `src/overload`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::messages::{FILTER_ON, KERNEL_DROPPED, OVERLOAD, SUSPENDED};
use crate::harness::{Launch, eventually, in_own_network, leecher, meanwhile, random_hash};
use crate::http::{Connection, announce, await_sum, check_sums, closed, get, serve};
use crate::websocket::Browser;

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

/// Clients that have always begun their next request, as their connections would otherwise be
/// closed for others: one of HTTP, and one by WebSocket.
struct Clients {
    http: Connection,
    request: Vec<u8>,
    browser: Browser,
    frame: Vec<u8>,
}

/// Bytes of a request that has begun.
const BEGUN: usize = 2;

impl Clients {
    fn of(address: SocketAddr) -> Self {
        let [http, websocket] = [(); 2].map(|()| Connection::to(address));
        let mut browser = Browser::over(Box::new(websocket.0.into_inner()));
        let request = get(&announce(random_hash(), 7_001, "")).into_bytes();
        let message = format!(
            r#"{{"action":"announce","info_hash":"{}","peer_id":"{}"}}"#,
            "h".repeat(20),
            "p".repeat(20)
        );
        // A mask of zeros.
        let mut frame = vec![0x81, 0x80 | message.len() as u8, 0, 0, 0, 0];
        frame.extend(message.bytes());
        http.send(&request[..BEGUN]);
        browser.write(&frame[..BEGUN]);
        Self { http, request, browser, frame }
    }

    /// The intervals of an announce of each.
    fn intervals(&mut self) -> [u64; 2] {
        let rest_and_next = |bytes: &[u8]| [&bytes[BEGUN..], &bytes[..BEGUN]].concat();
        self.http.send(rest_and_next(&self.request));
        self.browser.write(&rest_and_next(&self.frame));
        let (_, reply) = self.http.next_reply().expect("a reply");
        let reply = String::from_utf8_lossy(&reply);
        let (_, number) = reply.split_once("8:intervali").expect("an interval");
        let (number, _) = number.split_once('e').expect("its end");
        let (_, message) = self.browser.next();
        [number.parse().unwrap(), message["interval"].as_u64().expect("an interval")]
    }
}

#[test]
fn connections_without_a_place_lengthen_the_intervals() {
    const PLACES: usize = 64;
    let (mut daemon, [address, _]) = serve(&format!(
        "[announce]\ninterval_jitter_percent = 0\n[http]\nworkers = 1\ntimeout = 300\n\
         connections = {PLACES}\nconnections_per_source = 1000\n"
    ));
    let mut clients = Clients::of(address);
    assert_eq!(clients.intervals(), [1_800, 120]);
    let _others: Vec<_> = (2..PLACES)
        .map(|_| {
            let other = Connection::to(address);
            other.send("GET /");
            other
        })
        .collect();
    await_sum(&daemon, "connections", "", PLACES as u64);
    let newcomer = move || {
        let mut connection = Connection::to(address);
        // It may have been closed already.
        let _ = connection.0.get_ref().write(b"G");
        assert!(connection.has_ended());
    };
    meanwhile([newcomer; 2], || {
        eventually("both intervals are longer", || {
            let [http, websocket] = clients.intervals();
            http > 1_800 && websocket > 120
        });
    });
    daemon.line(OVERLOAD);
    assert_eq!(closed(&daemon, "replaced"), 0);
    assert!(closed(&daemon, "full") > 0);
    check_sums(&daemon);
}
