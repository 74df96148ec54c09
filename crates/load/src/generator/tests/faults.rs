//! Every fault that load reveals, and its finding. One that only a second socket can have is in
//! `tests/it/run.rs`.

use super::*;
use crate::check::Finding;

const FAULTS: [(Fault, Finding); 24] = [
    (Fault::OtherTransaction, Finding::UnknownTransaction),
    (Fault::TwoReplies, Finding::AnsweredTwice),
    (Fault::AnswersJunk, Finding::NotSilent),
    (Fault::AnswersBadIds, Finding::NotSilent),
    (Fault::ServesBadIds, Finding::NotSilent),
    (Fault::CutShort, Finding::Layout),
    (Fault::AllErrors, Finding::ErrorReply),
    (Fault::DropsPaused, Finding::ErrorReply),
    (Fault::RefusesOptions, Finding::ErrorReply),
    (Fault::WrongKind, Finding::OtherAction),
    (Fault::ZeroId, Finding::ZeroId),
    (Fault::CountsDouble, Finding::CountsTooHigh),
    (Fault::CountsZero, Finding::MorePeersThanCounted),
    (Fault::IgnoresWant, Finding::MorePeersThanWanted),
    (Fault::ListsTwice, Finding::DuplicatePeer),
    (Fault::PortsReversed, Finding::UnknownPeer),
    (Fault::ScrapesLess, Finding::ScrapeEntries),
    (Fault::ScrapesDouble, Finding::ScrapeTooHigh),
    // Within what BEP 15 leaves open.
    (Fault::ListsOwnPeer, Finding::OwnPeer),
    (Fault::OwnPeerNotCounted, Finding::AskerNotCounted),
    (Fault::NoDefault, Finding::FewerPeersThanThere),
    (Fault::PeersForStopped, Finding::PeersForLeaver),
    (Fault::PeersUnasked, Finding::PeersUnasked),
    (Fault::ZeroInterval, Finding::ZeroInterval),
];

/// Each fault gives its finding with an example, and no other wrong reply.
#[test]
fn every_fault_gives_its_finding() {
    for (fault, finding) in FAULTS {
        // With one family all peers are known; swarms are larger than the number of wanted peers.
        let window = Window { start: 20 * MILLISECOND, end: SECOND / 2 };
        let pace = Pace::InFlight(16);
        let outcome = play(Scene { fault, window, pace, v6: false, ..Scene::default() });
        for (at, (other, _)) in Finding::ALL.iter().enumerate() {
            let found = &outcome.tally.findings[at];
            let examples = found.examples.iter().any(|example| !example.asked.is_empty());
            assert_eq!(found.count > 0, examples, "{fault:?}: {other:?} {found:?}");
            assert!(*other != finding || found.count > 0, "{fault:?} is not found");
            assert!(
                *other == finding || other.is_open() || found.count == 0,
                "{fault:?}: {other:?}"
            );
        }
    }
}
