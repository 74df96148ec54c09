//! HTTP over real sockets (BEP 3, 7, 23, 48): announces and scrapes on UDP's swarms, what ends a
//! connection, and the sums of the counters. Each rule in detail: crates/web/tests.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_testing::bad_requests::bad_requests;
use socket2::SockRef;

use crate::harness::messages::RELOADED;
use crate::harness::{
    Client, Daemon, Launch, TIMEOUT, TOKEN_FILE, eventually, free_address, leecher, random_hash,
};

/// A daemon with HTTP on one port of 127.0.0.1 and of ::1, and these addresses.
pub(crate) fn serve(tables: &str) -> (Daemon, [SocketAddr; 2]) {
    let v4 = free_address();
    let addresses = [v4, SocketAddr::from((Ipv6Addr::LOCALHOST, v4.port()))];
    let [first, second] = addresses.map(|address| address.to_string());
    let flags = ["--workers", "2", "--http", &first, "--http", &second];
    (Launch::on_loopback().flags(&flags).admin_api(tables).serve(), addresses)
}

/// The request of a target, which keeps the connection.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n")
}

/// The target of an announce; more keys may follow.
pub(crate) fn announce(hash: InfoHash, port: u16, more: &str) -> String {
    let hash: String = hash.0.iter().map(|byte| format!("%{byte:02X}")).collect();
    format!("/announce?info_hash={hash}&peer_id=-ON0001-abcdefghijkl&port={port}{more}")
}

/// The end of a reply whose only peer is this one (BEP 7, 23).
pub(crate) fn only(peer: SocketAddr) -> Vec<u8> {
    let (mut end, ip) = match peer.ip() {
        IpAddr::V4(ip) => (b"5:peers6:".to_vec(), ip.octets().to_vec()),
        IpAddr::V6(ip) => (b"5:peers0:6:peers618:".to_vec(), ip.octets().to_vec()),
    };
    end.extend(ip);
    end.extend(peer.port().to_be_bytes());
    end.push(b'e');
    end
}

/// Errors at the end of a connection: a reset, or TLS without `close_notify`.
const ENDS: [ErrorKind; 2] = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];

/// A connection of a client.
pub(crate) struct Connection<S: Read = TcpStream>(pub(crate) BufReader<S>);

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        self.0.get_ref().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes until the tracker closes it without a byte: each one is in time, the whole that
    /// they are part of is not.
    pub(crate) fn times_out(&mut self) {
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        eventually("a request or a handshake that never ends is closed", || {
            let _ = self.0.get_ref().write(b"a");
            match self.0.fill_buf() {
                Ok(bytes) => {
                    assert_eq!(bytes, b"");
                    true
                }
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
        });
    }

    fn end_sending(&self) {
        self.0.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// The body of the reply to a GET, which has status 200.
    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Vec<u8> {
        self.send(get(target));
        let (status, body) = self.next_reply().expect("a reply");
        assert_eq!(status, 200, "{target}: {}", String::from_utf8_lossy(&body));
        body
    }
}

impl<S: Read> Connection<S> {
    /// The status and the body of the next reply; `None` at the end.
    pub(crate) fn next_reply(&mut self) -> Option<(u16, Vec<u8>)> {
        let lines = self.0.by_ref().lines().map(Result::unwrap);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let status = head.first()?.strip_prefix("HTTP/1.1 ").expect("a status line");
        let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.expect("a length").parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        Some((status[..3].parse().unwrap(), body))
    }

    /// Whether the tracker ends the connection, or resets it, without another byte.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.fill_buf().map_or_else(|it| ENDS.contains(&it.kind()), <[u8]>::is_empty)
    }

    /// Asserts that the tracker ends the connection without another byte, and without a reset.
    #[track_caller]
    pub(crate) fn ends(&mut self) {
        assert_eq!(self.0.fill_buf().unwrap(), b"");
    }
}

/// The sum of a metric of HTTP whose labels have this part.
#[track_caller]
pub(crate) fn sum(daemon: &Daemon, name: &str, label: &str) -> u64 {
    daemon.metrics().sum(&format!("onrush_http_{name}"), &[label]) as u64
}

pub(crate) fn refused(daemon: &Daemon, reason: &str) -> u64 {
    sum(daemon, "refused_requests_total", &format!("reason=\"{reason}\""))
}

pub(crate) fn closed(daemon: &Daemon, cause: &str) -> u64 {
    sum(daemon, "closed_connections_total", &format!("cause=\"{cause}\""))
}

/// Waits until a sum is this number: a reply may arrive before it is counted.
#[track_caller]
pub(crate) fn await_sum(daemon: &Daemon, name: &str, label: &str, number: u64) {
    eventually(&format!("{name} {label} is {number}"), || sum(daemon, name, label) == number);
}

/// Waits until every connection and every request is counted exactly once by its end.
pub(crate) fn check_sums(daemon: &Daemon) {
    eventually("accepted = open + closed, requests = answered + refused + abandoned", || {
        let metrics = daemon.metrics();
        let sum = |name: &str| metrics.sum(&format!("onrush_http_{name}"), &[]);
        let ends = ["answered", "refused", "abandoned"].map(|end| format!("{end}_requests_total"));
        sum("accepted_connections_total") == sum("connections") + sum("closed_connections_total")
            && sum("requests_total") == ends.iter().map(|end| sum(end)).sum::<f64>()
    });
}

#[test]
fn peers_over_http_and_over_udp_find_each_other() {
    let (daemon, http) = serve("[http]\nworkers = 2\n");
    for (udp, http) in daemon.addresses().iter().zip(http) {
        let (hash, udp) = (random_hash(), Client::new(*udp).connected());
        let [first, second] = [7_001, 7_002].map(|port| SocketAddr::new(http.ip(), port));
        let mut web = Connection::to(http);
        let seeder = announce(hash, first.port(), "&left=0");
        let alone = web.get(&seeder);
        assert!(alone.starts_with(b"d8:completei1e11:external ip"), "{alone:?}");
        assert!(alone.windows(16).any(|it| it == b"12:min intervali"), "{alone:?}");
        let reply = udp.announce(&leecher(hash, second.port()));
        assert_eq!((reply.counts(), reply.peers), ((1, 1), vec![first]));
        let both = web.get(&seeder);
        assert!(both.ends_with(&only(second)), "{both:?}");
        // The same peer over the other protocol.
        web.get(&announce(hash, second.port(), "&left=0&event=completed"));
        assert_eq!(udp.counts(hash), ScrapeCounts { seeders: 2, completed: 1, leechers: 0 });
        let scrape = announce(hash, 1, "").replace("/announce", "/scrape");
        let counts = b"d8:completei2e10:downloadedi1e10:incompletei0eeee";
        assert_eq!(web.get(&scrape), [&b"d5:filesd20:"[..], &hash.0, counts].concat());
        // The unknown hash is the first one in order, and the other is asked for twice.
        let (unknown, none) = (&[0; 20], b"d8:completei0e10:downloadedi0e10:incompletei0ee20:");
        let files = [&b"d5:filesd20:"[..], unknown, none, &hash.0, counts].concat();
        let hashes = scrape.split_once('&').unwrap().0.replace("/scrape?", "&");
        let more = format!("{scrape}&info_hash={}{hashes}", "%00".repeat(20));
        assert_eq!(web.get(&more), files);
        for port in [first.port(), second.port()] {
            web.get(&announce(hash, port, "&event=stopped"));
        }
        assert_eq!(udp.counts(hash), ScrapeCounts { seeders: 0, completed: 1, leechers: 0 });
    }
    check_sums(&daemon);
}

/// The number of peers in a reply (BEP 7, 23).
fn number_of_peers(reply: &[u8], ip: IpAddr) -> usize {
    let (key, len) = if ip.is_ipv4() { ("5:peers", 6) } else { ("6:peers6", 18) };
    let text: String = reply.iter().map(|byte| char::from(*byte)).collect();
    let (_, string) = text.split_once(key).expect("peers");
    string.split_once(':').unwrap().0.parse::<usize>().unwrap() / len
}

#[test]
fn each_key_of_an_announce_is_handled() {
    let (daemon, addresses) = serve("");
    for (udp, http) in daemon.addresses().iter().zip(addresses) {
        let (udp, mut web) = (Client::new(*udp).connected(), Connection::to(http));
        for (more, [seeders, leechers], listed) in [
            ("", [0, 1], Some(7_001)),
            ("&left=0", [1, 0], Some(7_001)),
            ("&left=none", [0, 1], Some(7_001)),
            ("&left=0&event=over", [1, 0], Some(7_001)),
            ("&event=started", [0, 1], Some(7_001)),
            ("&left=5&event=paused", [0, 1], Some(7_001)),
            ("&ip=192.0.2.1&ipv4=192.0.2.1:9&ipv6=2001:db8::1&key=9", [0, 1], Some(7_001)),
            // The last one counts.
            ("&port=0&port=7002", [0, 1], Some(7_002)),
            ("&port=1&left=0", [1, 0], None),
        ] {
            let hash = random_hash();
            let target = announce(hash, 7_001, more).replace("/announce", "/x/announce.php");
            web.get(&target);
            let counts = ScrapeCounts { seeders, completed: 0, leechers };
            assert_eq!(udp.counts(hash), counts, "{more}");
            let listed = listed.map(|port| SocketAddr::new(http.ip(), port));
            let peers = udp.announce(&leecher(hash, 9)).peers;
            assert_eq!(peers, Vec::from_iter(listed), "{more}");
        }
        let hash = random_hash();
        udp.announce(&leecher(hash, 9));
        let ip = http.ip().to_string();
        let list = format!("5:peersld2:ip{}:{ip}4:porti9eeee", ip.len());
        let reply = web.get(&announce(hash, 7_001, "&compact=0"));
        assert!(reply.ends_with(list.as_bytes()), "{reply:?}");
    }
    check_sums(&daemon);
}

#[test]
fn an_announce_with_an_invalid_key_fails() {
    let (daemon, addresses) = serve("");
    for (udp, http) in daemon.addresses().iter().zip(addresses) {
        let (hash, mut web) = (random_hash(), Connection::to(http));
        let target = announce(hash, 7_001, "");
        let without = |key: &str| target.replace(&format!("{key}="), "no=");
        let with = |more: &str| format!("{target}{more}");
        for (target, reason) in [
            (without("info_hash"), "info_hash"),
            (without("info_hash") + "&info_hash=short", "info_hash"),
            (with("&info_hash=aaaaaaaaaaaaaaaaaaaa"), "info_hashes"),
            (without("peer_id"), "peer_id"),
            (with("&peer_id=-ON0001-"), "peer_id"),
            (without("port"), "port_value"),
            (with("&port="), "port_value"),
            (with("&port=-1"), "port_value"),
            (with("&port=65536"), "port_value"),
            (with("&port=http"), "port_value"),
            (with("&port=0"), "port"),
            ("/scrape".to_owned(), "no_hash"),
            ("/scrape?info_hash=short".to_owned(), "info_hash"),
        ] {
            let before = refused(&daemon, reason);
            let reply = web.get(&target);
            assert!(reply.starts_with(b"d14:failure reason"), "{target}: {reply:?}");
            let label = format!("reason=\"{reason}\"");
            await_sum(&daemon, "refused_requests_total", &label, before + 1);
        }
        let none = ScrapeCounts { seeders: 0, completed: 0, leechers: 0 };
        assert_eq!(Client::new(*udp).connected().counts(hash), none);
    }
    check_sums(&daemon);
}

#[test]
fn a_reply_has_as_many_peers_as_asked_for() {
    let (daemon, addresses) = serve("[limits]\nsource_peers_per_swarm = 0\n");
    for (udp, http) in daemon.addresses().iter().zip(addresses) {
        let (hash, udp) = (random_hash(), Client::new(*udp).connected());
        (10_000..10_205).for_each(|port| drop(udp.announce(&leecher(hash, port))));
        let mut web = Connection::to(http);
        let most = if http.is_ipv4() { 200 } else { 67 };
        for (more, number) in [
            ("&numwant=1", 1),
            ("&numwant=0", 0),
            ("&numwant=1000", most),
            ("", 50),
            ("&numwant=-1", 50),
            ("&numwant=all", 50),
        ] {
            let reply = web.get(&announce(hash, 7_001, more));
            assert_eq!(number_of_peers(&reply, http.ip()), number, "{more}");
        }
    }
}

#[test]
fn each_form_of_a_request_is_served() {
    let (daemon, addresses) = serve("");
    let target = announce(random_hash(), 7_001, "");
    for address in addresses {
        for (request, is_last) in [
            (format!("GET http://tracker.example:80{target} HTTP/1.1\r\nhOST: t\r\n\r\n"), false),
            (format!("GET {target} HTTP/1.1\nHost: t\n\n"), false),
            (format!("\r\n\nGET {target} HTTP/1.1\r\nHost: t\r\nX:\té \r\n\r\n"), false),
            (format!("GET {target} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), false),
            (format!("GET {target} HTTP/1.1\r\nCONNECTION: Close\r\n\r\n"), true),
            (format!("GET {target} HTTP/1.0\r\n\r\n"), true),
        ] {
            let mut client = Connection::to(address);
            client.send(&request);
            let (status, body) = client.next_reply().expect("a reply");
            assert!(status == 200 && body.ends_with(b"e"), "{request}");
            match is_last {
                true => client.ends(),
                false => drop(client.get(&target)),
            }
        }
    }
    check_sums(&daemon);
}

#[test]
fn connections_have_their_limits() {
    let (daemon, [address, _]) = serve("[http]\nkeep_alive = 1\n");
    let mut idle = Connection::to(address);
    idle.get("/health");
    idle.ends();
    await_sum(&daemon, "closed_connections_total", "cause=\"idle\"", 1);
    let (daemon, [address, _]) = serve("[http]\nkeep_alive = 300\ntimeout = 1\n");
    // It sends requests without an end, as the kernel holds many replies for it.
    let unread = Connection::to(address);
    let stream = unread.0.get_ref();
    stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    let requests = get("/").repeat(1_000);
    let mut rest = &b""[..];
    eventually("a client that takes no reply is closed", || {
        rest = if rest.is_empty() { requests.as_bytes() } else { rest };
        rest = &rest[(&*stream).write(rest).unwrap_or(0)..];
        closed(&daemon, "timeout") == 1
    });
    let (daemon, [v4, v6]) = serve(
        "[http]\nworkers = 1\nkeep_alive = 300\nconnections = 3\nconnections_per_source = 2\n",
    );
    let mut open = [v4, v4, v6].map(|address| {
        let mut client = Connection::to(address);
        client.get("/health");
        client
    });
    let mut refused = Connection::to(v4);
    refused.send(get("/health"));
    assert!(refused.has_ended(), "of a source with two connections");
    Connection::to(v6).get("/health");
    open[0].ends();
    open[1].get("/health");
    for cause in ["source_limit", "replaced"] {
        await_sum(&daemon, "closed_connections_total", &format!("cause=\"{cause}\""), 1);
    }
    check_sums(&daemon);
}

#[test]
fn what_is_no_request_has_its_status_and_ends_only_its_connection() {
    let (daemon, [v4, v6]) = serve("[http]\nkeep_alive = 300\n");
    let mut honest = Connection::to(v6);
    honest.get("/health");
    let inputs = bad_requests();
    for (input, status, reason) in &inputs {
        let before = refused(&daemon, reason);
        let mut client = Connection::to(v4);
        // Bytes behind the refused request are not parsed.
        client.send(format!("{input}{}", get("/health")));
        assert_eq!(client.next_reply().unwrap().0, *status, "{input:.50}");
        client.ends();
        assert_eq!(refused(&daemon, reason), before + 1, "{reason}");
    }
    honest.get("/health");
    let all = inputs.len() as u64;
    await_sum(&daemon, "requests_total", "", all + 2);
    await_sum(&daemon, "closed_connections_total", "cause=\"bad_request\"", all);
    await_sum(&daemon, "connections", "", 1);
    check_sums(&daemon);
}

#[test]
fn tls_is_closed_without_a_byte() {
    let (daemon, [v4, v6]) = serve("[http]\nkeep_alive = 300\n");
    let mut honest = Connection::to(v6);
    honest.get("/health");
    let mut tls = Connection::to(v4);
    tls.send(b"\x16\x03\x01\x02\x00\x01");
    tls.ends();
    honest.get("/health");
    await_sum(&daemon, "closed_connections_total", "cause=\"tls\"", 1);
    check_sums(&daemon);
}

#[test]
fn a_reload_that_refuses_a_source_applies_to_its_open_connections() {
    let (mut daemon, addresses) = serve("[http]\nkeep_alive = 300\n");
    let [v4, v6] = addresses;
    let [mut first, mut second] = addresses.map(Connection::to);
    let target = announce(random_hash(), 7_001, "");
    _ = [&mut first, &mut second].map(|open| open.get(&target));
    for (cause, rule, source, mut open) in [
        ("blocked", "blocked = [\"::1\"]", v6, second),
        ("bogon", "refuse_bogons = true", v4, first),
    ] {
        daemon.configure(&format!("{TOKEN_FILE}[access]\n{rule}\n"));
        daemon.signal("HUP");
        daemon.line(RELOADED);
        eventually("a request is not served any more, whether it is valid or not", || {
            open.send(get("/announce"));
            open.next_reply().is_none()
        });
        let label = format!("cause=\"{cause}\"");
        await_sum(&daemon, "closed_connections_total", &label, 1);
        Connection::to(source).ends();
        await_sum(&daemon, "closed_connections_total", &label, 2);
        assert_eq!(refused(&daemon, cause), 1, "{cause}");
    }
    check_sums(&daemon);
}

/// libtorrent sends all its stops at once when it exits.
#[test]
fn a_thousand_pipelined_stops_are_answered_in_order() {
    let (daemon, addresses) = serve("");
    // Some are failures, in a sequence without a period, so that the order of replies shows.
    let is_failure = |number: u16| number.count_ones() % 2 == 1;
    let request = |number| {
        let port = if is_failure(number) { 0 } else { 6_881 };
        get(&announce(random_hash(), port, "&event=stopped"))
    };
    let requests: String = (0..1_000).map(request).collect();
    for address in addresses {
        let mut client = Connection::to(address);
        let sender = Connection(BufReader::new(client.0.get_ref().try_clone().unwrap()));
        thread::scope(|scope| {
            scope.spawn(|| sender.send(&requests));
            for number in 0..1_000 {
                let (status, body) = client.next_reply().expect("a reply to each");
                let fails = body.starts_with(b"d14:failure reason");
                assert_eq!((status, fails), (200, is_failure(number)), "{number}");
            }
        });
    }
    let failures = (0..1_000).filter(|number| is_failure(*number)).count() as u64;
    await_sum(&daemon, "refused_requests_total", "reason=\"port\"", 2 * failures);
    await_sum(&daemon, "requests_total", "", 2_000);
    check_sums(&daemon);
}

#[test]
fn a_client_that_has_ended_its_direction_gets_its_replies() {
    let (daemon, addresses) = serve("");
    for address in addresses {
        let mut client = Connection::to(address);
        client.send(get(&announce(random_hash(), 7_001, "")).repeat(2));
        client.end_sending();
        assert_eq!([(); 2].map(|()| client.next_reply().unwrap().0), [200, 200]);
        client.ends();
    }
    eventually("both ends are counted", || closed(&daemon, "client") == 2);
    check_sums(&daemon);
}

#[test]
fn input_behind_the_last_reply_does_not_reset_it() {
    let (daemon, [address, _]) = serve("");
    let mut client = Connection::to(address);
    let target = announce(random_hash(), 7_001, "");
    client.send(format!("GET {target} HTTP/1.0\r\n\r\n{}", "x".repeat(50_000)));
    // The tracker closes it before the client reads the reply.
    eventually("the connection is closed", || closed(&daemon, "served") == 1);
    assert_eq!(client.next_reply().unwrap().0, 200);
    client.ends();
    await_sum(&daemon, "requests_total", "", 1);
    check_sums(&daemon);
}

#[test]
fn slow_senders_do_not_delay_an_honest_client() {
    const SLOW: u64 = 500;
    let (daemon, [address, other]) =
        serve("[http]\ntimeout = 300\nkeep_alive = 300\nconnections_per_source = 1000\n");
    let mut slow: Vec<_> = (0..SLOW).map(|_| Connection::to(address)).collect();
    let mut honest = Connection::to(other);
    let target = announce(random_hash(), 7_001, "");
    let request = get(&target);
    let (begin, rest) = request.split_at(20);
    for byte in begin.bytes() {
        slow.iter().for_each(|client| client.send([byte]));
        honest.get(&target);
        // A newcomer, too.
        Connection::to(other).get(&target);
    }
    await_sum(&daemon, "connections", "", SLOW + 1);
    await_sum(&daemon, "requests_total", "", 2 * begin.len() as u64);
    for client in &mut slow {
        client.send(rest);
        assert_eq!(client.next_reply().unwrap().0, 200);
    }
    check_sums(&daemon);
}

#[test]
fn connections_that_end_at_any_moment_are_counted() {
    const ROUNDS: u64 = 50;
    let (daemon, [v4, v6]) = serve("[http]\nworkers = 2\n");
    let target = announce(random_hash(), 7_001, "");
    for _ in 0..ROUNDS {
        let [served, half, unread, reset] = [v4, v6, v4, v6].map(Connection::to);
        served.send(get(&target));
        served.end_sending();
        half.send(&get(&target)[..30]);
        unread.send(get(&target).repeat(3));
        reset.send(get(&target));
        // Dropping it sends a reset.
        SockRef::from(reset.0.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
    }
    let accepted = 4 * ROUNDS;
    await_sum(&daemon, "closed_connections_total", "", accepted);
    assert_eq!(sum(&daemon, "accepted_connections_total", ""), accepted);
    check_sums(&daemon);
}

#[test]
fn a_taken_port_is_named() {
    let (_daemon, addresses) = serve("[http]\nkeep_alive = 0\n");
    for address in addresses.map(|address| address.to_string()) {
        let second = Launch::on_loopback().flag("--http", &address).start();
        second.refusal(&[&format!("{address} is taken")]);
    }
    for address in addresses {
        let mut client = Connection::to(address);
        client.get("/health");
        client.ends();
    }
}
