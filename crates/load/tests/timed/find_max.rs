//! `--find-max` against a server of known capacity, and the time of a search without a result.

use std::time::{Duration, Instant};

use onrush_load::report::search::{Purpose, Verdict};

use super::command::{classic, report, stderr};
use super::faulty::{Fault, Server};
use super::server::{Behaviour, serve};

#[test]
fn the_capacity_of_a_server_is_found() {
    const CAPACITY: f64 = 1500.0;
    let tracker = serve(Behaviour::Serves(CAPACITY));
    // Delays of a busy host stay below this bound; a growing queue of requests exceeds it.
    let more = "--find-max --max-p99 100 --resolution 8 --round 2 --duration 2 --warmup 0.5";
    let output = classic(&tracker, more).output().unwrap();
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
    assert!(said.contains("rounds (bounds: loss"), "{said}");
}

/// A bound on the latency that no rate meets: the search ends in its time and says so.
#[test]
fn a_search_without_a_result_ends_in_time() {
    let tracker = Server::start(Fault::Nothing);
    let more = "--find-max --max-p99 0.01 --round 0.2 --duration 0.2 --warmup 0 --timeout 0.1";
    let begin = Instant::now();
    let output = classic(&tracker, more).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let search = report(&output).search.unwrap();
    assert_eq!((search.found, search.confirmed), (None, false), "{said}");
    assert!(!search.rounds.is_empty() && said.contains("No rate held"), "{said}");
}
