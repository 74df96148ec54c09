//! Every fault is found, and right replies pass.

use onrush_proto::announce::AnnounceHead;
use onrush_proto::connect::ConnectResponse;
use onrush_proto::{ConnectionId, Endpoint, ScrapeCounts, TransactionId, error, scrape};

use super::*;
use crate::plan::population::{Addresses, Population};
use crate::plan::profile::Swarms;
use crate::plan::{Kind, Profile};

const TRANSACTION: TransactionId = TransactionId(7);

/// A plan whose swarm 0 is large and of IPv4 only.
fn plan() -> Plan {
    let addresses: Vec<_> = (1..=16u8).map(|n| [127, 0, 0, n].into()).collect();
    let swarms = Swarms::zipf(2000, 2.0, 1.0);
    let population = Population::new(&swarms, 0.0, Addresses::new(&addresses), 3, false);
    Plan::new(Profile::real(), population, 3)
}

fn checker(plan: &Plan) -> Checker {
    Checker::new(plan, Strictness { strangers: false, sample: 1 })
}

/// A peer of swarm 0 which wants `want` peers.
fn wants(plan: &Plan, want: i32, seeder: bool) -> u32 {
    let wanted = |peer: &u32| {
        plan.client(Family::V4, *peer).num_want == want
            && plan.is_seeder(Family::V4, *peer, Event::None) == seeder
    };
    (0..plan.population.largest()).find(wanted).expect("a peer of the largest swarm does")
}

fn announce(plan: &Plan, peer: u32) -> PlannedRequest {
    says(plan, peer, Event::None)
}

/// The announce of a peer in its initial state.
fn says(plan: &Plan, peer: u32, event: Event) -> PlannedRequest {
    PlannedRequest::Announce { peer, event, seeder: plan.is_seeder(Family::V4, peer, event) }
}

fn endpoint(plan: &Plan, peer: u32) -> Endpoint {
    let member = plan.population.member(Family::V4, peer);
    let address = plan.population.address(Family::V4, peer);
    let ip = plan.population.addresses().get(Family::V4, address);
    Endpoint::new(ip, plan.population.port(&member))
}

/// A response with these peers and as many counted as `leechers` and `seeders` say.
fn response(leechers: u32, seeders: u32, peers: &[Endpoint]) -> Vec<u8> {
    let mut head = [0; 20];
    AnnounceHead { transaction_id: TRANSACTION, interval: 1800, leechers, seeders }
        .write(&mut head);
    let mut reply = head.to_vec();
    peers.iter().for_each(|peer| reply.extend_from_slice(peer.as_bytes()));
    reply
}

/// `count` other peers of swarm 0.
fn others(plan: &Plan, asker: u32, count: usize) -> Vec<Endpoint> {
    (0..).filter(|peer| *peer != asker).map(|peer| endpoint(plan, peer)).take(count).collect()
}

#[test]
fn a_right_announce_reply_is_right() {
    let plan = plan();
    for asker in [wants(&plan, 200, false), wants(&plan, 80, false), wants(&plan, -1, false)] {
        let reply = response(40, 20, &others(&plan, asker, 59));
        let right =
            checker(&plan).check(&plan, &announce(&plan, asker), Family::V4, &reply).unwrap();
        assert_eq!((right.peers, right.peers_checked, right.differs), (59, 59, None));
    }
}

/// Judges a faulty announce reply for a leecher who wants 50 peers.
#[track_caller]
fn fault(finding: Finding, make: impl FnOnce(&Plan, u32) -> Vec<u8>) {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let reply = make(&plan, asker);
    let mut checker = checker(&plan);
    assert_eq!(checker.check(&plan, &announce(&plan, asker), Family::V4, &reply), Err(finding));
    // The fault leaves nothing behind.
    let reply = response(60, 0, &others(&plan, asker, 50));
    let right = checker.check(&plan, &announce(&plan, asker), Family::V4, &reply).unwrap();
    assert_eq!(right.differs, None);
}

#[test]
fn an_own_peer_is_found() {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let mut peers = others(&plan, asker, 20);
    peers[11] = endpoint(&plan, asker);
    let right = checker(&plan)
        .check(&plan, &announce(&plan, asker), Family::V4, &response(60, 0, &peers))
        .unwrap();
    assert_eq!((right.differs, right.peers_checked), (Some(Finding::OwnPeer), 20));
}

#[test]
fn an_own_peer_hides_no_fault_behind_it() {
    fault(Finding::DuplicatePeer, |plan, asker| {
        let mut peers = others(plan, asker, 20);
        peers[3] = endpoint(plan, asker);
        peers[19] = endpoint(plan, asker);
        response(60, 0, &peers)
    });
}

#[test]
fn a_duplicate_peer_is_found() {
    fault(Finding::DuplicatePeer, |plan, asker| {
        let mut peers = others(plan, asker, 20);
        peers[19] = peers[3];
        response(60, 0, &peers)
    });
}

#[test]
fn a_peer_of_another_swarm_is_found() {
    fault(Finding::UnknownPeer, |plan, asker| {
        let mut peers = others(plan, asker, 20);
        peers[7] = endpoint(plan, plan.population.peers(Family::V4) - 1);
        response(60, 0, &peers)
    });
}

#[test]
fn a_peer_that_never_was_is_found() {
    fault(Finding::UnknownPeer, |plan, asker| {
        let mut peers = others(plan, asker, 20);
        peers[0] = Endpoint::new("192.0.2.1".parse().unwrap(), 51413);
        response(60, 0, &peers)
    });
}

#[test]
fn swapped_bytes_in_a_port_are_found() {
    fault(Finding::UnknownPeer, |plan, asker| {
        let mut reply = response(60, 0, &others(plan, asker, 20));
        for peer in reply[20..].chunks_exact_mut(6) {
            peer.swap(4, 5);
        }
        reply
    });
}

#[test]
fn too_many_peers_are_found() {
    fault(Finding::MorePeersThanWanted, |plan, asker| response(60, 0, &others(plan, asker, 51)));
    fault(Finding::MorePeersThanCounted, |plan, asker| response(3, 2, &others(plan, asker, 6)));
}

#[test]
fn counts_above_the_population_are_found() {
    fault(Finding::CountsTooHigh, |plan, _| response(plan.population.largest(), 1, &[]));
    // Counts whose sum overflows 32 bits are no small ones.
    fault(Finding::CountsTooHigh, |_, _| response(u32::MAX, 2, &[]));
}

#[test]
fn a_broken_layout_is_found() {
    fault(Finding::Layout, |plan, asker| {
        let mut reply = response(60, 0, &others(plan, asker, 20));
        reply.pop();
        reply
    });
    fault(Finding::Layout, |_, _| response(60, 0, &[])[..19].to_vec());
    fault(Finding::Layout, |_, _| {
        let mut reply = response(60, 0, &[]);
        reply[3] = 9;
        reply
    });
}

#[test]
fn peers_of_the_other_family_are_found() {
    let peer = Endpoint::new("2001:db8::1".parse().unwrap(), 51413);
    // 18 bytes are three IPv4 peers, of which none exists.
    fault(Finding::UnknownPeer, |_, _| response(60, 0, &[peer]));
}

#[test]
fn errors_and_other_actions_are_found() {
    fault(Finding::ErrorReply, |_, _| {
        let mut reply = vec![0; 64];
        let len = error::write(TRANSACTION, "go away", &mut reply);
        reply.truncate(len);
        reply
    });
    fault(Finding::OtherAction, |_, _| connect_response(5));
}

fn connect_response(id: u64) -> Vec<u8> {
    let mut reply = [0; 16];
    ConnectResponse { transaction_id: TRANSACTION, connection_id: ConnectionId(id) }
        .write(&mut reply);
    reply.to_vec()
}

#[test]
fn connect_replies_are_judged() {
    let plan = plan();
    let mut checker = checker(&plan);
    let mut verdict =
        |reply: &[u8]| checker.check(&plan, &PlannedRequest::Connect, Family::V4, reply);
    assert_eq!(verdict(&connect_response(5)).unwrap().connection_id, Some(5));
    assert_eq!(verdict(&connect_response(0)), Err(Finding::ZeroId));
    let mut longer = connect_response(5);
    longer.push(0);
    assert_eq!(verdict(&longer), Err(Finding::Layout));
    assert_eq!(verdict(&response(1, 0, &[])), Err(Finding::OtherAction));
}

#[test]
fn scrape_replies_are_judged() {
    let plan = plan();
    let request = PlannedRequest::Scrape { draw: 11, hashes: 3 };
    let sizes: Vec<u32> = plan.scraped(11, 3).map(|member| member.swarm_size()).collect();
    let reply = |entries: &[ScrapeCounts]| {
        let mut head = [0; 8];
        scrape::write_head(TRANSACTION, &mut head);
        let mut reply = head.to_vec();
        for counts in entries {
            let mut wire = [0; 12];
            counts.write(&mut wire);
            reply.extend_from_slice(&wire);
        }
        reply
    };
    let full = |more: u32| {
        let mut all: Vec<_> = sizes
            .iter()
            .map(|&size| ScrapeCounts { seeders: size, completed: 900, leechers: 0 })
            .collect();
        all[2].leechers = more;
        all
    };
    let mut checker = checker(&plan);
    let mut verdict = |entries: &[ScrapeCounts]| {
        checker.check(&plan, &request, Family::V4, &reply(entries)).map(|right| right.differs)
    };
    assert_eq!(verdict(&full(0)), Ok(None));
    assert_eq!(verdict(&full(1)), Err(Finding::ScrapeTooHigh));
    assert_eq!(verdict(&full(0)[..2]), Err(Finding::ScrapeEntries));
    assert_eq!(verdict(&[full(0), full(0)].concat()), Err(Finding::ScrapeEntries));
}

/// What BEP 15 leaves open, in a reply to `peer` that says `event`.
#[track_caller]
fn differs(
    peer: impl Fn(&Plan) -> u32,
    event: Event,
    counted: [u32; 2],
    peers: usize,
) -> Option<Finding> {
    let plan = plan();
    let asker = peer(&plan);
    let reply = response(counted[0], counted[1], &others(&plan, asker, peers));
    let request = says(&plan, asker, event);
    checker(&plan).check(&plan, &request, Family::V4, &reply).unwrap().differs
}

#[test]
fn fewer_peers_than_there_are_differ() {
    let leecher = |plan: &Plan| wants(plan, 50, false);
    let seeder = |plan: &Plan| wants(plan, 50, true);
    let less = Some(Finding::FewerPeersThanThere);
    assert_eq!(differs(leecher, Event::None, [10, 5], 14), None);
    assert_eq!(differs(leecher, Event::None, [10, 5], 13), less);
    // A tracker may hand out no more than 30.
    assert_eq!(differs(leecher, Event::None, [60, 0], 30), None);
    assert_eq!(differs(leecher, Event::None, [60, 0], 29), less);
    // A seeder needs no seeders.
    assert_eq!(differs(seeder, Event::None, [10, 5], 10), None);
    assert_eq!(differs(seeder, Event::None, [10, 5], 9), less);
    assert_eq!(differs(|plan| wants(plan, -1, false), Event::None, [10, 5], 0), less);
}

#[test]
fn peers_for_who_wants_none_differ() {
    let modest = |plan: &Plan| wants(plan, 0, false);
    assert_eq!(differs(modest, Event::None, [10, 5], 0), None);
    assert_eq!(differs(modest, Event::None, [10, 5], 1), Some(Finding::PeersUnasked));
    let leaver = |plan: &Plan| wants(plan, 50, false);
    assert_eq!(differs(leaver, Event::Stopped, [10, 5], 0), None);
    assert_eq!(differs(leaver, Event::Stopped, [10, 5], 1), Some(Finding::PeersForLeaver));
}

#[test]
fn an_asker_that_is_not_counted_differs() {
    let leecher = |plan: &Plan| wants(plan, 50, false);
    assert_eq!(differs(leecher, Event::None, [0, 1], 1), Some(Finding::AskerNotCounted));
    assert_eq!(differs(leecher, Event::Completed, [1, 0], 1), Some(Finding::AskerNotCounted));
    assert_eq!(differs(leecher, Event::Stopped, [0, 0], 0), None);
}

#[test]
fn an_interval_of_zero_differs() {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let mut reply = response(1, 0, &[]);
    reply[8..12].fill(0);
    let right = checker(&plan).check(&plan, &announce(&plan, asker), Family::V4, &reply).unwrap();
    assert_eq!(right.differs, Some(Finding::ZeroInterval));
}

#[test]
fn strangers_are_tolerated_where_asked_for_but_no_other_fault() {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let mut checker = Checker::new(&plan, Strictness { strangers: true, sample: 1 });
    let stranger = Endpoint::new("192.0.2.1".parse().unwrap(), 51413);
    let mut verdict =
        |reply: &[u8]| checker.check(&plan, &announce(&plan, asker), Family::V4, reply);
    assert!(verdict(&response(9_999_999, 0, &[stranger; 30])).is_ok());
    // Counts that nothing can be added to.
    assert!(verdict(&response(u32::MAX, u32::MAX, &[stranger; 30])).is_ok());
    let twice = [endpoint(&plan, asker); 2];
    assert_eq!(verdict(&response(60, 0, &twice)), Err(Finding::DuplicatePeer));
}

#[test]
fn of_long_lists_a_sample_is_looked_at_in_full() {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let mut checker = Checker::new(&plan, Strictness { strangers: false, sample: 4 });
    let mut peers = others(&plan, asker, 40);
    let right = response(60, 0, &peers);
    peers[39] = peers[38];
    let wrong = response(60, 0, &peers);
    let mut request = |reply: &[u8]| {
        checker
            .check(&plan, &announce(&plan, asker), Family::V4, reply)
            .map(|right| right.peers_checked)
    };
    let found: Vec<_> = (0..8).map(|_| request(&right)).collect();
    assert_eq!(found.iter().filter(|checked| **checked == Ok(40)).count(), 2, "{found:?}");
    assert_eq!(found.iter().filter(|checked| **checked == Ok(16)).count(), 6, "{found:?}");
    assert_eq!((0..8).filter(|_| request(&wrong) == Err(Finding::DuplicatePeer)).count(), 2);
}

#[test]
fn every_finding_has_words_of_its_own() {
    let mut texts: Vec<_> = Finding::ALL.iter().map(|finding| finding.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Finding::ALL.len());
    assert!(Kind::ALL.iter().all(|kind| !kind.name().is_empty()));
}

#[test]
fn what_may_be_refused_may_be_refused() {
    let plan = plan();
    let mut reply = [0; 32];
    let len = error::write(TRANSACTION, "no", &mut reply);
    let verdict = |request| checker(&plan).check(&plan, &request, Family::V4, &reply[..len]);
    for hashes in [0, 75, 100] {
        assert!(verdict(PlannedRequest::Scrape { draw: 1, hashes }).is_ok(), "{hashes} hashes");
    }
    assert_eq!(verdict(PlannedRequest::Scrape { draw: 1, hashes: 1 }), Err(Finding::ErrorReply));
    assert_eq!(verdict(PlannedRequest::Scrape { draw: 1, hashes: 74 }), Err(Finding::ErrorReply));
    assert!(verdict(PlannedRequest::PortZero { peer: 0 }).is_ok());
    let served = response(1, 0, &[]);
    let right =
        checker(&plan).check(&plan, &PlannedRequest::PortZero { peer: 0 }, Family::V4, &served);
    assert_eq!(right.unwrap().differs, Some(Finding::PortZero));
}

#[test]
fn of_too_many_swarms_the_first_74_or_all_are_answered() {
    let plan = plan();
    let mut head = [0; 8];
    scrape::write_head(TRANSACTION, &mut head);
    let request = PlannedRequest::Scrape { draw: 1, hashes: 100 };
    let verdict = |entries: usize| {
        let mut reply = head.to_vec();
        reply.resize(8 + 12 * entries, 0);
        checker(&plan).check(&plan, &request, Family::V4, &reply).map(|_| ())
    };
    assert_eq!((verdict(74), verdict(80), verdict(100)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(verdict(73), Err(Finding::ScrapeEntries));
    assert_eq!(verdict(101), Err(Finding::ScrapeEntries));
}
