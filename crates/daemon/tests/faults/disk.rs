//! A full disk and one that is mounted for reading only: at a snapshot, a list change, a stop and
//! an upgrade. What was on the disk stays usable, and nothing that was confirmed is lost.

use std::fs;

use onrush_proto::InfoHash;

use crate::account::Account;
use crate::harness::http::{Metrics, request};
use crate::harness::messages::SNAPSHOT;
use crate::harness::packets::{hash, leecher};
use crate::harness::process::{Daemon, Launch, TOKEN_FILE, free_address};
use crate::harness::swarms::{PLACEMENTS, Peers, set_aside};
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

/// Whether the admin side answers, which the successor opens when the predecessor has exited.
fn is_healthy(daemon: &Daemon) -> bool {
    request(daemon.admin(), "GET", "/health", "", "").is_ok_and(|response| response.status == 200)
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

#[test]
fn a_disk_that_refuses_a_list_change_refuses_only_that_change() {
    let tables = "[access]\nmode = \"deny\"\n";
    with_each_fault(|fault, disk| {
        let daemon = launch(disk, tables).serve();
        let load = Load::start("127.0.3.4", daemon.address());
        let listed: Vec<InfoHash> = (1_000..1_400).map(hash).collect();
        let (first, second) = listed.split_at(200);
        let add = |daemon: &Daemon, hash: &InfoHash| daemon.change_list("POST", &[*hash]);
        first.iter().for_each(|hash| assert_eq!(add(&daemon, hash).status, 200));
        fault.begin(disk);
        // A block of the disk may have room for the first changes.
        let refused: Vec<_> =
            second.iter().filter(|hash| add(&daemon, hash).status != 200).collect();
        assert!(refused.len() > 100, "{} refused", refused.len());
        let error = add(&daemon, refused[0]).error(500);
        let parts = ["access.changes", fault.error()];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        let applies = |daemon: &Daemon| {
            let client = daemon.client();
            for hash in &listed {
                if refused.contains(&hash) {
                    client.announce(&leecher(*hash, 1_000));
                } else {
                    client.announce_refused(&leecher(*hash, 1_000));
                }
            }
        };
        applies(&daemon);
        fault.end(disk);
        // The refused writes have left nothing behind.
        let text = daemon.kill().text();
        assert!(!text.contains("panicked"), "{text}");
        let daemon = launch(disk, tables).serve();
        applies(&daemon);
        for hash in &refused {
            assert_eq!(add(&daemon, hash).status, 200);
        }
        daemon.kill();
        let daemon = launch(disk, tables).serve();
        let client = daemon.client();
        listed.iter().for_each(|hash| drop(client.announce_refused(&leecher(*hash, 1_000))));
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
        assert_eq!(ended.code, Some(3), "the peers are lost: {}", ended.text());
        let last = ended.log.last().unwrap();
        assert!(last.contains("onrush.snapshot") && last.contains("lost"), "{last}");
        let error = ended.log.iter().find(|line| line.contains("the final snapshot failed"));
        let error = error.expect("an error");
        let parts = ["onrush.snapshot", fault.error()];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        fault.end(disk);
        let daemon = launch(disk, "").serve_restored();
        peers.assert_served(daemon.address());
        daemon.stop();
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
        load.until("the admin side listens again", || is_healthy(&daemon));
        if fault == DiskFault::ReadOnly {
            // The last block of the journal has room.
            daemon.change_list("POST", &[later]).error(500);
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
        assert!(daemon.stop().text().contains(SNAPSHOT));
        let daemon = launch(disk, "[access]\nmode = \"deny\"\n").serve();
        peers.assert_served(daemon.address());
        daemon.client().announce_refused(&leecher(later, 1_000));
        daemon.stop();
    });
}
