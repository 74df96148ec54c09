//! `--find-max` and `--max-loss`, and runs that are interrupted. That a search finds the capacity
//! of a server, and in time, is in `tests/timed` and, with a simulated clock, in `src/search.rs`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

use super::command::{classic, report, stderr};
use super::counted::{Counted, interrupt};
use super::faulty::{Fault, Server};

/// Interrupts a command once a line on its standard error begins so. Returns all lines with the
/// output.
fn interrupted_after(command: &mut Command, begin: &str) -> (String, Output) {
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap());
    let mut said = String::new();
    while !said.lines().last().is_some_and(|line| line.starts_with(begin)) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "ended early: {said}");
    }
    interrupt(&run);
    lines.read_to_string(&mut said).unwrap();
    (said, run.wait_with_output().unwrap())
}

/// A bound on the latency that no rate meets.
#[test]
fn a_search_without_a_result_says_so() {
    let tracker = Server::start(Fault::Nothing);
    let mut search = classic(&tracker, "--find-max --max-p99 0.01");
    let (said, output) = interrupted_after(&mut search, "grow");
    assert_eq!(output.status.code(), Some(4), "{said}");
    let search = report(&output).search.unwrap();
    assert_eq!((search.found, search.confirmed), (None, false), "{said}");
    assert!(!search.rounds.is_empty() && search.rounds.iter().all(|round| !round.held()));
    assert!(search.rounds.iter().all(|round| !round.why.is_empty()), "{said}");
    assert!(said.starts_with("closed loop: ") && said.contains("No rate held"), "{said}");
}

#[test]
fn loss_above_its_bound_exits_with_4() {
    let tracker = Counted::start(Fault::LosesDatagrams);
    for (bound, status) in [("--max-loss 5", 4), ("", 0)] {
        // Later replies count as lost too.
        let more = format!("--quiet {bound}");
        let mut run = classic(&tracker.server, &more);
        run.args("--duration 3600 --warmup 0 --timeout 0.2".split(' '));
        let output = tracker.end_run(tracker.spawn(&mut run), 500);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(report(&output).loss_percent > 5.0, "{said}");
        assert_eq!(said.contains("more than --max-loss 5 %"), status == 4, "{said}");
    }
}

#[test]
fn ctrl_c_ends_a_run_with_a_report() {
    let tracker = Counted::start(Fault::Nothing);
    let mut run = classic(&tracker.server, "--rate 500 --duration 60 --warmup 0.1 --timeout 60");
    // Most of these belong to the measured window.
    let output = tracker.end_run(tracker.spawn(&mut run), 500);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report = report(&output);
    assert!(report.seconds < 60.0 && report.right_replies() > 0, "{} s", report.seconds);
    let requests: u64 = report.kinds.iter().map(|kind| kind.requests).sum();
    let by_rate = report.sent_rate * report.seconds;
    assert!((by_rate - requests as f64).abs() < 1.0, "{by_rate} {requests}: of the measured time");
    assert!(said.contains("ended early: measured"), "{said}");
}
