//! `onrush-load verify`, the binary, against a right tracker and against one with a fault at a
//! time: every fault is caught by the check that is named for it, and only by those.

mod faulty;

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use faulty::{Fault, Server};
use onrush_load::verify::checks;
use onrush_load::verify::report::{Conformance, Outcome};

/// Calls the binary.
fn verify(more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onrush-load")).arg("verify").args(more).output().unwrap()
}

/// Runs the checks on a server, the result as JSON.
fn found(server: &Server, more: &[&str]) -> (Conformance, Output) {
    let target = server.addresses[0].to_string();
    let mut line = vec![target.as_str(), "--json", "-"];
    let also = server.addresses.get(1).map(ToString::to_string);
    if let Some(also) = &also {
        line.extend(["--also", also]);
    }
    line.extend(more);
    let output = verify(&line);
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (found, output)
}

/// The checks that did not pass, with what was seen.
fn bad(found: &Conformance) -> Vec<(&str, Outcome, &str)> {
    let rows = found.checks.iter().filter(|row| row.outcome != Outcome::Pass);
    rows.map(|row| (row.id.as_str(), row.outcome, row.seen.as_deref().unwrap_or(""))).collect()
}

#[test]
fn a_right_tracker_passes_everything() {
    let server = Server::start(Fault::Nothing);
    let (found, output) = found(&server, &["--strict"]);
    let bad = bad(&found);
    assert_eq!(output.status.code(), Some(0), "{bad:?}");
    assert!(matches!(bad[..], [("source-port-0", Outcome::Skipped, _)]), "{bad:?}");
    assert_eq!(found.checks.len(), checks().count());
    let list = String::from_utf8_lossy(&output.stderr);
    assert!(list.contains("1 skipped") && list.contains("connect-reply"), "{list}");
}

#[test]
fn a_right_tracker_passes_over_ipv6() {
    let server = Server::start(Fault::Nothing);
    let (four, six) = (server.addresses[0].to_string(), server.addresses[1].to_string());
    let output = verify(&[&six, "--also", &four, "--strict", "--json", "-"]);
    let found: Conformance = serde_json::from_slice(&output.stdout).unwrap();
    let skipped: Vec<_> = bad(&found).into_iter().map(|(id, outcome, _)| (id, outcome)).collect();
    // ::1 is the only address of its kind.
    let expected = [
        ("connect-id-from-another-address", Outcome::Skipped),
        ("source-port-0", Outcome::Skipped),
    ];
    assert_eq!(skipped, expected, "{:?}", bad(&found));
}

#[test]
fn lost_datagrams_are_no_failure() {
    let server = Server::start(Fault::LosesSome);
    let (found, output) = found(&server, &["--timeout", "0.2"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", bad(&found));
    assert_eq!(found.count(Outcome::Fails), 0);
}

/// Every fault, what comes of it, and the checks that say so. The first is the one named for it.
const TABLE: &[(Fault, Outcome, &[&str])] = {
    use Fault::*;
    use Outcome::{Differs, Fails};
    &[
        (OtherTransaction, Fails, &["transaction-id"]),
        (TwoReplies, Fails, &["one-reply"]),
        (OtherSocket, Fails, &["reply-from-asked-address"]),
        (AllElsewhere, Fails, &["reply-from-asked-address", "connect-reply"]),
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
        (AnyMagic, Differs, &["connect-wrong-magic"]),
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
        (ObeysIpField, Differs, &["ip-field-ignored"]),
        (TakesPortZero, Fails, &["announce-port-0"]),
        (HandsOutPortOne, Differs, &["announce-port-1"]),
        (ZeroInterval, Differs, &["interval-positive", "interval-jitter"]),
        (SameInterval, Differs, &["interval-jitter"]),
        (SwapsCounts, Fails, &["counts-order"]),
        (CountsDouble, Fails, &["counts-order"]),
        (CountsNobody, Fails, &["counts-order"]),
        (CountsTheWorld, Fails, &["counts-order", "scrape-unknown", "scrape-creates-nothing"]),
        (AskerNotCounted, Differs, &["asker-counted"]),
        (PeerIdsMakePeers, Differs, &["peer-id-makes-no-peer"]),
        (StaysSeeder, Fails, &["seeder-leeches-again"]),
        (KeepsStopped, Fails, &["stopped-removes"]),
        (PeersForLeavers, Differs, &["stopped-gets-no-peers"]),
        (StoresLeavers, Fails, &["stopped-creates-no-swarm", "stopped-removes"]),
        (NeverCompletes, Fails, &["completed-counts"]),
        (CompletesAgain, Differs, &["completed-counts-once"]),
        (CompletesUnfinished, Differs, &["completed-needs-left-0"]),
        (NewcomersNeverComplete, Differs, &["completed-by-a-newcomer"]),
        (ForgetsCompleted, Differs, &["completed-stays"]),
        (FamiliesApart, Differs, &["families-count-together"]),
        (ListsAsker, Differs, &["asker-not-listed"]),
        (ListsTwice, Fails, &["num-want-no-duplicates"]),
        (PortsReversed, Fails, &["peers-in-wire-form"]),
        (SeedersForSeeders, Differs, &["seeder-gets-no-seeders"]),
        (NoSeeders, Fails, &["leecher-gets-both"]),
        (OldestOnly, Differs, &["everybody-is-handed-out"]),
        (PeersUnasked, Differs, &["num-want-0"]),
        (NoDefault, Fails, &["num-want-negative"]),
        (OneTooFew, Differs, &["num-want-1", "num-want-exact"]),
        (IgnoresWant, Fails, &["num-want-1", "num-want-exact"]),
        (NoCap, Differs, &["num-want-cap"]),
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

/// Most of the time is spent waiting for what does not come: so many at once.
const AT_ONCE: usize = 4;

#[test]
fn every_fault_is_caught_by_its_check() {
    let next = AtomicUsize::new(0);
    let table = || std::iter::from_fn(|| TABLE.get(next.fetch_add(1, Ordering::Relaxed)));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| table().for_each(|(fault, outcome, ids)| caught(*fault, *outcome, ids)));
        }
    });
}

/// Whether a fault is seen by these checks as what it is, and nothing else fails if it only differs.
fn caught(fault: Fault, outcome: Outcome, expected: &[&str]) {
    let server = Server::start(fault);
    let (found, output) = found(&server, &["--timeout", "0.2"]);
    let bad = bad(&found);
    for id in expected {
        let row = found.row(id).unwrap_or_else(|| panic!("no check {id}"));
        assert_eq!(row.outcome, outcome, "{fault:?}: {id}: {bad:?}");
        assert!(row.seen.as_ref().is_some_and(|seen| !seen.is_empty()), "{fault:?}: {id}");
    }
    let failing = found.count(Outcome::Fails) > 0;
    assert_eq!(failing, outcome == Outcome::Fails, "{fault:?}: {bad:?}");
    assert_eq!(output.status.code(), Some(i32::from(failing)), "{fault:?}: {bad:?}");
    println!("{fault:?}: {:?}", bad.iter().map(|(id, ..)| *id).collect::<BTreeSet<_>>());
}

/// A check that no fault trips could be one that cannot fail.
#[test]
fn every_check_can_fail() {
    let tripped: BTreeSet<&str> = TABLE.iter().flat_map(|(_, _, ids)| *ids).copied().collect();
    // It is never made: no raw sockets.
    let others = ["source-port-0"];
    let missing: Vec<_> = checks()
        .map(|check| check.id)
        .filter(|id| !tripped.contains(id) && !others.contains(id))
        .collect();
    assert_eq!(missing, [""; 0], "no fault trips these");
}

#[test]
fn where_nobody_answers_it_ends_in_2() {
    // Nobody gets this port unasked.
    let target = String::from("127.0.0.1:1");
    let output = verify(&[&target]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&target) && said.contains("nobody listens"), "{said}");
}

#[test]
fn strict_lets_differences_fail_and_only_asks_a_part() {
    let server = Server::start(Fault::AnyMagic);
    let (all, output) = found(&server, &["--strict", "--only", "connect"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(all.count(Outcome::Differs), 1);
    assert!(all.checks.iter().all(|row| row.id.starts_with("connect")) && all.checks.len() > 5);
    let (_, output) = found(&server, &["--only", "connect"]);
    assert_eq!(output.status.code(), Some(0));
}

/// A tracker with a list of hashes is asked with these, again and again where they are few.
#[test]
fn few_given_hashes_serve_all_checks() {
    let server = Server::start(Fault::Nothing);
    let hashes: Vec<String> = (0..5).map(|n| format!("{n:040x}")).collect();
    let words: Vec<&str> = hashes.iter().flat_map(|hash| ["--info-hash", hash.as_str()]).collect();
    let (found, output) = found(&server, &words);
    assert_eq!(output.status.code(), Some(0), "{:?}", bad(&found));
    assert_eq!(found.count(Outcome::Pass), checks().count() - 1, "{:?}", bad(&found));
}

/// What a check makes a wrong tracker store is taken off again, or it would spoil the checks that
/// use the same hash after it.
#[test]
fn hashes_are_given_back_as_they_were() {
    use Fault::{ObeysIpField, PeerIdsMakePeers, ServesBadIds, TakesPortZero};
    for fault in [ObeysIpField, PeerIdsMakePeers, ServesBadIds, TakesPortZero] {
        let server = Server::start(fault);
        let bad_ones = |more: &[&str]| {
            let (found, _) = found(&server, &[&["--timeout", "0.2"], more].concat());
            let bad = bad(&found).into_iter().map(|(id, outcome, _)| (id.to_owned(), outcome));
            bad.collect::<Vec<_>>()
        };
        let hashes: Vec<String> = (0..3).map(|n| format!("{n:040x}")).collect();
        let few: Vec<_> = hashes.iter().flat_map(|hash| ["--info-hash", hash.as_str()]).collect();
        assert_eq!(bad_ones(&few), bad_ones(&[]), "{fault:?}");
    }
}

/// However little is answered, it ends within a minute: also where each hash waits for another.
#[test]
fn where_only_connects_are_answered_it_ends_soon() {
    let server = Server::start(Fault::OnlyConnects);
    let hashes = ["--info-hash", &"01".repeat(20), "--info-hash", &"02".repeat(20)];
    for more in [&[][..], &hashes[..]] {
        let (found, output) = found(&server, more);
        assert_eq!(output.status.code(), Some(1));
        assert!(found.seconds < 45.0, "{} s", found.seconds);
        let twice = found.row("announce-twice").unwrap();
        assert!(twice.seen.as_ref().unwrap().contains("answers none"), "{twice:?}");
    }
}

/// A tracker that serves no announce at all is told from one with many faults.
#[test]
fn what_is_the_matter_is_said_once() {
    let server = Server::start(Fault::AllErrors);
    let (found, _) = found(&server, &[]);
    let first = found.row("announce-98-bytes").unwrap();
    assert!(first.seen.as_ref().unwrap().contains("--info-hash"), "{first:?}");
    let twice = found.row("announce-twice").unwrap();
    assert_eq!(twice.outcome, Outcome::Skipped, "{twice:?}");
}
