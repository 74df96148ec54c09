//! Upgrades while clients use HTTP: no request that reaches the host fails.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use onrush::upgrade::successor::SuccessorSide;
use onrush_config::Settings;
use onrush_swarm::{Shard, ShardMap};
use onrush_testing::memory_tracker::rules;
use onrush_testing::tls::{Issued, client};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Clock;

use crate::harness::messages::UPGRADE_FAILED;
use crate::harness::{Daemon, TIMEOUT, eventually, free_address, meanwhile, random_hash};
use crate::http::{Connection, announce, get, only};
use crate::https::{ask, certificate_keys, connect};
use crate::upgrade::{upgrade_by_ctl, with_admin};

/// A client that sends one request after the other.
struct Client {
    address: SocketAddr,
    /// Whether it uses a connection for several requests.
    keeps: bool,
    connection: Option<BufReader<TcpStream>>,
    request: String,
}

impl Client {
    fn new(address: SocketAddr, number: u16, keeps: bool) -> Self {
        let target = announce(random_hash(), 7_000 + number, "&left=0");
        let request = match keeps {
            true => get(&target),
            false => format!("GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n"),
        };
        Self { address, keeps, connection: None, request }
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
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let connection = exchange(BufReader::new(stream), &self.request);
        self.connection = connection.expect("a reply").filter(|_| self.keeps);
    }
}

/// Sends a request and reads the reply. Returns the connection if it is kept. The only error is
/// that it ended before the reply.
fn exchange(
    mut connection: BufReader<TcpStream>,
    request: &str,
) -> io::Result<Option<BufReader<TcpStream>>> {
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

/// Runs `change` while clients ask at `address`. The argument of `change` waits for 200 further
/// replies.
fn under_load(address: SocketAddr, change: impl FnOnce(&dyn Fn())) {
    let answered = AtomicUsize::new(0);
    let load = (0..8).map(|number| {
        let mut client = Client::new(address, number, number % 2 == 0);
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
    let (state, http) = (tempfile::tempdir().unwrap(), free_address());
    let table = |workers| format!("listen = [\"{http}\"]\nworkers = {workers}");
    let (mut daemon, rest) = serve(state.path(), &table(1));
    under_load(http, |await_replies| {
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
    for _ in 0..50 {
        Client::new(http, 1, false).ask();
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

#[test]
fn slow_clients_do_not_hold_an_upgrade() {
    let (state, http) = (tempfile::tempdir().unwrap(), free_address());
    let (mut daemon, _) = serve(state.path(), &format!("listen = [\"{http}\"]\ntimeout = 300"));
    let mut half = Connection::to(http);
    half.send("GET /announce");
    let mut idle = Connection::to(http);
    idle.get("/health");
    upgrade_by_ctl(&mut daemon, &[]);
    for client in [&mut half, &mut idle] {
        assert!(client.has_ended());
    }
    Connection::to(http).get("/health");
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
    under_load(kept, |await_replies| {
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
