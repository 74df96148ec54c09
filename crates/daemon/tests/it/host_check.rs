//! Checks of the addresses, users, files and directories that a configuration names, by
//! `--check-config`, a start and a reload.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use tempfile::TempDir;

use crate::harness::messages::RELOAD_REJECTED;
use crate::harness::{Ended, Launch, TOKEN, free_address, nobody, require_root};

/// The result of a check of a file with this text, on a free address.
fn checked(config: &str) -> Ended {
    Launch::on_loopback().flags(&["--check-config"]).configured_admin().config(config).run()
}

/// Asserts that a check refuses a value at this line and column with all of these parts.
#[track_caller]
fn refuses(config: &str, place: &str, parts: &[&str]) {
    let ended = checked(config);
    assert_eq!(ended.output, "", "{config}\n{ended:?}");
    ended.exits(2, &[&format!("/onrush.toml:{place}: "), "checked as user "]);
    ended.exits(2, parts);
}

#[test]
fn users_tokens_directories_and_addresses_that_cannot_be_used_fail_the_check() {
    let place = tempfile::tempdir().unwrap();
    let token = place.path().join("token");
    fs::write(&token, "short").unwrap();
    let short = format!("[admin]\nlisten = \"off\"\ntoken_file = {token:?}\n");
    let missing = "[admin]\nlisten = \"off\"\ntoken_file = \"/nonexistent/token\"\n";
    let nowhere = "state_dir = \"/proc/nope\"\n[admin]\nlisten = \"off\"\n";
    // RFC 5737
    let elsewhere = "[admin]\nlisten = \"192.0.2.7:6970\"\n";
    let cannot_listen = "`admin.listen`: cannot listen on 192.0.2.7:6970";
    for (config, place, parts) in [
        ("user = \"nosuchuser\"\n", "1:8", &["`user`: there is no user", "useradd --system"][..]),
        ("user = \"nobody\"\ngroup = \"nosuchgroup\"\n", "2:9", &["groupadd --system nosuchgroup"]),
        (missing, "3:14", &["`admin.token_file`: /nonexistent/token cannot be read", "as user "]),
        (&short, "3:14", &["`admin.token_file`", "it has 5 characters", "head -c24"]),
        (nowhere, "1:13", &["`state_dir`: /proc/nope cannot be created in /proc"]),
        (elsewhere, "2:10", &[cannot_listen, "`ip addr`"]),
    ] {
        refuses(config, place, parts);
    }
}

/// The tracker does without a directory that is not asked for, but not with one that is not safe.
#[test]
fn a_check_accepts_and_refuses_what_a_start_does_of_a_directory_that_is_not_named() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let unsafe_one = place.path().to_str().unwrap();
    let launch = |flags: &[&str], directory: &str| {
        Launch::on_loopback().flags(flags).environment("STATE_DIRECTORY", directory).start()
    };
    let without = launch(&["--check-config"], "/proc/nope").end();
    without.prints(&["Note: state_dir: /proc/nope cannot"]);
    let fix = format!("chmod go-w {unsafe_one}");
    launch(&["--check-config"], unsafe_one).end().exits(2, &[&fix]);
    launch(&[], unsafe_one).refusal(&[&fix]);
}

#[test]
fn an_export_without_its_directory_fails_the_check_and_is_warned_of_at_start_and_reload() {
    let config = "[admin]\nlisten = \"off\"\n[export]\nfile = \"/nonexistent/scrape.txt\"\n";
    refuses(config, "4:8", &["`export.file`: exports to /nonexistent/scrape.txt will fail"]);
    let mut daemon = Launch::on_loopback().config(config).serve();
    let warning = "export.file: exports to /nonexistent/scrape.txt will fail";
    daemon.wait_for_line(warning);
    daemon.skip();
    daemon.signal("HUP");
    daemon.line_with(warning, &[" WARN "]);
}

#[test]
fn a_port_taken_by_another_process_fails_the_check_by_the_name_of_the_process() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (listen, admin) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
    let shown = format!("(process {}", std::process::id());
    let status = format!("`systemctl status {}`", std::process::id());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = other.local_addr().unwrap();
    let config = format!(
        "listen = [\"127.0.0.2:0\", \"{listen}\"]\nadmin.listen = \"{admin}\"\n\
         http.listen = [\"{http}\"]\n"
    );
    let ended = Launch::new(&["--check-config"]).configured_admin().config(&config).run();
    let listen = format!("1:26: `listen.1`: {listen} is taken by ");
    let admin = format!("2:16: `admin.listen`: {admin} is taken by ");
    let http = format!("3:16: `http.listen.0`: {http} is taken by ");
    ended.exits(2, &[&listen, &admin, &http, "3 problems"]);
    let text = ended.text();
    assert_eq!((text.matches(&shown).count(), text.matches(&status).count()), (3, 3), "{text}");
}

#[test]
fn the_running_tracker_may_hold_the_addresses_and_no_second_one() {
    let (listen, admin, http) = (free_address(), free_address(), free_address());
    let config = format!(
        "listen = [\"{listen}\"]\nstate_dir = \"HOME/state\"\nadmin.listen = \"{admin}\"\n\
         http.listen = [\"{http}\"]\n"
    );
    let daemon = Launch::new(&[]).configured_admin().config(&config).serve();
    let check = || Launch::new(&["--check-config"]).configured_admin();
    let ended = check().flag("--config", daemon.config_path()).run();
    assert_eq!((ended.code, ended.text().as_str()), (Some(0), ""), "{}", ended.output);
    assert!(!ended.output.contains("Note: "), "{}", ended.output);
    // The check neither joins the group of sockets nor leaves a file.
    daemon.check();
    let names = fs::read_dir(daemon.home().join("state")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!format!("{names:?}").contains("onrush-check"), "{names:?}");
    // Another home, and so another state directory.
    let by =
        |key, address| format!("`{key}`: {address} is taken by onrush (process {}", daemon.pid());
    let (listen, http) = (by("listen.0", listen), by("http.listen.0", http));
    check().config(&config).run().exits(2, &[&listen, &http]);
}

#[test]
fn a_missing_list_is_named_with_its_key_and_user_by_check_start_and_reload() {
    let good = "[access]\nmode = \"deny\"\n";
    let config = format!("{good}files = [\"/nonexistent/none.txt\"]\n");
    let place =
        "onrush.toml:3:10: `access.files.0`: /nonexistent/none.txt: the list cannot be read";
    checked(&config).exits(2, &[place, "(as user "]);
    Launch::on_loopback().config(&config).run().exits(2, &[place, "(as user "]);
    let mut daemon = Launch::on_loopback().config(good).serve();
    daemon.configure(&config);
    daemon.signal("HUP");
    daemon.wait_for_line(RELOAD_REJECTED);
    daemon.wait_for_line(place);
    daemon.wait_for_line("(as user ");
    daemon.stop();
    let blocked = "[access]\nblocked_file = \"/nonexistent/none.txt\"\n";
    refuses(blocked, "2:16", &["`access.blocked_file`: /nonexistent/none.txt"]);
}

/// A directory that every user may enter, with a file that only root can read.
fn secret(name: &str, text: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(place.path().join(name), text).unwrap();
    fs::set_permissions(place.path().join(name), PermissionsExt::from_mode(0o600)).unwrap();
    place
}

fn owned_by_nobody(path: &Path) {
    let account = nobody();
    chown(path, Some(account.uid.as_raw()), Some(account.gid.as_raw())).unwrap();
}

#[test]
fn root_checks_as_the_user_that_the_service_runs_as() {
    require_root("changes user");
    let place = secret("token", TOKEN);
    let token = place.path().join("token");
    let state = place.path().join("state");
    let admin = format!("[admin]\nlisten = \"off\"\ntoken_file = {token:?}\n");
    let named = format!("user = \"nobody\"\n{admin}");
    refuses(&named, "4:14", &["cannot be read", "(as user nobody)", "(`user`)"]);
    // Without `user` it is the owner of the state directory, as under a unit with User=.
    fs::create_dir(&state).unwrap();
    owned_by_nobody(&state);
    let owned = format!("state_dir = {state:?}\n{admin}");
    refuses(&owned, "4:14", &["(as user nobody)", "(the owner of ", "/state)"]);
    owned_by_nobody(&token);
    for config in [named, owned] {
        checked(&config).prints(&["user      checked as user nobody"]);
    }
    // The state directory is tried as that user, too.
    chown(&state, Some(0), Some(0)).unwrap();
    fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
    let unwritable = format!("user = \"nobody\"\nstate_dir = {state:?}\n");
    refuses(&unwritable, "2:13", &["/state cannot be written", "(as user nobody)"]);
}

#[test]
fn another_user_checks_as_itself_and_is_told_so() {
    let place = secret("token", TOKEN);
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    let config = format!("user = \"root\"\nstate_dir = {state:?}\nadmin.listen = \"off\"\n");
    let launch = Launch::on_loopback().flags(&["--check-config"]).configured_admin();
    let users = "checked as user nobody, but the service runs as root (`user`)";
    launch.run_as_nobody().config(&config).run().exits(2, &[users]);
}

/// For the key `listen`, see the unit test in `src/main.rs`.
#[test]
fn a_failed_start_names_the_place_of_the_value() {
    for (config, part) in [
        ("user = \"nosuchuser\"\n", "onrush.toml:1:8: `user`: "),
        ("admin.listen = \"192.0.2.7:6970\"\n", "onrush.toml:1:16: `admin.listen`: "),
        ("connection.key_file = \"/proc/nope/key\"\n", "1:23: `connection.key_file`: cannot "),
    ] {
        Launch::on_loopback().configured_admin().config(config).start().refusal(&[part]);
    }
}
