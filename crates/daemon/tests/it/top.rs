//! `onrush top` against a running daemon: as text, and on a terminal.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use crate::harness::packets::{leecher, random_hash};
use crate::harness::process::{Launch, TIMEOUT};

#[test]
fn without_a_terminal_top_prints_once() {
    let daemon = Launch::on_loopback().flag("--workers", "2").admin().serve();
    let (address, client) = (daemon.address(), daemon.client());
    (0..3).for_each(|port| drop(client.announce(&leecher(random_hash(), 7_000 + port))));
    let url = format!("http://{}", daemon.admin());
    let top = Launch::new(&["top", "--every", "2", "--url", &url]).start().end();
    assert_eq!(top.code, Some(0), "{}", top.text());
    let text = top.output;
    let row = |begin: &str| {
        let row = text.lines().find(|line| line.starts_with(begin));
        row.unwrap_or_else(|| panic!("no row begins with {begin}: {text}")).to_owned()
    };
    assert!(row("onrush ").contains(&url) && row("onrush ").contains(&address.to_string()));
    row("serving");
    // Shards update their gauges once a second; two seconds pass between the samples.
    let (both, swarms) = (row("both"), row("swarms"));
    assert_eq!(both.split_whitespace().collect::<Vec<_>>()[5..], ["3", "0", "3"], "{text}");
    let swarms: Vec<&str> = swarms.split_whitespace().collect();
    assert_eq!([swarms[1], swarms[3]], ["3", "0"], "{text}");
    assert!(text.lines().filter(|line| line.starts_with("worker-")).count() == 2, "{text}");
    assert!(!text.contains('\u{1b}'), "no control sequences in a pipe");
    daemon.stop();
}

#[test]
fn an_unreachable_tracker_is_an_error_with_a_remedy() {
    // The port is free again.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let top = Launch::new(&["top", "--once", "--url", &format!("http://{free}")]).start().end();
    assert_eq!((top.code, top.output.as_str()), (Some(1), ""));
    let error = top.text();
    assert!(error.contains(&free.to_string()) && error.contains("admin.listen"), "{error}");
}

/// A child process, killed on drop.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The terminal is provided by `script` (Debian: bsdutils).
#[test]
fn on_a_terminal_top_runs_until_a_key_and_restores_the_terminal() {
    let daemon = Launch::on_loopback().flag("--workers", "2").admin().serve();
    let (admin, onrush) = (daemon.admin(), env!("CARGO_BIN_EXE_onrush"));
    let line = format!("stty cols 100 rows 30; '{onrush}' top --url http://{admin}; stty -a");
    let terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut terminal = KilledOnDrop(terminal);
    let mut keys = terminal.0.stdin.take().unwrap();
    let mut screen = terminal.0.stdout.take().unwrap();
    let (to, pieces) = channel();
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = screen.read(&mut piece) {
            if to.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + TIMEOUT;
    let mut shown = String::new();
    let wait_for = |shown: &mut String, text: &str| {
        while !shown.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let piece = pieces.recv_timeout(left);
            let piece = piece.unwrap_or_else(|_| panic!("never {text:?}: {shown:?}"));
            shown.push_str(&String::from_utf8_lossy(&piece));
        }
    };
    wait_for(&mut shown, "worker-1");
    assert!(shown.contains("\u{1b}[?1049h"), "no alternate screen: {shown:?}");
    // `top` keeps running when the tracker has exited.
    daemon.stop();
    wait_for(&mut shown, "Connection refused");
    keys.write_all(b"q").unwrap();
    wait_for(&mut shown, "\u{1b}[?1049l");
    // Canonical mode and echo are restored.
    wait_for(&mut shown, " icanon");
    wait_for(&mut shown, " echo ");
    drop(keys);
    assert!(terminal.0.wait().unwrap().success());
}
