//! The checks against a conforming tracker and against one with a single fault: every fault is
//! reported by the checks that are written for it. `crates/load/tests` runs the command.

mod faulty;
mod http;
mod http_server;
mod over_tcp;
mod webtorrent;
mod ws_server;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faulty::{Fault, Server};
use onrush_proto::InfoHash;
use onrush_verify::check::{CheckOf, Group};
use onrush_verify::checks::checks;
use onrush_verify::exchange::ExchangeError;
use onrush_verify::probe::{Step, probe};
use onrush_verify::report::{CheckOutcome, Conformance};
use onrush_verify::{VerifySettings, verify};

/// Settings for a server. A request is repeated for eight timeouts, within which a busy host lets a
/// tracker answer.
fn settings(server: &Server) -> VerifySettings {
    VerifySettings {
        target: server.addresses[0],
        also: server.addresses.get(1).copied(),
        sources: Vec::new(),
        hashes: Vec::new(),
        timeout: Duration::from_secs(1),
        only: None,
        reach_timeout: Duration::from_secs(120),
    }
}

/// `count` info hashes.
fn hashes(count: u8) -> Vec<InfoHash> {
    (1..=count).map(|n| InfoHash([n; 20])).collect()
}

/// The checks that did not pass, with what they saw.
fn not_passed(report: &Conformance) -> Vec<(&str, CheckOutcome, &str)> {
    let rows = report.checks.iter().filter(|row| row.outcome != CheckOutcome::Pass);
    rows.map(|row| (row.id.as_str(), row.outcome, row.seen.as_deref().unwrap_or(""))).collect()
}

#[test]
fn a_conforming_tracker_passes_all_checks() {
    let server = Server::start(Fault::Nothing);
    let report = verify(&settings(&server)).unwrap();
    let others = not_passed(&report);
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(report.checks.len(), checks().count());
}

#[test]
fn a_conforming_tracker_passes_over_ipv6() {
    let server = Server::start(Fault::Nothing);
    let (v4, v6) = (server.addresses[0], server.addresses[1]);
    let report =
        verify(&VerifySettings { target: v6, also: Some(v4), ..settings(&server) }).unwrap();
    let others = not_passed(&report);
    let skipped: Vec<_> = others.iter().map(|(id, outcome, _)| (*id, *outcome)).collect();
    // The loopback interface has one IPv6 address.
    let expected = [("connect-id-from-another-address", CheckOutcome::Skipped)];
    assert_eq!(skipped, expected, "{others:?}");
}

#[test]
fn lost_datagrams_cause_no_failure() {
    let server = Server::start(Fault::LosesDatagrams);
    let report = verify(&settings(&server)).unwrap();
    assert_eq!(report.count(CheckOutcome::Fails), 0, "{:?}", not_passed(&report));
}

#[test]
fn a_tracker_that_loses_connects_is_waited_for() {
    let server = Server::start(Fault::LosesFirstConnects);
    let report =
        verify(&VerifySettings { only: Some(Group::Connect), ..settings(&server) }).unwrap();
    assert_eq!(report.count(CheckOutcome::Fails), 0, "{:?}", not_passed(&report));
}

/// The requests that were answered, and the one that was not.
fn probed(fault: Fault) -> (Vec<Step>, Option<(Step, ExchangeError)>) {
    let server = Server::start(fault);
    let probe = probe(server.addresses[0], None, Duration::from_secs(6));
    (probe.answered.iter().map(|answered| answered.step).collect(), probe.failed)
}

#[test]
fn a_probe_has_a_time_for_each_request_and_counts_repeats() {
    let server = Server::start(Fault::Nothing);
    for address in &server.addresses {
        let probe = probe(*address, None, Duration::from_secs(120));
        assert!(probe.failed.is_none(), "{probe:?}");
        let steps: Vec<_> = probe.answered.iter().map(|answered| answered.step).collect();
        assert_eq!(steps, [Step::Connect, Step::Announce, Step::Scrape]);
        assert!(probe.answered.iter().all(|step| step.time > Duration::ZERO), "{probe:?}");
    }
    let server = Server::start(Fault::LosesDatagrams);
    let probes = (0..20).map(|_| probe(server.addresses[0], None, Duration::from_secs(8)));
    let (mut repeated, mut waited) = (0, Duration::ZERO);
    for probe in probes {
        assert!(probe.failed.is_none(), "{probe:?}");
        repeated += probe.answered.iter().map(|step| step.repeated).sum::<u64>();
        waited = waited.max(probe.answered.iter().map(|step| step.time).max().unwrap());
    }
    // A request is sent again after a sixteenth of the time.
    assert!(repeated > 0 && waited >= Duration::from_millis(500), "{repeated}, {waited:?}");
}

#[test]
fn a_probe_ends_at_the_request_that_fails() {
    std::thread::scope(|scope| {
        for (fault, answered, failed) in [
            (Fault::OnlyConnects, &[Step::Connect][..], Step::Announce),
            (Fault::OtherTransaction, &[Step::Connect], Step::Announce),
            (Fault::AllFromOtherSocket, &[], Step::Connect),
        ] {
            scope.spawn(move || {
                let (steps, error) = probed(fault);
                let ended = error.map(|(step, _)| step);
                assert_eq!((steps.as_slice(), ended), (answered, Some(failed)), "{fault:?}");
            });
        }
    });
    let (_, error) = probed(Fault::AllErrors);
    assert!(matches!(error, Some((Step::Announce, ExchangeError::Refused { .. }))), "{error:?}");
}

/// A tracker that starts may open its port after the first request.
#[test]
fn a_probe_of_a_closed_port_ends_at_the_second_refusal() {
    let closed = |address: &str| std::net::UdpSocket::bind(address).unwrap().local_addr().unwrap();
    for address in ["127.0.0.1:0", "[::1]:0"].map(closed) {
        let probe = probe(address, None, Duration::from_secs(120));
        assert_eq!(probe.failed, Some((Step::Connect, ExchangeError::Closed)));
    }
}

/// Every fault, the expected outcome, and the checks that report it.
const TABLE: &[(Fault, CheckOutcome, &[&str])] = {
    use CheckOutcome::{Differs, Fails};
    use Fault::*;
    &[
        (OtherTransaction, Fails, &["transaction-id"]),
        (TwoReplies, Fails, &["one-reply"]),
        (OtherSocket, Fails, &["reply-from-asked-address"]),
        (AllFromOtherSocket, Fails, &["reply-from-asked-address", "connect-reply"]),
        (CutShort, Fails, &["peers-in-wire-form"]),
        (AllErrors, Fails, &["announce-98-bytes"]),
        (WrongKind, Fails, &["announce-98-bytes", "scrape-unknown"]),
        (OnlyConnects, Fails, &["announce-98-bytes", "scrape-unknown"]),
        (IdServesOnce, Fails, &["connect-id-serves-often"]),
        (NewIdEndsOld, Fails, &["connect-two-ids"]),
        (AnswersShortAnnounces, Differs, &["announce-short"]),
        (AnswersUnknownActions, Differs, &["unknown-action"]),
        (LongConnect, Fails, &["connect-reply"]),
        (ZeroId, Fails, &["connect-id-not-zero"]),
        (OneIdForAll, Fails, &["connect-id-from-another-address"]),
        (IdPerPort, Differs, &["connect-id-from-another-port"]),
        (StrictLength, Fails, &["connect-extra-bytes"]),
        (AnyMagic, Fails, &["connect-wrong-magic"]),
        (AnswersBadIds, Fails, &["announce-bad-id", "scrape-bad-id"]),
        (ServesBadIds, Fails, &["announce-bad-id", "announce-no-amplification", "scrape-bad-id"]),
        (AnswersJunk, Fails, &["junk", "unknown-action-unproven"]),
        (AnswersShort, Fails, &["short-datagrams", "connect-short"]),
        (
            RefusesOptions,
            Fails,
            &["announce-url-data", "announce-unknown-option", "announce-broken-options"],
        ),
        (DropsPaused, Fails, &["event-paused"]),
        (RefusesUnknownEvents, Differs, &["event-unknown"]),
        (UsesIpField, Differs, &["ip-field-ignored"]),
        (AcceptsPortZero, Fails, &["announce-port-0"]),
        (ListsPortOne, Differs, &["announce-port-1"]),
        (ZeroInterval, Fails, &["interval-positive"]),
        (ShortInterval, Differs, &["interval-positive"]),
        (SameInterval, Differs, &["interval-jitter"]),
        (SwapsCounts, Fails, &["counts-order"]),
        (CountsDouble, Fails, &["counts-order"]),
        (CountsZero, Fails, &["counts-order"]),
        (CountsMax, Fails, &["counts-order", "scrape-unknown", "scrape-creates-nothing"]),
        (OwnPeerNotCounted, Differs, &["asker-counted"]),
        (PeersByPeerId, Differs, &["peer-id-makes-no-peer"]),
        (StaysSeeder, Fails, &["seeder-leeches-again"]),
        (KeepsStopped, Fails, &["stopped-removes"]),
        (PeersForStopped, Differs, &["stopped-gets-no-peers"]),
        (StoresStopped, Fails, &["stopped-creates-no-swarm", "stopped-removes"]),
        (NeverCompletes, Fails, &["completed-counts"]),
        (CompletesAgain, Differs, &["completed-counts-once"]),
        (CompletesUnfinished, Differs, &["completed-needs-left-0"]),
        (UnknownPeersNeverComplete, Differs, &["completed-by-a-newcomer"]),
        (ForgetsCompleted, Differs, &["completed-stays"]),
        (FamiliesApart, Differs, &["families-count-together"]),
        (ListsOwnPeer, Differs, &["asker-not-listed"]),
        (ListsTwice, Fails, &["num-want-no-duplicates"]),
        (PortsReversed, Fails, &["peers-in-wire-form"]),
        (SeedersForSeeders, Differs, &["seeder-gets-no-seeders"]),
        (NoSeeders, Fails, &["leecher-gets-both"]),
        (OldestOnly, Differs, &["everybody-is-handed-out"]),
        (PeersUnasked, Differs, &["num-want-0"]),
        (NoDefault, Fails, &["num-want-negative"]),
        (OneTooFew, Differs, &["num-want-1", "num-want-exact"]),
        (RoundsWant, Fails, &["num-want-exact"]),
        (IgnoresWant, Fails, &["num-want-1", "num-want-exact"]),
        (NoCap, Differs, &["num-want-cap"]),
        (CountsAtMost100, Fails, &["large-swarm-counts"]),
        (Stores100, Fails, &["large-swarm-counts"]),
        (ListsStoppedAbove100, Fails, &["large-swarm-peers"]),
        (ScrapeSwapped, Fails, &["scrape-order"]),
        (ScrapeReversed, Fails, &["scrape-several"]),
        (ScrapeOnce, Fails, &["scrape-same-twice"]),
        (ScrapeUnknownFails, Differs, &["scrape-unknown", "scrape-74"]),
        (ScrapeCreates, Fails, &["scrape-creates-nothing"]),
        (ScrapesFew, Differs, &["scrape-74", "scrape-more-than-74"]),
        (ScrapesLess, Fails, &["scrape-several", "scrape-unknown", "scrape-trailing-bytes"]),
        (ScrapesDouble, Fails, &["scrape-order", "announce-twice", "completed-makes-a-seeder"]),
        (RefusesTrailing, Fails, &["scrape-trailing-bytes"]),
        (AnswersEmptyScrape, Differs, &["scrape-no-hash"]),
        (ErrorWithoutText, Fails, &["error-reply"]),
    ]
};

/// Trackers that are tested at a time: a run mostly waits for replies that do not come.
const CONCURRENCY: usize = 24;

#[test]
fn every_fault_is_reported_by_its_checks() {
    in_parallel(TABLE, |(fault, outcome, ids)| assert_reported(*fault, *outcome, ids));
}

/// Calls a function with each row of a table, several at a time.
fn in_parallel<T: Sync>(table: &[T], each: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let rows = || std::iter::from_fn(|| table.get(next.fetch_add(1, Ordering::Relaxed)));
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| rows().for_each(&each));
        }
    });
}

/// Asserts that these checks report a fault with this outcome, and of the others those, in any way.
/// Checks that need what the fault has taken are skipped.
fn assert_found(
    fault: &str,
    report: &Conformance,
    outcome: CheckOutcome,
    expected: &[&str],
    others: Option<&[&str]>,
) {
    let found = not_passed(report);
    let rows = found.iter().filter(|(_, outcome, _)| *outcome != CheckOutcome::Skipped);
    let (own, beside): (Vec<_>, Vec<_>) = rows.partition(|(id, ..)| expected.contains(id));
    let right = own.len() == expected.len() && own.iter().all(|(_, it, _)| *it == outcome);
    assert!(right, "{fault}: {expected:?} {outcome:?}: {found:#?}");
    assert!(own.iter().all(|(.., seen)| !seen.is_empty()), "{fault}: {own:?}");
    if let Some(others) = others {
        let ids: Vec<_> = beside.iter().map(|(id, ..)| *id).collect();
        assert!(ids.iter().all(|id| others.contains(id)), "{fault}: {ids:?}: {found:#?}");
    }
}

/// Asserts that each check has an id of its own and texts, and that a fault of the table trips it:
/// a check that no fault trips might be unable to fail.
fn assert_tripped<F, R: 'static>(
    table: &[(F, CheckOutcome, &[&str])],
    checks: impl Iterator<Item = &'static CheckOf<R>>,
) {
    let tripped: BTreeSet<&str> = table.iter().flat_map(|(_, _, ids)| *ids).copied().collect();
    let mut ids = BTreeSet::new();
    for CheckOf { id, expected, source, .. } in checks {
        assert!(tripped.contains(id), "no fault trips {id}");
        assert!(ids.insert(id) && !expected.is_empty() && !source.is_empty(), "{id}");
    }
}

/// The value of a key of a query.
fn value<'q>(query: &'q str, key: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| *found == key).map(|(_, value)| value)
}

/// The query with another value of a key.
fn set(query: &str, key: &str, value: &str) -> String {
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((found, _)) if found == key => format!("{key}={value}"),
        _ => pair.to_owned(),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Asserts that these checks report the fault with this outcome, and that no other check fails
/// where the outcome is a difference.
fn assert_reported(fault: Fault, outcome: CheckOutcome, expected: &[&str]) {
    let server = Server::start(fault);
    let mut settings = settings(&server);
    // Nearly every check waits for a usable reply in vain, and all of them for less than 45 s. What
    // comes too late on a busy host is one more failure.
    if matches!(fault, Fault::OtherTransaction | Fault::OtherSocket | Fault::AllFromOtherSocket) {
        settings.timeout = Duration::from_millis(200);
    }
    let report = verify(&settings).unwrap();
    let others = not_passed(&report);
    for id in expected {
        let row = report.row(id).unwrap_or_else(|| panic!("no check {id}"));
        assert_eq!(row.outcome, outcome, "{fault:?}: {id}: {others:?}");
        assert!(row.seen.as_ref().is_some_and(|seen| !seen.is_empty()), "{fault:?}: {id}");
    }
    assert_eq!(report.has_failed(false), outcome == CheckOutcome::Fails, "{fault:?}: {others:?}");
    println!("{fault:?}: {:?}", others.iter().map(|(id, ..)| *id).collect::<BTreeSet<_>>());
}

#[test]
fn every_check_can_fail() {
    assert_tripped(TABLE, checks());
}

/// Trackers that serve listed info hashes only: checks take turns where few are given.
#[test]
fn a_few_given_hashes_serve_all_checks() {
    let server = Server::start(Fault::Nothing);
    let report = verify(&VerifySettings { hashes: hashes(5), ..settings(&server) }).unwrap();
    assert_eq!(report.count(CheckOutcome::Pass), checks().count(), "{:?}", not_passed(&report));
}

/// Peers that a faulty tracker stores for one check are removed before the next one uses the hash.
#[test]
fn given_hashes_are_returned_without_peers() {
    use Fault::{AcceptsPortZero, PeersByPeerId, ServesBadIds, UsesIpField};
    std::thread::scope(|scope| {
        for fault in [UsesIpField, PeersByPeerId, ServesBadIds, AcceptsPortZero] {
            scope.spawn(move || {
                let server = Server::start(fault);
                let outcomes = |hashes: Vec<InfoHash>| {
                    let report = verify(&VerifySettings { hashes, ..settings(&server) }).unwrap();
                    let outcomes = not_passed(&report).into_iter();
                    outcomes.map(|(id, outcome, _)| (id.to_owned(), outcome)).collect::<Vec<_>>()
                };
                assert_eq!(outcomes(hashes(3)), outcomes(Vec::new()), "{fault:?}");
            });
        }
    });
}

/// Also where checks wait for hashes. `crates/load/tests/timed` has the time of a run.
#[test]
fn a_tracker_that_answers_connects_only_is_reported() {
    let server = Server::start(Fault::OnlyConnects);
    for hashes in [Vec::new(), hashes(2)] {
        let report = verify(&VerifySettings { hashes, ..settings(&server) }).unwrap();
        assert!(report.has_failed(false));
        let twice = report.row("announce-twice").unwrap();
        assert!(twice.seen.as_ref().unwrap().contains("answers none"), "{twice:?}");
    }
}

/// A tracker that refuses every announce fails one check with the remedy; the others are skipped.
#[test]
fn a_tracker_without_announces_fails_once() {
    let server = Server::start(Fault::AllErrors);
    let report = verify(&settings(&server)).unwrap();
    let first = report.row("announce-98-bytes").unwrap();
    assert!(first.seen.as_ref().unwrap().contains("--info-hash"), "{first:?}");
    let twice = report.row("announce-twice").unwrap();
    assert_eq!(twice.outcome, CheckOutcome::Skipped, "{twice:?}");
}

#[test]
fn an_unreachable_target_is_an_error() {
    use onrush_verify::reachability::Unreachable;
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap();
    let server = Server::start(Fault::Nothing);
    let reach_timeout = Duration::from_secs(4);
    let settings = VerifySettings { target, reach_timeout, ..settings(&server) };
    let error = verify(&settings).unwrap_err();
    assert!(matches!(error, Unreachable::Silent(_)), "{error}");
    assert!(error.to_string().contains("under overload"), "{error}");
    drop(silent);
    let error = verify(&settings).unwrap_err();
    assert!(matches!(error, Unreachable::Closed(_)), "{error}");
    assert!(error.to_string().contains(&target.to_string()));
}
