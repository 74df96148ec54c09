//! Checks of seeder, leecher and completion counts (BEP 15, "Announce", "Scrape"; BEP 48).

use onrush_proto::ScrapeCounts;

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer, skipped};
use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, COMPLETED, STOPPED};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "counts-order",
        group: Group::Announce,
        expected: "the leecher count precedes the seeder count, and left 0 makes a seeder",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: order,
    },
    Check {
        id: "asker-counted",
        group: Group::Announce,
        expected: "the counts include the announcing peer at once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: own_peer,
    },
    Check {
        id: "announce-twice",
        group: Group::Announce,
        expected: "a peer that announces twice is one peer",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: twice,
    },
    Check {
        id: "peer-id-makes-no-peer",
        group: Group::Announce,
        expected: "another peer id at the same address and port is the same peer",
        source: "BEP 15, \"Announce\": lists name peers by address and port",
        hashes: 1,
        large_swarm: false,
        run: peer_id,
    },
    Check {
        id: "seeder-leeches-again",
        group: Group::Announce,
        expected: "a seeder that announces left > 0 is a leecher again, counted once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: leeches_again,
    },
    Check {
        id: "completed-makes-a-seeder",
        group: Group::Announce,
        expected: "a leecher that completes with left 0 is a seeder, counted once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: completes,
    },
    Check {
        id: "stopped-removes",
        group: Group::Announce,
        expected: "a peer that stops is no longer counted nor listed",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: stopped,
    },
    Check {
        id: "stopped-gets-no-peers",
        group: Group::Announce,
        expected: "a peer that stops gets no peers",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: stopped_gets_none,
    },
    Check {
        id: "stopped-creates-no-swarm",
        group: Group::Announce,
        expected: "an unknown peer that stops is answered, and creates no swarm",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: unknown_peer_stops,
    },
    Check {
        id: "completed-counts",
        group: Group::Announce,
        expected: "event completed adds one to the completions of a scrape",
        source: "BEP 15, \"Scrape\"; BEP 48",
        hashes: 1,
        large_swarm: false,
        run: completed_counts,
    },
    Check {
        id: "completed-counts-once",
        group: Group::Announce,
        expected: "a peer that completes again is not counted again",
        source: "BEP 48",
        hashes: 1,
        large_swarm: false,
        run: completed_once,
    },
    Check {
        id: "completed-needs-left-0",
        group: Group::Announce,
        expected: "event completed with bytes left counts no completion",
        source: "BEP 48",
        hashes: 1,
        large_swarm: false,
        run: completed_with_left,
    },
    Check {
        id: "completed-by-a-newcomer",
        group: Group::Announce,
        expected: "event completed of an unknown peer counts",
        source: "BEP 48",
        hashes: 1,
        large_swarm: false,
        run: unknown_peer_completes,
    },
    Check {
        id: "completed-stays",
        group: Group::Announce,
        expected: "a completion stays counted after the peer has stopped",
        source: "BEP 48",
        hashes: 1,
        large_swarm: false,
        run: completed_stays,
    },
    Check {
        id: "families-count-together",
        group: Group::Announce,
        expected: "seeders and leechers of both families are counted together, and listed apart",
        source: "BEP 15, \"IPv6\"; BEP 7",
        hashes: 1,
        large_swarm: false,
        run: families,
    },
];

/// The scraped counts of the fixture's swarm.
fn scrape(fixture: &Fixture<'_>, client: &Client<'_>) -> Result<ScrapeCounts, ExchangeError> {
    match client.scrape(&[fixture.hash(0)]) {
        // Some trackers refuse to scrape an unknown swarm.
        Err(ExchangeError::Refused { .. }) => Ok(ScrapeCounts::default()),
        counts => Ok(counts?.first().copied().unwrap_or_default()),
    }
}

/// Seeders and leechers by a scrape, which leaves the swarm as it is, and a text with the counts.
fn scraped(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
) -> Result<(u32, u32, String), ExchangeError> {
    let counts = scrape(fixture, client)?;
    let text = format!(
        "a scrape gives {} seeders, {} completed, {} leechers",
        counts.seeders, counts.completed, counts.leechers
    );
    Ok((counts.seeders, counts.leechers, text))
}

/// Passes where a scrape gives these counts.
fn counted(fixture: &Fixture<'_>, client: &Client<'_>, seeders: u32, leechers: u32) -> CheckResult {
    let (found_seeders, found_leechers, text) = scraped(fixture, client)?;
    Ok(demand((found_seeders, found_leechers) == (seeders, leechers), || {
        format!("{text}, not {seeders} and {leechers}")
    }))
}

fn order(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client
        .announce_all(&[40_001, 40_002, 40_003].map(|port| AnnounceRequest::seeder(hash, port)))?;
    client.announce(&fixture.leecher(40_004))?;
    let reply = client.announce(&fixture.leecher(40_004).event(0))?;
    // Whether the announcing peer is counted is another check.
    Ok(demand(reply.seeders == 3 && reply.leechers <= 1, || {
        format!("of 3 seeders and a leecher {}", reply.counts())
    }))
}

fn own_peer(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let first = client.announce(&fixture.leecher(40_001))?;
    let second = client.announce(&fixture.seeder(40_002))?;
    let open = "BEP 15 does not say whether the announcing peer is counted";
    let right = (first.leechers, second.leechers, second.seeders) == (1, 1, 1);
    Ok(prefer(right, open, || if first.leechers == 1 { second.counts() } else { first.counts() }))
}

fn twice(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    for event in [2, 0, 0] {
        client.announce(&fixture.leecher(40_001).event(event))?;
    }
    counted(fixture, &client, 0, 1)
}

fn peer_id(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    client.announce(&AnnounceRequest { peer_id: [b'z'; 20], ..fixture.leecher(40_001) })?;
    let (seeders, leechers, text) = scraped(fixture, &client)?;
    let open = "BEP 15 does not say what identifies a peer";
    Ok(prefer((seeders, leechers) == (0, 1), open, || text))
}

fn leeches_again(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.seeder(40_001))?;
    client.announce(&fixture.leecher(40_001).event(0))?;
    counted(fixture, &client, 0, 1)
}

fn completes(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    counted(fixture, &client, 1, 0)
}

fn stopped(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client.announce_all(&[fixture.leecher(40_001), AnnounceRequest::seeder(hash, 40_002)])?;
    client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    let verdict = counted(fixture, &client, 1, 0)?;
    if verdict != Verdict::Pass {
        return Ok(verdict);
    }
    let reply = client.announce(&fixture.leecher(40_003))?;
    let removed = !reply.peers.contains(&client.endpoint(40_001));
    Ok(demand(removed, || format!("it is still listed: {}", reply.listed())))
}

fn stopped_gets_none(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce_all(&[40_001, 40_002, 40_003].map(|port| fixture.leecher(port)))?;
    let reply = client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    let open = "BEP 15 does not define the peer list of a peer that stops";
    Ok(prefer(reply.peers.is_empty(), open, || reply.listed()))
}

fn unknown_peer_stops(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let before = scrape(fixture, &client)?;
    client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    counted(fixture, &client, before.seeders, before.leechers)
}

fn completed_counts(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let mut seen = String::new();
    // A repeated announce may count twice, but hardly three times in a row.
    for port in [40_001, 40_002, 40_003] {
        client.announce(&fixture.leecher(port))?;
        let before = scrape(fixture, &client)?.completed;
        client.announce(&fixture.seeder(port).event(COMPLETED))?;
        let after = scrape(fixture, &client)?.completed;
        if after.checked_sub(1) == Some(before) {
            return Ok(Verdict::Pass);
        }
        seen = format!("{before} before the event, {after} after it");
        if after <= before {
            break;
        }
    }
    fails(seen)
}

fn unknown_peer_completes(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let before = scrape(fixture, &client)?.completed;
    client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    let after = scrape(fixture, &client)?.completed;
    let open = "BEPs 15 and 48 do not say whether a peer has to be known to complete";
    Ok(prefer(after > before, open, || format!("{before} before the event, {after} after it")))
}

fn completed_stays(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    let before = scrape(fixture, &client)?.completed;
    if before == 0 {
        return skipped("the tracker counts no completion");
    }
    client.announce(&fixture.seeder(40_001).event(STOPPED))?;
    let after = scrape(fixture, &client)?.completed;
    let open = "BEPs 15 and 48 do not say for how long completions are kept";
    Ok(prefer(after == before, open, || format!("{before} before the stop, {after} after it")))
}

fn completed_once(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    let before = scrape(fixture, &client)?.completed;
    for _ in 0..3 {
        client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    }
    let after = scrape(fixture, &client)?.completed;
    let open = "BEPs 15 and 48 do not say whether a peer can complete twice";
    Ok(prefer(after <= before.saturating_add(1), open, || {
        format!("{before} before, {after} after three events of one peer")
    }))
}

fn completed_with_left(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let before = scrape(fixture, &client)?.completed;
    client.announce(&fixture.leecher(40_001).event(COMPLETED))?;
    let after = scrape(fixture, &client)?.completed;
    let open = "BEPs 15 and 48 do not say which decides, the event or the bytes left";
    Ok(prefer(after == before, open, || format!("{before} before the event, {after} after it")))
}

fn families(fixture: &Fixture<'_>) -> CheckResult {
    let Some(also) = fixture.target.also else {
        return skipped("no address of the other family answers (see --also)");
    };
    let source = match also.ip() {
        ip if ip.is_loopback() => ip,
        ip if ip.is_ipv4() => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let here = fixture.client()?;
    let there = Client::connected(fixture.target, also, source)?;
    here.announce_all(&[fixture.leecher(40_001), fixture.seeder(40_002)])?;
    there.announce_all(&[40_003, 40_004, 40_005].map(|port| fixture.leecher(port)))?;
    // A peer of the other family breaks the layout or has an unknown port.
    for (client, ports, address) in
        [(&there, 40_003..=40_005, also), (&here, 40_001..=40_002, fixture.target.address)]
    {
        let reply = client.announce(&fixture.leecher(*ports.start()).event(0))?;
        if !reply.peers.iter().all(|peer| ports.contains(&peer.port())) {
            return fails(format!("unknown peers are listed over {address}: {}", reply.listed()));
        }
    }
    let open = "BEP 15 does not say which peers the counts include";
    let reply = here.announce(&fixture.leecher(40_001).event(0))?;
    // Whether the announcing peer is counted is another check.
    Ok(prefer(reply.seeders == 1 && (3..=4).contains(&reply.leechers), open, || {
        format!(
            "{}; announced are a seeder and a leecher here and 3 leechers over {also}",
            reply.counts()
        )
    }))
}
