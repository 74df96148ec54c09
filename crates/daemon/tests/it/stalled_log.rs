//! A log that is not read. The tracker serves, sends watchdog notifications, writes snapshots and
//! stops as with a log that is read, and states how many lines were lost.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::net::SocketAddr;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};

use crate::harness::messages::LINES_LOST;
use crate::harness::{
    Client, Daemon, Launch, Metrics, Peers, eventually, free_address, is_up, launch_in, request,
};
use crate::service::NotifySocket;
use crate::snapshot::FILE;

/// Datagrams between two checks that the tracker has logged all of them.
const BURST: usize = 200;

/// A configuration with this admin side and these tables.
fn config(admin: SocketAddr, tables: &str) -> String {
    format!("[log]\ntotals_every = 0\n[admin]\nlisten = \"{admin}\"\n{tables}")
}

/// A tracker with a log of 4 KiB.
struct Stalled {
    daemon: Daemon,
    client: Client,
    admin: SocketAddr,
    /// Invalid requests, each of which is a line of the log.
    refused: usize,
}

impl Stalled {
    fn start(state: &Path, notify: &NotifySocket) -> (Self, BufReader<PipeReader>) {
        let (address, admin) = (free_address(), free_address());
        let (log, to) = pipe().unwrap();
        fcntl(&to, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
        let launch = Launch::new(&["--workers", "1", "--log-level", "debug"])
            .flag("--listen", address.to_string())
            .flag("--state-dir", state)
            .config(&config(admin, ""))
            .configured_admin()
            .environment("WATCHDOG_USEC", "1500000");
        let daemon = notify.launch(launch).start_with_log_to(to.into());
        let client = Client::new(address).connected_later();
        // The admin side serves later than the workers, and READY is a line of the unread log.
        eventually("the tracker is ready", || is_up(admin, "/ready"));
        (Self { daemon, client, admin, refused: 0 }, BufReader::new(log))
    }

    fn metrics(&self) -> Metrics {
        Metrics::parse(&request(self.admin, "GET", "/metrics", "", "").unwrap().body)
    }

    fn lost(&self) -> usize {
        self.metrics().sum("onrush_lost_log_lines_total", &[]) as usize
    }

    fn snapshots(&self) -> f64 {
        self.metrics().sum("onrush_file_writes_total", &["snapshot", "written"])
    }

    /// Sends invalid requests until further lines are lost.
    fn lose_lines(&mut self) {
        let before = self.lost();
        eventually("lines are lost", || {
            (0..BURST).for_each(|_| self.client.send(b"junk"));
            self.refused += BURST;
            // One worker takes them in order, so this reply follows all of them.
            self.client.connect();
            self.lost() > before
        });
    }
}

/// The number of lines lost, and the lines before it.
fn read_until_report(log: &mut impl BufRead) -> (usize, Vec<String>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log ends: {lines:?}");
        if let Some((head, _)) = line.split_once(LINES_LOST) {
            return (head.rsplit(' ').next().unwrap().parse().unwrap(), lines);
        }
        lines.push(line);
    }
}

#[test]
fn a_log_that_is_not_read_delays_nothing() {
    let (notify, state) = (NotifySocket::new(), tempfile::tempdir().unwrap());
    let (mut stalled, mut log) = Stalled::start(state.path(), &notify);
    stalled.lose_lines();
    let address = stalled.client.tracker();
    let peers = Peers::announced_to(address);
    notify.drain();
    for _ in 0..3 {
        notify.next("WATCHDOG=1");
    }

    // The log is read: the lines up to the loss are complete, and their number is right.
    let (lost, lines) = read_until_report(&mut log);
    assert_eq!(lost, stalled.lost());
    let refused = lines.iter().filter(|line| line.contains("refused (short)")).count();
    assert_eq!(refused + lost, stalled.refused);
    let json = request(stalled.admin, "GET", "/stats.json", "", "").unwrap().json();
    assert_eq!(json["lost_log_lines"].as_u64(), Some(lost as u64));

    // A queue of notifications that is not read would delay the tracker instead.
    drop(notify);
    // It is full again: snapshots are written, and a stop ends the process.
    stalled.daemon.configure(&config(stalled.admin, "[snapshot]\nevery = 1\n"));
    stalled.daemon.signal("HUP");
    stalled.lose_lines();
    let written = stalled.snapshots();
    eventually("snapshots are written", || stalled.snapshots() >= written + 2.0);
    stalled.daemon.signal("TERM");
    let ended = stalled.daemon.end();
    assert_eq!((ended.code, ended.signal), (Some(0), None));
    assert!(state.path().join(FILE).exists());
    peers.assert_restored(launch_in(state.path(), &["--workers", "1"], ""));
}
