//! Every fault is found, and right replies pass.

use onrush_proto::announce::AnnounceHead;
use onrush_proto::connect::ConnectResponse;
use onrush_proto::{ConnectionId, Endpoint, ScrapeCounts, TransactionId, error, scrape};

use super::*;
use crate::plan::Profile;
use crate::plan::population::tests::{address_of, zipf};
use crate::plan::population::{Addresses, Population};

const TRANSACTION: TransactionId = TransactionId(7);

/// A plan whose swarm 0 is large and of IPv4 only.
fn plan() -> Plan {
    let addresses: Vec<_> = (1..=16u8).map(|n| [127, 0, 0, n].into()).collect();
    let swarms = zipf(2000, 2.0);
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
            && plan.begins_as_seeder(Family::V4, *peer) == seeder
    };
    (0..plan.population.largest).find(wanted).expect("a peer of the largest swarm does")
}

fn announce(plan: &Plan, peer: u32) -> PlannedRequest {
    says(plan, peer, Event::None)
}

/// The announce of a peer in its initial state.
fn says(plan: &Plan, peer: u32, event: Event) -> PlannedRequest {
    let seeder = match event {
        Event::Completed => true,
        Event::Paused => false,
        _ => plan.begins_as_seeder(Family::V4, peer),
    };
    PlannedRequest::Announce { peer, event, seeder }
}

fn endpoint(plan: &Plan, peer: u32) -> Endpoint {
    let member = plan.population.member(Family::V4, peer);
    let address = address_of(&plan.population, Family::V4, peer);
    let ip = plan.population.addresses.get(Family::V4, address);
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

/// A reply to `asker` that lists 20 other peers of swarm 0, changed by `change`.
fn listing(plan: &Plan, asker: u32, change: impl FnOnce(&mut [Endpoint])) -> Vec<u8> {
    let mut peers = others(plan, asker, 20);
    change(&mut peers);
    response(60, 0, &peers)
}

fn error_response() -> Vec<u8> {
    let mut reply = vec![0; 64];
    let len = error::write(TRANSACTION, "go away", &mut reply);
    reply.truncate(len);
    reply
}

#[test]
fn an_own_peer_is_found() {
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let reply = listing(&plan, asker, |peers| peers[11] = endpoint(&plan, asker));
    let right = checker(&plan).check(&plan, &announce(&plan, asker), Family::V4, &reply).unwrap();
    assert_eq!((right.differs, right.peers_checked), (Some(Finding::OwnPeer), 20));
}

/// Each reply is one to a leecher who wants 50 peers.
#[test]
fn every_fault_of_an_announce_reply_is_found() {
    use Finding::*;
    type Make = fn(&Plan, u32) -> Vec<u8>;
    let plan = plan();
    let asker = wants(&plan, 50, false);
    let cases: [(&str, Finding, Make); 16] = [
        ("a peer twice", DuplicatePeer, |plan, asker| {
            listing(plan, asker, |peers| peers[19] = peers[3])
        }),
        ("the announcer twice", DuplicatePeer, |plan, asker| {
            let own = endpoint(plan, asker);
            listing(plan, asker, |peers| (peers[3], peers[19]) = (own, own))
        }),
        ("a peer of another swarm", UnknownPeer, |plan, asker| {
            let other = endpoint(plan, plan.population.peers(Family::V4) - 1);
            listing(plan, asker, |peers| peers[7] = other)
        }),
        ("a peer that never was", UnknownPeer, |plan, asker| {
            listing(plan, asker, |peers| peers[0] = stranger())
        }),
        ("ports with swapped bytes", UnknownPeer, |plan, asker| {
            let mut reply = listing(plan, asker, |_| ());
            reply[20..].chunks_exact_mut(6).for_each(|peer| peer.swap(4, 5));
            reply
        }),
        // 18 bytes are three IPv4 peers, of which none exists.
        ("a peer of the other family", UnknownPeer, |_, _| {
            response(60, 0, &[Endpoint::new("2001:db8::1".parse().unwrap(), 51413)])
        }),
        ("more peers than wanted", MorePeersThanWanted, |plan, asker| {
            response(60, 0, &others(plan, asker, 51))
        }),
        ("more peers than counted", MorePeersThanCounted, |plan, asker| {
            response(3, 2, &others(plan, asker, 6))
        }),
        ("counts above the population", CountsTooHigh, |plan, _| {
            response(plan.population.largest, 1, &[])
        }),
        ("counts whose sum overflows", CountsTooHigh, |_, _| response(u32::MAX, 2, &[])),
        ("half a peer", Layout, |plan, asker| {
            let mut reply = listing(plan, asker, |_| ());
            reply.pop();
            reply
        }),
        ("half a head", Layout, |_, _| response(60, 0, &[])[..19].to_vec()),
        ("an undefined action", Layout, |_, _| {
            let mut reply = response(60, 0, &[]);
            reply[3] = 9;
            reply
        }),
        ("an error", ErrorReply, |_, _| error_response()),
        ("a connect reply", OtherAction, |_, _| connect_response(5)),
        ("a scrape reply", OtherAction, |_, _| scrape_response(&[])),
    ];
    let mut checker = checker(&plan);
    for (name, finding, make) in cases {
        let mut check =
            |reply: &[u8]| checker.check(&plan, &announce(&plan, asker), Family::V4, reply);
        assert_eq!(check(&make(&plan, asker)), Err(finding), "{name}");
        let right = check(&response(60, 0, &others(&plan, asker, 50))).unwrap();
        assert_eq!(right.differs, None, "{name} leaves a mark behind");
    }
}

/// An endpoint that is not of the population.
fn stranger() -> Endpoint {
    Endpoint::new("192.0.2.1".parse().unwrap(), 51413)
}

fn scrape_response(entries: &[ScrapeCounts]) -> Vec<u8> {
    let mut reply = vec![0; scrape::HEAD_LEN];
    scrape::write_head(TRANSACTION, reply.first_chunk_mut().unwrap());
    for counts in entries {
        let mut wire = [0; scrape::COUNTS_LEN];
        counts.write(&mut wire);
        reply.extend_from_slice(&wire);
    }
    reply
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
        let reply = scrape_response(entries);
        checker.check(&plan, &request, Family::V4, &reply).map(|right| right.differs)
    };
    assert_eq!(verdict(&full(0)), Ok(None));
    assert_eq!(verdict(&full(1)), Err(Finding::ScrapeTooHigh));
    assert_eq!(verdict(&full(0)[..2]), Err(Finding::ScrapeEntries));
    assert_eq!(verdict(&[full(0), full(0)].concat()), Err(Finding::ScrapeEntries));
}

/// Replies of some counts and a number of peers to a peer that announces an event.
#[test]
fn differences_within_what_bep_15_leaves_open_are_found() {
    use Finding::*;
    let plan = plan();
    let [leecher, seeder] = [false, true].map(|seeder| wants(&plan, 50, seeder));
    let [modest, default] = [0, -1].map(|want| wants(&plan, want, false));
    let less = Some(FewerPeersThanThere);
    for (asker, event, counted, listed, differs) in [
        (leecher, Event::None, [10, 5], 14, None),
        (leecher, Event::None, [10, 5], 13, less),
        // A tracker may hand out no more than 30.
        (leecher, Event::None, [60, 0], 30, None),
        (leecher, Event::None, [60, 0], 29, less),
        // A seeder needs no seeders.
        (seeder, Event::None, [10, 5], 10, None),
        (seeder, Event::None, [10, 5], 9, less),
        (default, Event::None, [10, 5], 0, less),
        (modest, Event::None, [10, 5], 0, None),
        (modest, Event::None, [10, 5], 1, Some(PeersUnasked)),
        (leecher, Event::Stopped, [10, 5], 0, None),
        (leecher, Event::Stopped, [10, 5], 1, Some(PeersForLeaver)),
        (leecher, Event::None, [0, 1], 1, Some(AskerNotCounted)),
        (leecher, Event::Completed, [1, 0], 1, Some(AskerNotCounted)),
        (leecher, Event::Stopped, [0, 0], 0, None),
    ] {
        let reply = response(counted[0], counted[1], &others(&plan, asker, listed));
        let right = checker(&plan).check(&plan, &says(&plan, asker, event), Family::V4, &reply);
        assert_eq!(right.unwrap().differs, differs, "{asker} {event:?}: {listed} of {counted:?}");
    }
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
    let mut verdict =
        |reply: &[u8]| checker.check(&plan, &announce(&plan, asker), Family::V4, reply);
    assert!(verdict(&response(9_999_999, 0, &[stranger(); 30])).is_ok());
    // Counts that nothing can be added to.
    assert!(verdict(&response(u32::MAX, u32::MAX, &[stranger(); 30])).is_ok());
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
    let texts: std::collections::BTreeSet<_> = Finding::ALL.iter().map(|(_, text)| text).collect();
    assert_eq!(texts.len(), Finding::ALL.len());
}

#[test]
fn what_may_be_refused_may_be_refused() {
    let plan = plan();
    let verdict = |request| checker(&plan).check(&plan, &request, Family::V4, &error_response());
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
    let request = PlannedRequest::Scrape { draw: 1, hashes: 100 };
    let verdict = |entries: usize| {
        let none = ScrapeCounts { seeders: 0, completed: 0, leechers: 0 };
        let reply = scrape_response(&vec![none; entries]);
        checker(&plan).check(&plan, &request, Family::V4, &reply).map(|_| ())
    };
    assert_eq!((verdict(74), verdict(80), verdict(100)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(verdict(73), Err(Finding::ScrapeEntries));
    assert_eq!(verdict(101), Err(Finding::ScrapeEntries));
}
