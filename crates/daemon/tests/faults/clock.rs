//! Steps of the wall clock, which the library libfaketime (package faketime) makes for one process.
//! Connection ids of the old time are refused once; peers, snapshots and everything else that is
//! timed stay right.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::account::Account;
use crate::harness::messages::{PEERS_RESTORED, SNAPSHOT, TOO_OLD};
use crate::harness::{Daemon, PLACEMENTS, Peers, launch_in, scrape, set_aside, transaction};
use crate::load::Load;

const HOUR: i64 = 3_600;
const YEAR: i64 = 365 * 24 * HOUR;

/// The library.
fn libfaketime() -> PathBuf {
    let libraries = fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let mut found = libraries.map(|path| path.join("faketime/libfaketimeMT.so.1"));
    found.find(|path| path.exists()).expect("package faketime is installed (see scripts/test)")
}

/// A wall clock that differs from the host's, read from a file by the processes that use it.
struct WallClock {
    directory: tempfile::TempDir,
}

impl WallClock {
    fn new() -> Self {
        let clock = Self { directory: tempfile::tempdir().unwrap() };
        clock.set(0);
        clock
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }

    /// Sets its distance from the host's clock in seconds.
    fn set(&self, offset: i64) {
        // In one step: the file is read while it is written.
        let new = self.directory.path().join("new");
        fs::write(&new, format!("{offset:+}\n")).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    /// Starts a daemon with this clock.
    fn start(&self, state: &Path) -> Daemon {
        launch_in(state, PLACEMENTS[0], "[snapshot]\nevery = 1\n")
            .admin()
            .environment("LD_PRELOAD", libfaketime().to_str().unwrap())
            .environment("FAKETIME_TIMESTAMP_FILE", self.file().to_str().unwrap())
            .environment("FAKETIME_NO_CACHE", "1")
            // The monotonic clock does not jump.
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .environment("DONT_FAKE_MONOTONIC", "1")
            .start()
    }
}

/// The time that snapshots are dated with: that of the last block.
fn dated(daemon: &Daemon) -> f64 {
    let name = "onrush_file_last_written_timestamp_seconds";
    daemon.metrics().sum(name, &["snapshot"])
}

/// Steps the clock of a running daemon, which serves on and writes right snapshots, and which a
/// restart at that time restores.
fn step(offset: i64) {
    let (state, clock) = (tempfile::tempdir().unwrap(), WallClock::new());
    let mut daemon = clock.start(state.path());
    daemon.serving();
    let peers = Peers::announced_to(daemon.address());
    let load = Load::start("127.0.3.2", daemon.address());

    // The load may connect anew just before the step.
    let mut old = daemon.client();
    let request = scrape(old.id, transaction(), &peers.hashes[..1]);
    daemon.line(SNAPSHOT);
    clock.set(offset);
    load.until("ids of the old time are refused", || {
        old.send(&request);
        Account::of(&daemon).refused > 0
    });
    // The same worker has counted all that this client has sent before.
    old.connect();
    load.served_again();
    let refused = Account::of(&daemon).refused;
    peers.assert_served(daemon.address());
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs() as f64 + offset as f64;
    // Each step is longer than an hour.
    let is_new = || (dated(&daemon) - now).abs() < HOUR as f64 / 2.0;
    load.until("a snapshot is dated with the new time", is_new);
    daemon.skip();
    daemon.line(SNAPSHOT);
    // Ids of the new time are valid from the first request on.
    assert_eq!(Account::of(&daemon).refused, refused);
    assert_eq!(daemon.metrics().sum("onrush_expired_peers_total", &[]), 0.0);
    load.end();
    Account::balanced(&daemon);
    let text = daemon.stop().text();
    assert!(!text.contains(" ERROR ") && text.contains("the wall clock jumped by "), "{text}");

    // At the same time, and on a host whose clock is behind the snapshot.
    for offset in [offset, offset - HOUR] {
        eprintln!("at {offset:+}");
        clock.set(offset);
        let mut daemon = clock.start(state.path());
        let line = daemon.line(PEERS_RESTORED);
        assert!(!line.contains(TOO_OLD), "{line}");
        daemon.serving();
        peers.assert_served(daemon.address());
    }
    assert_eq!(set_aside(state.path()), 0);
}

#[test]
fn a_clock_set_forward_by_an_hour_costs_one_connect() {
    step(HOUR);
}

#[test]
fn a_clock_set_back_by_an_hour_costs_one_connect() {
    step(-HOUR);
}

#[test]
fn a_clock_set_to_1970_costs_one_connect() {
    // The last start is an hour earlier.
    step(2 * HOUR - UNIX_EPOCH.elapsed().unwrap().as_secs() as i64);
}

#[test]
fn a_clock_set_forward_by_ten_years_costs_one_connect() {
    step(10 * YEAR);
}
