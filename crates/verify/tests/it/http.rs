//! The checks over HTTP and HTTPS against a conforming tracker, and against one with a single
//! fault: every fault is reported by its checks, and by no others.

use std::time::Duration;

use onrush_verify::check::Group;
use onrush_verify::http::checks;
use onrush_verify::report::{CheckOutcome, Conformance};
use onrush_verify::{TcpSettings, verify_tcp};

use super::faulty::Fault;
use super::http_server::{HttpServer, Wire};
use super::{assert_found, assert_tripped, hashes, in_parallel, not_passed};

fn settings(server: &HttpServer, family: usize) -> TcpSettings {
    TcpSettings {
        url: server.url(family).parse().unwrap(),
        also: server.addresses.get(1 - family).copied(),
        ca: None,
        hashes: Vec::new(),
        timeout: Duration::from_secs(2),
        only: None,
    }
}

fn run(server: &HttpServer, family: usize) -> Conformance {
    verify_tcp(&settings(server, family)).unwrap()
}

#[test]
fn a_conforming_tracker_passes_all_checks() {
    for (has_tls, family) in [(false, 0), (true, 1)] {
        let server = HttpServer::start(Fault::Nothing, Wire::Right, has_tls);
        let report = run(&server, family);
        let others: Vec<_> =
            not_passed(&report).iter().map(|(id, outcome, _)| (*id, *outcome)).collect();
        let skipped = [("peers6", CheckOutcome::Skipped)];
        assert_eq!(others, skipped[family..], "{:?}", not_passed(&report));
        let expected = checks().filter(|check| has_tls || check.group != Group::Tls).count();
        assert_eq!(report.checks.len(), expected);
        // docs/LOAD.md and `verify --help` have the numbers of connections.
        assert!((300..500).contains(&report.connections), "{}", report.connections);
    }
}

/// A fault of the tracker, or of what carries its replies.
#[derive(Clone, Copy, Debug)]
enum Planted {
    In(Fault),
    By(Wire),
}

/// Every fault, the expected outcome, and the checks that report it.
const TABLE: &[(Planted, CheckOutcome, &[&str])] = {
    use CheckOutcome::{Differs, Fails};
    use Fault::*;
    use Planted::{By, In};
    use Wire::*;
    &[
        (By(UntilEnd), Differs, &["content-length", "keep-alive", "pipelining"]),
        (By(Longer), Fails, &["content-length"]),
        (By(RepeatsKey), Fails, &["bencoding"]),
        (By(NoAbsolute), Fails, &["absolute-target"]),
        (By(PageAnywhere), Fails, &["unknown-path"]),
        (By(ServesPost), Differs, &["post"]),
        (By(ServesBadField), Fails, &["malformed"]),
        (By(KeepsMalformed), Fails, &["malformed-closes"]),
        (By(HangsOnLong), Fails, &["long-target", "long-head"]),
        (In(AllErrors), Fails, &["announce"]),
        (By(NoCounts), Differs, &["announce-keys"]),
        (In(ZeroInterval), Fails, &["interval-positive"]),
        (In(ShortInterval), Differs, &["interval-positive"]),
        (In(SameInterval), Differs, &["interval-jitter"]),
        (By(AlwaysList), Differs, &["compact-1"]),
        (By(AlwaysCompact), Differs, &["compact-0"]),
        (By(ListByDefault), Differs, &["compact-1"]),
        (By(RetryWord), Fails, &["failure-form"]),
        (By(UpperCaseOnly), Fails, &["percent-lower-case"]),
        (By(NoNeedless), Fails, &["percent-lower-case"]),
        (By(NoBareSigns), Fails, &["percent-only-needed"]),
        (By(HashFirst), Fails, &["keys-in-any-order", "unknown-keys"]),
        (By(NoUnknown), Fails, &["unknown-keys"]),
        (By(DefaultHash), Fails, &["no-info-hash"]),
        (By(CutsHash), Fails, &["bad-info-hash"]),
        (By(FirstHash), Differs, &["two-info-hashes"]),
        (By(AnyPeerId), Differs, &["bad-peer-id"]),
        (By(WrapsPort), Fails, &["bad-port"]),
        (In(AcceptsPortZero), Fails, &["announce-port-0"]),
        (In(ListsPortOne), Differs, &["announce-port-1"]),
        (By(NoEmptyEvent), Fails, &["event-empty"]),
        (By(NoPaused), Fails, &["event-paused"]),
        (By(NoUnknownEvent), Differs, &["event-unknown"]),
        (In(KeepsStopped), Fails, &["stopped-removes"]),
        (In(PeersForStopped), Differs, &["stopped-gets-no-peers"]),
        (In(StoresStopped), Fails, &["stopped-creates-no-swarm", "stopped-removes"]),
        (In(NeverCompletes), Fails, &["completed-counts"]),
        (In(CompletesAgain), Differs, &["completed-counts-once"]),
        (In(CompletesUnfinished), Differs, &["completed-needs-left-0"]),
        (In(SwapsCounts), Fails, &["counts"]),
        (In(CountsDouble), Fails, &["counts"]),
        (In(OwnPeerNotCounted), Differs, &["asker-counted"]),
        (In(ScrapesDouble), Fails, &["announce-twice", "completed-makes-a-seeder", "scrape"]),
        (In(PeersByPeerId), Differs, &["peer-id-makes-no-peer"]),
        (In(StaysSeeder), Fails, &["seeder-leeches-again"]),
        (In(FamiliesApart), Differs, &["families-count-together"]),
        (In(PortsReversed), Fails, &["peers-in-wire-form"]),
        (By(OtherKey6), Fails, &["peers6"]),
        (In(UsesIpField), Differs, &["ip-key-ignored"]),
        (In(ListsOwnPeer), Differs, &["asker-not-listed"]),
        (In(NoSeeders), Fails, &["leecher-gets-both"]),
        (In(SeedersForSeeders), Differs, &["seeder-gets-no-seeders"]),
        (In(OldestOnly), Differs, &["everybody-is-handed-out"]),
        (In(PeersUnasked), Differs, &["numwant-0"]),
        (In(NoDefault), Fails, &["numwant-absent"]),
        (By(FewByDefault), Fails, &["numwant-absent"]),
        (In(OneTooFew), Differs, &["numwant-exact"]),
        (In(RoundsWant), Fails, &["numwant-exact"]),
        (In(IgnoresWant), Fails, &["numwant-exact"]),
        (In(ListsTwice), Fails, &["numwant-huge"]),
        (In(ScrapeSwapped), Fails, &["scrape"]),
        (By(OtherSwarm), Fails, &["scrape"]),
        (In(ScrapesLess), Fails, &["scrape", "scrape-several"]),
        (By(TwiceInFiles), Fails, &["scrape-same-twice"]),
        (In(ScrapeUnknownFails), Differs, &["scrape-unknown"]),
        (In(ScrapeCreates), Fails, &["scrape-creates-nothing", "scrape-unknown"]),
        (By(AnyScrapeHash), Differs, &["scrape-bad-hash"]),
        (In(AnswersEmptyScrape), Differs, &["scrape-no-hash"]),
        (In(ErrorWithoutText), Fails, &["announce-port-0", "scrape-no-hash"]),
        (By(Closes), Fails, &["keep-alive"]),
        (By(IgnoresClose), Fails, &["connection-close"]),
        (By(SaysNoClose), Differs, &["connection-close"]),
        (By(Keeps10), Fails, &["http-1-0"]),
        (By(OneOfPipeline), Fails, &["pipelining"]),
        (By(OneRead), Fails, &["request-in-pieces"]),
        (By(EndsWithClient), Differs, &["half-close"]),
        (By(Only12), Differs, &["tls-1-3"]),
        (By(Only13), Differs, &["tls-1-2"]),
        (By(NoAlpn), Differs, &["alpn"]),
        (By(NoNotify), Fails, &["close-notify"]),
        (By(NoTickets), Differs, &["resumption"]),
        (By(ServesPlain), Fails, &["plain-http"]),
    ]
};

/// The checks that a fault breaks beside its own; `None` for any.
fn others(planted: Planted) -> Option<&'static [&'static str]> {
    Some(match planted {
        Planted::In(Fault::AllErrors) => &["scrape-unknown"],
        Planted::In(Fault::ZeroInterval) => &["interval-jitter"],
        Planted::In(Fault::SwapsCounts | Fault::CountsDouble) => {
            &["asker-counted", "families-count-together"]
        }
        Planted::In(Fault::ListsOwnPeer | Fault::RoundsWant) => &["everybody-is-handed-out"],
        Planted::In(Fault::IgnoresWant) => &["numwant-0"],
        Planted::In(Fault::ListsTwice) => &["ip-key-ignored"],
        Planted::By(Wire::Closes) => &["connection-close", "pipelining"],
        Planted::By(Wire::OneRead) => &["long-head", "long-target"],
        // All that looks for peers by their port, or for counts in a scrape.
        Planted::In(
            Fault::PortsReversed | Fault::ScrapesDouble | Fault::ScrapeSwapped | Fault::ScrapesLess,
        )
        | Planted::By(Wire::OtherKey6) => return None,
        _ => &[],
    })
}

#[test]
fn every_fault_is_reported_by_its_checks() {
    in_parallel(TABLE, |(planted, outcome, ids)| {
        let (fault, wire) = match *planted {
            Planted::In(fault) => (fault, Wire::Right),
            Planted::By(wire) => (Fault::Nothing, wire),
        };
        let has_tls = wire as u8 >= Wire::Only12 as u8;
        let server = HttpServer::start(fault, wire, has_tls);
        let mut settings = settings(&server, usize::from(wire == Wire::OtherKey6));
        if has_tls {
            settings.only = Some(Group::Tls);
        }
        // A check waits eight timeouts for what does not come.
        if matches!(
            wire,
            Wire::HangsOnLong
                | Wire::IgnoresClose
                | Wire::Keeps10
                | Wire::OneOfPipeline
                | Wire::KeepsMalformed
        ) {
            settings.timeout = Duration::from_secs(1);
        }
        let mut report = verify_tcp(&settings).unwrap();
        // A server that gets its turn late reads all pieces at once.
        let is_late = |report: &Conformance| {
            let found = report.row(ids[0]).map(|row| row.outcome);
            wire == Wire::OneRead && found == Some(CheckOutcome::Pass)
        };
        for _ in 0..5 {
            if is_late(&report) {
                report = verify_tcp(&settings).unwrap();
            }
        }
        assert_found(&format!("{planted:?}"), &report, *outcome, ids, others(*planted));
    });
}

#[test]
fn every_check_can_fail() {
    assert_tripped(TABLE, checks());
}

/// Trackers that serve listed info hashes only: checks take turns, and leave no peer behind.
#[test]
fn a_few_given_hashes_serve_all_checks() {
    let server = HttpServer::start(Fault::Nothing, Wire::Right, false);
    let settings = TcpSettings { hashes: hashes(4), ..settings(&server, 0) };
    for _ in 0..2 {
        let report = verify_tcp(&settings).unwrap();
        let others: Vec<_> = not_passed(&report).into_iter().map(|(id, ..)| id).collect();
        // This one needs an info hash of certain characters.
        assert_eq!(others, ["percent-only-needed", "peers6"], "{:?}", not_passed(&report));
    }
}

#[test]
fn a_tracker_that_cannot_be_reached_is_an_error() {
    let server = HttpServer::start(Fault::Nothing, Wire::Right, true);
    let plain = server.url(0).replace("https", "http");
    let tls = TcpSettings { ca: Some("/nowhere/ca.pem".into()), ..settings(&server, 0) };
    assert!(verify_tcp(&tls).unwrap_err().contains("/nowhere/ca.pem"));
    let http = HttpServer::start(Fault::Nothing, Wire::Right, false);
    let url = http.url(0).replace("http", "https").parse().unwrap();
    // HTTP waits for more of the handshake.
    let timeout = Duration::from_millis(20);
    let error = verify_tcp(&TcpSettings { url, timeout, ..settings(&http, 0) }).unwrap_err();
    assert!(error.contains("no TLS"), "{error}");
    drop(server);
    let error = verify_tcp(&TcpSettings { url: plain.parse().unwrap(), ..settings(&http, 0) });
    assert!(error.unwrap_err().contains("takes no connection"));
}
