//! `onrush top` against a running daemon: as text, and on a terminal.

use std::net::TcpListener;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::harness::terminal::Terminal;
use crate::harness::{Launch, assert_parts, eventually, free_address, leecher, random_hash};

/// A URL at which the kernel accepts connections without an answer, until the listener is dropped.
fn silent_url() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// A URL at which nothing listens.
fn closed_url() -> String {
    format!("http://{}", free_address())
}

#[test]
fn without_a_terminal_top_prints_once() {
    let daemon = Launch::on_loopback().flag("--workers", "2").admin().serve();
    let (address, client) = (daemon.address(), daemon.client());
    (0..3).for_each(|port| drop(client.announce(&leecher(random_hash(), 7_000 + port))));
    // Shards update their gauges once a second.
    eventually("the gauges count all peers and swarms", || {
        let metrics = daemon.metrics();
        let gauges = ["onrush_peers", "onrush_swarms"].map(|name| metrics.sum(name, &[]));
        gauges == [3.0, 3.0]
    });
    let url = format!("http://{}", daemon.admin());
    let top = Launch::new(&["top", "--every", "1", "--url", &url]).run();
    top.prints(&[]);
    let text = top.output;
    let words = |begin: &str| {
        let row = text.lines().find(|line| line.starts_with(begin)).expect(&text);
        row.split_whitespace().collect::<Vec<_>>()
    };
    assert_parts(&words("onrush ").join(" "), &[&url, &address.to_string()]);
    words("serving");
    assert_eq!(words("both")[5..], ["3", "0", "3"], "{text}");
    assert_eq!(words("swarms")[1..4], ["3", "(0", "idle)"], "{text}");
    assert!(text.lines().filter(|line| line.starts_with("worker-")).count() == 2, "{text}");
    assert!(!text.contains('\u{1b}'), "no control sequences in a pipe");
}

#[test]
fn an_unreachable_tracker_is_an_error_with_a_remedy() {
    let url = closed_url();
    let top = Launch::new(&["top", "--once", "--url", &url]).run();
    top.exits(1, &[&url, "admin.listen"]);
    assert_eq!(top.output, "");
}

/// `onrush top` on a terminal.
fn top_on_a_terminal(url: &str, controls: bool) -> Terminal {
    let mut top = Command::new(env!("CARGO_BIN_EXE_onrush"));
    Terminal::start(top.args(["top", "--url", url]), controls)
}

#[test]
fn on_a_terminal_top_runs_until_a_key_and_restores_the_terminal() {
    let daemon = Launch::on_loopback().flag("--workers", "2").admin().serve();
    let mut terminal = top_on_a_terminal(&format!("http://{}", daemon.admin()), false);
    terminal.wait_for("worker-1");
    assert!(terminal.shown().contains("\u{1b}[?1049h"), "no alternate screen: {terminal:?}");
    assert!(!terminal.is_restored(), "keys are read one by one");
    terminal.press(b"?");
    terminal.wait_for("PgDn,");
    terminal.press(b" ");
    // `top` keeps running when the tracker has exited, and shows the remedy.
    daemon.stop();
    terminal.wait_for("control.sock?");
    terminal.press(b"q");
    terminal.wait_for("\u{1b}[?1049l");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(terminal.is_restored());
}

/// With and without SIGHUP; while it waits for a reply, shows an error, or reads a key of which the
/// rest is missing.
#[test]
fn top_ends_with_its_terminal() {
    let (_listener, silent) = silent_url();
    let closed = closed_url();
    for controls in [true, false] {
        for (url, shown) in [(&silent, "waiting"), (&closed, "control.sock?")] {
            for keys in [&b""[..], b"?", b"\x1b["] {
                let mut terminal = top_on_a_terminal(url, controls);
                terminal.wait_for(shown);
                terminal.press(keys);
                terminal.close();
                let status = terminal.end();
                assert_eq!(status.code(), Some(1), "{status}, {controls} {url} {keys:?}");
            }
        }
    }
}

/// In every state of a key that is being read. A view that gets no CPU time for a second after the
/// signal ends as one whose terminal takes no output, with status 1.
#[test]
fn signals_end_top_and_restore_the_terminal() {
    let (_listener, url) = silent_url();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        for keys in [&b""[..], b"?", b"\x1b["] {
            eventually("the view ends with status 0", || {
                let mut terminal = top_on_a_terminal(&url, false);
                terminal.wait_for("waiting");
                terminal.press(keys);
                terminal.signal(signal);
                let status = terminal.end().code();
                assert!(terminal.is_restored(), "{signal} {keys:?}");
                assert!(status == Some(0) || status == Some(1), "{signal} {keys:?} {status:?}");
                if status == Some(0) {
                    terminal.wait_for("\u{1b}[?1049l");
                }
                status == Some(0)
            });
        }
    }
}

/// A connection that is stuck, or a terminal multiplexer that is stopped.
#[test]
fn a_signal_ends_top_on_a_terminal_that_takes_no_output() {
    let (_listener, url) = silent_url();
    let mut terminal = top_on_a_terminal(&url, false);
    terminal.wait_for("waiting");
    terminal.stop_output();
    terminal.press(b"?");
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.end().code(), Some(1));
    assert!(terminal.is_restored());
}
