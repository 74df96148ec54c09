//! A tracker that stalls for 100 ms of every second, over real sockets: an open loop's p99 shows
//! it, an average of a closed loop hides it.

mod responder;

use std::process::Command;
use std::time::Duration;

use onrush_load::report::{Latency, Report};
use responder::{Manner, Responder};

const MILLISECOND: f64 = 1e3;

fn latency(tracker: &Responder, pace: &str) -> Latency {
    let output = Command::new(env!("CARGO_BIN_EXE_onrush-load"))
        .arg(format!("--target={}", tracker.address))
        .args("--duration 3 --warmup 0.2 --sources 8 --swarms 5000 --quiet --json -".split(' '))
        .args(pace.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report.loss_percent < 50.0, "{} % lost", report.loss_percent);
    report.latency
}

#[test]
fn a_stall_shows_in_the_open_loop_and_not_in_a_naive_average() {
    let tracker = Responder::start("127.0.0.1:0", Manner::Stalls(Duration::from_millis(100)));
    // Every tenth request is due within a stall, and waits up to 100 ms: p99 is 90 ms. Nothing
    // that else delays replies makes it less.
    let open = latency(&tracker, "--rate 1000");
    assert!(open.p99 > 40.0 * MILLISECOND, "{open:?}");
    // Here one request waits per stall, and none is sent meanwhile. Three attempts, as other
    // load on the host may stall it as well.
    let calm = |closed: &Latency| closed.p50 < 5.0 * MILLISECOND && closed.mean < open.p99 / 4.0;

    let closed = || latency(&tracker, "--in-flight 1");
    assert!((0..3).any(|_| calm(&closed())), "{open:?}, a closed loop {:?}", closed());
}
