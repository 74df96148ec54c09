//! Upgrades while clients use HTTP: no request that reaches the host fails.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use onrush::upgrade::successor::SuccessorSide;
use onrush_config::Settings;
use onrush_swarm::{Shard, ShardMap};
use onrush_testing::memory_tracker::rules;
use onrush_testing::tls::{Issued, client};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Clock;
use onrush_tracker::orders::FRONT_PAUSE_LIMIT;
use rustls::ClientConfig;

use crate::harness::messages::UPGRADE_FAILED;
use crate::harness::{Daemon, eventually, free_address, leecher, meanwhile, random_hash};
use crate::http::{Connection, announce, get, only};
use crate::https::{Wire, ask, certificate_keys, connect, connect_by};
use crate::upgrade::{upgrade_by_ctl, with_admin};

/// An address, and how to use TLS there.
type Server = (SocketAddr, Option<Arc<ClientConfig>>);

/// A client that sends one request after the other.
struct Client {
    server: Server,
    /// Whether it uses a connection for several requests.
    keeps: bool,
    connection: Option<BufReader<Box<dyn Wire>>>,
    request: String,
}

impl Client {
    fn new(server: &Server, number: u16, keeps: bool) -> Self {
        let target = announce(random_hash(), 7_000 + number, "&left=0");
        let request = match keeps {
            true => get(&target),
            false => format!("GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n"),
        };
        Self { server: server.clone(), keeps, connection: None, request }
    }

    /// Gets a reply. Only a connection that was closed while it was idle is made again, as every
    /// client of HTTP does (RFC 9112, section 9.3.1).
    fn ask(&mut self) {
        if let Some(idle) = self.connection.take()
            && let Ok(connection) = exchange(idle, &self.request)
        {
            self.connection = connection;
            return;
        }
        let (address, tls) = &self.server;
        self.connection = loop {
            let began = Instant::now();
            match exchange(connect_by(*address, tls.as_ref()).0, &self.request) {
                Ok(connection) => break connection.filter(|_| self.keeps),
                // An upgrade does not wait longer for a handshake.
                Err(error) => {
                    let is_slow = tls.is_some() && began.elapsed() >= FRONT_PAUSE_LIMIT;
                    assert!(is_slow, "{error}");
                }
            }
        };
    }
}

/// Sends a request and reads the reply. Returns the connection if it is kept. The only error is
/// that it ended before the reply.
fn exchange(
    mut connection: BufReader<Box<dyn Wire>>,
    request: &str,
) -> io::Result<Option<BufReader<Box<dyn Wire>>>> {
    connection.get_mut().write_all(request.as_bytes())?;
    let (mut length, mut closes, mut line) = (0, false, String::new());
    if connection.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        assert_ne!(connection.read_line(&mut line).expect("a head"), 0, "the end of a head");
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        closes |= line == "Connection: close\r\n";
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).expect("a body");
    assert!(body.starts_with(b"d8:complete"), "{}", String::from_utf8_lossy(&body));
    Ok((!closes).then_some(connection))
}

/// A daemon with the admin API, this table `[http]` and a state directory; its configuration
/// without that table.
fn serve(state: &Path, http: &str) -> (Daemon, String) {
    let listen = "listen = [\"127.0.0.1:0\"]";
    let daemon = with_admin(state, &["--workers", "2"], &format!("{listen}\n[http]\n{http}\n"));
    let text = fs::read_to_string(daemon.config_path()).unwrap();
    (daemon, text.replace(&format!("[http]\n{http}\n"), ""))
}

/// Runs `change` while clients ask these servers. The argument of `change` waits for 200 further
/// replies.
fn under_load(servers: &[Server], change: impl FnOnce(&dyn Fn())) {
    let answered = AtomicUsize::new(0);
    let load = (0..8).map(|number| {
        let server = &servers[usize::from(number / 2) % servers.len()];
        let mut client = Client::new(server, number, number % 2 == 0);
        let answered = &answered;
        move || {
            client.ask();
            answered.fetch_add(1, Ordering::Relaxed);
        }
    });
    meanwhile(load, || {
        let await_replies = || {
            let enough = answered.load(Ordering::Relaxed) + 200;
            eventually("the load continues", || answered.load(Ordering::Relaxed) >= enough);
        };
        await_replies();
        change(&await_replies);
    });
}

/// With the same number of web workers, more and fewer.
#[test]
fn no_request_fails_over_upgrades() {
    let state = tempfile::tempdir().unwrap();
    let issued = Issued::of(&["t.example"]);
    let keys = certificate_keys(&issued, state.path());
    let [http, https] = [(); 2].map(|()| free_address());
    let table = |workers| {
        format!("listen = [\"{http}\"]\ntls_listen = [\"{https}\"]\n{keys}workers = {workers}")
    };
    let (mut daemon, rest) = serve(state.path(), &table(1));
    let servers = [(http, None), (https, Some(client(&[&issued])))];
    under_load(&servers, |await_replies| {
        for workers in [1, 3, 3, 1, 2] {
            daemon.configure(&format!("{rest}\n[http]\n{}\n", table(workers)));
            upgrade_by_ctl(&mut daemon, &[]);
            await_replies();
            let threads = daemon.threads("Pid").into_iter();
            let web = threads.filter(|(name, _)| name.starts_with("web-")).count();
            assert_eq!(web, workers);
        }
    });
    // Each of several listeners is accepted from.
    for server in &servers {
        (0..50).for_each(|_| Client::new(server, 1, false).ask());
    }
}

#[test]
fn https_is_served_over_upgrades() {
    let (state, address) = (tempfile::tempdir().unwrap(), free_address());
    let issued = Issued::of(&["t.example"]);
    let keys = certificate_keys(&issued, state.path());
    let (mut daemon, _) = serve(state.path(), &format!("tls_listen = [\"{address}\"]\n{keys}"));
    let (config, hash) = (client(&[&issued]), random_hash());
    let mut kept = connect(address, &config);
    ask(&mut kept, &announce(hash, 7_001, "&left=0"));
    for _ in 0..2 {
        upgrade_by_ctl(&mut daemon, &[]);
        assert!(kept.has_ended());
        // The ticket is of a key that is gone.
        kept = connect(address, &config);
        let reply = ask(&mut kept, &announce(hash, 7_002, "&left=1"));
        assert!(reply.ends_with(&only(SocketAddr::new(address.ip(), 7_001))), "{reply:?}");
    }
}

/// UDP is served while an upgrade waits for them.
#[test]
fn slow_clients_do_not_hold_an_upgrade() {
    let (state, http) = (tempfile::tempdir().unwrap(), free_address());
    let (mut daemon, _) = serve(state.path(), &format!("listen = [\"{http}\"]\ntimeout = 300"));
    let (udp, peer) = (daemon.client(), leecher(random_hash(), 7_001));
    let answered = AtomicUsize::new(0);
    let announces = || {
        udp.announce(&peer);
        answered.fetch_add(1, Ordering::Relaxed);
    };
    let mut upgrade = || {
        let [mut half, mut idle] = [(); 2].map(|()| Connection::to(http));
        half.send("GET /announce");
        idle.get("/health");
        daemon.signal("USR2");
        // Before the wait begins.
        let mut began = Instant::now();
        eventually("an idle connection is closed", || {
            let now = Instant::now();
            let is_open = is_open(&mut idle);
            began = if is_open { now } else { began };
            !is_open
        });
        let enough = answered.load(Ordering::Relaxed) + 2;
        eventually("UDP is served", || answered.load(Ordering::Relaxed) >= enough);
        let is_meanwhile = began.elapsed() < FRONT_PAUSE_LIMIT;
        daemon.upgraded();
        assert!(half.has_ended());
        is_meanwhile
    };
    meanwhile([announces], || eventually("UDP is served meanwhile", &mut upgrade));
    Connection::to(http).get("/health");
}

fn is_open(connection: &mut Connection) -> bool {
    connection.0.get_ref().set_nonblocking(true).unwrap();
    let is_open = connection.0.fill_buf().is_err_and(|it| it.kind() == ErrorKind::WouldBlock);
    connection.0.get_ref().set_nonblocking(false).unwrap();
    is_open
}

#[test]
fn a_stop_answers_begun_requests() {
    let issued = Issued::of(&["t.example"]);
    let config = client(&[&issued]);
    let [http, https] = [(); 2].map(|()| free_address());
    let request = get(&announce(random_hash(), 7_001, ""));
    let (begin, rest) = request.split_at(20);
    eventually("the requests are continued in time", || {
        let state = tempfile::tempdir().unwrap();
        let keys = certificate_keys(&issued, state.path());
        let table = format!("listen = [\"{http}\"]\ntls_listen = [\"{https}\"]\n{keys}");
        let (daemon, _) = serve(state.path(), &table);
        let (mut idle, mut plain) = (Connection::to(http), Connection::to(http));
        let mut tls = connect(https, &config);
        idle.get("/health");
        begin_request(&mut plain, begin);
        begin_request(&mut tls, begin);
        let began = Instant::now();
        daemon.signal("TERM");
        assert!(idle.has_ended());
        let in_time = is_answered(&mut plain, rest) && is_answered(&mut tls, rest);
        assert!(in_time || began.elapsed() >= FRONT_PAUSE_LIMIT);
        if in_time {
            plain.ends();
            tls.ends();
            // After `close_notify`.
            assert_eq!(tls.0.get_mut().sock.read(&mut [0]).unwrap(), 0);
        }
        daemon.end().exits(0, &[]);
        in_time
    });
}

/// Has a request answered and begins the next one.
fn begin_request<S: Read + Write>(connection: &mut Connection<S>, begin: &str) {
    ask(connection, "/health");
    connection.0.get_mut().write_all(begin.as_bytes()).unwrap();
}

/// Sends the rest of a request; whether it is answered.
fn is_answered<S: Read + Write>(connection: &mut Connection<S>, rest: &str) -> bool {
    let sent = connection.0.get_mut().write_all(rest.as_bytes());
    let is_answered = sent.is_ok() && connection.0.fill_buf().is_ok_and(|it| !it.is_empty());
    if is_answered {
        assert_eq!(connection.next_reply().expect("a reply").0, 200);
    }
    is_answered
}

#[test]
fn addresses_are_added_and_dropped() {
    let state = tempfile::tempdir().unwrap();
    let [kept, dropped, added] = [(); 3].map(|()| free_address());
    let table = |other| format!("listen = [\"{kept}\", \"{other}\"]");
    let (mut daemon, rest) = serve(state.path(), &table(dropped));
    Connection::to(dropped).get("/health");
    // An address of another program is an error, and nothing changes.
    let other = TcpListener::bind(added).unwrap();
    daemon.configure(&format!("{rest}\n[http]\n{}\n", table(added)));
    let refusal = format!("`http.listen.1`: {added} is taken by ");
    daemon.ctl(&["upgrade"]).exits(1, &[&refusal]);
    Connection::to(dropped).get("/health");
    drop(other);
    under_load(&[(kept, None)], |await_replies| {
        upgrade_by_ctl(&mut daemon, &[]);
        await_replies();
    });
    for address in [kept, added] {
        Connection::to(address).get("/health");
    }
    eventually("the predecessor has exited", || TcpStream::connect(dropped).is_err());
    // None is left.
    daemon.configure(&rest);
    upgrade_by_ctl(&mut daemon, &[]);
    eventually("no process listens", || TcpStream::connect(kept).is_err());
}

/// The successor fails after the predecessor has stopped accepting.
#[test]
fn after_a_failed_handoff_connections_that_waited_are_served() {
    let (state, http) = (tempfile::tempdir().unwrap(), free_address());
    let (mut daemon, _) = serve(state.path(), &format!("listen = [\"{http}\"]\nworkers = 2"));
    let settings = Settings::for_test(&format!(
        "state_dir = {:?}\nhttp.listen = [\"{http}\"]\n",
        state.path()
    ));
    let (clock, map) = (Clock::start(), ShardMap::new([1; 5], 1));
    let mut shard = Shard::new(rules(&settings).shard, [0; 16], 0);
    for _ in 0..2 {
        let mut side = SuccessorSide::request(&settings, clock).unwrap();
        let access = AccessList::Open;
        side.load_peers(vec![&mut shard], map, &access, clock.now(), 1_000, false).unwrap();
        side.wait_for_release().unwrap();
        let mut waiting: Vec<_> = (0..20).map(|_| Connection::to(http)).collect();
        waiting.iter().for_each(|client| client.send(get("/health")));
        drop(side);
        for client in &mut waiting {
            assert_eq!(client.next_reply().unwrap().0, 200);
            // It is kept.
            client.get("/health");
        }
        daemon.line(UPGRADE_FAILED);
        daemon.check();
    }
    upgrade_by_ctl(&mut daemon, &[]);
    Connection::to(http).get("/health");
}
