//! Load over WebSocket: a right tracker is found right, each fault gives its finding, and the
//! limits of tracker and load tester are reported. TLS, and a real tracker:
//! `crates/daemon/tests/it/load_ws.rs`.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use onrush_load::check::Finding;
use onrush_load::plan::Kind;
use onrush_load::report::Report;

use super::command::{command, report, stderr};
use super::counted::Counted;
use super::run::of;
use super::sources::{hard_limit, limited};
use super::ws_server::{WsFault, WsServer};

/// Messages of a run.
const MESSAGES: usize = 3000;
/// Deadline of what is repeated.
const DEADLINE: Duration = Duration::from_secs(120);

/// Eight connections in about six swarms of four members on average, of which many are seeders.
fn load(tracker: &Counted<WsServer>, more: &str) -> Command {
    let mut command = command();
    command
        .args(["ws", &tracker.server.target(), "--seed=5", "--seeders=60", "--quiet", "--json=-"])
        .args("--connections 8 --memberships 3 --set swarms.mean=4 --sdp 100-900".split(' '))
        .args(more.split_whitespace());
    command
}

/// A run of so many messages.
#[track_caller]
fn measured(fault: WsFault, more: &str) -> (Output, Report) {
    let tracker = WsServer::start(fault);
    let mut run = load(&tracker, &format!("--duration 3600 --warmup 0 {more}"));
    let output = tracker.end_run(tracker.spawn(&mut run), MESSAGES);
    let report = report(&output);
    (output, report)
}

#[test]
fn a_right_tracker_is_found_right() {
    for (form, more) in [
        (WsFault::Nothing, ""),
        (WsFault::Spaces, ""),
        (WsFault::Nothing, "--workers 2 --answers 50"),
        (WsFault::Nothing, "--rate 2000 --poisson --offers 1"),
        (WsFault::Nothing, "--set mix.scrape=100 --set scrapes.0.hashes=5 --profile webtorrent"),
    ] {
        let (output, report) = measured(form, &format!("--strict --timeout 60 {more}"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{more}: {said}");
        let (announces, scrapes) = (of(&report, Kind::Announce), of(&report, Kind::Scrape));
        assert_eq!(announces.right, announces.requests, "{more}: {said}");
        assert_eq!((scrapes.right, scrapes.lost), (scrapes.requests, 0), "{more}: {said}");
        assert!(announces.right > 100 && scrapes.right > 3, "{said}");
        let ws = report.ws.as_ref().unwrap();
        assert_eq!((ws.failed, ws.opened), (0, 8), "{more}: {said}");
        assert!(ws.offers.due > 100 && ws.offers.sent >= ws.offers.due, "{more}: {said}");
        assert_eq!((ws.offers.arrived, ws.answers.arrived), (ws.offers.due, ws.answers.due));
        let share = ws.answers.sent as f64 / ws.offers.arrived as f64;
        // Members that have sent `stopped` do not answer.
        let meant = if more.contains("50") { 0.3..0.7 } else { 0.9..1.01 };
        assert!(meant.contains(&share), "{share}: {more}");
        assert!(ws.offers.latency.p50 > 0.0 && ws.answers.latency.p50 > ws.offers.latency.p50);
        let messages = announces.requests + scrapes.requests + ws.answers.sent;
        // Those that the run ends with are sent after the window, and may be most of them.
        let within = MESSAGES as u64..=messages;
        assert!(within.contains(&ws.messages_sent), "{}: {said}", ws.messages_sent);
    }
}

const FAULTS: [(WsFault, Finding); 24] = [
    (WsFault::OfferReturned, Finding::OfferReturned),
    (WsFault::OfferElsewhere, Finding::OfferElsewhere),
    (WsFault::OfferToAll, Finding::OfferTwice),
    (WsFault::OfferByte, Finding::OfferChanged),
    (WsFault::OfferPeer, Finding::OfferChanged),
    (WsFault::OfferHash, Finding::OfferChanged),
    (WsFault::OfferId, Finding::OfferUnknown),
    (WsFault::AnswerElsewhere, Finding::AnswerElsewhere),
    (WsFault::AnswerByte, Finding::AnswerChanged),
    (WsFault::AnswerId, Finding::AnswerUnknown),
    (WsFault::AnswerTwice, Finding::AnswerTwice),
    (WsFault::CountsTooHigh, Finding::CountsTooHigh),
    (WsFault::ScrapeMore, Finding::ScrapeOthers),
    (WsFault::Error, Finding::ErrorReply),
    (WsFault::OtherSwarm, Finding::Unasked),
    (WsFault::Json, Finding::Json),
    (WsFault::NoAction, Finding::Layout),
    (WsFault::Binary, Finding::BinaryFrame),
    (WsFault::Masked, Finding::Frame),
    (WsFault::Utf8, Finding::Frame),
    (WsFault::OfferToSeeder, Finding::OfferToSeeder),
    (WsFault::CountsZero, Finding::AskerNotCounted),
    (WsFault::NoCounts, Finding::NoCounts),
    (WsFault::ZeroInterval, Finding::ZeroInterval),
];

/// Whether there are replies to requests with a fault of this finding.
fn of_replies(finding: Finding) -> bool {
    use Finding::{BinaryFrame, Frame, Json, Layout, Unasked};
    ![BinaryFrame, Frame, Json, Layout, Unasked].contains(&finding)
}

#[test]
fn every_fault_gives_its_finding() {
    for (fault, finding) in FAULTS {
        let tracker = WsServer::start(fault);
        let mut run = load(&tracker, "--duration 3600 --warmup 0 --timeout 0.5");
        // Without replies there are few messages: those of two timeouts.
        let has_replies = of_replies(finding);
        let messages = if has_replies { 500 } else { 16 };
        let output = tracker.end_run(tracker.spawn(&mut run), messages);
        let report = report(&output);
        let found = report.wrong.iter().chain(&report.differs);
        let found: Vec<_> = found.map(|it| (it.finding, !it.examples.is_empty())).collect();
        assert_eq!(found, [(finding, true)], "{fault:?}: {}", stderr(&output));
        let status = i32::from(!finding.is_open());
        // Where no right reply arrives, that comes first.
        assert_eq!(output.status.code(), Some(status), "{fault:?}: {}", stderr(&output));
    }
}

/// By an answer a member would be in the swarm again, and the next offer to it wrong.
#[test]
fn members_that_have_stopped_do_not_answer() {
    let (output, report) = measured(WsFault::AnswerJoins, "--timeout 0.5");
    let said = stderr(&output);
    assert_eq!((output.status.code(), report.wrong.len()), (Some(0), 0), "{said}");
    let ws = report.ws.unwrap();
    let arrived = ws.offers.arrived + ws.offers.late;
    assert!((100..arrived).contains(&ws.answers.sent), "{arrived}: {said}");
}

#[test]
fn requests_without_a_reply_are_lost() {
    for (fault, named) in [
        (WsFault::Defers, "% of requests were lost"),
        (WsFault::Silent, "% of requests were lost"),
        // Closed, or reset where the tracker had not read all.
        (WsFault::Closes, "connections failed, the first one: "),
    ] {
        let (output, report) = measured(fault, "--max-loss 1 --timeout 0.5");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(4), "{fault:?}: {said}");
        assert!(said.contains(named), "{named}: {said}");
        let announces = of(&report, Kind::Announce);
        assert_eq!(announces.requests, announces.right + announces.lost, "{fault:?}: {said}");
        assert!(announces.lost > 5, "{fault:?}: {said}");
    }
}

/// A tracker may drop offers and answers, which is reported and not wrong.
#[test]
fn offers_and_answers_that_do_not_arrive_are_counted() {
    for fault in [WsFault::NoOffers, WsFault::NoAnswers] {
        let (output, report) = measured(fault, "--timeout 0.5");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{fault:?}: {said}");
        let ws = report.ws.unwrap();
        let lost = if fault == WsFault::NoOffers { &ws.offers } else { &ws.answers };
        assert!(lost.due > 100 && lost.arrived == 0 && lost.lost_percent == 100.0, "{lost:?}");
        let warned = report.warnings.iter().any(|warning| warning.contains("100.000 % of the"));
        assert!(warned, "{:?}", report.warnings);
    }
}

#[test]
fn connections_end_and_are_opened_again() {
    let (output, report) = measured(WsFault::Nothing, "--disconnects 20 --timeout 1");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let (announces, ws) = (of(&report, Kind::Announce), report.ws.as_ref().unwrap());
    assert_eq!((announces.lost, ws.failed), (0, 0), "{said}");
    let share = ws.disconnected as f64 / announces.right as f64;
    assert!((0.1..0.3).contains(&share) && ws.opened > ws.disconnected, "{share}: {said}");
}

/// Eight connections with replies that take 20 ms hold 400 requests per second.
#[test]
fn too_few_connections_are_reported() {
    let (output, report) = measured(WsFault::Slow, "--rate 2000 --timeout 0.5");
    let said = stderr(&output);
    assert!(report.unsent > 0 && report.no_room > 0, "{said}");
    assert!(said.contains("raise --connections"), "{said}");
}

/// Without a file for each connection the load tester has reached its own limit.
#[test]
fn a_limit_of_this_host_is_reported() {
    let tracker = WsServer::start(WsFault::Nothing);
    let mut limited = limited(&hard_limit(80));
    let output = limited.args(["ws", &tracker.server.target(), "--idle=900"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("900 sockets") && said.contains("--connections"), "{said}");
}

#[test]
fn idle_connections_are_held_and_their_memory_is_reported() {
    let tracker = WsServer::start(WsFault::Nothing);
    let mut run = command();
    run.args(["ws", &tracker.server.target(), "--quiet", "--json=-", "--workers=2"]);
    let pid = std::process::id();
    run.args(["--idle=50", "--duration=3", "--timeout=30", &format!("--tracker-pid={pid}")]);
    let output = run.output().unwrap();
    let (said, report) = (stderr(&output), report(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(of(&report, Kind::Announce).right, 50, "{said}");
    let idle = report.ws.unwrap().idle.unwrap();
    assert_eq!(idle.held, 50, "{said}");
    assert!(idle.connect_rate > 16.0 && idle.rss_before > Some(0), "{idle:?}");
    let grown = idle.rss_after.unwrap() as f64 - idle.rss_before.unwrap() as f64;
    assert_eq!(idle.rss_per_connection, Some(grown / 50.0));
}

/// Eight connections with replies that take 20 ms hold 400 announces per second. Repeated until a
/// rate is found: on a host that leaves it no CPU time a search finds none.
#[test]
fn a_search_finds_the_limit_of_a_tracker() {
    let tracker = WsServer::start(WsFault::Slow);
    let more = "--find-max --max-p99 500 --round 0.5 --duration 0.5 --warmup 0.1 --resolution 50";
    let end = Instant::now() + DEADLINE;
    loop {
        let output = load(&tracker, more).output().unwrap();
        let (said, report) = (stderr(&output), report(&output));
        let search = report.search.unwrap();
        assert!(search.closed_loop > 0.0 && !search.rounds.is_empty(), "{said}");
        if let Some(found) = search.found {
            assert_eq!(output.status.code(), Some(0), "{said}");
            assert!(found < 900.0 && report.ws.unwrap().offers.arrived > 0, "{found}: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(Instant::now() < end, "no search found a rate: {said}");
    }
}

#[test]
fn a_tracker_without_an_upgrade_exits_with_3() {
    let tracker = WsServer::start(WsFault::Forbidden);
    let output = load(&tracker, "--duration 0.3 --warmup 0").output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(report(&output).ws.unwrap().failure.unwrap().contains("status 403"), "{said}");
}

#[test]
fn ctrl_c_ends_a_run_with_a_report() {
    let (output, report) = measured(WsFault::Nothing, "--rate 500 --timeout 60");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(report.seconds < 3600.0 && report.right_replies() > 100, "{} s", report.seconds);
    let ended = report.warnings.iter().any(|warning| warning.starts_with("ended early"));
    assert!(ended, "{:?}", report.warnings);
}
