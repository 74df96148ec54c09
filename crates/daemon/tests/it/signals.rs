//! Signals that stop the daemon, and signals that do not.

use crate::harness::messages::{NO_EXPORT, RELOADED, STOPPED};
use crate::harness::{Launch, assert_parts, eventually};
use crate::service::NotifySocket;

#[test]
fn term_and_int_stop_cleanly_in_both_placements() {
    for (signal, placement) in [("TERM", "colocated"), ("INT", "split")] {
        let flags = ["--listen", "127.0.0.1:0", "--workers", "3", "--placement", placement];
        let daemon = Launch::new(&flags).serve();
        daemon.check();
        let ended = daemon.end_by(signal);
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{signal}: {}", ended.text());
        let totals = [STOPPED, "4 in", "4 out", "0 refused"];
        assert_parts(ended.log.last().unwrap(), &totals);
        let sender = format!("SIG{signal} of process {}, user ", std::process::id());
        ended.has_line("stopping after ", &[" INFO ", &sender]);
    }
}

#[test]
fn hup_and_usr1_do_not_stop_the_daemon() {
    let mut daemon = Launch::on_loopback().serve();
    daemon.signal("HUP");
    daemon.line(RELOADED);
    daemon.signal("USR1");
    daemon.line_with(NO_EXPORT, &["export.file"]);
    for _ in 0..200 {
        daemon.signal("HUP");
        daemon.signal("USR1");
    }
    daemon.check();
    assert_parts(daemon.stop().log.last().unwrap(), &[STOPPED]);
}

/// A service manager that takes no notification delays the clean stop.
#[test]
fn a_second_signal_exits_without_waiting_for_the_first() {
    let notify = NotifySocket::new();
    let mut daemon = notify.launch(Launch::on_loopback()).serve();
    daemon.check();
    notify.fill();
    eventually("the second signal ends the process", || {
        daemon.signal("TERM");
        daemon.has_exited()
    });
    assert_eq!(daemon.end().code, Some(1));
}
