//! Checks of seeder, leecher and completion counts (BEP 15, "Announce", "Scrape"; BEP 48).

use onrush_proto::ScrapeCounts;

use crate::check::{Check, CheckResult, Group, Needs, demand, fails, prefer, skipped};
use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, COMPLETED, STOPPED};
use crate::target::unspecified;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "counts-order", Needs::Hashes(1), order)
        .expects("the leecher count precedes the seeder count, and left 0 makes a seeder")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "asker-counted", Needs::Hashes(1), own_peer)
        .expects("the counts include the announcing peer at once")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "announce-twice", Needs::Hashes(1), twice)
        .expects("a peer that announces twice is one peer")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "peer-id-makes-no-peer", Needs::Hashes(1), peer_id)
        .expects("another peer id at the same address and port is the same peer")
        .source("BEP 15, \"Announce\": lists name peers by address and port"),
    Check::new(Group::Announce, "seeder-leeches-again", Needs::Hashes(1), leeches_again)
        .expects("a seeder that announces left > 0 is a leecher again, counted once")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "completed-makes-a-seeder", Needs::Hashes(1), completes)
        .expects("a leecher that completes with left 0 is a seeder, counted once")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "stopped-removes", Needs::Hashes(1), stopped)
        .expects("a peer that stops is no longer counted nor listed")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "stopped-gets-no-peers", Needs::Hashes(1), stopped_gets_none)
        .expects("a peer that stops gets no peers")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "stopped-creates-no-swarm", Needs::Hashes(1), unknown_peer_stops)
        .expects("an unknown peer that stops is answered, and creates no swarm")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "completed-counts", Needs::Hashes(1), completed_counts)
        .expects("event completed adds one to the completions of a scrape")
        .source("BEP 15, \"Scrape\"; BEP 48"),
    Check::new(Group::Announce, "completed-counts-once", Needs::Hashes(1), completed_once)
        .expects("a peer that completes again is not counted again")
        .source("BEP 48"),
    Check::new(Group::Announce, "completed-needs-left-0", Needs::Hashes(1), completed_with_left)
        .expects("event completed with bytes left counts no completion")
        .source("BEP 48"),
    Check::new(Group::Announce, "completed-by-a-newcomer", Needs::Hashes(1), newcomer_completes)
        .expects("event completed of an unknown peer counts")
        .source("BEP 48"),
    Check::new(Group::Announce, "completed-stays", Needs::Hashes(1), completed_stays)
        .expects("a completion stays counted after the peer has stopped")
        .source("BEP 48"),
    Check::new(Group::Announce, "families-count-together", Needs::Hashes(1), families)
        .expects("seeders and leechers of both families are counted together, and listed apart")
        .source("BEP 15, \"IPv6\"; BEP 7"),
];

/// The scraped counts of the fixture's swarm.
fn scrape(fixture: &Fixture<'_>, client: &Client<'_>) -> Result<ScrapeCounts, ExchangeError> {
    match client.scrape(&[fixture.hash(0)]) {
        // Some trackers refuse to scrape an unknown swarm.
        Err(ExchangeError::Refused { .. }) => Ok(ScrapeCounts::default()),
        counts => Ok(counts?.first().copied().unwrap_or_default()),
    }
}

/// Passes where a scrape, which leaves the swarm as it is, gives these counts.
pub(super) fn counted(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    seeders: u32,
    leechers: u32,
) -> CheckResult {
    let found = scrape(fixture, client)?;
    demand((found.seeders, found.leechers) == (seeders, leechers), || {
        format!("{}, not {seeders} and {leechers}", scraped(found))
    })
}

fn scraped(counts: ScrapeCounts) -> String {
    let ScrapeCounts { seeders, completed, leechers } = counts;
    format!("a scrape gives {seeders} seeders, {completed} completed, {leechers} leechers")
}

fn order(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce_all(&fixture.seeders([40_001, 40_002, 40_003]))?;
    client.announce(&fixture.leecher(40_004))?;
    let reply = client.announce(&fixture.leecher(40_004).event(0))?;
    // Another check tests if the announcing peer is counted.
    demand(reply.seeders == 3 && reply.leechers <= 1, || {
        format!("of 3 seeders and a leecher {}", reply.counts())
    })
}

fn own_peer(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let first = client.announce(&fixture.leecher(40_001))?;
    let second = client.announce(&fixture.seeder(40_002))?;
    let open = "BEP 15 does not say whether the announcing peer is counted";
    prefer(first.leechers == 1, open, || first.counts())?;
    prefer((second.leechers, second.seeders) == (1, 1), open, || second.counts())
}

fn twice(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    for event in [2, 0, 0] {
        client.announce(&fixture.leecher(40_001).event(event))?;
    }
    counted(fixture, client, 0, 1)
}

fn peer_id(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let mut another = fixture.leecher(40_001);
    another.fields.peer_id.0 = [b'z'; 20];
    client.announce(&another)?;
    let counts = scrape(fixture, client)?;
    let open = "BEP 15 does not say what identifies a peer";
    prefer((counts.seeders, counts.leechers) == (0, 1), open, || scraped(counts))
}

fn leeches_again(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.seeder(40_001))?;
    client.announce(&fixture.leecher(40_001).event(0))?;
    counted(fixture, client, 0, 1)
}

fn completes(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    counted(fixture, client, 1, 0)
}

fn stopped(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce_all(&[fixture.leecher(40_001), fixture.seeder(40_002)])?;
    client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    counted(fixture, client, 1, 0)?;
    let reply = client.announce(&fixture.leecher(40_003))?;
    let removed = !reply.peers.contains(&client.endpoint(40_001));
    demand(removed, || format!("it is still listed: {}", reply.listed()))
}

fn stopped_gets_none(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce_all(&fixture.leechers([40_001, 40_002, 40_003]))?;
    let reply = client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    let open = "BEP 15 does not define the peer list of a peer that stops";
    prefer(reply.peers.is_empty(), open, || reply.listed())
}

fn unknown_peer_stops(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let before = scrape(fixture, client)?;
    client.announce(&fixture.leecher(40_001).event(STOPPED))?;
    counted(fixture, client, before.seeders, before.leechers)
}

/// The completions that a scrape counts before announces, and after them.
fn completions(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    announces: &[AnnounceRequest],
) -> Result<(u32, u32), ExchangeError> {
    let before = scrape(fixture, client)?.completed;
    for announce in announces {
        client.announce(announce)?;
    }
    Ok((before, scrape(fixture, client)?.completed))
}

fn completed_counts(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut seen = String::new();
    // A repeated announce may count twice, but hardly three times in a row.
    for port in [40_001, 40_002, 40_003] {
        client.announce(&fixture.leecher(port))?;
        let completes = fixture.seeder(port).event(COMPLETED);
        let (before, after) = completions(fixture, client, &[completes])?;
        if after.checked_sub(1) == Some(before) {
            return Ok(());
        }
        seen = format!("{before} before the event, {after} after it");
        if after <= before {
            break;
        }
    }
    fails(seen)
}

fn newcomer_completes(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let completes = fixture.seeder(40_001).event(COMPLETED);
    let (before, after) = completions(fixture, client, &[completes])?;
    let open = "BEPs 15 and 48 do not say whether a peer has to be known to complete";
    prefer(after > before, open, || format!("{before} before the event, {after} after it"))
}

fn completed_stays(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    client.announce(&fixture.seeder(40_001).event(COMPLETED))?;
    let stops = fixture.seeder(40_001).event(STOPPED);
    let (before, after) = completions(fixture, client, &[stops])?;
    if before == 0 {
        return skipped("the tracker counts no completion");
    }
    let open = "BEPs 15 and 48 do not say for how long completions are kept";
    prefer(after == before, open, || format!("{before} before the stop, {after} after it"))
}

fn completed_once(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let completes = [40_001; 3].map(|port| fixture.seeder(port).event(COMPLETED));
    let (before, after) = completions(fixture, client, &completes)?;
    let open = "BEPs 15 and 48 do not say whether a peer can complete twice";
    prefer(after <= before.saturating_add(1), open, || {
        format!("{before} before, {after} after three events of one peer")
    })
}

fn completed_with_left(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let completes = fixture.leecher(40_001).event(COMPLETED);
    let (before, after) = completions(fixture, client, &[completes])?;
    let open = "BEPs 15 and 48 do not say which decides, the event or the bytes left";
    prefer(after == before, open, || format!("{before} before the event, {after} after it"))
}

fn families(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let Some(also) = fixture.target.also else {
        return skipped("no address of the other family answers (see --also)");
    };
    let source = if also.ip().is_loopback() { also.ip() } else { unspecified(also) };
    let there = Client::new(fixture.target, also, (source, 0))?;
    client.connect()?;
    there.connect()?;
    client.announce_all(&[fixture.leecher(40_001), fixture.seeder(40_002)])?;
    there.announce_all(&fixture.leechers([40_003, 40_004, 40_005]))?;
    // A peer of the other family breaks the layout or has an unknown port.
    for (one, ports, address) in
        [(&there, 40_003..=40_005, also), (client, 40_001..=40_002, fixture.target.address)]
    {
        let reply = one.announce(&fixture.leecher(*ports.start()).event(0))?;
        demand(reply.peers.iter().all(|peer| ports.contains(&peer.port())), || {
            format!("unknown peers are listed over {address}: {}", reply.listed())
        })?;
    }
    let open = "BEP 15 does not say which peers the counts include";
    let reply = client.announce(&fixture.leecher(40_001).event(0))?;
    // Another check tests if the announcing peer is counted.
    prefer(reply.seeders == 1 && (3..=4).contains(&reply.leechers), open, || {
        format!(
            "{}; announced are a seeder and a leecher here and 3 leechers over {also}",
            reply.counts()
        )
    })
}
