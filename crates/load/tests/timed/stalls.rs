//! A tracker that stalls for 100 ms of every second: the p99 of an open loop shows the stall, the
//! mean of a closed loop hides it.

use std::time::Duration;

use onrush_load::latency::Latency;

use super::command::{command, report, stderr};
use super::faulty::Server;
use super::server::{Behaviour, serve};

const MILLISECOND: f64 = 1e3;

/// The latency of a run at this pace.
fn latency(tracker: &Server, pace: &str) -> Latency {
    let output = command()
        .arg(&tracker.targets()[0])
        .args("--duration 3 --warmup 0.2 --sources 8 --swarms 5000 --quiet --json -".split(' '))
        .args(pace.split(' '))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = report(&output);
    assert!(report.loss_percent < 50.0, "{} % lost", report.loss_percent);
    report.latency
}

#[test]
fn a_stall_is_in_the_p99_of_an_open_loop() {
    let tracker = serve(Behaviour::Stalls(Duration::from_millis(100)));
    // Every tenth request is due within a stall and waits up to 100 ms, so p99 is 90 ms or more.
    let open = latency(&tracker, "--rate 1000");
    assert!(open.p99 > 40.0 * MILLISECOND, "{open:?}");
    // In a closed loop one request waits per stall. Three attempts, as other load on the host may
    // stall it too.
    let calm = |closed: &Latency| closed.p50 < 5.0 * MILLISECOND && closed.mean < open.p99 / 4.0;

    let closed = || latency(&tracker, "--in-flight 1");
    assert!((0..3).any(|_| calm(&closed())), "{open:?}, a closed loop {:?}", closed());
}
