//! The state directory: ownership, locking, persistence over restarts, and serving without it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::client::Client;
use crate::harness::messages::NO_STATE;
use crate::harness::process::{Launch, mode, require_root};

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
fn a_state_directory_in_use_is_named_with_the_process() {
    let state = tempfile::tempdir().unwrap();
    let first = launch_in(state.path()).serve();
    let text = launch_in(state.path()).start().refusal();
    let directory = state.path().display().to_string();
    for part in [&directory, &format!("process {}", first.pid()), "--state-dir"] {
        assert!(text.contains(part), "{text}");
    }
    first.check();
    first.stop();
    // The lock is released on exit.
    launch_in(state.path()).serve().stop();
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
fn an_invalid_key_file_is_kept_and_named_with_its_line() {
    let state = tempfile::tempdir().unwrap();
    let key = state.path().join("connection.key");
    let corrupt = "# ours\ncurrent 0011\n";
    fs::write(&key, corrupt).unwrap();
    let text = launch_in(state.path()).start().refusal();
    assert!(text.contains(&format!("{}:2: ", key.display())), "{text}");
    assert!(text.contains("32 hexadecimal digits"), "{text}");
    assert_eq!(fs::read_to_string(&key).unwrap(), corrupt);
}

#[test]
fn a_key_readable_by_others_causes_a_warning() {
    let state = tempfile::tempdir().unwrap();
    let key = state.path().join("connection.key");
    fs::write(&key, format!("current {}\n", "5".repeat(32))).unwrap();
    fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let mut daemon = launch_in(state.path()).start();
    daemon.line(&format!("chmod 600 {}", key.display()));
    daemon.serving();
    daemon.stop();
}

fn launch_in(directory: &Path) -> Launch {
    Launch::on_loopback().flag("--state-dir", directory)
}

fn warns_and_serves(launch: Launch, directory: &Path) {
    let mut daemon = launch.start();
    let warning = daemon.line(NO_STATE);
    assert!(warning.contains(" WARN ") && warning.contains("--state-dir"), "{warning}");
    assert!(warning.contains(&directory.display().to_string()), "{warning}");
    daemon.serving();
    daemon.check();
    daemon.stop();
}
