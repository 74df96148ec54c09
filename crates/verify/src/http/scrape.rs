//! Checks of scrapes over HTTP (BEP 48).

use super::Check;
use super::client::{Http, refused};
use super::reply::{File, files};
use crate::check::{CheckResult, Group, Needs, demand, prefer};
use crate::message::{AnnounceRequest, fresh_hash};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Scrape, "scrape", Needs::Hashes(1), counts)
        .expects(
            "a scrape gives `complete`, `downloaded` and `incomplete` of the info hash, and no \
             other",
        )
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-several", Needs::Hashes(2), several)
        .expects("several info hashes get their counts")
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-same-twice", Needs::Hashes(1), same_twice)
        .expects("the same info hash twice has one entry")
        .source("BEP 3, \"bencoding\": a key occurs once"),
    Check::new(Group::Scrape, "scrape-unknown", Needs::Nothing, unknown)
        .expects("unknown info hashes have zeros, or no entry")
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-creates-nothing", Needs::Hashes(1), creates_nothing)
        .expects("a scrape creates no swarm")
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-bad-hash", Needs::Nothing, bad_hash)
        .expects("a scrape of an info hash of 19 bytes is a failure")
        .source("BEP 48: 20 bytes"),
    Check::new(Group::Scrape, "scrape-no-hash", Needs::Nothing, no_hash)
        .expects("a scrape without an info hash is a failure")
        .source("BEP 48 allows the counts of all swarms, which takes the tracker's bandwidth"),
];

fn counts(http: &Http<'_>) -> CheckResult {
    http.announce_all([http.seeder(40_001), http.leecher(40_002), http.leecher(40_003)])?;
    let found = http.scrape(&[http.hash(0)])?;
    let right = matches!(found[..], [(hash, File { seeders: 1, completed: 0.., leechers: 2 })]
        if hash == http.hash(0));
    demand(right, || format!("of a seeder and 2 leechers: {found:?}"))
}

fn several(http: &Http<'_>) -> CheckResult {
    let (one, two) = (http.hash(0), http.hash(1));
    http.announce_all([http.leecher(40_001), http.leecher(40_002)])?;
    http.announce_all([40_001, 40_002, 40_003].map(|port| AnnounceRequest::seeder(two, port)))?;
    let found = http.scrape(&[two, one])?;
    let of =
        |hash| found.iter().find(|(it, _)| *it == hash).map(|(_, it)| (it.seeders, it.leechers));
    let right = of(one) == Some((0, 2)) && of(two) == Some((3, 0));
    demand(right, || format!("of 2 leechers in one and 3 seeders in the other: {found:?}"))
}

fn same_twice(http: &Http<'_>) -> CheckResult {
    http.announce(&http.leecher(40_001))?;
    let found = http.scrape(&[http.hash(0), http.hash(0)])?;
    let count = found.iter().filter(|(hash, _)| *hash == http.hash(0)).count();
    demand(count == 1, || format!("{found:?}"))
}

fn unknown(http: &Http<'_>) -> CheckResult {
    let reply = http.scrape_reply(&[fresh_hash(), fresh_hash()])?;
    let open = "BEP 48 does not define the scrape of an unknown swarm";
    prefer(reply.failure().is_none(), open, || reply.shown())?;
    let found = files(&reply)?;
    demand(found.iter().all(|(_, file)| *file == File::default()), || format!("{found:?}"))
}

fn creates_nothing(http: &Http<'_>) -> CheckResult {
    http.counts()?;
    let second = http.counts()?;
    demand((second.seeders, second.leechers) == (0, 0), || format!("{second:?}"))?;
    let reply = http.announce(&http.leecher(40_001))?;
    let is_alone = reply.peers.iter().all(|peer| peer.port() == 40_001);
    demand(is_alone, || format!("the first peer of the swarm gets {}", reply.listed()))
}

fn bad_hash(http: &Http<'_>) -> CheckResult {
    let reply = http.scrape_by(&format!("info_hash={}", "a".repeat(19)))?;
    refused(&reply, Some("BEP 48 does not define the reply to an invalid info hash"))
}

fn no_hash(http: &Http<'_>) -> CheckResult {
    refused(&http.scrape_by("")?, Some("BEP 48 allows the counts of all swarms"))
}
