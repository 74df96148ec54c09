//! Signals that stop the daemon, and signals that do not.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::messages::{NO_EXPORT, RELOADED, STOPPED};
use crate::harness::packets;
use crate::harness::process::{Launch, free_address};

#[test]
fn term_and_int_stop_cleanly_in_both_placements() {
    for (signal, placement) in
        [("TERM", "colocated"), ("INT", "colocated"), ("TERM", "split"), ("INT", "split")]
    {
        let flags = ["--listen", "127.0.0.1:0", "--workers", "3", "--placement", placement];
        let daemon = Launch::new(&flags).serve();
        daemon.check();
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
    let mut daemon = Launch::on_loopback().serve();
    daemon.signal("HUP");
    daemon.line(RELOADED);
    daemon.signal("USR1");
    daemon.line(NO_EXPORT);
    for _ in 0..200 {
        daemon.signal("HUP");
        daemon.signal("USR1");
    }
    daemon.check();
    let ended = daemon.stop();
    assert!(ended.log.last().unwrap().contains(STOPPED), "{}", ended.text());
}

/// A worker blocked on a full log pipe cannot be stopped cleanly.
#[test]
fn a_second_signal_exits_without_waiting_for_workers() {
    let state = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_onrush"))
        .args(["--listen", &address.to_string(), "--log-level", "trace", "--workers", "1"])
        .args(["--state-dir".as_ref(), state.path().as_os_str()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut replies = 0;
    // The tracker replies until the pipe is full of its log lines.
    while Instant::now() < deadline {
        let sent = client.send(&packets::connect(1)).is_ok();
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
