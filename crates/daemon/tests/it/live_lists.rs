//! List changes in a running tracker persist over reloads and restarts, until the list's file
//! contains them, and are rejected as a whole. That they apply at once is tested in
//! module `admin`.

use std::fs;
use std::path::Path;

use onrush_proto::InfoHash;

use crate::harness::messages::LIST_CHANGED;
use crate::harness::packets::{leecher, random_hash};
use crate::harness::process::{Daemon, Launch};

/// A daemon with a deny list in the file `list` of this directory, which holds its state too.
fn start(directory: &Path) -> Daemon {
    let list = directory.join("list");
    let config = format!("[access]\nmode = \"deny\"\nfiles = [{list:?}]\n");
    let launch = Launch::on_loopback().flag("--state-dir", directory.join("state"));
    launch.flag("--workers", "2").admin_api(&config).serve()
}

fn write_list(directory: &Path, hashes: &[InfoHash]) {
    let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    fs::write(directory.join("list"), text).unwrap();
}

/// The number of changed entries.
#[track_caller]
fn change(daemon: &Daemon, method: &str, hash: InfoHash) -> u64 {
    let response = daemon.change_list(method, &[hash]);
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["changed"].as_u64().unwrap()
}

/// Reloads; whether the list's file has changed the list.
fn reload_changes_list(daemon: &Daemon) -> bool {
    let response = daemon.call("POST", "/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    let changed = &response.json()["changed"];
    let expected = [serde_json::json!([]), serde_json::json!(["access.files"])];
    assert!(expected.contains(changed), "{changed}");
    changed[0] == "access.files"
}

#[test]
fn the_log_has_what_a_change_adds_and_removes_and_for_whom() {
    let directory = tempfile::tempdir().unwrap();
    let hashes = [(); 5].map(|()| random_hash());
    write_list(directory.path(), &hashes[..1]);
    let mut daemon = start(directory.path());
    assert_eq!(daemon.change_list("POST", &hashes).status, 200);
    let line = daemon.line(LIST_CHANGED);
    let named = hashes[1..].iter().filter(|hash| line.contains(&hash.to_string())).count();
    assert!(named == 3 && line.contains("and 1 more"), "{line}");
    for part in ["deny list", "127.0.0.1:", "added ", "entries now: 5"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(change(&daemon, "DELETE", hashes[0]), 1);
    let line = daemon.line(LIST_CHANGED);
    assert!(line.contains(&format!("removed {}", hashes[0])), "{line}");
    assert_eq!(change(&daemon, "DELETE", hashes[0]), 0);
    assert!(daemon.line("has no effect").contains("127.0.0.1:"));
    daemon.stop();
}

fn journal(directory: &Path) -> String {
    fs::read_to_string(directory.join("state/access.changes")).unwrap()
}

#[test]
fn changes_survive_a_reload_and_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path();
    let (in_file, added) = (random_hash(), random_hash());
    let applied = |daemon: &Daemon| {
        let client = daemon.client();
        client.announce_refused(&leecher(added, 4_002));
        client.announce(&leecher(in_file, 4_002));
    };
    write_list(directory, &[in_file]);
    let daemon = start(directory);
    assert_eq!((change(&daemon, "POST", added), change(&daemon, "DELETE", in_file)), (1, 1));
    applied(&daemon);
    assert!(!reload_changes_list(&daemon));
    applied(&daemon);
    daemon.stop();
    let daemon = start(directory);
    applied(&daemon);
    daemon.stop();
    // Once the file contains the changes, the journal is empty.
    write_list(directory, &[added]);
    let daemon = start(directory);
    applied(&daemon);
    assert_eq!(journal(directory), "");
    daemon.stop();
}

/// A change applies until the list's file contains it; from then on only the file counts.
#[test]
fn a_change_expires_once_the_file_contains_it() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path();
    let (always, added) = (random_hash(), random_hash());
    write_list(directory, &[always]);
    let daemon = start(directory);
    assert_eq!([added, added, always].map(|hash| change(&daemon, "POST", hash)), [1, 0, 0]);
    assert_eq!(journal(directory), format!("deny + {added}\n"), "only changes with an effect");
    assert!(!reload_changes_list(&daemon));
    let client = daemon.client();
    client.announce_refused(&leecher(added, 4_002));
    write_list(directory, &[always, added]);
    assert!(!reload_changes_list(&daemon));
    assert_eq!(journal(directory), "");
    client.announce_refused(&leecher(added, 4_002));
    write_list(directory, &[always]);
    assert!(reload_changes_list(&daemon));
    client.announce(&leecher(added, 4_002));
    daemon.stop();
}

#[test]
fn a_rejected_change_is_reported_and_has_no_effect() {
    let [only, other, more] = [(); 3].map(|()| random_hash());
    let access = format!("[access]\nmode = \"allow\"\ninfo_hashes = [\"{only}\"]\n");
    let config = format!("{access}[limits]\nlist_entries = 2\n");
    let state = tempfile::tempdir().unwrap();
    let launch = Launch::on_loopback().flag("--state-dir", state.path());
    let daemon = launch.admin_api(&config).serve();
    assert!(daemon.change_list("DELETE", &[only]).error(409).contains("allow list"));
    let error = daemon.change_list("POST", &[other, more]).error(409);
    assert!(error.contains("limits.list_entries"), "{error}");
    daemon.client().announce(&leecher(only, 4_002));
    // The journal cannot be written, so the change is rejected.
    let journal = state.path().join("access.changes");
    fs::create_dir(&journal).unwrap();
    let error = daemon.change_list("POST", &[other]).error(500);
    assert!(error.contains("access.changes"), "{error}");
    daemon.client().announce_refused(&leecher(other, 4_002));
    daemon.stop();
}
