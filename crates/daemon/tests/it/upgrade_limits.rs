//! An upgrade that would drop peers, or most of a list, is refused unless it is forced.

use std::fs;

use crate::harness::messages::{SUCCESSOR_FAILED, UPGRADE_FAILED};
use crate::harness::{Daemon, PLACEMENTS, eventually, random_hash};
use crate::upgrade::{upgrade_by_ctl, with_admin};

#[track_caller]
fn assert_refused(daemon: &Daemon, parts: &[&str]) {
    let refused = daemon.call("POST", "/api/v1/upgrade", "");
    refused.fails(409, parts);
    refused.fails(409, &["upgrade --force"]);
    daemon.check();
}

/// Whether the process was started with the permission, which is not in its command line.
fn is_forced(daemon: &Daemon) -> bool {
    let of = |file| fs::read_to_string(format!("/proc/{}/{file}", daemon.pid())).unwrap();
    assert!(!of("cmdline").contains("--force"), "{}", of("cmdline"));
    of("environ").contains("ONRUSH_UPGRADE_FORCE=")
}

#[test]
fn an_upgrade_that_would_drop_peers_or_most_of_a_list_is_refused_unless_forced() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("denied");
    let write = |entries: u32| {
        let lines: String = (0..entries).map(|n| format!("{n:040x}\n")).collect();
        fs::write(&file, lines).unwrap();
    };
    write(1_000);
    let tables = format!(
        "listen = [\"127.0.0.1:0\"]\n[limits]\npeers = 2000\n\
         [access]\nmode = \"deny\"\nfiles = [{file:?}]\n"
    );
    let mut daemon = with_admin(state.path(), PLACEMENTS[2], &tables);
    let client = daemon.client();
    (0..70).for_each(|_| client.burst(&[(); 16].map(|()| random_hash())));
    let text = fs::read_to_string(daemon.config_path()).unwrap();
    daemon.configure(&text.replace("peers = 2000", "peers = 1000"));
    assert_refused(&daemon, &["limits.peers = 1000", "120 of the 1,120"]);
    daemon.wait_for_line(UPGRADE_FAILED);
    daemon.line(SUCCESSOR_FAILED);
    upgrade_by_ctl(&mut daemon, &["--force"]);
    let peers = || daemon.ctl(&["--json", "stats"]).json()["totals"]["peers"].as_u64();
    eventually("the gauge is set", || peers() == Some(1_000));
    assert!(is_forced(&daemon));

    daemon.configure(&text);
    write(600);
    upgrade_by_ctl(&mut daemon, &[]);
    assert!(!is_forced(&daemon), "the permission is not that of the next upgrade");
    // Compared with the most, which is part of the handoff, and not with what the predecessor read.
    write(400);
    assert_refused(&daemon, &[" 1000 ", " 400 ", "denied"]);
    upgrade_by_ctl(&mut daemon, &["--force"]);
    write(300);
    upgrade_by_ctl(&mut daemon, &[]);
    daemon.call("POST", "/api/v1/upgrade?force=perhaps", "").fails(400, &["force"]);
}
