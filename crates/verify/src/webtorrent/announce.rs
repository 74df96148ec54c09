//! Checks of the upgrade to WebSocket (RFC 6455, section 4), and of announces: replies, counts,
//! membership and failures.

use super::member::{BINARY, Closed, Member, Received, frame, json, text};
use super::scrape::{File, await_counts, scrape};
use super::{Check, Web};
use crate::check::{CheckResult, Finding, Group, Needs, demand, prefer};

/// The check that fails, and the only one, where a tracker serves no announce at all.
pub(super) const FIRST: &str = "announce";

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Handshake, "upgrade", Needs::Nothing, upgrade)
        .expects("an upgrade gets status 101 with the accept key for its key")
        .source("RFC 6455, section 4.2.2"),
    Check::new(Group::Announce, FIRST, Needs::Hashes(1), plain)
        .expects("an announce is answered by a message with its action and info hash")
        .source("webtorrent and libtorrent find their swarm by them"),
    Check::new(Group::Announce, "announce-keys", Needs::Hashes(1), keys)
        .expects("the reply has `interval`, `complete` and `incomplete`")
        .source("webtorrent shows the counts"),
    Check::new(Group::Announce, "interval-positive", Needs::Hashes(1), interval)
        .expects("the interval is between 10 seconds and a day; 0 fails")
        .source("webtorrent announces again after it"),
    Check::new(Group::Announce, "counts", Needs::Hashes(1), counts)
        .expects("`complete` counts members with left 0, `incomplete` the others")
        .source("as over HTTP: BEP 3, BEP 48"),
    Check::new(Group::Announce, "asker-counted", Needs::Hashes(1), own_peer)
        .expects("the counts include the announcing member at once")
        .source("as over HTTP: BEP 3"),
    Check::new(Group::Announce, "announce-twice", Needs::Hashes(1), twice)
        .expects("a member that announces twice is one member")
        .source("webtorrent announces each interval"),
    Check::new(Group::Announce, "completed", Needs::Hashes(1), completed)
        .expects("a leecher that completes is a seeder, and adds one to `downloaded` of a scrape")
        .source("BEP 48"),
    Check::new(Group::Announce, "stopped-removes", Needs::Hashes(1), stopped)
        .expects("a member that stops is no longer counted")
        .source("as over HTTP: BEP 3"),
    Check::new(Group::Announce, "closed-removes", Needs::Hashes(1), closed)
        .expects("a member whose connection ends is no longer counted")
        .source("browsers leave without a word, and cannot be reached then"),
    Check::new(Group::Announce, "several-swarms", Needs::Hashes(2), several_swarms)
        .expects("one connection may announce to several swarms")
        .source("webtorrent has one connection for all torrents"),
    Check::new(Group::Announce, "unknown-fields", Needs::Hashes(1), unknown_fields)
        .expects("unknown fields are ignored, whatever their values are")
        .source("clients send uploaded, downloaded, key, trackerid and more"),
    Check::new(Group::Announce, "binary-frame", Needs::Hashes(1), binary_frame)
        .expects("a message in a binary frame is answered like one in a text frame")
        .source("libtorrent and webtorrent on Node.js may send buffers"),
    Check::new(Group::Announce, "bad-info-hash", Needs::Nothing, bad_info_hash)
        .expects("an info hash of 19 characters gets `failure reason`, and the connection stays")
        .source("webtorrent shows the reason"),
    Check::new(Group::Announce, "bad-peer-id", Needs::Hashes(1), bad_peer_id)
        .expects("a missing peer id gets `failure reason` with the info hash")
        .source("webtorrent finds the torrent by the info hash"),
];

pub(super) const LEECHER: &str = r#""left":1,"event":"started","numwant":5"#;
pub(super) const SEEDER: &str = r#""left":0,"event":"started","numwant":5"#;

/// A new member of a swarm, and the reply to its announce.
pub(super) fn joined<'s>(
    web: &Web<'s>,
    hash: &str,
    fields: &str,
) -> Result<(Member<'s>, Received), Finding> {
    let mut member = web.member()?;
    let reply = member.announce(hash, fields)?;
    let is_served = reply.value.get("failure reason").is_none();
    demand(is_served, || format!("a failure: {}", reply.shown()))?;
    Ok((member, reply))
}

fn upgrade(web: &Web<'_>) -> CheckResult {
    web.member().map(drop)
}

fn plain(web: &Web<'_>) -> CheckResult {
    let (_member, reply) = joined(web, &web.hash(0), LEECHER)?;
    demand(reply.value["action"] == "announce", || reply.shown())
}

fn keys(web: &Web<'_>) -> CheckResult {
    let (_member, reply) = joined(web, &web.hash(0), LEECHER)?;
    demand(reply.value["interval"].is_u64(), || reply.shown())?;
    let open = "no specification names the counts";
    prefer(reply.counts().iter().all(Option::is_some), open, || reply.shown())
}

fn interval(web: &Web<'_>) -> CheckResult {
    let (_member, reply) = joined(web, &web.hash(0), LEECHER)?;
    let seconds = reply.value["interval"].as_u64().unwrap_or(0);
    demand(seconds > 0, || reply.shown())?;
    let open = "the interval is left to the tracker";
    prefer((10..=86_400).contains(&seconds), open, || reply.shown())
}

fn counts(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let _seeders = [joined(web, &hash, SEEDER)?, joined(web, &hash, SEEDER)?];
    let (mut leecher, _) = joined(web, &hash, LEECHER)?;
    let reply = leecher.announce(&hash, r#""left":1"#)?;
    // Another check tests if the announcing member is counted.
    let right = matches!(reply.counts(), [Some(2), Some(0..=1)] | [None, _] | [_, None]);
    demand(right, || format!("of 2 seeders and a leecher: {}", reply.shown()))
}

fn own_peer(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (_one, first) = joined(web, &hash, LEECHER)?;
    let (_two, second) = joined(web, &hash, SEEDER)?;
    let right = first.counts() == [Some(0), Some(1)] && second.counts() == [Some(1), Some(1)];
    let open = "no specification says whether the announcing member is counted";
    prefer(right, open, || format!("{}, then {}", first.shown(), second.shown()))
}

fn twice(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut member, _) = joined(web, &hash, LEECHER)?;
    member.announce(&hash, r#""left":1"#)?;
    member.announce(&hash, LEECHER)?;
    await_counts(&mut member, &hash, [0, 1])
}

fn completed(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut member, _) = joined(web, &hash, LEECHER)?;
    // Completions may be kept from an earlier run, of a given info hash.
    let before = scrape(&mut member, &[&hash])?[0].completed;
    member.announce(&hash, r#""left":0,"event":"completed""#)?;
    let found = scrape(&mut member, &[&hash])?[0];
    let right = found == File { seeders: 1, completed: before + 1, leechers: 0 };
    demand(right, || format!("{found:?}, and {before} completed before"))
}

fn stopped(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut one, _) = joined(web, &hash, LEECHER)?;
    let (mut two, _) = joined(web, &hash, LEECHER)?;
    let stop = two.message(&hash, r#""left":1,"event":"stopped""#);
    two.send(&stop);
    await_counts(&mut one, &hash, [0, 1])
}

fn closed(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut one, _) = joined(web, &hash, LEECHER)?;
    let (mut two, _) = joined(web, &hash, LEECHER)?;
    two.end();
    two.closed = Some(Closed::Without);
    drop(two);
    await_counts(&mut one, &hash, [0, 1])
}

fn several_swarms(web: &Web<'_>) -> CheckResult {
    let (one, two) = (web.hash(0), web.hash(1));
    let (mut member, _) = joined(web, &one, LEECHER)?;
    let reply = member.announce(&two, SEEDER)?;
    demand(reply.value.get("failure reason").is_none(), || reply.shown())?;
    await_counts(&mut member, &one, [0, 1])?;
    await_counts(&mut member, &two, [1, 0])
}

fn unknown_fields(web: &Web<'_>) -> CheckResult {
    let fields = r#""left":1,"uploaded":null,"x":{"y":[1,"z"]},"trackerid":7,"key":1.5e3"#;
    joined(web, &web.hash(0), fields).map(drop)
}

fn binary_frame(web: &Web<'_>) -> CheckResult {
    let (mut member, hash) = (web.member()?, web.hash(0));
    let message = member.message(&hash, LEECHER);
    member.write(&frame(BINARY, message.as_bytes()));
    let open = "no specification names the kind of frames";
    let reply = member.reply(|reply| reply.value["info_hash"] == hash.as_str());
    reply.map(drop).map_err(crate::check::tolerated(open))
}

fn bad_info_hash(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    let message = member.message(&text(b"nineteen characters"), LEECHER);
    member.send(&message);
    let reply = member.reply(|_| true)?;
    let has_reason = reply.value["failure reason"].as_str().is_some_and(|text| !text.is_empty());
    demand(has_reason, || reply.shown())?;
    member.pause(0.1);
    demand(member.closed.is_none(), || format!("closed: {:?}", member.closed))
}

fn bad_peer_id(web: &Web<'_>) -> CheckResult {
    let (mut member, hash) = (web.member()?, web.hash(0));
    member.send(&format!(r#"{{"action":"announce","info_hash":{},"left":1}}"#, json(&hash)));
    let reply = member.reply(|_| true)?;
    demand(reply.value["failure reason"].is_string(), || reply.shown())?;
    let open = "no specification says what a failure names";
    prefer(reply.value["info_hash"] == hash.as_str(), open, || reply.shown())
}
