//! Peers over restarts: with other numbers of workers, after kills, and with damaged files.

use std::fs;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::harness::messages::{NO_PEERS, SNAPSHOT, SNAPSHOT_FAILED};
use crate::harness::{Launch, PLACEMENTS, Peers, eventually, launch_in, mode, set_aside};

pub(crate) const FILE: &str = "onrush.snapshot";

#[test]
fn peers_survive_a_restart_with_other_workers() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], "").serve();
    let peers = Peers::announced_to(daemon.address());
    let before = &peers.state;
    assert_eq!((before.counts[23].seeders, before.peers[23].len()), (12, 24));
    assert_eq!((before.counts[7].completed, before.peers[7].len()), (2, 0));
    for flags in [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[0]] {
        daemon.stop().exits(0, &[SNAPSHOT]);
        assert_eq!(mode(&state.path().join(FILE)), 0o600);
        daemon = launch_in(state.path(), flags, "").serve_restored();
        peers.assert_served(daemon.address());
    }
    daemon.stop();
    assert_eq!(set_aside(state.path()), 0);
}

#[test]
fn the_last_periodic_snapshot_survives_a_kill() {
    let state = tempfile::tempdir().unwrap();
    let every = "[snapshot]\nevery = 1\n";
    let daemon = launch_in(state.path(), PLACEMENTS[1], every).admin().serve();
    let peers = Peers::announced_to(daemon.address());
    let stats = || daemon.get("/stats.json").json();
    let file = || stats()["files"]["snapshot"].clone();
    // The next one may have begun before this point, but not the one after it.
    let last = file()["written"].as_u64().unwrap() + 2;
    eventually("snapshots are written", || file()["written"].as_u64() >= Some(last));
    assert!(file()["bytes"].as_u64() > Some(0), "{:#}", stats());
    assert!(file()["last"].as_f64() > stats()["started"].as_f64().map(|at| at - 1.0));
    assert!(stats()["files"]["export"]["last"].is_null(), "{:#}", stats());
    daemon.kill();
    peers.assert_restored(launch_in(state.path(), PLACEMENTS[1], ""));
}

/// The file may hold all peers: an operator can make it readable, or move it away.
#[test]
fn a_snapshot_that_cannot_be_read_is_not_overwritten() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join(FILE);
    let kept = state.path().join("kept");
    let daemon = launch_in(state.path(), PLACEMENTS[0], "").serve();
    let peers = Peers::announced_to(daemon.address());
    daemon.stop();
    let good = fs::read(&path).unwrap();
    fs::create_dir(&kept).unwrap();
    fs::rename(&path, kept.join(FILE)).unwrap();
    // Root can read every file, but no directory in place of one.
    fs::rename(&kept, &path).unwrap();
    let every = "[snapshot]\nevery = 1\n";
    let launch = Launch::new(PLACEMENTS[1]).flag("--listen", "127.0.0.1:0");
    let mut daemon = launch.flag("--state-dir", state.path()).admin_api(every).start();
    daemon.line_with(NO_PEERS, &["WARN", path.to_str().unwrap()]);
    daemon.serving();
    daemon.check();
    // At each schedule: a warning, and a failure in the metrics.
    daemon.line(SNAPSHOT_FAILED);
    daemon.line(SNAPSHOT_FAILED);
    let labels = ["file=\"snapshot\"", "outcome=\"failed\""];
    assert!(daemon.metrics().sum("onrush_file_writes_total", &labels) >= 2.0);
    // An upgrade carries the peers over, but not over the file.
    daemon.upgrade();
    daemon.line(SNAPSHOT_FAILED);
    assert_eq!(fs::read(path.join(FILE)).unwrap(), good);
    assert_eq!(set_aside(state.path()), 0);
    // It is readable now, but no process has loaded it.
    fs::write(&kept, &good).unwrap();
    renameat2(AT_FDCWD, &path, AT_FDCWD, &kept, RenameFlags::RENAME_EXCHANGE).unwrap();
    daemon.upgrade();
    daemon.line(SNAPSHOT_FAILED);
    assert_eq!(fs::read(&path).unwrap(), good);
    // Moved away, it is no longer in the way.
    let kept = state.path().join("moved");
    fs::rename(&path, &kept).unwrap();
    daemon.line(SNAPSHOT);
    daemon.stop();

    // Restored, it is loaded.
    fs::rename(kept, &path).unwrap();
    peers.assert_restored(launch_in(state.path(), PLACEMENTS[2], ""));
}

/// Moves the times of all blocks into the past and updates the checksums.
pub(crate) fn age(path: &Path, seconds: u64) {
    let mut bytes = fs::read(path).unwrap();
    let mut at = 32;
    while at < bytes.len() {
        let word = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let len = (word & 0x7FFF_FFFF) as usize;
        let unix = u64::from_be_bytes(bytes[at + 4..at + 12].try_into().unwrap()) - seconds;
        bytes[at + 4..at + 12].copy_from_slice(&unix.to_be_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[at..at + 12]);
        hasher.update(&bytes[at + 16..at + 16 + len]);
        let checksum = hasher.finalize().to_be_bytes();
        bytes[at + 12..at + 16].copy_from_slice(&checksum);
        at += 16 + len;
    }
    fs::write(path, bytes).unwrap();
}
