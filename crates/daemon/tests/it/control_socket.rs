//! The control socket: control of a running daemon without a token and without flags, its rights,
//! and its life over kills, second starts and upgrades.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{
    Daemon, Ended, Launch, TOKEN, eventually, meanwhile, mode, request_at, require_root,
};

/// The state directory in a configuration file.
const STATE: &str = "state_dir = \"HOME/state\"\n";
/// A tracker without HTTP over TCP and without a token.
const LOCAL: &str = "state_dir = \"HOME/state\"\n[admin]\nlisten = \"off\"\n";

fn socket_of(daemon: &Daemon) -> PathBuf {
    daemon.home().join("state/control.sock")
}

/// Runs a subcommand with the daemon's configuration.
fn run(daemon: &Daemon, arguments: &[&str]) -> Ended {
    daemon.command(arguments).run()
}

/// The same as another user.
fn run_as_nobody(daemon: &Daemon, arguments: &[&str]) -> Ended {
    daemon.command(arguments).run_as_nobody().run()
}

/// The process that answers at the socket.
pub(crate) fn process_at(socket: &Path) -> u64 {
    request_at(socket, "GET", "/stats.json").unwrap().json()["pid"].as_u64().unwrap()
}

#[test]
fn the_trackers_user_controls_it_without_a_token_and_without_http() {
    let daemon = Launch::on_loopback().config(LOCAL).serve();
    let socket = socket_of(&daemon);
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(mode(&socket), 0o660);
    daemon.configure(&format!("{LOCAL}[announce]\ninterval = 900\n"));
    run(&daemon, &["ctl", "reload"]).prints(&["announce.interval"]);
    run(&daemon, &["ctl", "health"]).prints(&[]);
    run(&daemon, &["top", "--once"]).prints(&[socket.to_str().unwrap()]);

    // The file is also found by `-c` and by the variable.
    let config = daemon.config_path();
    let reload = || Launch::new(&["ctl", "reload"]);
    reload().flag("-c", &config).run().prints(&[]);
    reload().environment("ONRUSH_CONFIG", config.to_str().unwrap()).run().prints(&[]);

    // A stopped tracker has no socket.
    daemon.signal("TERM");
    eventually("the socket is removed", || !socket.exists());
    run(&daemon, &["ctl", "health"]).exits(1, &[socket.to_str().unwrap()]);
    daemon.end();
}

#[test]
fn another_user_may_read_at_most_and_learns_who_may_more() {
    require_root("runs ctl as another user");
    let config = format!("{STATE}[admin]\ntoken_file = \"HOME/token\"\n");
    let daemon = Launch::on_loopback().admin().config(&config).serve();
    let (socket, http) = (socket_of(&daemon), daemon.admin());
    // The other user finds configuration and socket, but may not use the socket nor the token file.
    daemon.configure(&format!("{config}listen = \"{http}\"\n"));
    fs::set_permissions(daemon.home().join("token"), PermissionsExt::from_mode(0o600)).unwrap();
    for directory in [daemon.home(), socket.parent().unwrap()] {
        fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    }
    run_as_nobody(&daemon, &["ctl", "health"]).prints(&[]);
    run_as_nobody(&daemon, &["ctl", "reload"]).exits(1, &[socket.to_str().unwrap(), "as root"]);
    run_as_nobody(&daemon, &["top", "--once"]).prints(&[]);

    // An operator may open the socket to others: the admin API stays closed to them.
    fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    run_as_nobody(&daemon, &["top", "--once"]).prints(&[socket.to_str().unwrap()]);
    run_as_nobody(&daemon, &["ctl", "list", "show"]).exits(1, &[]);
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), TOKEN).unwrap();
    fs::set_permissions(token.path(), PermissionsExt::from_mode(0o644)).unwrap();
    let flags = ["ctl", "--token-file", token.path().to_str().unwrap(), "list", "show"];
    run_as_nobody(&daemon, &flags).prints(&[]);
}

#[test]
fn root_controls_the_tracker_of_another_user() {
    let daemon = Launch::on_loopback().config(STATE).run_as_nobody().serve();
    run(&daemon, &["ctl", "reload"]).prints(&[]);
    fs::set_permissions(daemon.home(), PermissionsExt::from_mode(0o755)).unwrap();
    run_as_nobody(&daemon, &["ctl", "reload"]).prints(&[]);
}

#[test]
fn a_socket_left_by_a_kill_is_replaced_and_a_living_one_is_not() {
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("control.sock");
    let launch = || Launch::on_loopback().flag("--state-dir", state.path());
    launch().serve().kill();
    assert!(socket.exists());
    assert!(request_at(&socket, "GET", "/health").is_err());
    let daemon = launch().serve();
    let pid = u64::from(daemon.pid());
    assert_eq!(process_at(&socket), pid);
    launch().start().refusal(&[]);
    assert_eq!(process_at(&socket), pid);
    daemon.stop();
    assert!(!socket.exists());
}

/// A file at the path that cannot be replaced costs the socket only.
#[test]
fn without_the_socket_the_tracker_serves_and_warns() {
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("control.sock");
    fs::create_dir(&socket).unwrap();
    let daemon = Launch::on_loopback().flag("--state-dir", state.path()).serve();
    daemon.check();
    daemon.stop().has_line(socket.to_str().unwrap(), &[" WARN ", "onrush ctl"]);
}

#[test]
fn every_request_is_answered_during_upgrades() {
    let mut daemon = Launch::on_loopback().config(LOCAL).serve();
    let socket = socket_of(&daemon);
    let answered = AtomicU32::new(0);
    let ask = || {
        let stats = request_at(&socket, "GET", "/stats.json");
        assert!(stats.as_ref().is_ok_and(|stats| stats.status == 200), "{stats:?}");
        answered.fetch_add(1, Ordering::Relaxed);
    };
    meanwhile([ask], || {
        let before = daemon.pid();
        run(&daemon, &["ctl", "upgrade"]).prints(&[]);
        daemon.upgraded();
        let second = daemon.pid();
        daemon.upgrade();
        eventually("the last process answers", || process_at(&socket) == u64::from(daemon.pid()));
        assert!(before != second && second != daemon.pid());
        let count = answered.load(Ordering::Relaxed);
        eventually("requests continue", || answered.load(Ordering::Relaxed) > count + 20);
    });
    assert!(answered.into_inner() > 20);
    assert_eq!(mode(&socket), 0o660);
    daemon.signal("TERM");
    eventually("the last process removes the socket", || !socket.exists());
    daemon.end();
}
