//! The checks over WebSocket against a conforming tracker, and against one with a single fault:
//! every fault is reported by its checks, and by no others. TLS: `http.rs`.

use std::time::Duration;

use onrush_verify::report::CheckOutcome;
use onrush_verify::webtorrent::checks;
use onrush_verify::{TcpSettings, verify_tcp};

use super::ws_server::{Fault, WsServer};
use super::{assert_found, assert_tripped, hashes, in_parallel, not_passed};

fn settings(server: &WsServer) -> TcpSettings {
    TcpSettings {
        url: server.url().parse().unwrap(),
        also: None,
        ca: None,
        hashes: Vec::new(),
        timeout: Duration::from_millis(1_500),
        only: None,
    }
}

#[test]
fn a_conforming_tracker_passes_all_checks() {
    let server = WsServer::start(Fault::Nothing);
    // Of a few info hashes, which checks return without members.
    for hashes in [Vec::new(), hashes(4)] {
        let report = verify_tcp(&TcpSettings { hashes, ..settings(&server) }).unwrap();
        assert_eq!(not_passed(&report), []);
        assert_eq!(report.checks.len(), checks().count());
        assert!((60..100).contains(&report.connections), "{}", report.connections);
    }
}

/// Every fault, the expected outcome, and the checks that report it.
const TABLE: &[(Fault, CheckOutcome, &[&str])] = {
    use CheckOutcome::{Differs, Fails};
    use Fault::*;
    &[
        (WrongAccept, Fails, &["upgrade"]),
        (Refuses, Fails, &["announce"]),
        (NoAction, Fails, &["announce"]),
        (NoCounts, Differs, &["announce-keys", "asker-counted"]),
        (ZeroInterval, Fails, &["interval-positive"]),
        (SwapsCounts, Fails, &["counts"]),
        (CountsBefore, Differs, &["asker-counted"]),
        (TwiceIsTwo, Fails, &["announce-twice"]),
        (NeverCompletes, Fails, &["completed"]),
        (KeepsStopped, Fails, &["stopped-removes"]),
        (KeepsClosed, Fails, &["closed-removes"]),
        (OneSwarm, Fails, &["several-swarms"]),
        (StrictFields, Fails, &["unknown-fields"]),
        (IgnoresBinary, Differs, &["binary-frame"]),
        (AnyHash, Fails, &["bad-info-hash"]),
        (FailsWithoutHash, Differs, &["bad-peer-id"]),
        (OtherOfferId, Fails, &["offer-fields"]),
        (Rewrites, Differs, &["offer-unchanged", "answer-unchanged"]),
        (ChangesOffer, Fails, &["offer-unchanged"]),
        (OfferToAll, Fails, &["offer-to-one", "offers-to-different"]),
        (OfferToSender, Fails, &["offer-not-to-sender"]),
        (OfferAnywhere, Fails, &["offer-stays-in-swarm"]),
        (OffersToFirst, Fails, &["offers-to-different", "offers-more-than-members"]),
        (RepeatsMembers, Differs, &["offers-more-than-members"]),
        (IgnoresNumwant, Differs, &["numwant-0"]),
        (SeedersToSeeders, Differs, &["seeder-to-seeder"]),
        (AsciiIds, Fails, &["binary-ids"]),
        (AnswerFromOther, Fails, &["answer-fields"]),
        (ChangesAnswer, Fails, &["answer-unchanged"]),
        (AnswerToAll, Fails, &["answer-to-no-other"]),
        (UnknownToAll, Fails, &["answer-to-unknown"]),
        (AnswersUnasked, Differs, &["answer-unasked"]),
        (ScrapeSwapped, Fails, &["scrape", "scrape-several"]),
        (ScrapesFirst, Fails, &["scrape-several"]),
        (CountsUnknown, Fails, &["scrape-unknown"]),
        (AnswersEmptyScrape, Differs, &["scrape-no-hash"]),
        (NoPong, Fails, &["ping"]),
        (NoClose, Fails, &["close"]),
        (NoFragments, Fails, &["fragments"]),
        (AcceptsUnmasked, Fails, &["unmasked"]),
        (NoLimit, Fails, &["too-long"]),
        (NoCodes, Differs, &["unmasked", "too-long", "invalid-utf8"]),
        (IgnoresBad, Differs, &["invalid-json", "unknown-action"]),
        (AnswersBad, Fails, &["invalid-json"]),
    ]
};

/// The checks that a fault breaks beside its own; `None` for any.
fn others(fault: Fault) -> Option<&'static [&'static str]> {
    Some(match fault {
        // Nothing works; an offer that is not the expected one has no answer; members get offers of
        // all checks; scrapes show what members do.
        Fault::WrongAccept
        | Fault::OtherOfferId
        | Fault::OfferAnywhere
        | Fault::KeepsStopped
        | Fault::TwiceIsTwo
        | Fault::ScrapeSwapped => return None,
        Fault::SwapsCounts => &["asker-counted"],
        Fault::OneSwarm => &["completed"],
        Fault::OfferToAll => &["offers-more-than-members"],
        Fault::AsciiIds => &["answer-to-no-other"],
        _ => &[],
    })
}

#[test]
fn every_fault_is_reported_by_its_checks() {
    in_parallel(TABLE, |(fault, outcome, ids)| {
        let server = WsServer::start(*fault);
        let report = verify_tcp(&settings(&server)).unwrap();
        assert_found(&format!("{fault:?}"), &report, *outcome, ids, others(*fault));
    });
}

#[test]
fn every_check_can_fail() {
    assert_tripped(TABLE, checks());
}
