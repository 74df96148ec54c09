//! Standard error is a full pipe that is not read: the tracker serves, writes snapshots and stops
//! when it is told to.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::harness::client::Client;
use crate::harness::http::{Metrics, request};
use crate::harness::process::{Launch, TOKEN_FILE, free_address};
use crate::harness::swarms::{PLACEMENTS, populate, swarm_state};
use crate::load::Load;

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let fifo = directory.path().join("log");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    // Opened for reading and writing, a pipe has a reader, which never reads.
    let script = format!("exec \"$0\" \"$@\" 2<>{}", fifo.display());
    let (address, admin) = (free_address(), free_address());
    let config = format!(
        "{TOKEN_FILE}listen = \"{admin}\"\n[snapshot]\nevery = 1\n[log]\ntotals_every = 1\n\
         level = \"trace\"\n"
    );
    let launch = Launch::new(PLACEMENTS[0]).flag("--state-dir", &state);
    let launch = launch.flag("--listen", address.to_string()).config(&config).configured_admin();
    let daemon = launch.under(&["sh", "-c", &script]).start();
    Client::new(address).await_tracker();
    let hashes = populate(address);
    let before = swarm_state(address, &hashes);
    let load = Load::start("127.0.3.12", address);
    let metrics = || {
        let page = request(admin, "GET", "/metrics", "", "").unwrap();
        Metrics::parse(&page.body)
    };
    load.until("lines are lost", || metrics().sum("onrush_lost_log_lines_total", &[]) > 0.0);
    let snapshots = || metrics().sum("onrush_file_writes_total", &["snapshot", "written"]);
    let written = snapshots();
    load.until("snapshots are written", || snapshots() >= written + 2.0);
    let counts = load.end();
    assert_eq!(counts.answered, counts.sent);
    // SIGTERM: the exit has code 0.
    daemon.stop();
    let daemon = Launch::new(PLACEMENTS[0]).flag("--state-dir", &state);
    let daemon = daemon.flag("--listen", address.to_string()).serve();
    assert_eq!(swarm_state(address, &hashes), before);
    daemon.stop();
}
