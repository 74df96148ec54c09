//! Signals that stop the daemon, and signals that do not.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::client::Client;
use crate::harness::messages::{NO_EXPORT, RELOADED, STOPPED};
use crate::harness::process::Launch;

/// SIGKILL.
const KILL: i32 = 9;

#[test]
fn term_and_int_stop_cleanly_in_both_placements() {
    for (signal, placement) in
        [("TERM", "colocated"), ("INT", "colocated"), ("TERM", "split"), ("INT", "split")]
    {
        let flags = ["--listen", "127.0.0.1:0", "--workers", "3", "--placement", placement];
        let mut daemon = Launch::new(&flags).start();
        Client::new(daemon.serving()[0]).connect_and_check();
        daemon.signal(signal);
        let ended = daemon.end();
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{signal}: {}", ended.text());
        let last = ended.log.last().unwrap();
        let totals = ["4 datagrams in", "4 out", "0 refused"];
        assert!(last.contains(STOPPED), "{}", ended.text());
        assert!(totals.iter().all(|part| last.contains(part)), "{}", ended.text());
    }
}

#[test]
fn hup_and_usr1_do_not_stop_the_daemon() {
    let mut daemon = Launch::on_loopback().start();
    let addresses = daemon.serving();
    daemon.signal("HUP");
    daemon.line(RELOADED);
    daemon.signal("USR1");
    daemon.line(NO_EXPORT);
    daemon.signals(&["HUP", "USR1"], 200);
    for address in addresses {
        Client::new(address).connect_and_check();
    }
    let ended = daemon.stop();
    assert!(ended.log.last().unwrap().contains(STOPPED), "{}", ended.text());
}

#[test]
fn sigkill_ends_the_process() {
    let mut daemon = Launch::on_loopback().start();
    daemon.serving();
    daemon.signal("KILL");
    let ended = daemon.end();
    assert_eq!((ended.code, ended.signal), (None, Some(KILL)));
    assert!(!ended.text().contains(STOPPED));
}

/// A worker blocked on a full log pipe cannot be stopped cleanly.
#[test]
fn a_second_signal_exits_without_waiting_for_workers() {
    let state = tempfile::tempdir().unwrap();
    let address = crate::harness::process::free_address();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_onrush"))
        .args(["--listen", &address.to_string(), "--log-level", "trace", "--workers", "1"])
        .args(["--state-dir".as_ref(), state.path().as_os_str()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let connect = *b"\0\0\x04\x17\x27\x10\x19\x80\0\0\0\0\0\0\0\x01";
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut replies = 0;
    // The tracker replies until the pipe is full of its log lines.
    while Instant::now() < deadline {
        let sent = client.send(&connect).is_ok();
        match sent && client.recv(&mut [0; 64]).is_ok() {
            true => replies += 1,
            false if replies > 0 => break,
            false => {} // not full yet
        }
    }
    let pid = daemon.id().to_string();
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        ended = daemon.try_wait().unwrap();
    }
    if ended.is_none() {
        daemon.kill().unwrap();
    }
    let status = daemon.wait().unwrap();
    assert!(replies > 0, "replies before the pipe was full");
    assert_eq!(status.code(), Some(1));
}
