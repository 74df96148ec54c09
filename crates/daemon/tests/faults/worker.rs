//! A worker that fails in a running daemon, by a receive call that the tracer strace lets fail: the
//! process ends with status 1, so that the service manager starts it again, with the peers of the
//! last snapshot. Panics of workers are in `tests/it/worker_failure.rs`.

use crate::harness::messages::SNAPSHOT;
use crate::harness::{Launch, PLACEMENTS, Peers, free_address};
use crate::load::Load;
use crate::sandbox::failing;

#[test]
fn a_failed_worker_ends_the_process_and_the_next_start_has_the_snapshot() {
    let state = tempfile::tempdir().unwrap();
    let address = free_address();
    let launch = || {
        let launch = Launch::new(PLACEMENTS[0]).flag("--state-dir", state.path());
        launch.flag("--listen", address.to_string())
    };
    let daemon = launch().serve();
    let peers = Peers::announced_to(address);
    let load = Load::start("127.0.3.10", address);
    daemon.stop().exits(0, &[SNAPSHOT]);

    let daemon = launch().under(&failing("recvmmsg", "EIO", "150+")).start();
    daemon.end().exits(1, &["worker-", "its socket failed: "]);

    let daemon = launch().serve_restored();
    load.served_again();
    load.end();
    peers.assert_served(daemon.address());
}
