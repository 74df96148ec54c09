//! The state directory: ownership, locking, persistence over restarts, and serving without it.

use std::fs;
use std::path::Path;

use crate::harness::client::{Client, random_hash, seeder};
use crate::harness::messages::{NO_STATE, STOPPED};
use crate::harness::process::{Daemon, Launch, mode, require_root};

#[test]
fn connection_ids_survive_a_kill_and_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("new/state");
    let mut daemon = started_with(&directory);
    let clients: Vec<_> = daemon
        .serving()
        .into_iter()
        .map(|address| {
            let mut client = Client::new(address);
            client.connect_and_check();
            client
        })
        .collect();
    assert_eq!((mode(&directory), mode(&directory.join("connection.key"))), (0o700, 0o600));
    daemon.signal("KILL");
    assert_eq!(daemon.end().code, None);

    let mut daemon = started_with(&directory);
    for (address, before) in daemon.serving().into_iter().zip(&clients) {
        let mut client = Client::new(address);
        client.id = before.id;
        client.check_swarm();
    }
    daemon.stop();
}

/// A connection id is valid only with the key that made it.
#[test]
fn connection_ids_of_another_key_get_no_reply() {
    let mut daemon = Launch::on_loopback().start();
    let id = Client::new(daemon.serving()[0]).connect();
    daemon.stop();
    let mut daemon = Launch::on_loopback().config("[log]\ntotals_every = 1\n").start();
    let mut client = Client::new(daemon.serving()[0]);
    client.id = id;
    client.send(&client.announce_datagram(random_hash(), seeder(1000)).0);
    let totals = daemon.line("connection_id 1");
    assert!(totals.contains("announce 0"), "{totals}");
    let last = daemon.stop().log.pop().unwrap();
    let totals = [STOPPED, "1 datagrams in", "0 out", "1 refused"];
    assert!(totals.iter().all(|part| last.contains(part)), "{last}");
}

#[test]
fn a_state_directory_in_use_is_named_with_the_process() {
    let state = tempfile::tempdir().unwrap();
    let mut first = started_with(state.path());
    let addresses = first.serving();
    let text = started_with(state.path()).refusal();
    let directory = state.path().display().to_string();
    for part in [&directory, &format!("process {}", first.pid()), "--state-dir"] {
        assert!(text.contains(part), "{text}");
    }
    for address in addresses {
        Client::new(address).connect_and_check();
    }
    first.stop();
    // The lock is released on exit.
    let mut next = started_with(state.path());
    next.serving();
    next.stop();
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
        let launch = Launch::on_loopback().flag("--state-dir", &directory).config(user);
        warns_and_serves(launch, &directory);
    }
}

#[test]
fn an_unwritable_state_directory_of_another_user_is_a_warning() {
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let launch = Launch::on_loopback().flag("--state-dir", state.path());
    warns_and_serves(launch.run_as_nobody(), state.path());
    let launch = Launch::on_loopback().flag("--state-dir", state.path());
    warns_and_serves(launch.config("user = \"nobody\"\n"), state.path());
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn an_invalid_key_file_is_kept_and_named_with_its_line() {
    let state = tempfile::tempdir().unwrap();
    let key = state.path().join("connection.key");
    let corrupt = "# ours\ncurrent 0011\n";
    fs::write(&key, corrupt).unwrap();
    let text = started_with(state.path()).refusal();
    assert!(text.contains(&format!("{}:2: ", key.display())), "{text}");
    assert!(text.contains("32 hexadecimal digits"), "{text}");
    assert_eq!(fs::read_to_string(&key).unwrap(), corrupt);
}

#[test]
fn a_key_readable_by_others_causes_a_warning() {
    let state = tempfile::tempdir().unwrap();
    let key = state.path().join("connection.key");
    fs::write(&key, format!("current {}\n", "5".repeat(32))).unwrap();
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let mut daemon = started_with(state.path());
    daemon.line(&format!("chmod 600 {}", key.display()));
    daemon.serving();
    daemon.stop();
}

fn started_with(directory: &Path) -> Daemon {
    Launch::on_loopback().flag("--state-dir", directory).start()
}

fn warns_and_serves(launch: Launch, directory: &Path) {
    let mut daemon = launch.start();
    let warning = daemon.line(NO_STATE);
    assert!(warning.contains(" WARN ") && warning.contains("--state-dir"), "{warning}");
    assert!(warning.contains(&directory.display().to_string()), "{warning}");
    for address in daemon.serving() {
        Client::new(address).connect_and_check();
    }
    daemon.stop();
}
