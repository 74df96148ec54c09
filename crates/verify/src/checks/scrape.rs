//! Checks of scrapes (BEP 15, "Scrape"; BEP 48).

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::check::{
    Check, CheckResult, Group, Needs, demand, demand_silence, differs, prefer, tolerated,
};
use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, COMPLETED, forged, fresh_hash, scrape_request};

/// Upper bound on how often a request is sent: a tracker may count each repeat of an event.
const MAX_SENDS: u32 = 8;
/// Info hashes of the largest request (BEP 15, "Scrape": about 74).
const MAX_HASHES: usize = 74;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Scrape, "scrape-order", Needs::Hashes(1), order)
        .expects(
            "a scrape gives seeders, completions, leechers, with the counts that announces \
             give",
        )
        .source("BEP 15, \"Scrape\""),
    Check::new(Group::Scrape, "scrape-several", Needs::Hashes(2), several)
        .expects("several hashes get their counts in the order of the request")
        .source("BEP 15, \"Scrape\""),
    Check::new(Group::Scrape, "scrape-same-twice", Needs::Hashes(1), same_twice)
        .expects("the same hash twice gets two entries")
        .source("BEP 15, \"Scrape\": one entry per hash"),
    Check::new(Group::Scrape, "scrape-unknown", Needs::Nothing, unknown)
        .expects("unknown hashes get zeros")
        .source("BEP 15, \"Scrape\""),
    Check::new(Group::Scrape, "scrape-creates-nothing", Needs::Hashes(1), creates_nothing)
        .expects("a scrape creates no swarm")
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-74", Needs::Nothing, as_many_as_fit)
        .expects("74 hashes in one request are answered")
        .source("BEP 15, \"Scrape\""),
    Check::new(Group::Scrape, "scrape-more-than-74", Needs::Hashes(1), more_than_fit)
        .expects("of more than 74 hashes the first 74 are answered")
        .source("BEP 15, \"Scrape\""),
    Check::new(Group::Scrape, "scrape-trailing-bytes", Needs::Hashes(1), trailing)
        .expects("bytes after the last whole hash are ignored")
        .source("BEP 15, \"UDP tracker protocol\": packets may be longer"),
    Check::new(Group::Scrape, "scrape-no-hash", Needs::Nothing, no_hash)
        .expects("a scrape without a hash is refused with an error")
        .source("BEP 15, \"Errors\""),
    Check::new(Group::Scrape, "scrape-bad-id", Needs::Nothing, bad_id)
        .expects("scrapes with a wrong connection id are not answered")
        .source("BEP 15, \"UDP connections / spoofing\": the request is ignored"),
];

fn text(counts: &[ScrapeCounts]) -> String {
    let entries: Vec<_> = counts
        .iter()
        .take(8)
        .map(|counts| format!("{}/{}/{}", counts.seeders, counts.completed, counts.leechers))
        .collect();
    format!("{} entries (seeders/completed/leechers): {}", counts.len(), entries.join(" "))
}

fn order(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let hash = fixture.hash(0);
    client.announce_all(&fixture.seeders([40_001, 40_002]))?;
    client.announce_all(&fixture.leechers([40_003, 40_004, 40_005]))?;
    let before = client.scrape(&[hash])?.first().map_or(0, |counts| counts.completed);
    client.announce(&fixture.seeder(40_003).event(COMPLETED))?;
    let counts = client.scrape(&[hash])?;
    // Another check tests if completions are counted.
    let completed = 0..=before.saturating_add(MAX_SENDS);
    let right = matches!(counts[..], [one] if (one.seeders, one.leechers) == (3, 2)
        && completed.contains(&one.completed));
    demand(right, || {
        format!("the swarm has 3 seeders, 1 completion and 2 leechers: {}", text(&counts))
    })
}

fn several(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let (one, two) = (fixture.hash(0), fixture.hash(1));
    client.announce_all(&fixture.leechers([40_001, 40_002]))?;
    client
        .announce_all(&[40_001, 40_002, 40_003].map(|port| AnnounceRequest::seeder(two, port)))?;
    let counts = client.scrape(&[two, one])?;
    let plain: Vec<_> = counts.iter().map(|counts| (counts.seeders, counts.leechers)).collect();
    demand(plain == [(3, 0), (0, 2)], || {
        format!("the first swarm has 3 seeders, the second 2 leechers: {}", text(&counts))
    })
}

fn same_twice(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let counts = client.scrape(&[fixture.hash(0), fixture.hash(0)])?;
    let leechers: Vec<_> = counts.iter().map(|counts| counts.leechers).collect();
    demand(leechers == [1, 1], || text(&counts))
}

fn unknown(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    match client.scrape(&[fresh_hash(), fresh_hash()]) {
        Err(error @ ExchangeError::Refused { .. }) => {
            differs("BEP 15 does not define the scrape of an unknown swarm", error)
        }
        counts => {
            let counts = counts?;
            demand(counts == [ScrapeCounts::default(); 2], || text(&counts))
        }
    }
}

fn creates_nothing(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    for _ in 0..2 {
        let counts = match client.scrape(&[fixture.hash(0)]) {
            Err(ExchangeError::Refused { .. }) => Vec::new(),
            counts => counts?,
        };
        let empty = counts.iter().all(|counts| (counts.seeders, counts.leechers) == (0, 0));
        demand(empty, || text(&counts))?;
    }
    let reply = client.announce(&fixture.leecher(40_001))?;
    let own = client.endpoint(40_001);
    let alone = reply.peers.iter().all(|peer| *peer == own)
        && reply.leechers.saturating_add(reply.seeders) <= 1;
    demand(alone, || format!("the first peer of the swarm gets {}", reply.counts()))
}

fn fresh(count: usize) -> Vec<InfoHash> {
    std::iter::repeat_with(fresh_hash).take(count).collect()
}

fn as_many_as_fit(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let open = "BEP 15 says \"about 74\"";
    let counts = client.scrape(&fresh(MAX_HASHES)).map_err(tolerated(open))?;
    prefer(counts.len() == MAX_HASHES, open, || text(&counts))
}

fn more_than_fit(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let mut hashes = fresh(MAX_HASHES + 6);
    hashes[1] = fixture.hash(0);
    let open = "BEP 15 does not define the reply to more than about 74";
    let counts = client.scrape(&hashes).map_err(tolerated(open))?;
    demand(counts.get(1).is_none_or(|counts| counts.leechers == 1), || {
        format!("entry 2 has a leecher: {}", text(&counts))
    })?;
    prefer(counts.len() == MAX_HASHES, open, || text(&counts))
}

fn trailing(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let counts = client.scrape_with(&[fixture.hash(0)], &[0xA5; 7])?;
    demand(counts.len() == 1, || text(&counts))
}

fn no_hash(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let open = "BEP 15 does not define the scrape of no hash";
    match client.scrape(&[]) {
        Err(ExchangeError::Refused { .. }) => Ok(()),
        counts => differs(open, text(&counts.map_err(tolerated(open))?)),
    }
}

fn bad_id(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    demand_silence(client, &scrape_request(forged(client.id()?), &fresh(1)))
}
