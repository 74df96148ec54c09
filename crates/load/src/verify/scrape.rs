//! Checks of scrapes (BEP 15, "Scrape"; BEP 48).

use onrush_proto::{InfoHash, ScrapeCounts};

use super::ask::{Ask, COMPLETED};
use super::connect::{forged, leecher};
use super::dialogue::{Trouble, fresh_hash, hex, scrape_request};
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer};

/// How often a question is sent at most: a tracker may count each of an event.
const MOST_SENDS: u32 = 8;
/// Hashes that one request may carry (BEP 15, "Scrape": about 74).
const MOST: usize = 74;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "scrape-order",
        group: Group::Scrape,
        expected: "a scrape gives seeders, completed, leechers, and the counts that announces give",
        source: "BEP 15, \"Scrape\"",
        hashes: 1,
        crowd: false,
        run: order,
    },
    Check {
        id: "scrape-several",
        group: Group::Scrape,
        expected: "several hashes get their counts in the order asked for",
        source: "BEP 15, \"Scrape\"",
        hashes: 2,
        crowd: false,
        run: several,
    },
    Check {
        id: "scrape-same-twice",
        group: Group::Scrape,
        expected: "the same hash twice gets two entries",
        source: "BEP 15, \"Scrape\": an entry per hash",
        hashes: 1,
        crowd: false,
        run: same_twice,
    },
    Check {
        id: "scrape-unknown",
        group: Group::Scrape,
        expected: "unknown hashes get zeros",
        source: "BEP 15, \"Scrape\"",
        hashes: 0,
        crowd: false,
        run: unknown,
    },
    Check {
        id: "scrape-creates-nothing",
        group: Group::Scrape,
        expected: "scraping a hash makes no swarm",
        source: "BEP 48",
        hashes: 1,
        crowd: false,
        run: creates_nothing,
    },
    Check {
        id: "scrape-74",
        group: Group::Scrape,
        expected: "74 hashes in one request are answered",
        source: "BEP 15, \"Scrape\"",
        hashes: 0,
        crowd: false,
        run: as_many_as_fit,
    },
    Check {
        id: "scrape-more-than-74",
        group: Group::Scrape,
        expected: "of more than 74 hashes the first 74 are answered",
        source: "BEP 15, \"Scrape\"",
        hashes: 1,
        crowd: false,
        run: more_than_fit,
    },
    Check {
        id: "scrape-trailing-bytes",
        group: Group::Scrape,
        expected: "bytes behind the last whole hash are ignored",
        source: "BEP 15, \"UDP tracker protocol\": no exact size is to be expected",
        hashes: 1,
        crowd: false,
        run: trailing,
    },
    Check {
        id: "scrape-no-hash",
        group: Group::Scrape,
        expected: "a scrape without a hash is refused with an error",
        source: "BEP 15, \"Errors\"",
        hashes: 0,
        crowd: false,
        run: no_hash,
    },
    Check {
        id: "scrape-bad-id",
        group: Group::Scrape,
        expected: "scrapes with a wrong connection id meet silence",
        source: "BEP 15, \"UDP connections / spoofing\": the request is ignored",
        hashes: 0,
        crowd: false,
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

fn order(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[40_001, 40_002].map(|port| Ask::seeder(hash, port)))?;
    party.announce_all(&[40_003, 40_004, 40_005].map(|port| leecher(scene, port)))?;
    let before = party.scrape(&[hash])?.first().map_or(0, |counts| counts.completed);
    party.announce(&Ask::seeder(hash, 40_003).event(COMPLETED))?;
    let counts = party.scrape(&[hash])?;
    // Whether completions are counted is another check.
    let right = matches!(
        counts[..],
        [ScrapeCounts { seeders: 3, completed, leechers: 2 }] if completed <= before.saturating_add(MOST_SENDS)
    );
    Ok(demand(right, || {
        format!("3 seeders, 1 completed and 2 leechers are there: {}", text(&counts))
    }))
}

fn several(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let (one, two) = (scene.hash(0), scene.hash(1));
    party.announce_all(&[40_001, 40_002].map(|port| Ask::new(one, port)))?;
    party.announce_all(&[40_001, 40_002, 40_003].map(|port| Ask::seeder(two, port)))?;
    let counts = party.scrape(&[two, one])?;
    let plain: Vec<_> = counts.iter().map(|counts| (counts.seeders, counts.leechers)).collect();
    Ok(demand(plain == [(3, 0), (0, 2)], || {
        format!("3 seeders, then 2 leechers were asked for: {}", text(&counts))
    }))
}

fn same_twice(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    let counts = party.scrape(&[scene.hash(0), scene.hash(0)])?;
    let leechers: Vec<_> = counts.iter().map(|counts| counts.leechers).collect();
    Ok(demand(leechers == [1, 1], || text(&counts)))
}

fn unknown(scene: &Scene<'_>) -> Judged {
    let open = "BEP 15 does not say how a swarm that is not there is scraped";
    match scene.party()?.scrape(&[fresh_hash(), fresh_hash()]) {
        Ok(counts) => Ok(demand(counts == [ScrapeCounts::default(); 2], || text(&counts))),
        Err(trouble @ Trouble::Refused { .. }) => Ok(prefer(false, open, || trouble.to_string())),
        Err(trouble) => Err(trouble),
    }
}

fn creates_nothing(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    for _ in 0..2 {
        let counts = match party.scrape(&[scene.hash(0)]) {
            Err(Trouble::Refused { .. }) => Vec::new(),
            counts => counts?,
        };
        if counts.iter().any(|counts| (counts.seeders, counts.leechers) != (0, 0)) {
            return fails(text(&counts));
        }
    }
    let reply = party.announce(&leecher(scene, 40_001))?;
    let own = party.endpoint(40_001);
    let alone = reply.peers.iter().all(|peer| *peer == own)
        && reply.leechers.saturating_add(reply.seeders) <= 1;
    Ok(demand(alone, || format!("the first peer is told of {}", reply.counts())))
}

fn fresh(count: usize) -> Vec<InfoHash> {
    std::iter::repeat_with(fresh_hash).take(count).collect()
}

fn as_many_as_fit(scene: &Scene<'_>) -> Judged {
    let open = "BEP 15 says \"about 74\"";
    match scene.party()?.scrape(&fresh(MOST)) {
        Ok(counts) => Ok(prefer(counts.len() == MOST, open, || text(&counts))),
        Err(trouble) => Ok(prefer(false, open, || trouble.to_string())),
    }
}

fn more_than_fit(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    let mut hashes = fresh(MOST + 6);
    hashes[1] = scene.hash(0);
    let open = "BEP 15 does not say what becomes of more than about 74";
    match party.scrape(&hashes) {
        Ok(counts) if counts.get(1).is_some_and(|counts| counts.leechers != 1) => {
            fails(format!("entry 2 has a leecher: {}", text(&counts)))
        }
        Ok(counts) => Ok(prefer(counts.len() == MOST, open, || text(&counts))),
        Err(trouble) => Ok(prefer(false, open, || trouble.to_string())),
    }
}

fn trailing(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    let counts = party.scrape_with(&[scene.hash(0)], &[0xA5; 7])?;
    Ok(demand(counts.len() == 1, || text(&counts)))
}

fn no_hash(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let open = "BEP 15 does not say what a scrape of nothing gets";
    Ok(match party.scrape(&[]) {
        Err(Trouble::Refused { .. }) => Verdict::Pass,
        Err(trouble) => prefer(false, open, || trouble.to_string()),
        Ok(counts) => prefer(false, open, || text(&counts)),
    })
}

fn bad_id(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let answered = party.reply_to_bad(&scrape_request(forged(party.id()), &fresh(1)))?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}
