//! List changes in a running tracker persist over reloads and restarts, until the list's file
//! contains them. That they apply at once is tested in module `admin`, what is logged and refused
//! in `src/access/changes.rs`.

use std::fs;
use std::path::Path;

use onrush_proto::InfoHash;

use crate::harness::{Daemon, Launch, leecher, random_hash};

/// A daemon with a deny list in the file `list` of this directory, which holds its state too.
fn start(directory: &Path) -> Daemon {
    let list = directory.join("list");
    let config = format!("[access]\nmode = \"deny\"\nfiles = [{list:?}]\n");
    let launch = Launch::on_loopback().flag("--state-dir", directory.join("state"));
    launch.admin_api(&config).serve()
}

fn write_list(directory: &Path, hashes: &[InfoHash]) {
    let text: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    fs::write(directory.join("list"), text).unwrap();
}

/// The keys that a reload has changed.
fn reload(daemon: &Daemon) -> String {
    let response = daemon.call("POST", "/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()["changed"].to_string()
}

/// A change applies until the list's file contains it; from then on only the file counts.
#[test]
fn changes_survive_reloads_and_restarts_until_the_file_contains_them() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path();
    let (in_file, added) = (random_hash(), random_hash());
    let assert_applied = |daemon: &Daemon, in_journal: usize| {
        let client = daemon.client();
        client.announce_refused(&leecher(added, 4_002));
        client.announce(&leecher(in_file, 4_002));
        let journal = fs::read_to_string(directory.join("state/access.changes")).unwrap();
        assert_eq!(journal.lines().count(), in_journal, "{journal}");
    };
    write_list(directory, &[in_file]);
    let daemon = start(directory);
    for (method, hash, changed) in
        [("POST", added, 1), ("POST", added, 0), ("POST", in_file, 0), ("DELETE", in_file, 1)]
    {
        assert_eq!(daemon.change_list(method, &[hash]).json()["changed"], changed);
    }
    // Changes without an effect are not in the journal.
    assert_applied(&daemon, 2);
    assert_eq!(reload(&daemon), "[]");
    assert_applied(&daemon, 2);
    daemon.stop();
    let daemon = start(directory);
    assert_applied(&daemon, 2);
    write_list(directory, &[added]);
    assert_eq!(reload(&daemon), "[]");
    assert_applied(&daemon, 0);
    daemon.stop();
    let daemon = start(directory);
    write_list(directory, &[in_file]);
    assert_eq!(reload(&daemon), "[\"access.files\"]");
    daemon.client().announce(&leecher(added, 4_002));
}
