//! The state directory: ownership, locking, persistence over restarts, and serving without it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::blocks::{PREFIX, source};
use crate::harness::messages::NO_STATE;
use crate::harness::{Client, Launch, mode, require_root, set_aside};
use crate::history::announce_and_record;

#[test]
fn connection_ids_survive_a_kill_and_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("new/state");
    let daemon = launch_in(&directory).serve();
    let connected = |address: &SocketAddr| {
        let mut client = Client::new(*address);
        client.connect_and_check();
        client.id
    };
    let ids: Vec<u64> = daemon.addresses().iter().map(connected).collect();
    assert_eq!((mode(&directory), mode(&directory.join("connection.key"))), (0o700, 0o600));
    daemon.kill();

    let daemon = launch_in(&directory).serve();
    for (address, id) in daemon.addresses().iter().zip(ids) {
        Client::new(*address).with_id(id).check_swarm();
    }
}

#[test]
fn without_a_writable_state_directory_the_daemon_warns_and_serves() {
    require_root("changes user");
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = "user = \"nobody\"\n";
    let (nowhere, below_file) = (Path::new("/proc/nope"), Path::new("/proc/version/state"));
    for (launch, directory) in [
        // Below a file.
        (launch_in(below_file), below_file),
        (launch_in(nowhere).config(as_nobody), nowhere),
        // Of another user.
        (launch_in(state.path()).run_as_nobody(), state.path()),
        (launch_in(state.path()).config(as_nobody), state.path()),
    ] {
        let mut daemon = launch.start();
        daemon.line_with(NO_STATE, &[" WARN ", "--state-dir", directory.to_str().unwrap()]);
        daemon.serving();
        daemon.check();
    }
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn without_a_state_directory_blocks_and_history_are_those_of_the_process() {
    let daemon = Launch::on_loopback().admin_api("").flag("--state-dir", "/proc/nope").serve();
    daemon.ctl(&["block", PREFIX]).prints(&["lost at the next restart"]);
    let list = || daemon.ctl(&["--json", "blocks"]).json();
    source(&daemon).assert_blocked(|| list()["blocks"][0]["refused"].as_u64().unwrap());
    assert_eq!((&list()["blocks"][0]["refused"], &list()["lasting"]), (&1.into(), &false.into()));
    announce_and_record(&daemon);
}

#[test]
fn a_key_readable_by_others_causes_a_warning() {
    let state = tempfile::tempdir().unwrap();
    let key = state.path().join("connection.key");
    fs::write(&key, format!("current {}\n", "00112233445566778899aabbccddeeff")).unwrap();
    fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let mut daemon = launch_in(state.path()).start();
    daemon.line(&format!("chmod 600 {}", key.display()));
    daemon.serving();
}

/// Other links and pipes: unit tests of each file.
#[test]
fn a_key_behind_a_link_and_pipes_in_place_of_files_are_refused() {
    let state = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    fs::write(at("known"), "precious").unwrap();
    symlink(at("known"), at("connection.key")).unwrap();
    launch_in(state.path()).start().refusal(&["connection.key", "connection.key_file"]);
    mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
    let token = format!("[admin]\ntoken_file = {:?}\n", at("pipe"));
    for launch in [
        Launch::on_loopback().admin().config(&token),
        Launch::on_loopback().flag("--config", at("pipe")),
    ] {
        launch.run().exits(2, &["not a regular file"]);
    }
}

/// Other damage: unit tests of each file.
#[test]
fn damaged_files_are_set_aside_and_reported() {
    let state = tempfile::tempdir().unwrap();
    let names = ["history.json", "blocks.json", "onrush.snapshot"];
    names.iter().for_each(|name| fs::write(state.path().join(name), "[{").unwrap());
    let daemon = launch_in(state.path()).serve();
    for name in names {
        let reports = |line: &&String| line.contains(name) && !line.contains(" INFO ");
        assert_eq!(daemon.log().iter().filter(reports).count(), 1, "{name}: {:?}", daemon.log());
    }
    assert_eq!(set_aside(state.path()), 3);
    daemon.check();
    daemon.stop();
    // The stop has written a valid snapshot.
    launch_in(state.path()).serve_restored().stop();
}

#[test]
fn a_deny_list_that_denies_nothing_is_warned_of_once() {
    let config = "[access]\nmode = \"deny\"\n";
    let log = Launch::on_loopback().config(config).serve().stop().text();
    let checked = Launch::on_loopback().config(config).flags(&["--check-config"]).run();
    for text in [log, checked.output] {
        assert_eq!(text.matches("everything is served").count(), 1, "{text}");
    }
}

fn launch_in(directory: &Path) -> Launch {
    Launch::on_loopback().flag("--state-dir", directory)
}
