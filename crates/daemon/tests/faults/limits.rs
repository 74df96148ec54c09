//! Limits of the process: few open files, and little memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::account::Account;
use crate::harness::messages::SNAPSHOT;
use crate::harness::{
    PLACEMENTS, Peers, TIMEOUT, free_address, is_up, launch_in, random_hash, seeder,
};
use crate::load::Load;
use crate::upgrade::upgrade;

/// Open files that the daemon may have.
const FILES: usize = 32;
/// The thread that waits for an upgrade has reserved one for the connection (accept(2)).
const RESERVED: usize = 1;
/// Requests for which the CPU time of the daemon is measured.
const MEASURED: u64 = 1_000;

/// CPU time of a process in seconds, by /proc.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, in the 100ths of a second of every Linux.
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// The open files of a process, but for those that it opens for a moment: of snapshots in this
/// directory, and of the kernel.
fn files(pid: u32, state: &Path) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let is_brief = |name: &Path| {
        name.starts_with("/proc")
            || name.starts_with("/sys")
            || name.starts_with(state) && !name.ends_with("lock")
    };
    names.filter(|name| !is_brief(name)).count()
}

/// Connections to the admin side take every free descriptor: UDP is served, no thread spins, an
/// upgrade is refused with its reason, and all works again once they are closed.
#[test]
fn without_free_descriptors_the_tracker_serves_and_refuses_upgrades() {
    let state = tempfile::tempdir().unwrap();
    // One source gets a quarter of the connections.
    let config = "[admin]\nconnections = 1000\ntimeout = 300\n[snapshot]\nevery = 1\n";
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], config)
        .admin()
        .under(&["prlimit", &format!("--nofile={FILES}:{FILES}")])
        .serve();
    let address = daemon.address();
    let peers = Peers::announced_to(address);
    let admin = daemon.admin();
    let load = Load::start("127.0.3.8", address);
    let pid = daemon.pid();
    let files = || files(pid, state.path());
    let open = files();
    let mut connections = Vec::new();
    load.until("no descriptor is free", || {
        // The tracker accepts them in its own time.
        if connections.len() < 2 * FILES {
            let mut connection = TcpStream::connect(admin).unwrap();
            let _ = connection.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
            connections.push(connection);
        }
        files() >= FILES - RESERVED
    });
    daemon.skip();
    daemon.signal("USR2");
    daemon.line_with("SIGUSR2: ", &[" ERROR ", "Too many open files"]);
    let cpu = cpu_seconds(pid);
    load.answered(MEASURED);
    let cpu = cpu_seconds(pid) - cpu;
    assert!(cpu < 0.5, "{cpu} s of CPU time for {MEASURED} requests");
    peers.assert_served(address);
    drop(connections);
    load.until("descriptors are free again", || files() <= open);
    load.until("the admin side answers again", || is_up(admin, "/health"));
    daemon.skip();
    daemon.line(SNAPSHOT);
    upgrade(&mut daemon);
    peers.assert_served(address);
    load.end_answered();
}

const REQUEST: &str = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection over HTTP on which this was sent.
fn sent(http: SocketAddr, text: &str) -> TcpStream {
    let mut client = TcpStream::connect(http).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(text.as_bytes()).unwrap();
    client
}

/// Reads the reply to [`REQUEST`].
fn is_answered(client: &mut TcpStream) {
    let mut reply = [0; 1024];
    let length = client.read(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply[..length]);
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

/// Connections over HTTP take every free descriptor: UDP is served. Idle ones are closed for new
/// ones; if none is idle, new ones wait, no thread spins, and all works once the others are closed.
#[test]
fn without_free_descriptors_connections_over_http_replace_idle_ones_or_wait() {
    let (state, http) = (tempfile::tempdir().unwrap(), free_address());
    let config = format!("[http]\nlisten = [\"{http}\"]\ntimeout = 300\nkeep_alive = 300\n");
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], &config)
        .admin()
        .under(&["prlimit", &format!("--nofile={FILES}:{FILES}")])
        .serve();
    daemon.wait_for_line("Set LimitNOFILE=");
    let address = daemon.address();
    let peers = Peers::announced_to(address);
    let load = Load::start("127.0.3.10", address);
    let pid = daemon.pid();
    let are_used = || files(pid, state.path()) >= FILES - RESERVED;
    let mut idle: Vec<_> = (0..2 * FILES).map(|_| sent(http, REQUEST)).collect();
    idle.iter_mut().for_each(is_answered);
    assert!(are_used(), "descriptors are free");
    drop(idle);

    let half: Vec<_> = (0..2 * FILES).map(|_| sent(http, &REQUEST[..20])).collect();
    let mut waiting = sent(http, REQUEST);
    load.until("no descriptor is free", are_used);
    let cpu = cpu_seconds(pid);
    load.answered(MEASURED);
    let cpu = cpu_seconds(pid) - cpu;
    assert!(cpu < 0.5, "{cpu} s of CPU time for {MEASURED} requests");
    peers.assert_served(address);
    waiting.set_nonblocking(true).unwrap();
    assert_eq!(waiting.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    waiting.set_nonblocking(false).unwrap();
    drop(half);
    is_answered(&mut waiting);
    is_answered(&mut sent(http, REQUEST));

    load.until("the connections are counted", || {
        let metrics = daemon.metrics();
        let sum = |name: &str, label: &str| metrics.sum(&format!("onrush_http_{name}"), &[label]);
        assert!(sum("accept_errors_total", "") > 0.0);
        assert!(sum("closed_connections_total", "cause=\"replaced\"") > 0.0);
        let closed = sum("closed_connections_total", "");
        closed >= 4.0 * FILES as f64
            && sum("accepted_connections_total", "") == sum("connections", "") + closed
    });
    peers.assert_served(address);
    load.end_answered();
}

/// Bytes of data that the process may have, on top of some 60 MiB for stacks and the allocator.
const MEMORY: &str = "--data=134217728";
/// `limits.peers` in that memory.
const PEERS: u32 = 100_000;
/// Connection ids that are valid for as long as a test takes on any host.
const LONG_IDS: &str = "[connection]\nvalidity = 3600\n";
/// Announces per burst.
const BURST: usize = 125;

/// A tracker whose `limits.peers` suits its memory fills up to that limit and serves on: newcomers
/// are answered and not stored, and the snapshot is written in the memory that is left.
#[test]
fn a_memory_limit_that_suits_the_limit_of_peers_is_not_exceeded() {
    let state = tempfile::tempdir().unwrap();
    let config = format!("{LONG_IDS}[limits]\npeers = {PEERS}\n[snapshot]\nevery = 1\n");
    let mut daemon =
        launch_in(state.path(), PLACEMENTS[2], &config).admin().under(&["prlimit", MEMORY]).serve();
    let load = Load::start("127.0.3.9", daemon.address());
    let client = daemon.client();
    for _ in 0..(PEERS as usize * 5 / 4) / BURST {
        let hashes: Vec<_> = (0..BURST).map(|_| random_hash()).collect();
        client.burst(&hashes);
    }
    load.until("newcomers are not stored", || {
        let metrics = daemon.metrics();
        let peers = metrics.sum("onrush_peers", &[]);
        assert!(peers <= f64::from(PEERS), "{peers}");
        metrics.sum("onrush_not_stored_peers_total", &[]) > 0.0
    });
    daemon.skip();
    daemon.line(SNAPSHOT);
    load.served_again();
    load.end_answered();
    Account::balanced(&daemon);
    let text = daemon.stop().text();
    assert!(!text.contains(" ERROR "), "{text}");
}

/// The same for a process that is to reach its limit soon.
const LITTLE_MEMORY: &str = "--data=104857600";

/// Without memory for the peers that `limits.peers` allows the process ends, so that the service
/// manager starts it again, and has the peers of the last snapshot then.
#[test]
fn a_process_without_memory_ends_and_the_next_start_has_the_snapshot() {
    let state = tempfile::tempdir().unwrap();
    let daemon = launch_in(state.path(), PLACEMENTS[2], "").serve();
    let peers = Peers::announced_to(daemon.address());
    daemon.stop();

    let mut daemon =
        launch_in(state.path(), PLACEMENTS[2], LONG_IDS).under(&["prlimit", LITTLE_MEMORY]).serve();
    let client = daemon.client();
    let socket = UdpSocket::bind((client.address().ip(), 0)).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !daemon.has_exited() {
        assert!(Instant::now() < deadline, "the limit has no effect");
        for _ in 0..BURST {
            let request = seeder(random_hash(), 4_001).bytes(client.id, 1);
            socket.send_to(&request, client.tracker()).unwrap();
        }
    }
    let ended = daemon.end();
    assert_eq!(ended.signal, Some(Signal::SIGABRT as i32), "{}", ended.text());

    peers.assert_restored(launch_in(state.path(), PLACEMENTS[2], ""));
}
