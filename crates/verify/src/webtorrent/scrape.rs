//! Checks of scrapes over WebSocket.

use std::time::Instant;

use super::announce::{LEECHER, SEEDER, joined};
use super::member::{Member, Received, json, text};
use super::{Check, Web};
use crate::check::{CheckResult, Finding, Group, Needs, demand, fails, failure, prefer};
use crate::message::fresh_hash;
use crate::tcp::target::REPLY;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Scrape, "scrape", Needs::Hashes(1), one)
        .expects("a scrape gives `complete`, `incomplete` and `downloaded` of the info hash")
        .source("webtorrent reads them; BEP 48"),
    Check::new(Group::Scrape, "scrape-several", Needs::Hashes(2), several)
        .expects("a list of info hashes gets the counts of each")
        .source("webtorrent sends a list for several"),
    Check::new(Group::Scrape, "scrape-unknown", Needs::Hashes(1), unknown)
        .expects("unknown info hashes have zeros, or no entry")
        .source("BEP 48"),
    Check::new(Group::Scrape, "scrape-no-hash", Needs::Nothing, no_hash)
        .expects("a scrape without an info hash gets `failure reason`")
        .source("BEP 48 allows the counts of all swarms, which takes the tracker's bandwidth"),
];

/// The counts of a swarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct File {
    pub(super) seeders: u64,
    pub(super) completed: u64,
    pub(super) leechers: u64,
}

fn is_scrape(message: &Received) -> bool {
    message.value["action"] == "scrape" || message.value.get("files").is_some()
}

/// Scrapes, and returns the counts of each info hash; zeros of those without an entry.
pub(super) fn scrape(member: &mut Member<'_>, hashes: &[&str]) -> Result<Vec<File>, Finding> {
    let asked = match hashes {
        [one] => json(one),
        several => serde_json::json!(several).to_string(),
    };
    member.send(&format!(r#"{{"action":"scrape","info_hash":{asked}}}"#));
    let reply = member.reply(is_scrape)?;
    let files = reply.value.get("files").and_then(|files| files.as_object());
    let files = files.ok_or_else(|| failure(reply.shown()))?;
    let file = |hash: &&str| {
        let Some(file) = files.get(*hash) else { return Ok(File::default()) };
        let count = |key| file[key].as_u64().ok_or_else(|| failure(reply.shown()));
        let (seeders, completed) = (count("complete")?, count("downloaded")?);
        Ok(File { seeders, completed, leechers: count("incomplete")? })
    };
    hashes.iter().map(file).collect()
}

/// Passes once a scrape gives these numbers of seeders and leechers.
pub(super) fn await_counts(member: &mut Member<'_>, hash: &str, counts: [u64; 2]) -> CheckResult {
    let until = member.deadline(REPLY);
    loop {
        let found = scrape(member, &[hash])?[0];
        if [found.seeders, found.leechers] == counts {
            return Ok(());
        }
        if Instant::now() >= until {
            return fails(format!("a scrape gives {found:?}, not {counts:?}"));
        }
        member.pause(0.05);
    }
}

fn one(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut member, _) = joined(web, &hash, SEEDER)?;
    let _leechers = [joined(web, &hash, LEECHER)?, joined(web, &hash, LEECHER)?];
    let found = scrape(&mut member, &[&hash])?[0];
    demand((found.seeders, found.leechers) == (1, 2), || format!("of 1 and 2: {found:?}"))
}

fn several(web: &Web<'_>) -> CheckResult {
    let (one, two) = (web.hash(0), web.hash(1));
    let (mut member, _) = joined(web, &one, LEECHER)?;
    let _seeder = joined(web, &two, SEEDER)?;
    let found = scrape(&mut member, &[&two, &one])?;
    let found: Vec<_> = found.iter().map(|it| (it.seeders, it.leechers)).collect();
    demand(found == [(1, 0), (0, 1)], || format!("of a seeder, and of a leecher: {found:?}"))
}

fn unknown(web: &Web<'_>) -> CheckResult {
    let found = scrape(&mut web.member()?, &[&text(&fresh_hash().0)])?;
    demand(found == [File::default()], || format!("{found:?}"))
}

fn no_hash(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    member.send(r#"{"action":"scrape"}"#);
    let reply = member.reply(|_| true)?;
    let open = "BEP 48 allows the counts of all swarms";
    prefer(reply.value["failure reason"].is_string(), open, || reply.shown())
}
