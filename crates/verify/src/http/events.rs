//! Checks of events (BEP 3, "trackers"; BEP 21).

use super::Check;
use super::announce::served;
use super::client::Http;
use super::query::set;
use crate::check::{CheckResult, Group, Needs, demand, prefer, tolerated};
use crate::message::{AnnounceRequest, COMPLETED, STOPPED};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "event-empty", Needs::Hashes(1), empty)
        .expects("an empty event is answered like none")
        .source("BEP 3, \"trackers\": empty is the same as not present"),
    Check::new(Group::Announce, "event-paused", Needs::Hashes(1), paused)
        .expects("the event paused (a partial seed) is answered like none")
        .source("BEP 21"),
    Check::new(Group::Announce, "event-unknown", Needs::Hashes(1), unknown)
        .expects("an undefined event is answered like none")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "stopped-removes", Needs::Hashes(1), stopped)
        .expects("a peer that stops is no longer counted nor listed")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "stopped-gets-no-peers", Needs::Hashes(1), stopped_gets_none)
        .expects("a peer that stops gets no peers")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "stopped-creates-no-swarm", Needs::Hashes(1), stops_unknown)
        .expects("an unknown peer that stops is answered, and creates no swarm")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "completed-counts", Needs::Hashes(1), completed_counts)
        .expects("the event completed adds one to the completions of a scrape")
        .source("BEP 48"),
    Check::new(Group::Announce, "completed-counts-once", Needs::Hashes(1), completed_once)
        .expects("a peer that completes again is not counted again")
        .source("BEP 48"),
    Check::new(Group::Announce, "completed-needs-left-0", Needs::Hashes(1), unfinished)
        .expects("the event completed with bytes left counts no completion")
        .source("BEP 48"),
];

fn empty(http: &Http<'_>) -> CheckResult {
    served(http, &set(&http.query(&http.leecher(40_001)), "event", Some("")))
}

fn paused(http: &Http<'_>) -> CheckResult {
    http.announce(&http.leecher(40_001))?;
    let reply = http.ask(&set(&http.query(&http.leecher(40_002)), "event", Some("paused")))?;
    demand(reply.has(40_001), || format!("the other peer is not listed: {}", reply.listed()))
}

fn unknown(http: &Http<'_>) -> CheckResult {
    let query = set(&http.query(&http.leecher(40_001)), "event", Some("resumed"));
    let open = "BEP 3 does not define other events, nor the reply to them";
    http.ask(&query).map(drop).map_err(tolerated(open))
}

fn stopped(http: &Http<'_>) -> CheckResult {
    http.announce_all([http.leecher(40_001), http.seeder(40_002)])?;
    http.announce(&http.leecher(40_001).event(STOPPED))?;
    let reply = http.announce(&http.leecher(40_003))?;
    demand(!reply.has(40_001), || format!("it is still listed: {}", reply.listed()))?;
    match http.target.url.scrape {
        Some(_) => http.counted(1, 1),
        None => Ok(()),
    }
}

fn stopped_gets_none(http: &Http<'_>) -> CheckResult {
    http.announce_all([40_001, 40_002, 40_003].map(|port| http.leecher(port)))?;
    let reply = http.announce(&http.leecher(40_001).event(STOPPED))?;
    let open = "BEP 3 does not define the peer list of a peer that stops";
    prefer(reply.peers.is_empty(), open, || reply.listed())
}

fn stops_unknown(http: &Http<'_>) -> CheckResult {
    let before = http.counts()?;
    http.announce(&http.leecher(40_001).event(STOPPED))?;
    http.counted(before.seeders, before.leechers)
}

/// The completions that a scrape counts before announces, and after them.
fn completions(
    http: &Http<'_>,
    announces: &[AnnounceRequest],
) -> Result<[i64; 2], crate::check::Finding> {
    http.announce(&http.leecher(40_001))?;
    let before = http.counts()?.completed;
    for announce in announces {
        http.announce(announce)?;
    }
    Ok([before, http.counts()?.completed])
}

fn completed_counts(http: &Http<'_>) -> CheckResult {
    let found = completions(http, &[http.seeder(40_001).event(COMPLETED)])?;
    demand(found[1] == found[0] + 1, || format!("{found:?} before and after the event"))
}

fn completed_once(http: &Http<'_>) -> CheckResult {
    let completes = [40_001; 3].map(|port| http.seeder(port).event(COMPLETED));
    let found = completions(http, &completes)?;
    let open = "BEP 48 does not say whether a peer can complete twice";
    prefer(found[1] <= found[0] + 1, open, || {
        format!("{found:?} before and after three events of one peer")
    })
}

fn unfinished(http: &Http<'_>) -> CheckResult {
    let found = completions(http, &[http.leecher(40_001).event(COMPLETED)])?;
    let open = "BEP 48 does not say which decides, the event or the bytes left";
    prefer(found[1] == found[0], open, || format!("{found:?} before and after the event"))
}
