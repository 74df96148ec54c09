//! The server over loopback: states, slow clients, crowds of clients, hosts.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::token::TOKEN_KEY;
use onrush_config::Settings;
use onrush_config::settings::Listen;
use onrush_net::connection_limits::Source;

/// Deadline of every wait.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Settings by which no time limit of a connection applies before [`DEADLINE`].
pub(super) fn settings() -> AdminSettings {
    AdminSettings { timeout: 10 * DEADLINE, ..Settings::for_test("").admin }
}

/// Settings whose time limits apply soon: only for connections that are not expected to last.
pub(super) fn short_limits() -> AdminSettings {
    AdminSettings { timeout: Duration::from_millis(200), ..settings() }
}

/// Polls until a condition is true.
pub(super) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// The complete response to a request.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    io::read_to_string(stream).unwrap()
}

#[test]
fn the_server_is_alive_and_not_ready_unless_the_tracker_serves() {
    let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
    let server = Server::start(Some(bind(listen).unwrap()), &settings(), None, || ()).unwrap();
    assert!(server.announcement.as_ref().unwrap().contains("admin.token_file"));
    let get = |path| get(server.address.unwrap(), path);
    assert!(get("/health").starts_with("HTTP/1.1 200 "));
    let ready = get("/ready");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"starting\""), "{ready}");
    let stats = get("/stats.json");
    assert!(stats.starts_with("HTTP/1.1 503 ") && stats.contains("/ready"), "{stats}");
    server.stopping();
    let ready = get("/ready");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"stopping\""), "{ready}");
    let address = server.address.unwrap();
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err(), "the socket is closed");
}

#[test]
fn a_server_that_waits_for_its_address_has_no_announcement() {
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let waits = bind_later(first.local_addr().unwrap());
    assert_eq!(Server::start(Some(waits), &settings(), None, || ()).unwrap().announcement, None);
}

#[test]
fn privileges_are_dropped_before_the_start_returns() {
    static DROPPED: AtomicBool = AtomicBool::new(false);
    let drop_late = || {
        (0..10_000).for_each(|_| thread::yield_now());
        DROPPED.store(true, Ordering::Release);
    };
    let _server = Server::start(None, &settings(), None, drop_late).unwrap();
    assert!(DROPPED.load(Ordering::Acquire));
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let server = serving(&short_limits());
    let mut stream = connect(&server);
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let error = loop {
        if let Err(error) = stream.write_all(request) {
            break error;
        }
    };
    // Not WouldBlock: the server has closed the connection.
    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(kinds.contains(&error.kind()), "{error}");
}

/// A server with these settings and a token.
fn serving(settings: &AdminSettings) -> Server {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKEN).unwrap();
    let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
    let token = Token::load(TOKEN_KEY, Some(file.path())).unwrap();
    Server::start(Some(bind(listen).unwrap()), settings, token, || ()).unwrap()
}

const TOKEN: &str = "of-the-tests-0123456789";

fn connect(server: &Server) -> std::net::TcpStream {
    let stream = std::net::TcpStream::connect(server.address.unwrap()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The status and the rest of the response to a request; `None` where the server has closed the
/// connection.
fn ask(stream: &mut std::net::TcpStream, path: &str) -> Option<(u16, String)> {
    // One write: the kernel delays the rest of a request until its first part is acknowledged.
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    response(stream)
}

fn response(stream: &mut std::net::TcpStream) -> Option<(u16, String)> {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        (stream.read(&mut byte).ok()? == 1).then(|| text.push(byte[0]))?;
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let length = head.split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head + &String::from_utf8(body).unwrap()))
}

/// Whether the server closes the connection, without or after a response.
fn is_closed(stream: &mut std::net::TcpStream) -> bool {
    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    stream.read_to_end(&mut Vec::new()).map_or_else(|e| kinds.contains(&e.kind()), |_| true)
}

/// Clients that keep their connections, ask again and again, and connect anew when they are cut off
/// do not keep others out.
#[test]
fn keep_alive_clients_do_not_keep_others_out() {
    for clients in [64, 200] {
        let server = serving(&settings());
        let mut kept: Vec<_> = (0..clients).map(|_| connect(&server)).collect();
        for round in 0..3 {
            for (nth, client) in kept.iter_mut().enumerate() {
                if ask(client, "/openapi.json").is_none() {
                    *client = connect(&server);
                    assert_eq!(ask(client, "/openapi.json").unwrap().0, 200);
                }
                if nth % 10 == round {
                    let mut other = connect(&server);
                    assert_eq!(ask(&mut other, "/health").unwrap().0, 200);
                    assert_eq!(ask(&mut other, "/openapi.json").unwrap().0, 200);
                }
            }
        }
        let connections = &server.acceptor.state.connections;
        let open = connections.counters.connections.get();
        assert!(open <= settings().connections as u64, "{open}");
        assert_eq!(connections.counters.rejected.get(), 0);
        assert!(connections.counters.evicted.get() > 0);
    }
}

/// Connections that send nothing or half a head are closed for others.
#[test]
fn silent_connections_do_not_keep_others_out() {
    let server = serving(&settings());
    let mut silent: Vec<_> = (0..200u8)
        .map(|nth| {
            let mut stream = connect(&server);
            if nth % 2 == 0 {
                stream.write_all(b"GET /openapi.json HT").unwrap();
            }
            stream
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(ask(&mut connect(&server), "/openapi.json").unwrap().0, 200);
    }
    assert!(silent[..184].iter_mut().all(is_closed), "at once, not after admin.timeout");
}

/// The head of a request that has a body of ten bytes.
pub(super) fn head_without_a_body() -> String {
    format!(
        "POST /api/v1/list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 10\r\n\r\n"
    )
}

/// Requests whose body does not arrive make room, also for others of the same source.
#[test]
fn incomplete_requests_do_not_keep_others_out() {
    let server = serving(&settings());
    let requests = &server.acceptor.state.connections.counters.requests;
    let mut half: Vec<_> = (0..40).map(|_| connect(&server)).collect();
    // Some have been closed for others.
    half.iter_mut().for_each(|it| drop(it.write_all(head_without_a_body().as_bytes())));
    eventually("the places of the source are in use", || requests.get() >= 16);
    assert_eq!(ask(&mut connect(&server), "/openapi.json").unwrap().0, 200);
}

/// Connections in use are not closed for others: these use the reserve.
#[test]
fn health_is_answered_while_all_connections_are_in_use() {
    let server = serving(&AdminSettings { connections: 8, ..settings() });
    let state = &server.acceptor.state;
    let new = || connect(&server);
    let source = Source::of([127, 0, 0, 1].into());
    let slots: Vec<_> =
        (0..8).map(|_| state.connections.admit(source, Instant::now()).unwrap()).collect();
    // The requests have arrived.
    let in_use: Vec<_> = slots.iter().map(|slot| slot.begin_request().1).collect();
    let mut other = new();
    let (status, rejected) = ask(&mut other, "/openapi.json").unwrap();
    assert!(status == 503 && is_closed(&mut other), "{rejected}");
    assert!(rejected.contains("retry-after: 1") && rejected.contains("admin.connections"));
    assert!(rejected.contains("connection: close"), "{rejected}");
    // Silent ones do not exhaust the reserve either.
    let _silent: Vec<_> = (0..40).map(|_| new()).collect();
    assert_eq!(ask(&mut new(), "/health").unwrap().0, 200);
    let (status, ready) = ask(&mut new(), "/ready").unwrap();
    assert!(status == 503 && ready.contains("\"starting\""), "{ready}");
    drop((in_use, slots));
    assert_eq!(ask(&mut new(), "/openapi.json").unwrap().0, 200);
    assert_eq!(state.connections.counters.rejected.get(), 1);
}

#[test]
fn slow_heads_are_cut_off() {
    let server = serving(&short_limits());
    let mut stream = connect(&server);
    let pause = Duration::from_millis(10);
    stream.set_read_timeout(Some(pause)).unwrap();
    // Fewer bytes than a head may have.
    let is_open = |_: &u128| {
        stream.write_all(b"x").is_ok()
            && stream.read(&mut [0]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    };
    let most = DEADLINE.as_millis() / pause.as_millis();
    assert!((0..most).take_while(is_open).count() < most as usize, "the connection stays open");
}

/// DNS rebinding: the page of another host asks this server for what it serves.
#[test]
fn only_known_hosts_are_served() {
    let mut settings = settings();
    settings.hosts = vec!["tracker.example.org".to_owned()];
    let server = serving(&settings);
    let port = server.address.unwrap().port();
    let status = |target: &str, version: &str, headers: &str| {
        let mut stream = connect(&server);
        write!(stream, "GET {target} HTTP/{version}\r\n{headers}\r\n").unwrap();
        response(&mut stream).unwrap()
    };
    for (host, expected) in [
        ("127.0.0.1", 200),
        ("192.0.2.7:6970", 200),
        ("[::1]:6970", 200),
        ("localhost", 200),
        ("tracker.example.org", 200),
        ("Tracker.Example.ORG.:6970", 200),
        ("evil.example", 421),
        ("evil.example:6970", 421),
        ("sub.tracker.example.org", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 400),
    ] {
        let (status, text) = status("/openapi.json", "1.1", &format!("Host: {host}\r\n"));
        assert_eq!(status, expected, "{host}: {text}");
        assert!(status == 200 || text.contains("{\"error\":"), "{text}");
        assert!(status != 421 || text.contains("admin.hosts"), "{text}");
    }
    // Every path, whether it exists or needs the token.
    for path in
        ["/", "/health", "/ready", "/metrics", "/stats.json", "/lists", "/api/v1/list", "/x"]
    {
        assert_eq!(status(path, "1.1", "Host: evil.example\r\n").0, 421, "{path}");
        assert_eq!(status(path, "1.1", "").0, 400, "{path}");
    }
    assert_eq!(status("/health", "1.0", "").0, 200);
    assert_eq!(status("/health", "1.1", "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n").0, 400);
    let absolute = |host: &str| format!("http://{host}:{port}/health");
    let header = "Host: 127.0.0.1\r\n";
    assert_eq!(status(&absolute("evil.example"), "1.1", header).0, 421);
    assert_eq!(status(&absolute("127.0.0.1"), "1.1", header).0, 200);
}

#[test]
fn a_path_that_is_not_utf_8_is_a_json_error() {
    let server = serving(&settings());
    for path in ["/api/v1/swarm/%ff", "/api/v1/list/%ff"] {
        let mut stream = connect(&server);
        let authorization = format!("Authorization: Bearer {TOKEN}");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n\r\n")
            .unwrap();
        let (status, text) = response(&mut stream).unwrap();
        assert!(status == 400 && text.contains("{\"error\":"), "{text}");
    }
}

/// The token is needed at the control socket only by users other than root and that of the process.
#[test]
fn the_control_socket_serves_all_routes_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control.sock");
    // Also without a TCP address and without a token.
    let mut server = Server::start(None, &settings(), None, || ()).unwrap();
    assert_eq!((server.address, &server.announcement), (None, &None));
    server.serve_socket(UnixListener::bind(&path).unwrap(), &path).unwrap();
    let ask = |target: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        io::read_to_string(stream).unwrap()
    };
    assert!(ask("/health").starts_with("HTTP/1.1 200 "));
    // Authorized; there is no list yet.
    let list = ask("/api/v1/list");
    assert!(list.starts_with("HTTP/1.1 503 ") && list.contains("starting"), "{list}");
    drop(server);
    assert!(UnixStream::connect(&path).is_err(), "the socket is closed");
}
