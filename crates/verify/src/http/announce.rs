//! Checks of the keys of announce replies, and of failures (BEP 3, 23, 31).

use super::Check;
use super::bencode::Value;
use super::client::Http;
use super::query::set;
use super::reply::Announced;
use crate::check::{
    CheckResult, Finding, Group, Needs, demand, fails, prefer, skipped, tolerated, worst_of,
};

/// The check that fails, and the only one, where a tracker serves no announce at all.
pub(super) const FIRST: &str = "announce";

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, FIRST, Needs::Hashes(1), plain)
        .expects("an announce is answered with status 200 and a dictionary")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "announce-keys", Needs::Hashes(1), keys)
        .expects("the dictionary has `interval`, `complete`, `incomplete` and `peers`")
        .source("BEP 3, \"trackers\"; clients show the counts"),
    Check::new(Group::Announce, "interval-positive", Needs::Hashes(1), interval)
        .expects(
            "the interval is between a minute and a day; 0 fails, as clients would announce \
             without pause",
        )
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "interval-jitter", Needs::Hashes(1), jitter)
        .expects(
            "the interval varies, so that the peers of a swarm do not announce at the same time",
        )
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "compact-1", Needs::Hashes(1), compact)
        .expects("with compact=1, and without `compact`, the peers are a string")
        .source("BEP 23: also suggested as the default"),
    Check::new(Group::Announce, "compact-0", Needs::Hashes(1), list)
        .expects("with compact=0 the peers are a list of dictionaries with `ip` and `port`")
        .source("BEP 3, \"trackers\"; BEP 23"),
    Check::new(Group::Announce, "failure-form", Needs::Nothing, failure_form)
        .expects(
            "a failure has `failure reason`, no peers, and `retry in`, if it is there, is a number \
             of minutes or `never`",
        )
        .source("BEP 3, \"trackers\"; BEP 31"),
];

fn plain(http: &Http<'_>) -> CheckResult {
    http.announce(&http.leecher(40_001)).map(drop)
}

fn keys(http: &Http<'_>) -> CheckResult {
    let Announced { keys, reply, .. } = http.announce(&http.leecher(40_001))?;
    let has_peers = keys.get("peers").or(keys.get("peers6")).is_some();
    demand(keys.number("interval").is_some() && has_peers, || reply.shown())?;
    let counts = ["complete", "incomplete"].map(|key| keys.number(key));
    prefer(counts.iter().all(Option::is_some), "BEP 3 does not name the counts", || reply.shown())
}

fn interval(http: &Http<'_>) -> CheckResult {
    let reply = http.announce(&http.leecher(40_001))?;
    let seen = || format!("{} s: {}", reply.interval, reply.reply.shown());
    demand(reply.interval > 0, seen)?;
    let open = "BEP 3 leaves the interval to the tracker";
    prefer((60..=86_400).contains(&reply.interval), open, seen)
}

fn jitter(http: &Http<'_>) -> CheckResult {
    let mut intervals = Vec::new();
    for n in 0..8 {
        let event = if n == 0 { crate::message::STARTED } else { 0 };
        intervals.push(http.announce(&http.leecher(40_001).event(event))?.interval);
    }
    let varies = intervals.iter().any(|interval| *interval != intervals[0]);
    let open = "BEP 3 leaves the interval to the tracker";
    prefer(varies, open, || format!("{} s eight times", intervals[0]))
}

const FORM: &str = "BEP 23: the form is the tracker's choice";

/// The reply to a leecher of a swarm with one other, with this value of `compact`.
fn in_form(http: &Http<'_>, compact: Option<&str>) -> Result<Announced, Finding> {
    http.announce(&http.leecher(40_001))?;
    let reply = http.ask(&set(&http.query(&http.leecher(40_002)), "compact", compact))?;
    demand(reply.has(40_001), || format!("the other peer is missing: {}", reply.listed()))?;
    Ok(reply)
}

fn compact(http: &Http<'_>) -> CheckResult {
    worst_of([Some("1"), None], |compact| {
        let reply = in_form(http, compact)?;
        prefer(!reply.is_list, FORM, || format!("{compact:?}: {}", reply.listed()))
    })
}

fn list(http: &Http<'_>) -> CheckResult {
    let reply = in_form(http, Some("0")).map_err(tolerated(FORM))?;
    prefer(reply.is_list, FORM, || reply.listed())
}

fn failure_form(http: &Http<'_>) -> CheckResult {
    let mut any = false;
    let queries = ["", "info_hash=short&port=1&peer_id=x"];
    for query in queries {
        let reply = http.get(&http.announce_target(query))?;
        let Some(text) = reply.failure() else { continue };
        any = true;
        let keys = reply.dictionary()?;
        demand(!text.is_empty() && keys.get("peers").is_none(), || reply.shown())?;
        let is_valid = match keys.get("retry in") {
            None => true,
            Some(Value::Number(minutes)) => *minutes > 0,
            Some(Value::Text(text)) => text == b"never",
            Some(_) => false,
        };
        demand(is_valid, || reply.shown())?;
    }
    match any {
        true => Ok(()),
        // Another check tests whether there has to be one.
        false => skipped("no request was answered with a failure"),
    }
}

/// The check of an announce that is answered, whatever comes with it.
pub(super) fn served(http: &Http<'_>, query: &str) -> CheckResult {
    match http.ask(query) {
        Ok(_) => Ok(()),
        Err(finding) => fails(finding.seen),
    }
}
