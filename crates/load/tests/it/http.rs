//! Load over HTTP: a right tracker is found right however it carries its replies, each fault gives
//! its finding, and the limits of tracker and load tester are reported. HTTPS, and a real tracker:
//! `crates/daemon/tests/it/load_http.rs`.

use std::process::{Command, Output};

use onrush_load::check::Finding;
use onrush_load::plan::Kind;
use onrush_load::report::Report;

use super::command::{command, report, stderr};
use super::counted::Counted;
use super::faulty::Fault;
use super::http_server::{HttpServer, Wire};
use super::run::of;
use super::sources::{hard_limit, limited};

/// Requests of a run.
const REQUESTS: usize = 2000;

fn load(tracker: &Counted<HttpServer>, more: &str) -> Command {
    let mut command = command();
    command
        .args(["http", &tracker.server.target()])
        .args("--connections 8 --swarms 50 --sample 1 --quiet --json -".split(' '))
        .args(more.split_whitespace());
    command
}

/// A run of so many requests.
#[track_caller]
fn measured(fault: Fault, wire: Wire, more: &str) -> (Output, Report) {
    let tracker = HttpServer::start(fault, wire);
    let output = tracker.run(&mut load(&tracker, more), REQUESTS);
    let report = report(&output);
    (output, report)
}

#[test]
fn a_right_tracker_is_found_right() {
    for (wire, more) in [
        (Wire::Right, ""),
        (Wire::Right, "--pipeline 8 --lists 100"),
        (Wire::Right, "--keep-alive off --workers 2"),
        (Wire::Right, "--rate 3000 --poisson"),
        (Wire::Chunks, ""),
        (Wire::UntilEnd, ""),
        (Wire::UntilEnd, "--keep-alive off"),
    ] {
        let (output, report) = measured(Fault::Nothing, wire, &format!("--strict {more}"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{wire:?} {more}: {said}");
        let (announces, scrapes) = (of(&report, Kind::Announce), of(&report, Kind::Scrape));
        assert_eq!(announces.right, announces.requests, "{wire:?} {more}: {said}");
        assert!(announces.right > 1000 && scrapes.right > 10, "{said}");
        assert_eq!(of(&report, Kind::Connect).requests + of(&report, Kind::Junk).requests, 0);
        assert!(report.peers_per_reply > 0.2, "{}", report.peers_per_reply);
        let http = report.http.unwrap();
        assert_eq!(http.failed, 0, "{wire:?} {more}: {said}");
        let kept = wire != Wire::UntilEnd && !more.contains("off");
        assert_eq!(http.opened <= 8, kept, "{}: {wire:?} {more}", http.opened);
        assert!(http.first_byte.p50 > 0.0 && http.first_byte.p50 <= report.latency.max);
        assert!(http.handshake.max > 0.0);
    }
}

#[test]
fn requests_of_a_pipeline_leave_together() {
    let tracker = HttpServer::start(Fault::Nothing, Wire::Right);
    tracker.run(&mut load(&tracker, "--pipeline 8"), REQUESTS);
    let [requests, reads] = tracker.server.received();
    // All but the first ones, which ask whether the tracker is there, and the last of each worker.
    assert!(requests > 7 * reads, "{requests} requests in {reads} reads");
}

const FAULTS: [(Fault, Wire, Finding); 23] = [
    (Fault::AllErrors, Wire::Right, Finding::ErrorReply),
    (Fault::CountsDouble, Wire::Right, Finding::CountsTooHigh),
    (Fault::CountsZero, Wire::Right, Finding::MorePeersThanCounted),
    (Fault::IgnoresWant, Wire::Right, Finding::MorePeersThanWanted),
    (Fault::ListsTwice, Wire::Right, Finding::DuplicatePeer),
    (Fault::PortsReversed, Wire::Right, Finding::UnknownPeer),
    (Fault::ScrapesLess, Wire::Right, Finding::ScrapeEntries),
    (Fault::ScrapesDouble, Wire::Right, Finding::ScrapeTooHigh),
    (Fault::Nothing, Wire::OtherSwarm, Finding::ScrapeOthers),
    (Fault::Nothing, Wire::Scrape, Finding::OtherAction),
    (Fault::Nothing, Wire::Status, Finding::HttpStatus),
    (Fault::Nothing, Wire::NoLength, Finding::HttpHead),
    (Fault::Nothing, Wire::Trailing, Finding::Bencoding),
    (Fault::Nothing, Wire::KeyOrder, Finding::KeyOrder),
    (Fault::Nothing, Wire::PartOfPeer, Finding::Layout),
    (Fault::Nothing, Wire::Half, Finding::CutShort),
    (Fault::Nothing, Wire::Twice, Finding::Unasked),
    (Fault::ListsOwnPeer, Wire::Right, Finding::OwnPeer),
    (Fault::PeersForStopped, Wire::Right, Finding::PeersForLeaver),
    (Fault::ZeroInterval, Wire::Right, Finding::ZeroInterval),
    (Fault::Nothing, Wire::AlwaysCompact, Finding::OtherForm),
    (Fault::Nothing, Wire::NoCounts, Finding::NoCounts),
    (Fault::Nothing, Wire::LineEnd, Finding::LineEnd),
];

#[test]
fn every_fault_gives_its_finding() {
    for (fault, wire, finding) in FAULTS {
        let more = "--lists 20 --set swarms.mean=20 --set odd.port_zero=0.05";
        let (output, report) = measured(fault, wire, more);
        let found = report.wrong.iter().chain(&report.differs);
        let found: Vec<_> = found.map(|it| (it.finding, !it.examples.is_empty())).collect();
        assert!(found.contains(&(finding, true)), "{fault:?} {wire:?}: {found:?}");
        // A scrape is no reply to an announce, and has not the requested swarms either.
        let others = found.iter().filter(|(other, _)| !other.is_open() && *other != finding);
        let others: Vec<_> = others.filter(|_| wire != Wire::Scrape).collect();
        assert_eq!(others, [&(finding, true); 0], "{fault:?} {wire:?}");
        let status = i32::from(!finding.is_open());
        assert_eq!(output.status.code(), Some(status), "{fault:?} {wire:?}: {}", stderr(&output));
    }
}

/// A connection of one request is closed behind the reply, with what came with it.
#[test]
fn bytes_behind_a_reply_are_found_without_keep_alive() {
    let (output, report) = measured(Fault::Nothing, Wire::Twice, "--keep-alive off");
    let found: Vec<_> = report.wrong.iter().map(|it| it.finding).collect();
    assert_eq!(found, [Finding::Unasked], "{}", stderr(&output));
    let announces = of(&report, Kind::Announce);
    assert_eq!(announces.right, announces.requests, "{}", stderr(&output));
    // Each once, although a segment may come after the connection was closed.
    let (times, right) = (report.wrong[0].count, report.right_replies());
    assert!(times > 0 && times <= right, "{times} of {right}");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn requests_without_a_reply_are_lost() {
    for (wire, named) in [
        (Wire::Defers, "the tracker answered to try later"),
        (Wire::Closes, "connections failed, the first one: closed without a reply"),
        (Wire::Silent, "% of requests were lost"),
    ] {
        let more = "--keep-alive off --max-loss 1 --timeout 0.5";
        let tracker = HttpServer::start(Fault::Nothing, wire);
        let mut run = load(&tracker, more);
        run.args("--duration 3600 --warmup 0".split(' '));
        let output = tracker.end_run(tracker.spawn(&mut run), 500);
        let (said, report) = (stderr(&output), report(&output));
        assert_eq!(output.status.code(), Some(4), "{wire:?}: {said}");
        assert!(said.contains(named), "{named}: {said}");
        let announces = of(&report, Kind::Announce);
        assert_eq!(announces.requests, announces.right + announces.lost, "{wire:?}: {said}");
    }
}

/// A request on a connection that the tracker has just closed is sent again, once.
#[test]
fn a_connection_that_was_closed_loses_no_request() {
    let (output, report) = measured(Fault::Nothing, Wire::ClosesLater, "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let announces = of(&report, Kind::Announce);
    assert_eq!((announces.lost, announces.right), (0, announces.requests));
    let http = report.http.unwrap();
    assert!(http.opened > 500 && http.failed == 0, "{http:?}");
}

/// Eight connections with replies that take 20 ms hold 400 requests per second.
#[test]
fn too_few_connections_are_reported() {
    let tracker = HttpServer::start(Fault::Nothing, Wire::Slow);
    let mut run = load(&tracker, "--rate 2000 --duration 3600 --warmup 0 --timeout 0.5");
    let output = tracker.end_run(tracker.spawn(&mut run), 500);
    let (said, report) = (stderr(&output), report(&output));
    assert!(report.unsent > 0 && report.no_room > 0, "{said}");
    assert!(said.contains("raise --connections"), "{said}");
}

/// Without a file for each connection the load tester has reached its own limit.
#[test]
fn a_limit_of_this_host_is_reported() {
    let tracker = HttpServer::start(Fault::Nothing, Wire::Right);
    let mut limited = limited(&hard_limit(80));
    let output =
        limited.args(["http", &tracker.server.target(), "--connections=900"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("900 sockets") && said.contains("--connections"), "{said}");
}

/// Eight connections with replies that take 20 ms hold 400 requests per second. In a round of 0.6 s
/// three tenths more stay within this bound on the latency.
#[test]
fn a_search_finds_the_limit_of_a_tracker() {
    let tracker = HttpServer::start(Fault::Nothing, Wire::Slow);
    let more = "--find-max --max-p99 200 --round 0.5 --duration 0.5 --warmup 0.1 --resolution 50";
    let output = load(&tracker, more).output().unwrap();
    let (said, report) = (stderr(&output), report(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    let search = report.search.unwrap();
    assert!(search.closed_loop > 0.0 && search.closed_loop < 430.0, "{said}");
    assert!(search.found.unwrap() < 560.0 && search.limit.is_some(), "{said}");
}

#[test]
fn a_tracker_that_takes_no_connection_exits_with_3() {
    let output = command().args(["http", "-t", "http://127.0.0.1:1/announce"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = stderr(&output);
    assert!(said.contains("127.0.0.1:1") && said.contains("ss -ltn"), "{said}");
}

#[test]
fn ctrl_c_ends_a_run_with_a_report() {
    let (output, report) = measured(Fault::Nothing, Wire::Right, "--rate 2000");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(report.seconds < 3600.0 && report.right_replies() > 500, "{} s", report.seconds);
    let ended = report.warnings.iter().any(|warning| warning.starts_with("ended early"));
    assert!(ended, "{:?}", report.warnings);
}
