//! `onrush ctl` against a running daemon: output and exit codes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::harness::{Ended, Launch, leecher, random_hash};

/// Runs `onrush ctl` without a token.
fn ctl(flags: &[&str]) -> Ended {
    Launch::new(&["ctl"]).flags(flags).run()
}

#[test]
fn health_has_an_exit_code_text_and_json_and_needs_no_token() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let url = format!("http://{}", daemon.admin());
    let health = ctl(&["--url", &url, "--timeout", "60", "health"]);
    health.prints(&[]);
    assert!(health.output.starts_with("ready: serving\n"), "{health:?}");
    let json = ctl(&["--url", &url, "--timeout", "60", "--json", "health"]);
    assert_eq!((json.code, json.json()["ready"]["ready"].as_bool()), (Some(0), Some(true)));
    ctl(&["--url", &url, "metrics"]).prints(&["\nonrush_requests_total{"]);
    ctl(&["--url", &url, "top-swarms"]).exits(1, &["admin.token_file", "--token-file"]);
}

#[test]
fn swarms_and_statistics_are_shown() {
    let daemon = Launch::on_loopback().admin_api("").serve();
    let client = daemon.client();
    let hash = random_hash();
    (0..3).for_each(|port| drop(client.announce(&leecher(hash, 7_000 + port))));
    let name = hash.to_string();

    let swarm = daemon.ctl(&["swarm", &name]);
    swarm.prints(&[]);
    let value = |row: &str| swarm.output.lines().find_map(|line| line.strip_prefix(row)).unwrap();
    assert_eq!((value("info hash").trim(), value("leechers").trim()), (name.as_str(), "3"));
    let top = daemon.ctl(&["top-swarms", "--by", "leechers", "--limit", "3"]);
    top.prints(&[&name, "1 of 1 swarms"]);
    daemon.ctl(&["stats"]).prints(&["1 connects, 3 announces, 0 scrapes"]);
    let stats = daemon.ctl(&["--json", "stats"]);
    assert!(stats.code == Some(0) && stats.json()["totals"]["announces"] == 3, "{stats:?}");

    let empty = Launch::on_loopback().admin_api("").serve().ctl(&["top-swarms"]);
    empty.prints(&["no swarms"]);
    let unknown = random_hash().to_string();
    daemon.ctl(&["swarm", &unknown]).exits(1, &[&unknown]);
    daemon.ctl(&["swarm", "nonsense"]).exits(2, &["40 hexadecimal digits"]);
    let json = daemon.ctl(&["--json", "swarm", "nonsense"]);
    let error = json.json()["error"].as_str().unwrap().to_owned();
    assert!(json.code == Some(2) && error.contains("40 hexadecimal digits"), "{json:?}");
    assert_eq!(json.text(), "");
}

#[test]
fn list_and_reload_commands_work() {
    let daemon = Launch::on_loopback().admin_api("[access]\nmode = \"deny\"\n").serve();
    let name = random_hash().to_string();
    daemon.ctl(&["list", "add", &name]).prints(&["1 changed", "deny list has 1 "]);
    daemon.ctl(&["list", "show"]).prints(&["deny: ", " 1 "]);
    daemon.ctl(&["list", "show", &name]).prints(&[&format!("{name} is listed")]);
    daemon.ctl(&["list", "remove", &name]).prints(&["1 changed", "deny list has 0 "]);
    // A file longer than one request; an error names the line.
    let file = daemon.home().join("more");
    let names: String = (0..12_345).map(|_| format!("{} # why\n", random_hash())).collect();
    fs::write(&file, format!("{names}\n{names}")).unwrap();
    let path = file.to_str().unwrap();
    let added = daemon.ctl(&["list", "add", "--file", path]);
    added.prints(&["12345 changed", "deny list has 12345 "]);
    assert_eq!(added.text(), "");
    let removed = daemon.ctl(&["--json", "list", "remove", "--file", path]).json();
    assert!(removed["changed"] == 12_345 && removed["entries"] == 0, "{removed}");
    fs::write(&file, format!("{name}\nno hash\n")).unwrap();
    daemon.ctl(&["list", "add", "--file", path]).exits(2, &[":2: "]);
    daemon.ctl(&["list", "add", "nonsense"]).exits(2, &["\"nonsense\""]);

    daemon.ctl(&["reload"]).prints(&[]);
    daemon.configure("[log]\nlevel = \"loud\"\n");
    daemon.ctl(&["reload"]).exits(1, &["log.level"]);
}

/// At the default address there may be another tracker. Errors of a token file are tested in
/// onrush-control.
#[test]
fn address_and_token_come_from_the_trackers_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let (config, token) = (directory.path().join("onrush.toml"), directory.path().join("token"));
    let (config, token) = (config.to_str().unwrap(), token.to_str().unwrap());
    let listening = format!("[admin]\nlisten = \"127.0.0.1:1\"\ntoken_file = {token:?}\n");
    let named = format!("state_dir = {:?}\n", directory.path());
    for (text, word, code, part) in [
        (listening.as_str(), "too short", 2, token),
        (&listening, "long-enough-for-a-token", 1, "http://127.0.0.1:1 "),
        ("[admin]\nlisten = \"off\"\n", "", 1, "control.sock"),
        (&named, "", 1, "/control.sock"),
    ] {
        fs::write(config, text).unwrap();
        fs::write(token, word).unwrap();
        let ended = ctl(&["--config", config, "health"]);
        ended.exits(code, &[part]);
        assert!(text == listening || !ended.text().contains("127.0.0.1"), "{ended:?}");
    }
    let missing = "/nonexistent/onrush.toml";
    ctl(&["--config", missing, "health"]).exits(2, &[missing]);
    ctl(&["--token-file", missing, "reload"]).exits(2, &["--token-file: ", missing]);
}

#[test]
fn help_has_examples_and_exit_status() {
    let parts =
        ["Examples:", "onrush ctl health", "Exit status:", "top-swarms", "admin.token_file"];
    ctl(&["--help"]).prints(&parts);
    ctl(&["helth"]).exits(2, &["health"]);
    // Words of other programs.
    for (word, command) in [
        ("reload", "onrush ctl reload"),
        ("status", "onrush ctl health"),
        ("stop", "systemctl"),
        ("-t", "--check-config"),
    ] {
        let ended = Launch::new(&[word]).run();
        ended.exits(2, &[command]);
        assert!(!ended.text().contains("similar"), "{ended:?}");
    }
}

/// A server at the other end of `--url` may be any program.
#[test]
fn text_of_a_hostile_server_does_not_control_the_terminal() {
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J\u{7f}\u{202e}";
    // In JSON as characters where it permits them, and as escapes.
    let in_json = "\\u001b]0;title\\u0007\u{9b}2J\u{7f}\u{202e}";
    let error = format!("{{\"error\": \"{in_json}\"}}");
    let reloaded = format!("{{\"changed\": [], \"restart\": [], \"notices\": [\"{in_json}\"]}}");
    let path = "/nonexistent/\u{1b}[2J";
    let health = format!("{{\"status\": \"ok\", \"stalled\": [\"{in_json}\"]}}");
    for (arguments, status, body) in [
        (&["metrics"][..], "200 OK", format!("{evil} 1\n")),
        (&["reload"], "200 OK", reloaded.clone()),
        (&["--json", "reload"], "200 OK", reloaded),
        (&["stats"], "500 Error", error.clone()),
        (&["stats"], "500 Error", evil.to_owned()),
        (&["--json", "stats"], "200 OK", evil.to_owned()),
        (&["--json", "health"], "200 OK", health),
        (&["list", "check", path], "200 OK", String::new()),
        (&["top", "--once"], "500 Error", error),
    ] {
        let url = answering(status, &body);
        let ended = match arguments {
            ["top", ..] => Launch::new(arguments).flags(&["--url", &url]).run(),
            _ => ctl(&[&["--url", &url], arguments].concat()),
        };
        let text = format!("{}{}", ended.output, ended.text());
        assert!(text.contains("2J"), "{arguments:?}: {ended:?}");
        let controls = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(controls), "{arguments:?}: {text:?}");
    }
}

/// The URL of a server that answers each request with `body`.
fn answering(status: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let length = body.len();
    let response =
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    url
}
