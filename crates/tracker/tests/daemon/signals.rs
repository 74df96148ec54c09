//! Signals: which ones end it, and how.

use crate::client::Client;
use crate::process::Launch;

/// SIGKILL.
const KILL: i32 = 9;

#[test]
fn term_and_int_stop_it_cleanly_in_either_placement() {
    for (signal, placement) in
        [("TERM", "colocated"), ("INT", "colocated"), ("TERM", "split"), ("INT", "split")]
    {
        let flags = ["--listen", "127.0.0.1:0", "--workers", "3", "--placement", placement];
        let mut daemon = Launch::new(&flags).start();
        Client::new(daemon.serving()[0]).converse();
        daemon.signal(signal);
        let ended = daemon.end();
        assert_eq!((ended.code, ended.signal), (Some(0), None), "{signal}: {}", ended.text());
        let last = ended.log.last().unwrap();
        assert!(last.contains("stopped: 4 datagrams in, 4 out, 0 refused"), "{}", ended.text());
    }
}

#[test]
fn hup_and_usr1_are_noted_and_do_no_harm() {
    let mut daemon = Launch::on_loopback().start();
    let addresses = daemon.serving();
    daemon.signal("HUP");
    daemon.line("SIGHUP: the configuration is read at start only");
    daemon.signal("USR1");
    daemon.line("SIGUSR1: ");
    daemon.signals(&["HUP", "USR1"], 200);
    // Signals that are pending already count once, so the last of each is the one to wait for.
    daemon.line("SIGHUP: ");
    daemon.line("SIGUSR1: ");
    for address in addresses {
        Client::new(address).converse();
    }
    let ended = daemon.stop();
    assert!(ended.log.last().unwrap().contains("stopped: "), "{}", ended.text());
}

#[test]
fn a_kill_is_a_kill() {
    let mut daemon = Launch::on_loopback().start();
    daemon.serving();
    daemon.signal("KILL");
    let ended = daemon.end();
    assert_eq!((ended.code, ended.signal), (None, Some(KILL)));
    assert!(!ended.text().contains("stopped: "));
}
