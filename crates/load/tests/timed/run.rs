//! A run's rate and its intervals.

use onrush_load::report::Report;

use super::command::{command, report, stderr};
use super::faulty::{Fault, Server};

/// A run of one second with these arguments.
fn load(more: &str) -> Report {
    let tracker = Server::start(Fault::Nothing);
    let output = command()
        .args(tracker.targets())
        .args("--duration 1 --warmup 0.3 --sources 16 --swarms 500 --quiet --json -".split(' '))
        .args(more.split(' '))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    report(&output)
}

#[test]
fn an_open_loop_sends_at_its_rate() {
    let report = load("--rate 2000 --workers 2 --profile classic --no-bursts");
    assert!((report.sent_rate - 2000.0).abs() < 30.0, "{}", report.sent_rate);
}

#[test]
fn the_intervals_have_the_rate_of_the_run() {
    let report = load(&format!("--in-flight 64 --tracker-pid {}", std::process::id()));
    let measured: Vec<_> = report.series.iter().filter(|s| s.phase == "measure").collect();
    assert_eq!(measured.len(), 5, "{:#?}", report.series);
    assert_eq!(report.series[0].phase, "warm-up");
    let seconds: f64 = measured.iter().map(|sample| sample.seconds).sum();
    assert!((seconds - report.seconds).abs() < 0.1, "{seconds}");
    let right = measured.iter().map(|sample| sample.right).sum::<u64>() as f64;
    assert!((right / report.seconds / report.rate - 1.0).abs() < 0.05, "{right} {}", report.rate);
    let watched: Vec<_> = measured.iter().filter_map(|sample| sample.tracker).collect();
    assert!(watched.iter().any(|tracker| tracker.cpu_percent > 0.0), "{watched:?}");
}
