//! `--find-max` against a server of known capacity, `--max-loss`, and runs that are interrupted.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onrush_load::report::search::{Purpose, Verdict};

use super::command::{self, report, stderr};
use super::faulty::{Fault, Server};
use super::server::{Behaviour, serve};

fn command(tracker: &Server, more: &str) -> Command {
    let mut command = command::command();
    command
        .arg(&tracker.targets()[0])
        .args("--profile classic --swarms 5000 --sources 8 --json -".split(' '))
        .args(more.split_whitespace());
    command
}

#[test]
fn the_capacity_of_a_server_is_found() {
    const CAPACITY: f64 = 1500.0;
    let tracker = serve(Behaviour::Serves(CAPACITY));
    // Delays of a busy host stay below this bound; a growing queue of requests exceeds it.
    let more = "--find-max --max-p99 100 --resolution 8 --round 2 --duration 2 --warmup 0.5";
    let output = command(&tracker, more).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = report(&output);
    let search = report.search.as_ref().unwrap();
    let found = search.found.unwrap();
    assert!(search.confirmed && search.closed_loop > CAPACITY / 4.0, "{said}");
    assert!(said.contains("Highest rate: "), "the verdict: {said}");
    assert!((CAPACITY * 0.6..CAPACITY * 1.15).contains(&found), "{found}: {said}");
    assert!(
        (report.sent_rate - found).abs() < found * 0.05,
        "the rate of the confirming round: {said}"
    );
    let last = search.rounds.last().unwrap();
    assert!((last.purpose, last.verdict) == (Purpose::Confirm, Verdict::Held), "{said}");
    assert!(search.rounds.iter().any(|round| !round.held() && !round.why.is_empty()), "{said}");
    assert!(said.contains("highest rate with loss"), "{said}");
}

/// A bound on the latency that no rate meets: the search ends in its time and says so.
#[test]
fn a_search_without_a_result_ends_in_time() {
    let tracker = Server::start(Fault::Nothing);
    let more = "--find-max --max-p99 0.01 --round 0.2 --duration 0.2 --warmup 0 --timeout 0.1";
    let begin = Instant::now();
    let output = command(&tracker, more).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let search = report(&output).search.unwrap();
    assert_eq!((search.found, search.confirmed), (None, false), "{said}");
    assert!(!search.rounds.is_empty() && said.contains("No rate held"), "{said}");
}

#[test]
fn loss_above_its_bound_exits_with_4() {
    // A server per run, as a run leaves seconds of requests in the buffer.
    let slow = || serve(Behaviour::Serves(500.0));
    let more = "--rate 4000 --duration 2 --warmup 0 --timeout 0.2 --quiet";
    let output = command(&slow(), &format!("{more} --max-loss 5")).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(report(&output).loss_percent > 5.0 && said.contains("more than --max-loss 5 %"));
    let output = command(&slow(), more).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "without a bound: {}", stderr(&output));
}

#[test]
fn ctrl_c_ends_a_run_with_a_report() {
    let tracker = Server::start(Fault::Nothing);
    let begin = Instant::now();
    let mut running = command(&tracker, "--rate 500 --duration 60 --warmup 0.1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first progress line follows the first measured interval.
    let mut first = [0; 1];
    std::io::Read::read_exact(running.stderr.as_mut().unwrap(), &mut first).unwrap();
    let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let output = running.wait_with_output().unwrap();
    let said = stderr(&output);
    assert!(begin.elapsed() < Duration::from_secs(58), "the run was not interrupted");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = report(&output);
    assert!(report.seconds < 58.0 && report.right_replies() > 0, "{} s", report.seconds);
    assert!(
        (report.sent_rate - 500.0).abs() < 50.0,
        "{} in {} s",
        report.sent_rate,
        report.seconds
    );
    assert!(said.contains("ended early: measured"), "{said}");
}
