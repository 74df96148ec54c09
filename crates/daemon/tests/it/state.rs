//! The state directory: ownership, locking, persistence over restarts, and serving without it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::harness::client::Client;
use crate::harness::messages::NO_STATE;
use crate::harness::process::{Launch, mode, require_root};
use crate::harness::swarms::set_aside;

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
    daemon.stop();
}

#[test]
fn without_a_writable_state_directory_the_daemon_warns_and_serves() {
    require_root("changes user");
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("file");
    fs::write(&file, "").unwrap();
    for (directory, user) in [
        (file.join("state"), ""),
        (file.join("state"), "user = \"nobody\"\n"),
        ("/proc/nope".into(), ""),
        ("/proc/nope".into(), "user = \"nobody\"\n"),
    ] {
        warns_and_serves(launch_in(&directory).config(user), &directory);
    }
}

#[test]
fn an_unwritable_state_directory_of_another_user_is_a_warning() {
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), PermissionsExt::from_mode(0o755)).unwrap();
    warns_and_serves(launch_in(state.path()).run_as_nobody(), state.path());
    warns_and_serves(launch_in(state.path()).config("user = \"nobody\"\n"), state.path());
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
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
    daemon.stop();
}

/// Root follows no link that the owner of the directory has planted.
#[test]
fn links_in_the_state_directory_are_not_followed() {
    let state = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    let others =
        ["access.changes", "history.json", "overload.interval", "onrush.snapshot", "upgrade.sock"];
    for names in [&others[..], &["lock"]] {
        for name in names {
            let _ = fs::remove_file(at(name));
            symlink(at("victim"), at(name)).unwrap();
        }
        let daemon = launch_in(state.path()).config("[access]\nmode = \"deny\"\n").serve();
        daemon.check();
        daemon.end_by("TERM");
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");
    }
    // A key behind a link may be one that another user knows.
    fs::remove_file(at("lock")).unwrap();
    fs::remove_file(at("connection.key")).unwrap();
    symlink(at("victim"), at("connection.key")).unwrap();
    launch_in(state.path()).start().refusal(&["connection.key", "connection.key_file"]);
}

#[test]
fn pipes_in_place_of_files_do_not_block_the_start() {
    for name in
        ["connection.key", "access.changes", "history.json", "overload.interval", "onrush.snapshot"]
    {
        let state = tempfile::tempdir().unwrap();
        mkfifo(&state.path().join(name), Mode::S_IRWXU).unwrap();
        let launch = launch_in(state.path()).config("[access]\nmode = \"deny\"\n");
        if name == "connection.key" {
            launch.start().refusal(&[name, "not a regular file"]);
        } else {
            let daemon = launch.serve();
            daemon.check();
            daemon.end_by("TERM");
        }
    }
    let home = tempfile::tempdir().unwrap();
    let pipe = home.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    for config in [
        format!("[access]\nmode = \"deny\"\nfiles = [{pipe:?}]\n"),
        format!("[access]\nblocked_file = {pipe:?}\n"),
        format!("[admin]\ntoken_file = {pipe:?}\n"),
    ] {
        Launch::on_loopback()
            .admin()
            .config(&config)
            .start()
            .end()
            .exits(2, &["not a regular file"]);
    }
    Launch::on_loopback().flag("--config", &pipe).start().end().exits(2, &["not a regular file"]);
}

/// Other damage: unit tests of each file.
#[test]
fn damaged_files_are_set_aside_and_reported() {
    let state = tempfile::tempdir().unwrap();
    let names = ["history.json", "blocks.json"];
    names.iter().for_each(|name| fs::write(state.path().join(name), "[{").unwrap());
    let daemon = launch_in(state.path()).serve();
    for name in names {
        let reports = |line: &&String| line.contains(name) && !line.contains(" INFO ");
        assert_eq!(daemon.log().iter().filter(reports).count(), 1, "{name}: {:?}", daemon.log());
    }
    assert_eq!(set_aside(state.path()), 2);
    daemon.check();
    daemon.stop();
}

#[test]
fn a_deny_list_that_denies_nothing_is_warned_of_once() {
    let config = "[access]\nmode = \"deny\"\n";
    let ended = Launch::on_loopback().config(config).serve().stop();
    let lines = ended.log.iter().filter(|line| line.contains("everything is served"));
    assert_eq!(lines.count(), 1, "{}", ended.text());
    let checked = Launch::on_loopback().config(config).flags(&["--check-config"]).start().end();
    assert_eq!(checked.output.matches("everything is served").count(), 1, "{}", checked.output);
}

fn launch_in(directory: &Path) -> Launch {
    Launch::on_loopback().flag("--state-dir", directory)
}

fn warns_and_serves(launch: Launch, directory: &Path) {
    let mut daemon = launch.start();
    daemon.line_with(NO_STATE, &[" WARN ", "--state-dir", &directory.display().to_string()]);
    daemon.serving();
    daemon.check();
    daemon.stop();
}
