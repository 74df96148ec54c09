//! The process gets no CPU time for ten seconds: SIGSTOP under load, as when the host of a virtual
//! machine is moved.

use std::time::{Duration, Instant};

use crate::account::Account;
use crate::harness::Launch;
use crate::harness::messages::KERNEL_DROPPED;
use crate::load::Load;
use crate::sandbox::while_stopped;

/// Longer than the time after which a worker counts as stalled.
const PAUSE: Duration = Duration::from_secs(10);
/// Requests of the pause, more than the buffers hold.
const REQUESTS: u32 = 1_000;

/// Only what the receive buffers do not hold is lost, is counted, and is reported with its cause.
#[test]
fn a_process_stopped_for_ten_seconds_loses_only_what_the_buffers_do_not_hold() {
    // Small, as the replies to all queued requests have to fit in the buffer of the one client.
    let config = "listen = [\"127.0.0.1:0\"]\n[socket]\nreceive_buffer = 16384\n";
    let mut daemon = Launch::new(&["--workers", "2"]).admin().config(config).serve();
    let load = Load::start("127.0.3.1", daemon.address());
    while_stopped(&daemon, || {
        let begin = Instant::now();
        load.flood(REQUESTS);
        load.until("the pause is over", || begin.elapsed() >= PAUSE);
    });
    load.served_again();
    daemon.line_with("this process did not run for 1", &[" WARN ", "SIGSTOP"]);
    daemon.line_with(KERNEL_DROPPED, &[" WARN ", "while this process did not run"]);
    // One pause is no reason to turn sources away for long.
    assert!(daemon.metrics().sum("onrush_overload_step", &[]) <= 1.0);
    let account = Account::of(&daemon);
    assert!(account.dropped > 0, "{account:?}");
    assert_eq!(daemon.get("/health").status, 200);
    Account::balanced_with(&daemon, load, 0);
    daemon.check();
}
