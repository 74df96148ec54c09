//! A full disk and one that is mounted for reading only: at a snapshot, a list change, a stop and
//! an upgrade. What was on the disk stays usable, and nothing that was confirmed is lost.

use std::fs;

use crate::account::Account;
use crate::harness::messages::SNAPSHOT;
use crate::harness::{
    Daemon, Launch, Metrics, PLACEMENTS, Peers, TOKEN_FILE, assert_parts, free_address, hash,
    is_up, leecher, set_aside,
};
use crate::load::Load;
use crate::sandbox::{Disk, DiskFault};
use crate::upgrade::upgrade;

/// The upgrade socket could not be bound at the start, and is bound now.
const UPGRADES_AVAILABLE: &str = "upgrades without downtime are available";

/// Runs a test with a disk for each fault.
fn with_each_fault(test: impl Fn(DiskFault, &Disk) + Sync) {
    for fault in [DiskFault::Full, DiskFault::ReadOnly] {
        eprintln!("{fault:?}");
        Disk::with(|disk| test(fault, disk));
    }
}

/// A daemon whose state directory is on the disk.
fn launch(disk: &Disk, tables: &str) -> Launch {
    let flags = [PLACEMENTS[0], &["--listen", "127.0.0.1:0"]].concat();
    let admin = free_address();
    let config = format!("{TOKEN_FILE}listen = \"{admin}\"\n{tables}");
    Launch::new(&flags).flag("--state-dir", disk.path()).config(&config).configured_admin()
}

/// The number of snapshots with this outcome.
fn snapshots(metrics: &Metrics, outcome: &str) -> f64 {
    metrics.sum("onrush_file_writes_total", &["snapshot", outcome])
}

#[test]
fn a_disk_that_refuses_a_snapshot_costs_only_that_snapshot() {
    with_each_fault(|fault, disk| {
        let mut daemon = launch(disk, "[snapshot]\nevery = 1\n").serve();
        let peers = Peers::announced_to(daemon.address());
        let load = Load::start("127.0.3.3", daemon.address());
        daemon.skip();
        daemon.line(SNAPSHOT);
        daemon.line(SNAPSHOT);
        daemon.skip();
        fault.begin(disk);
        // A snapshot that has begun before is written, or leaves room for the next one.
        load.until("it fails again", || {
            fault.hold(disk);
            snapshots(&daemon.metrics(), "failed") >= 2.0
        });
        daemon.line_with("snapshot failed", &[" WARN ", "onrush.snapshot", fault.error()]);
        // The previous one is whole.
        let file = fs::read(disk.path().join("onrush.snapshot")).unwrap();
        fault.end(disk);
        let written = snapshots(&daemon.metrics(), "written");
        let again = || snapshots(&daemon.metrics(), "written") >= written + 2.0;
        load.until("snapshots are written again", again);
        load.end_answered();
        Account::balanced(&daemon);
        daemon.kill();
        for old in [false, true] {
            if old {
                fs::write(disk.path().join("onrush.snapshot"), &file).unwrap();
            }
            let daemon = launch(disk, "").serve_restored();
            peers.assert_served(daemon.address());
            daemon.kill();
        }
        assert_eq!(set_aside(disk.path()), 0);
    });
}

/// A takedown does not wait for room on a disk.
#[test]
fn a_list_change_that_a_disk_refuses_is_in_force_until_the_restart() {
    let tables = "[access]\nmode = \"deny\"\n";
    with_each_fault(|fault, disk| {
        let daemon = launch(disk, tables).serve();
        let load = Load::start("127.0.3.4", daemon.address());
        let add = |daemon: &Daemon, number| daemon.change_list("POST", &[hash(number)]).json();
        let is_lasting = |daemon: &Daemon, number| add(daemon, number)["lasting"] == true;
        assert!((1_000..1_200).all(|number| is_lasting(&daemon, number)));
        fault.begin(disk);
        // A block of the disk may have room for the first changes.
        let (added, unrecorded): (Vec<u32>, Vec<u32>) =
            (1_200..1_400).partition(|number| is_lasting(&daemon, *number));
        assert!(unrecorded.len() > 100, "{} unrecorded", unrecorded.len());
        let again = daemon.ctl(&["list", "add", &hash(unrecorded[0]).to_string()]);
        assert_eq!(again.code, Some(1), "{again:?}");
        assert_parts(&again.output, &["until the restart", "access.changes", fault.error()]);
        let assert_refused = |daemon: &Daemon| {
            let client = daemon.client();
            (1_000..1_400).for_each(|n| drop(client.announce_refused(&leecher(hash(n), 1_000))));
        };
        assert_refused(&daemon);
        fault.end(disk);
        // The refused writes have left nothing behind.
        let text = daemon.kill().text();
        assert!(text.contains("until the restart") && !text.contains("panicked"), "{text}");
        let daemon = launch(disk, tables).serve();
        let (client, of) = (daemon.client(), |number| leecher(hash(number), 1_000));
        (1_000..1_200).chain(added).for_each(|n| drop(client.announce_refused(&of(n))));
        unrecorded.iter().for_each(|number| drop(client.announce(&of(*number))));
        assert!(unrecorded.iter().all(|number| is_lasting(&daemon, *number)));
        daemon.kill();
        let daemon = launch(disk, tables).serve();
        assert_refused(&daemon);
        daemon.stop();
        load.end();
    });
}

#[test]
fn a_disk_that_refuses_the_last_snapshot_keeps_the_previous_one() {
    with_each_fault(|fault, disk| {
        let daemon = launch(disk, "").serve();
        let peers = Peers::announced_to(daemon.address());
        daemon.stop();
        let daemon = launch(disk, "").serve();
        daemon.client().announce(&leecher(hash(1), 1_000));
        fault.begin(disk);
        daemon.signal("TERM");
        let ended = daemon.end();
        ended.exits(3, &[]);
        assert_parts(ended.log.last().unwrap(), &["onrush.snapshot", "lost"]);
        ended.has_line("the final snapshot failed", &["onrush.snapshot", fault.error()]);
        fault.end(disk);
        peers.assert_restored(launch(disk, ""));
    });
}

/// The successor serves without writing a byte, and once the disk accepts again everything that
/// needs it works.
#[test]
fn a_disk_that_refuses_does_not_prevent_an_upgrade() {
    with_each_fault(|fault, disk| {
        let mut daemon = launch(disk, "[access]\nmode = \"deny\"\n").serve();
        let peers = Peers::announced_to(daemon.address());
        let (denied, later) = (hash(9_000), hash(9_001));
        assert_eq!(daemon.change_list("POST", &[denied]).status, 200);
        let load = Load::start("127.0.3.5", daemon.address());
        fault.begin(disk);
        upgrade(&mut daemon);
        load.served_again();
        peers.assert_served(daemon.address());
        daemon.client().announce_refused(&leecher(denied, 1_000));
        // The successor opens it when the predecessor has exited.
        load.until("the admin side listens again", || is_up(daemon.admin(), "/health"));
        if fault == DiskFault::ReadOnly {
            // The last block of the journal has room.
            assert_eq!(daemon.change_list("POST", &[later]).json()["lasting"], false);
        }
        fault.end(disk);
        assert_eq!(daemon.change_list("POST", &[later]).status, 200, "{fault:?}");
        if fault == DiskFault::ReadOnly {
            // The socket in the state directory is replaced by each process.
            daemon.wait_for_line(UPGRADES_AVAILABLE);
        }
        upgrade(&mut daemon);
        daemon.client().announce_refused(&leecher(later, 1_000));
        load.end_answered();
        daemon.stop().exits(0, &[SNAPSHOT]);
        let daemon = launch(disk, "[access]\nmode = \"deny\"\n").serve();
        peers.assert_served(daemon.address());
        daemon.client().announce_refused(&leecher(later, 1_000));
    });
}
