//! Checks of scrapes (BEP 15, "Scrape"; BEP 48).

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer};
use crate::exchange::ExchangeError;
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, COMPLETED, forged, fresh_hash, hex, scrape_request};

/// Upper bound on how often a request is sent: a tracker may count each repeat of an event.
const MAX_SENDS: u32 = 8;
/// Info hashes of the largest request (BEP 15, "Scrape": about 74).
const MAX_HASHES: usize = 74;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "scrape-order",
        group: Group::Scrape,
        expected: "a scrape gives seeders, completions, leechers, with the counts that announces \
             give",
        source: "BEP 15, \"Scrape\"",
        hashes: 1,
        large_swarm: false,
        run: order,
    },
    Check {
        id: "scrape-several",
        group: Group::Scrape,
        expected: "several hashes get their counts in the order of the request",
        source: "BEP 15, \"Scrape\"",
        hashes: 2,
        large_swarm: false,
        run: several,
    },
    Check {
        id: "scrape-same-twice",
        group: Group::Scrape,
        expected: "the same hash twice gets two entries",
        source: "BEP 15, \"Scrape\": one entry per hash",
        hashes: 1,
        large_swarm: false,
        run: same_twice,
    },
    Check {
        id: "scrape-unknown",
        group: Group::Scrape,
        expected: "unknown hashes get zeros",
        source: "BEP 15, \"Scrape\"",
        hashes: 0,
        large_swarm: false,
        run: unknown,
    },
    Check {
        id: "scrape-creates-nothing",
        group: Group::Scrape,
        expected: "a scrape creates no swarm",
        source: "BEP 48",
        hashes: 1,
        large_swarm: false,
        run: creates_nothing,
    },
    Check {
        id: "scrape-74",
        group: Group::Scrape,
        expected: "74 hashes in one request are answered",
        source: "BEP 15, \"Scrape\"",
        hashes: 0,
        large_swarm: false,
        run: as_many_as_fit,
    },
    Check {
        id: "scrape-more-than-74",
        group: Group::Scrape,
        expected: "of more than 74 hashes the first 74 are answered",
        source: "BEP 15, \"Scrape\"",
        hashes: 1,
        large_swarm: false,
        run: more_than_fit,
    },
    Check {
        id: "scrape-trailing-bytes",
        group: Group::Scrape,
        expected: "bytes after the last whole hash are ignored",
        source: "BEP 15, \"UDP tracker protocol\": packets may be longer",
        hashes: 1,
        large_swarm: false,
        run: trailing,
    },
    Check {
        id: "scrape-no-hash",
        group: Group::Scrape,
        expected: "a scrape without a hash is refused with an error",
        source: "BEP 15, \"Errors\"",
        hashes: 0,
        large_swarm: false,
        run: no_hash,
    },
    Check {
        id: "scrape-bad-id",
        group: Group::Scrape,
        expected: "scrapes with a wrong connection id are not answered",
        source: "BEP 15, \"UDP connections / spoofing\": the request is ignored",
        hashes: 0,
        large_swarm: false,
        run: bad_id,
    },
];

fn text(counts: &[ScrapeCounts]) -> String {
    let entries: Vec<_> = counts
        .iter()
        .take(8)
        .map(|counts| format!("{}/{}/{}", counts.seeders, counts.completed, counts.leechers))
        .collect();
    format!("{} entries (seeders/completed/leechers): {}", counts.len(), entries.join(" "))
}

fn order(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client.announce_all(&[40_001, 40_002].map(|port| AnnounceRequest::seeder(hash, port)))?;
    client.announce_all(&[40_003, 40_004, 40_005].map(|port| fixture.leecher(port)))?;
    let before = client.scrape(&[hash])?.first().map_or(0, |counts| counts.completed);
    client.announce(&AnnounceRequest::seeder(hash, 40_003).event(COMPLETED))?;
    let counts = client.scrape(&[hash])?;
    // Whether completions are counted is another check.
    let completed = 0..=before.saturating_add(MAX_SENDS);
    let right = matches!(counts[..], [one] if (one.seeders, one.leechers) == (3, 2)
        && completed.contains(&one.completed));
    Ok(demand(right, || {
        format!("the swarm has 3 seeders, 1 completion and 2 leechers: {}", text(&counts))
    }))
}

fn several(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let (one, two) = (fixture.hash(0), fixture.hash(1));
    client.announce_all(&[40_001, 40_002].map(|port| AnnounceRequest::leecher(one, port)))?;
    client
        .announce_all(&[40_001, 40_002, 40_003].map(|port| AnnounceRequest::seeder(two, port)))?;
    let counts = client.scrape(&[two, one])?;
    let plain: Vec<_> = counts.iter().map(|counts| (counts.seeders, counts.leechers)).collect();
    Ok(demand(plain == [(3, 0), (0, 2)], || {
        format!("the first swarm has 3 seeders, the second 2 leechers: {}", text(&counts))
    }))
}

fn same_twice(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    let counts = client.scrape(&[fixture.hash(0), fixture.hash(0)])?;
    let leechers: Vec<_> = counts.iter().map(|counts| counts.leechers).collect();
    Ok(demand(leechers == [1, 1], || text(&counts)))
}

fn unknown(fixture: &Fixture<'_>) -> CheckResult {
    let open = "BEP 15 does not define the scrape of an unknown swarm";
    match fixture.client()?.scrape(&[fresh_hash(), fresh_hash()]) {
        Ok(counts) => Ok(demand(counts == [ScrapeCounts::default(); 2], || text(&counts))),
        Err(error @ ExchangeError::Refused { .. }) => Ok(prefer(false, open, || error.to_string())),
        Err(error) => Err(error),
    }
}

fn creates_nothing(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    for _ in 0..2 {
        let counts = match client.scrape(&[fixture.hash(0)]) {
            Err(ExchangeError::Refused { .. }) => Vec::new(),
            counts => counts?,
        };
        if counts.iter().any(|counts| (counts.seeders, counts.leechers) != (0, 0)) {
            return fails(text(&counts));
        }
    }
    let reply = client.announce(&fixture.leecher(40_001))?;
    let own = client.endpoint(40_001);
    let alone = reply.peers.iter().all(|peer| *peer == own)
        && reply.leechers.saturating_add(reply.seeders) <= 1;
    Ok(demand(alone, || format!("the first peer of the swarm gets {}", reply.counts())))
}

fn fresh(count: usize) -> Vec<InfoHash> {
    std::iter::repeat_with(fresh_hash).take(count).collect()
}

fn as_many_as_fit(fixture: &Fixture<'_>) -> CheckResult {
    let open = "BEP 15 says \"about 74\"";
    match fixture.client()?.scrape(&fresh(MAX_HASHES)) {
        Ok(counts) => Ok(prefer(counts.len() == MAX_HASHES, open, || text(&counts))),
        Err(error) => Ok(prefer(false, open, || error.to_string())),
    }
}

fn more_than_fit(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    let mut hashes = fresh(MAX_HASHES + 6);
    hashes[1] = fixture.hash(0);
    let open = "BEP 15 does not define the reply to more than about 74";
    match client.scrape(&hashes) {
        Ok(counts) if counts.get(1).is_some_and(|counts| counts.leechers != 1) => {
            fails(format!("entry 2 has a leecher: {}", text(&counts)))
        }
        Ok(counts) => Ok(prefer(counts.len() == MAX_HASHES, open, || text(&counts))),
        Err(error) => Ok(prefer(false, open, || error.to_string())),
    }
}

fn trailing(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    let counts = client.scrape_with(&[fixture.hash(0)], &[0xA5; 7])?;
    Ok(demand(counts.len() == 1, || text(&counts)))
}

fn no_hash(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let open = "BEP 15 does not define the scrape of no hash";
    Ok(match client.scrape(&[]) {
        Err(ExchangeError::Refused { .. }) => Verdict::Pass,
        Err(error) => prefer(false, open, || error.to_string()),
        Ok(counts) => prefer(false, open, || text(&counts)),
    })
}

fn bad_id(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let answered = client.reply_to_bad(&scrape_request(forged(client.id()), &fresh(1)))?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}
