//! Checks of seeder and leecher counts (BEP 3, 48).

use super::Check;
use super::client::Http;
use crate::check::{CheckResult, Group, Needs, demand, prefer, skipped, worst_of};
use crate::message::COMPLETED;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "counts", Needs::Hashes(1), counts)
        .expects("`complete` counts peers with left 0, `incomplete` the others")
        .source("BEP 3, \"trackers\"; BEP 48"),
    Check::new(Group::Announce, "asker-counted", Needs::Hashes(1), own_peer)
        .expects("the counts include the announcing peer at once")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "announce-twice", Needs::Hashes(1), twice)
        .expects("a peer that announces twice is one peer")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "peer-id-makes-no-peer", Needs::Hashes(1), peer_id)
        .expects("another peer id at the same address and port is the same peer")
        .source("BEP 23: lists name peers by address and port"),
    Check::new(Group::Announce, "seeder-leeches-again", Needs::Hashes(1), leeches_again)
        .expects("a seeder that announces left > 0 is a leecher again, counted once")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "completed-makes-a-seeder", Needs::Hashes(1), completes)
        .expects("a leecher that completes with left 0 is a seeder, counted once")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "families-count-together", Needs::Hashes(1), families)
        .expects("peers of both families are counted together, and counts agree over both")
        .source("BEP 7"),
];

fn counts(http: &Http<'_>) -> CheckResult {
    http.announce_all([40_001, 40_002, 40_003].map(|port| http.seeder(port)))?;
    http.announce(&http.leecher(40_004))?;
    let reply = http.announce(&http.leecher(40_004).event(0))?;
    let (seeders, leechers) = reply.counts()?;
    // Another check tests if the announcing peer is counted.
    demand(seeders == 3 && (0..=1).contains(&leechers), || {
        format!("of 3 seeders and a leecher: {}", reply.reply.shown())
    })
}

fn own_peer(http: &Http<'_>) -> CheckResult {
    let open = "BEP 3 does not say whether the announcing peer is counted";
    let asks = [(http.leecher(40_001), (0, 1)), (http.seeder(40_002), (1, 1))];
    worst_of(asks, |(ask, expected)| {
        let reply = http.announce(&ask)?;
        prefer(reply.counts()? == expected, open, || reply.reply.shown())
    })
}

fn twice(http: &Http<'_>) -> CheckResult {
    let started = http.leecher(40_001);
    http.announce_all([started.clone(), started.clone().event(0), started])?;
    http.counted(0, 1)
}

fn peer_id(http: &Http<'_>) -> CheckResult {
    let mut another = http.leecher(40_001);
    another.fields.peer_id.0 = [b'z'; 20];
    http.announce_all([http.leecher(40_001), another])?;
    let found = http.counts()?;
    let open = "BEP 3 does not say what identifies a peer";
    prefer((found.seeders, found.leechers) == (0, 1), open, || format!("{found:?}"))
}

fn leeches_again(http: &Http<'_>) -> CheckResult {
    http.announce_all([http.seeder(40_001), http.leecher(40_001).event(0)])?;
    http.counted(0, 1)
}

fn completes(http: &Http<'_>) -> CheckResult {
    http.announce_all([http.leecher(40_001), http.seeder(40_001).event(COMPLETED)])?;
    http.counted(1, 0)
}

fn families(http: &Http<'_>) -> CheckResult {
    let Some(also) = http.target.also else {
        return skipped("no address of the other family takes connections (see --also)");
    };
    http.announce_all([http.leecher(40_001), http.seeder(40_002)])?;
    for port in [40_003, 40_004, 40_005] {
        http.announce_at(also, &http.leecher(port))?;
    }
    let open = "BEP 7 does not say which peers the counts include";
    let here = http.announce(&http.leecher(40_001).event(0))?;
    let there = http.announce_at(also, &http.leecher(40_003).event(0))?;
    let agree = here.counts()? == there.counts()?;
    prefer(agree && here.counts()?.0 == 1 && (3..=4).contains(&here.counts()?.1), open, || {
        format!(
            "a seeder and a leecher are here and 3 leechers at {also}: {}; there {}",
            here.reply.shown(),
            there.reply.shown()
        )
    })
}
