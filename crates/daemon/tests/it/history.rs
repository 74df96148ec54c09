//! The history of rates, peers and swarms: recorded every second, and kept over restarts and
//! upgrades.

use onrush::state_files::history::FILE;

use crate::harness::{Daemon, eventually, launch_in, mode, random_hash, seeder, set_aside};

/// A value of the last seconds, oldest first.
fn seconds(daemon: &Daemon, name: &str) -> Vec<Option<f64>> {
    let history = daemon.get("/history.json").json();
    let values = history["hour"]["values"][name].as_array().expect("a list of values");
    values.iter().map(|value| value.as_f64()).collect()
}

/// Announces a peer to a new swarm, and waits until that is in the history.
pub(crate) fn announce_and_record(daemon: &Daemon) {
    daemon.client().announce(&seeder(random_hash(), 4_000));
    let is_recorded = |name, least| {
        eventually(name, || seconds(daemon, name).last().copied().flatten() >= Some(least));
    };
    is_recorded("swarms", 1.0);
    is_recorded("peers_ipv4", 1.0);
    let announced = |rate: &Option<f64>| *rate > Some(0.0);
    eventually("an announce is recorded", || seconds(daemon, "announces").iter().any(announced));
}

#[test]
fn the_history_survives_a_restart_and_an_upgrade() {
    let state = tempfile::tempdir().unwrap();
    // Without peers from before, swarms in the history are those of the process before.
    let config = "[snapshot]\nenabled = false\n";
    let launch = || launch_in(state.path(), &["--workers", "1"], config).admin();
    let first = launch().serve();
    announce_and_record(&first);
    let recorded = seconds(&first, "swarms");
    first.stop();
    assert_eq!(mode(&state.path().join(FILE)), 0o600);

    let second = launch().serve();
    let kept = seconds(&second, "swarms");
    assert!(kept.starts_with(&recorded), "{recorded:?} is not the begin of {kept:?}");
    announce_and_record(&second);
    let recorded = seconds(&second, "swarms");
    let mut third = launch().flags(&["--upgrade"]).start();
    third.serving();
    assert_eq!(second.end().code, Some(0));
    let mut kept = Vec::new();
    eventually("the successor records", || {
        kept = seconds(&third, "swarms");
        kept.len() > recorded.len() && kept.last() == Some(&Some(1.0))
    });
    assert!(kept.starts_with(&recorded), "{recorded:?} is not the begin of {kept:?}");
    assert_eq!(set_aside(state.path()), 0);
}
