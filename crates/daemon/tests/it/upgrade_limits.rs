//! Upgrades at their limits: fewer peers than there are, and a successor that is killed soon after
//! it serves.

use std::fs;

use crate::harness::messages::{SNAPSHOT, SUCCESSOR_FAILED, UPGRADE_FAILED};
use crate::harness::packets::random_hash;
use crate::harness::process::{Daemon, eventually};
use crate::snapshot::{PLACEMENTS, Peers, launch_in};
use crate::upgrade::with_admin;

/// Announces this many peers, each of a swarm of its own.
fn announce(daemon: &Daemon, peers: usize) {
    let client = daemon.client();
    for _ in 0..peers / 16 {
        let hashes: Vec<_> = (0..16).map(|_| random_hash()).collect();
        client.burst(&hashes);
    }
}

fn stored_peers(daemon: &Daemon) -> u64 {
    daemon.ctl(&["--json", "stats"]).json()["totals"]["peers"].as_u64().unwrap()
}

#[test]
fn an_upgrade_that_would_drop_peers_is_refused_unless_forced() {
    let state = tempfile::tempdir().unwrap();
    let tables = "listen = [\"127.0.0.1:0\"]\n[limits]\npeers = 2000\n";
    let mut daemon = with_admin(state.path(), PLACEMENTS[2], tables);
    announce(&daemon, 1_120);
    let text = fs::read_to_string(daemon.home().join("onrush.toml")).unwrap();
    daemon.configure(&text.replace("peers = 2000", "peers = 1000"));
    let refused = daemon.call("POST", "/api/v1/upgrade", "").error(409);
    for part in ["limits.peers = 1000", "120 of the 1120", "upgrade --force"] {
        assert!(refused.contains(part), "{refused}");
    }
    daemon.wait_for_line(UPGRADE_FAILED);
    daemon.line(SUCCESSOR_FAILED);
    eventually("its gauge counts all peers", || stored_peers(&daemon) == 1_120);
    daemon.check();

    let forced = daemon.ctl(&["upgrade", "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    daemon.upgraded();
    eventually("the gauge is set", || stored_peers(&daemon) == 1_000);
    // The permission is not that of the next upgrade.
    let is_forced = |daemon: &Daemon| {
        let of = |file| fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).unwrap();
        assert!(!of("cmdline").contains("--force"), "{}", of("cmdline"));
        of("environ").contains("ONRUSH_UPGRADE_FORCE=")
    };
    assert!(is_forced(&daemon));
    daemon.configure(&text);
    assert_eq!(daemon.ctl(&["upgrade"]).code, Some(0));
    daemon.upgraded();
    assert!(!is_forced(&daemon));
    let wrong = daemon.call("POST", "/api/v1/upgrade?force=perhaps", "").error(400);
    assert!(wrong.contains("force"), "{wrong}");
    daemon.stop();
}

/// As in a reload: the successor may read a file that is being written.
#[test]
fn a_list_that_lost_most_of_its_entries_is_refused_unless_forced() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("denied");
    let write = |entries: u32| {
        let lines: String = (0..entries).map(|n| format!("{n:040x}\n")).collect();
        fs::write(&file, lines).unwrap();
    };
    write(1_000);
    let tables =
        format!("listen = [\"127.0.0.1:0\"]\n[access]\nmode = \"deny\"\nfiles = [{file:?}]\n");
    let mut daemon = with_admin(state.path(), PLACEMENTS[0], &tables);
    let upgrade = |daemon: &mut Daemon| {
        assert_eq!(daemon.ctl(&["upgrade"]).code, Some(0));
        daemon.upgraded();
    };
    write(600);
    upgrade(&mut daemon);
    // Compared with the most, which is part of the handoff, and not with what the predecessor read.
    write(400);
    let refused = daemon.call("POST", "/api/v1/upgrade", "").error(409);
    for part in ["1000", "400", "upgrade --force", "denied"] {
        assert!(refused.contains(part), "{refused}");
    }
    daemon.check();
    assert_eq!(daemon.ctl(&["upgrade", "--force"]).code, Some(0));
    daemon.upgraded();
    write(300);
    upgrade(&mut daemon);
    daemon.stop();
}

/// As full as `limits.peers` permits, and with the workers that the configuration has at the time.
#[test]
fn a_full_tracker_is_upgraded_whatever_the_number_of_workers() {
    let state = tempfile::tempdir().unwrap();
    let tables = "listen = [\"127.0.0.1:0\"]\n[limits]\npeers = 1000\n[workers]\ntotal = 2\n";
    let mut daemon = with_admin(state.path(), &["--placement", "colocated"], tables);
    // A worker stores half.
    announce(&daemon, 1_200);
    let text = fs::read_to_string(daemon.home().join("onrush.toml")).unwrap();
    for workers in [2, 3, 1, 2] {
        daemon.configure(&text.replace("total = 2", &format!("total = {workers}")));
        let upgraded = daemon.ctl(&["upgrade"]);
        assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
        daemon.upgraded();
        eventually("the gauge is set", || stored_peers(&daemon) == 1_000);
    }
    daemon.stop();
}

/// Without periodic snapshots the last one is that of the last stop, so the successor writes one.
#[test]
fn a_new_process_that_is_killed_has_written_a_snapshot() {
    let state = tempfile::tempdir().unwrap();
    let config = "[snapshot]\nevery = 0\n";
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], config).serve();
    let peers = Peers::announced_to(daemon.address());
    daemon.signal("USR2");
    daemon.upgraded();
    daemon.wait_for_line(SNAPSHOT);
    daemon.kill();
    let daemon = launch_in(state.path(), PLACEMENTS[0], config).serve();
    peers.assert_served(daemon.address());
    daemon.stop();
}
