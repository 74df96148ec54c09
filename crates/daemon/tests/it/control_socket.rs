//! The control socket: control of a running daemon without a token and without flags, its rights,
//! and its life over kills, second starts and upgrades.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{
    Daemon, Ended, Launch, TOKEN, assert_parts, eventually, meanwhile, mode, request_at,
    require_root,
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
    run(&daemon, &["ctl", "--timeout", "60", "health"]).prints(&[]);
    run(&daemon, &["top", "--once"]).prints(&[socket.to_str().unwrap()]);

    // The file is also found by `-c` and by the variable.
    let config = daemon.config_path();
    let reload = || Launch::new(&["ctl", "reload"]);
    reload().flag("-c", &config).run().prints(&[]);
    reload().environment("ONRUSH_CONFIG", config.to_str().unwrap()).run().prints(&[]);

    // A stopped tracker has no socket.
    daemon.signal("TERM");
    eventually("the socket is removed", || !socket.exists());
    run(&daemon, &["ctl", "--timeout", "60", "health"]).exits(1, &[socket.to_str().unwrap()]);
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
    run_as_nobody(&daemon, &["ctl", "--timeout", "60", "health"]).prints(&[]);
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

/// The tracker serves on, so a saved error is no reason for an alarm.
#[test]
fn a_running_tracker_is_found_by_a_file_that_has_errors_by_now() {
    let daemon = Launch::on_loopback().config(LOCAL).serve();
    let socket = socket_of(&daemon);
    for (text, place) in [
        (format!("{LOCAL}[announce]\nintervall = 500\n"), "`announce.intervall`"),
        (format!("{LOCAL}connections = 0\n"), "`admin.connections`"),
        (format!("{LOCAL}[announce\n"), "syntax: "),
        (format!("{LOCAL}listen = 5\n"), "syntax: "),
    ] {
        daemon.configure(&text);
        for command in [
            &["ctl", "--timeout", "60", "health"][..],
            &["ctl", "list", "show"],
            &["top", "--once"],
        ] {
            let ended = run(&daemon, command);
            ended.prints(&[]);
            assert_parts(&ended.text(), &["warning: ", "onrush.toml:", place]);
        }
        assert_parts(&run(&daemon, &["top", "--once"]).output, &[socket.to_str().unwrap()]);
        let reload = run(&daemon, &["ctl", "reload"]);
        reload.exits(1, &["onrush.toml:", place]);
        assert!(!reload.text().contains("warning: "), "the errors are printed once: {reload:?}");
        run(&daemon, &["--check-config"]).exits(2, &[place]);
    }
    // Another tracker may be found in the places of the package.
    daemon.configure(&format!("[announce\n{LOCAL}"));
    for command in [&["ctl", "reload"][..], &["ctl", "block", "192.0.2.1"], &["ctl", "snapshot"]] {
        run(&daemon, command).exits(1, &["nothing is changed", "onrush.toml:", "syntax: "]);
    }
    daemon.configure(&format!("{LOCAL}[announce\n"));
    // The exit status is that of the command.
    run(&daemon, &["ctl", "swarm", &"0".repeat(40)]).exits(1, &["warning: "]);
}

#[test]
fn lost_sockets_are_made_again_and_an_upgrade_hands_them_over() {
    let mut daemon = Launch::on_loopback().config(LOCAL).serve();
    let (control, upgrade) = (socket_of(&daemon), daemon.home().join("state/upgrade.sock"));
    for _ in 0..2 {
        [&control, &upgrade].into_iter().for_each(|socket| fs::remove_file(socket).unwrap());
        let answers = || request_at(&control, "GET", "/health").is_ok();
        eventually("both are made again", || UnixStream::connect(&upgrade).is_ok() && answers());
        assert_eq!([mode(&control), mode(&upgrade)], [0o660, 0o600]);
        run(&daemon, &["ctl", "upgrade"]).prints(&[]);
        daemon.upgraded();
        let pid = u64::from(daemon.pid());
        eventually("the successor answers", || process_at(&control) == pid);
    }
    // A file replaces the socket around an upgrade.
    fs::remove_file(&control).unwrap();
    fs::write(&control, "").unwrap();
    daemon.upgrade();
    eventually("it is made again", || request_at(&control, "GET", "/health").is_ok());
    daemon.stop();
    assert!(!control.exists());
}

/// The first message to those whose tracker is elsewhere.
#[test]
fn errors_name_the_socket_that_was_looked_for_and_that_of_the_tracker() {
    require_root("runs ctl as root");
    let daemon = Launch::on_loopback().admin().config(STATE).serve();
    let other = daemon.home().join("other.toml");
    let (elsewhere, http) = (daemon.home().join("elsewhere"), daemon.admin());
    let text = format!("state_dir = {elsewhere:?}\n[admin]\nlisten = \"{http}\"\n");
    fs::write(&other, text).unwrap();
    let ended = Launch::new(&["ctl", "reload"]).flag("--config", &other).run();
    let looked_for =
        format!("no socket at {}/control.sock (by {})", elsewhere.display(), other.display());
    let socket = socket_of(&daemon);
    ended.exits(1, &[&looked_for, socket.to_str().unwrap()]);
    let url = format!("http://{http}");
    let by_url = Launch::new(&["ctl", "--url", &url, "reload"]).run();
    by_url.exits(1, &[socket.to_str().unwrap()]);
    for ended in [ended, by_url] {
        assert!(!ended.text().contains("command as root"), "{ended:?}");
    }
    // Without a writable state directory there is none.
    let daemon = Launch::on_loopback().admin().flag("--state-dir", "/dev/null/state").serve();
    let url = format!("http://{}", daemon.admin());
    let ended = Launch::new(&["ctl", "--url", &url, "reload"]).run();
    ended.exits(1, &["no control socket", "state directory"]);
}

#[test]
fn health_tells_a_tracker_that_hangs_from_one_that_does_not_run() {
    let daemon = Launch::on_loopback().config(LOCAL).serve();
    let lock = daemon.home().join("state/lock");
    daemon.signal("STOP");
    let hangs = run(&daemon, &["ctl", "health"]);
    daemon.signal("CONT");
    let holds = format!("process {} holds {}", daemon.pid(), lock.display());
    hangs.exits(1, &["within 5 s", &holds, "(state T)"]);
    let json = run(&daemon, &["ctl", "--json", "swarm", &"0".repeat(40)]);
    assert_eq!((json.code, json.json()["error"].is_string()), (Some(1), true), "{json:?}");
    daemon.signal("TERM");
    eventually("the socket is removed", || !socket_of(&daemon).exists());
    let nothing = format!("not running: nothing holds {}", lock.display());
    eventually("the process has ended", || {
        let ended = run(&daemon, &["ctl", "health"]);
        ended.exits(1, &[]);
        ended.text().contains(&nothing)
    });
    run(&daemon, &["ctl", "health"]).exits(1, &[&nothing, "systemctl status onrush"]);
    daemon.end();
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
