//! Checks of swarms of more than 100 peers: trackers commonly store and pick large swarms in
//! another way than small ones.

use std::collections::HashSet;

use crate::check::{Check, CheckResult, Group, Needs, demand};
use crate::checks::counts;
use crate::checks::peers::lists_members_once;
use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, STOPPED, hex};

/// Leechers of the swarm, by port.
const LEECHERS: std::ops::Range<u16> = 20_000..20_130;
/// Seeders of the swarm, by port.
const SEEDERS: std::ops::Range<u16> = 21_000..21_070;
/// Leechers that stay when the swarm shrinks to 90 peers.
const REMAINING_LEECHERS: std::ops::Range<u16> = 20_000..20_060;
/// Seeders that stay.
const REMAINING_SEEDERS: std::ops::Range<u16> = 21_000..21_030;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "large-swarm-counts", Needs::Hashes(1), exact_counts)
        .expects(
            "a swarm of 200 peers is counted exactly, by announces and by scrapes, also \
             after it has shrunk to 90",
        )
        .source("BEP 15, \"Announce\", \"Scrape\""),
    Check::new(Group::Announce, "large-swarm-peers", Needs::Hashes(1), peers)
        .expects(
            "lists of a swarm of 200 peers name its peers only, each once, also after it has \
             shrunk to 90",
        )
        .source("BEP 15, \"Announce\""),
];

/// Announces the whole swarm.
fn grow(fixture: &Fixture<'_>, client: &Client<'_>) -> Result<(), ExchangeError> {
    let leechers = LEECHERS.map(|port| fixture.leecher(port));
    let seeders = SEEDERS.map(|port| fixture.seeder(port));
    let all: Vec<_> = leechers.chain(seeders).map(|request| request.want(0)).collect();
    client.announce_all(&all).map(drop)
}

/// Stops all peers but those that remain.
fn shrink(fixture: &Fixture<'_>, client: &Client<'_>) -> Result<(), ExchangeError> {
    let leechers = REMAINING_LEECHERS.end..LEECHERS.end;
    let seeders = REMAINING_SEEDERS.end..SEEDERS.end;
    let stop = |request: AnnounceRequest| request.event(STOPPED).want(0);
    let leechers = leechers.map(|port| stop(fixture.leecher(port)));
    let seeders = seeders.map(|port| stop(fixture.seeder(port)));
    client.announce_all(&leechers.chain(seeders).collect::<Vec<_>>()).map(drop)
}

fn exact_counts(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    grow(fixture, client)?;
    counted(fixture, client, SEEDERS.len(), LEECHERS.len())?;
    shrink(fixture, client)?;
    counted(fixture, client, REMAINING_SEEDERS.len(), REMAINING_LEECHERS.len())
}

/// Passes where a scrape and an announce of the swarm's first leecher count exactly so many.
fn counted(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    seeders: usize,
    leechers: usize,
) -> CheckResult {
    let (seeders, leechers) = (seeders as u32, leechers as u32);
    counts::counted(fixture, client, seeders, leechers)?;
    let reply = client.announce(&fixture.leecher(LEECHERS.start).event(0))?;
    // Another check tests if the announcing peer is counted.
    let right = reply.seeders == seeders && (leechers - 1..=leechers).contains(&reply.leechers);
    demand(right, || {
        format!("an announce to {seeders} seeders and {leechers} leechers: {}", reply.counts())
    })
}

fn peers(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    grow(fixture, client)?;
    listed(fixture, client, LEECHERS.chain(SEEDERS))?;
    shrink(fixture, client)?;
    listed(fixture, client, REMAINING_LEECHERS.chain(REMAINING_SEEDERS))
}

/// Passes where the lists of several announces have some of the peers at `ports`, each once, and
/// no others.
fn listed(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    ports: impl Iterator<Item = u16>,
) -> CheckResult {
    let expected: HashSet<_> = ports.map(|port| client.endpoint(port)).collect();
    for _ in 0..8 {
        let reply = client.announce(&fixture.leecher(LEECHERS.start).event(0).want(200))?;
        demand(!reply.peers.is_empty(), || {
            format!("no peers of {}: {}", expected.len(), hex(&reply.bytes))
        })?;
        lists_members_once(&reply, |peer| expected.contains(peer))?;
    }
    Ok(())
}
