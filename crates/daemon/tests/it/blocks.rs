//! Blocks of sources made while the daemon runs: at once, counted, until they are removed, across
//! restarts, upgrades and kills. Their end, replacement and log: `src/access/blocks.rs` and
//! `src/supervise/tests.rs`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::Value;

use crate::harness::{
    Client, Daemon, Launch, assert_parts, connect, eventually, mode, random_hash, scrape,
};

/// The source that is blocked, and a prefix that contains it.
const SOURCE: [u8; 4] = [127, 0, 9, 9];
pub(crate) const PREFIX: &str = "127.0.9.0/24";

/// A daemon with its state in this directory.
fn serve(state: &Path) -> Daemon {
    let config = format!("state_dir = {state:?}\n");
    Launch::on_loopback().flags(&["--workers", "2"]).config(&config).serve()
}

/// The blocks in force.
#[track_caller]
fn blocks(daemon: &Daemon) -> Vec<Value> {
    let list: Value = serde_json::from_str(&daemon.local_output(&["--json", "blocks"])).unwrap();
    list["blocks"].as_array().unwrap().clone()
}

pub(crate) fn source(daemon: &Daemon) -> Client {
    Client::at(Ipv4Addr::from(SOURCE).into(), daemon.address())
}

/// Asserts that the only block refuses a connect of its source, and counts it.
#[track_caller]
fn assert_blocked(daemon: &Daemon) {
    let refused = || {
        let blocks = blocks(daemon);
        assert_eq!(blocks.len(), 1, "{blocks:?}");
        blocks[0]["refused"].as_u64().unwrap()
    };
    source(daemon).assert_blocked(refused);
}

#[test]
fn a_block_refuses_and_counts_every_request_of_its_sources_until_it_is_removed() {
    let state = tempfile::tempdir().unwrap();
    let daemon = serve(state.path());
    let (mut client, mut other) = (source(&daemon), Client::new(daemon.address()));
    let id = client.connect();
    other.connect();
    assert_parts(&daemon.local_output(&["blocks"]), &["no source is blocked"]);
    let reason = "a \u{202e}flood";
    let made = daemon.local_output(&["block", PREFIX, "--for", "2h", "--reason", reason]);
    assert_parts(&made, &[PREFIX, "for 2 h"]);
    // A connect, and a scrape with a valid connection id.
    client.send(&connect(1));
    client.send(&scrape(id, 2, &[random_hash()]));
    eventually("both are counted", || blocks(&daemon)[0]["refused"] == 2);
    assert!(!client.has_datagram());
    other.connect_and_check();
    let shown = daemon.local_output(&["blocks"]);
    assert_parts(&shown, &[PREFIX, " 2 ", "flood", "(user "]);
    assert!(!shown.contains('\u{202e}'), "{shown}");
    assert_parts(&daemon.local_output(&["metrics"]), &["\nonrush_source_blocks 1"]);
    assert_parts(&daemon.local_output(&["block", PREFIX]), &["replaced", "flood"]);
    let removed = daemon.local_output(&["unblock", PREFIX]);
    assert!(removed.contains(PREFIX) && removed.ends_with(": 2"), "{removed}");
    client.connect_and_check();
}

#[test]
fn blocks_survive_a_kill_a_restart_and_an_upgrade() {
    let state = tempfile::tempdir().unwrap();
    let daemon = serve(state.path());
    daemon.local_output(&["block", PREFIX, "--for", "7d", "--reason", "why"]);
    daemon.kill();
    assert_eq!(mode(&state.path().join("blocks.json")), 0o600);
    let first = serve(state.path());
    assert_blocked(&first);
    first.stop();
    let mut daemon = serve(state.path());
    assert_blocked(&daemon);
    daemon.local_output(&["upgrade"]);
    daemon.upgraded();
    assert_blocked(&daemon);
    let block = &blocks(&daemon)[0];
    assert!(block["seconds"] == 7 * 86_400 && block["reason"] == "why", "{block}");
}

#[test]
fn a_block_made_while_the_next_process_starts_is_not_lost() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = serve(state.path());
    daemon.signal("USR2");
    // Until the process after this one has the sockets, each answers or asks to try again. Nearly
    // always the first one is answered before, and the last one after that.
    let mut made = Vec::new();
    for number in 1..=20 {
        let prefix = format!("127.0.9.{number}");
        if daemon.local_ctl(&["block", &prefix]).code == Some(0) {
            made.push(format!("{prefix}/32"));
        }
    }
    daemon.upgraded();
    let there = blocks(&daemon);
    for prefix in made {
        assert!(there.iter().any(|block| block["prefix"] == prefix), "{prefix} {there:?}");
    }
}

#[test]
fn what_is_wrong_is_refused_with_a_remedy() {
    let state = tempfile::tempdir().unwrap();
    let daemon = serve(state.path());
    for time in ["2", "99999999999999999999d"] {
        daemon.local_ctl(&["block", "192.0.2.1", "--for", time]).exits(2, &["2h"]);
    }
    daemon.local_ctl(&["unblock", "192.0.2.1"]).exits(1, &["onrush ctl blocks"]);
    // A directory in place of the file cannot be replaced.
    fs::create_dir(state.path().join("blocks.json")).unwrap();
    daemon.local_ctl(&["block", PREFIX]).exits(1, &["blocks.json"]);
    assert!(blocks(&daemon).is_empty());
    source(&daemon).connect();
}
