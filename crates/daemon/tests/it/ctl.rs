//! `onrush ctl` against a running daemon: output and exit codes.

use std::net::SocketAddr;
use std::process::{Command, Output};

use crate::harness::client::{Client, leecher, random_hash};
use crate::harness::messages::{SERVES, STOPPED};
use crate::harness::process::{Daemon, Launch};

/// Runs `onrush ctl` with these flags.
fn ctl(flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onrush"));
    let Output { status, stdout, stderr } = command.arg("ctl").args(flags).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A daemon with a token, and the flags to reach it.
pub(crate) struct AdminDaemon {
    daemon: Daemon,
    url: String,
    token: String,
}

impl AdminDaemon {
    fn start() -> Self {
        Self::start_with("")
    }

    pub(crate) fn start_with(tables: &str) -> Self {
        let token = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&token, "of-the-tests-0123456789").unwrap();
        let token = token.keep().unwrap();
        let config = format!("[admin]\ntoken_file = {token:?}\n{tables}");
        let mut daemon = Launch::on_loopback().http().config(&config).start();
        daemon.serving();
        let url = format!("http://{}", daemon.http());
        Self { daemon, url, token: token.display().to_string() }
    }

    /// The address of the listener, from the log so far.
    pub(crate) fn address(&self) -> SocketAddr {
        let serves = |line: &&String| line.contains(SERVES);
        let line = self.daemon.log().iter().find(serves).unwrap();
        line.split("udp://").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) fn ctl(&self, flags: &[&str]) -> (Option<i32>, String, String) {
        ctl(&[&["--url", &self.url, "--token-file", &self.token], flags].concat())
    }
}

impl Drop for AdminDaemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.token);
    }
}

#[test]
fn health_has_an_exit_code_text_and_json() {
    let admin = AdminDaemon::start();
    let (code, text, _) = ctl(&["--url", &admin.url, "health"]);
    assert!(code == Some(0) && text.starts_with("ready: serving\n"), "{text}");
    let (code, json, _) = ctl(&["--url", &admin.url, "--json", "health"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["ready"]["ready"].as_bool()), (Some(0), Some(true)));
    let (code, text, _) = ctl(&["--url", &admin.url, "metrics"]);
    assert!(code == Some(0) && text.contains("\nonrush_requests_total{"), "{text}");
}

#[test]
fn swarms_and_statistics_are_shown() {
    let mut admin = AdminDaemon::start();
    let mut client = Client::new(admin.address());
    client.connect();
    let hash = random_hash();
    (0..3).for_each(|port| drop(client.announce(hash, leecher(7_000 + port))));
    let name = hash.to_string();

    let (code, text, _) = admin.ctl(&["swarm", &name]);
    assert_eq!(code, Some(0));
    let value = |row: &str| text.lines().find_map(|line| line.strip_prefix(row)).unwrap().trim();
    assert_eq!((value("info hash"), value("leechers")), (name.as_str(), "3"), "{text}");
    let (code, text, _) = admin.ctl(&["top-swarms", "--by", "leechers", "--limit", "3"]);
    assert_eq!(code, Some(0));
    assert!(text.contains(&name) && text.contains("1 of 1 swarms"), "{text}");
    let (code, text, _) = admin.ctl(&["stats"]);
    assert!(code == Some(0) && text.contains("1 connects, 3 announces, 0 scrapes"), "{text}");
    let (code, json, _) = admin.ctl(&["--json", "stats"]);
    let stats: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(code == Some(0) && stats["totals"]["announces"] == 3, "{stats:#}");

    let unknown = random_hash().to_string();
    let (code, _, error) = admin.ctl(&["swarm", &unknown]);
    assert!(code == Some(1) && error.contains(&unknown), "{error}");
    let (code, _, error) = admin.ctl(&["swarm", "nonsense"]);
    assert!(code == Some(1) && error.contains("40 hexadecimal digits"), "{error}");
    admin.daemon.signal("TERM");
    admin.daemon.line(STOPPED);
}

/// Asserts the output of `list add` and `list remove` on the deny list.
#[track_caller]
fn assert_changed(code: Option<i32>, text: &str, changed: usize, entries: usize) {
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with(&format!("{changed} changed")), "{text}");
    assert!(text.contains(&format!("deny list has {entries} ")), "{text}");
}

#[test]
fn list_and_reload_commands_work() {
    let admin = AdminDaemon::start_with("[access]\nmode = \"deny\"\n");
    let name = random_hash().to_string();
    let (code, text, _) = admin.ctl(&["list", "add", &name]);
    assert_changed(code, &text, 1, 1);
    let (_, text, _) = admin.ctl(&["list", "show"]);
    assert!(text.starts_with("deny: ") && text.contains(" 1 "), "{text}");
    let (_, text, _) = admin.ctl(&["list", "show", &name]);
    assert!(text.starts_with(&format!("{name} is listed")), "{text}");
    let (code, text, _) = admin.ctl(&["list", "remove", &name]);
    assert_changed(code, &text, 1, 0);
    // A file longer than one request; an error names the line.
    let file = admin.daemon.home().join("more");
    let names: String = (0..12_345).map(|_| format!("{} # why\n", random_hash())).collect();
    std::fs::write(&file, format!("{names}\n{names}")).unwrap();
    let path = file.to_str().unwrap();
    let (code, text, error) = admin.ctl(&["list", "add", "--file", path]);
    assert_eq!(error, "");
    assert_changed(code, &text, 12_345, 12_345);
    let (code, json, _) = admin.ctl(&["--json", "list", "remove", "--file", path]);
    let changed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(code == Some(0) && changed["changed"] == 12_345 && changed["entries"] == 0, "{json}");
    std::fs::write(&file, format!("{name}\nno hash\n")).unwrap();
    let (code, _, error) = admin.ctl(&["list", "add", "--file", path]);
    assert!(code == Some(2) && error.contains(":2: "), "{error}");
    let (code, _, error) = admin.ctl(&["list", "add", "nonsense"]);
    assert!(code == Some(1) && error.contains("\"nonsense\""), "{error}");

    let (code, text, _) = admin.ctl(&["reload"]);
    assert_eq!(code, Some(0), "{text}");
    std::fs::write(admin.daemon.home().join("onrush.toml"), "[log]\nlevel = \"loud\"\n").unwrap();
    let (code, _, error) = admin.ctl(&["reload"]);
    assert!(code == Some(1) && error.contains("log.level"), "{error}");
}

#[test]
fn without_a_token_the_error_names_key_and_flag() {
    let admin = AdminDaemon::start();
    let (code, _, error) = ctl(&["--url", &admin.url, "top-swarms"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("admin.token_file") && error.contains("--token-file"), "{error}");
}

#[test]
fn address_and_token_come_from_the_trackers_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let (config, token) = (directory.path().join("onrush.toml"), directory.path().join("token"));
    let path = config.display().to_string();
    std::fs::write(&token, "too short").unwrap();
    std::fs::write(&config, format!("[admin]\nlisten = \"127.0.0.1:1\"\ntoken_file = {token:?}\n"))
        .unwrap();
    let (code, _, error) = ctl(&["--config", &path, "health"]);
    assert!(code == Some(2) && error.contains(token.to_str().unwrap()), "{error}");
    std::fs::write(&token, "long-enough-for-a-token").unwrap();
    let (code, _, error) = ctl(&["--config", &path, "health"]);
    assert!(code == Some(1) && error.contains("http://127.0.0.1:1 "), "{error}");
    std::fs::write(&config, "[admin]\nlisten = \"off\"\n").unwrap();
    let (code, _, error) = ctl(&["--config", &path, "health"]);
    assert!(code == Some(2) && error.contains("admin.listen"), "{error}");
    let (code, _, error) = ctl(&["--config", "/nonexistent/onrush.toml", "health"]);
    assert!(code == Some(2) && error.contains("/nonexistent/onrush.toml"), "{error}");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let (code, text, _) = ctl(&["--help"]);
    assert_eq!(code, Some(0));
    for part in ["Examples:", "onrush ctl health", "Exit codes:", "top-swarms", "admin.token_file"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let (code, _, error) = ctl(&["helth"]);
    assert!(code == Some(2) && error.contains("health"), "{error}");
}
