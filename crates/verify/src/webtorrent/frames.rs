//! Checks of frames of WebSocket (RFC 6455, sections 5 to 7), and of what is no message.

use super::announce::LEECHER;
use super::member::{BEGIN, Closed, Member, PING, REST, TEXT, frame};
use super::{Check, Web};
use crate::check::{CheckResult, Group, Needs, demand, differs, fails, worst_of};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Connection, "ping", Needs::Nothing, ping)
        .expects("a ping gets a pong with the same payload")
        .source("RFC 6455, section 5.5.2"),
    Check::new(Group::Connection, "close", Needs::Nothing, close)
        .expects("a close frame gets one, and the connection ends")
        .source("RFC 6455, section 7.1"),
    Check::new(Group::Connection, "fragments", Needs::Hashes(1), fragments)
        .expects("a message in fragments, with a ping between them, is answered")
        .source("RFC 6455, section 5.4"),
    Check::new(Group::Connection, "unmasked", Needs::Nothing, unmasked)
        .expects("a frame without a mask ends the connection with code 1002")
        .source("RFC 6455, section 5.1"),
    Check::new(Group::Connection, "too-long", Needs::Nothing, too_long)
        .expects("the head of a frame of a gigabyte ends the connection with code 1009")
        .source("RFC 6455, section 10.4"),
    Check::new(Group::Connection, "invalid-utf8", Needs::Nothing, invalid_utf8)
        .expects("a text that is not UTF-8 ends the connection with code 1007")
        .source("RFC 6455, section 8.1"),
    Check::new(Group::Connection, "invalid-json", Needs::Nothing, invalid_json)
        .expects("what is no JSON, or no object, gets a failure, or ends the connection")
        .source("a client learns that it is at fault"),
    Check::new(Group::Connection, "unknown-action", Needs::Nothing, unknown_action)
        .expects("an unknown action gets a failure, or ends the connection")
        .source("a client learns that it is at fault"),
];

fn ping(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    member.write(&frame(PING, b"onrush"));
    let found = member.await_pong();
    demand(found.as_deref() == Some(b"onrush"), || format!("{found:?}"))
}

fn close(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    match member.close() {
        Some(Closed::Frame(_)) => demand(member.has_ended(), || "TCP stays open".to_owned()),
        Some(Closed::Without) => fails("it ends without a close frame"),
        None => fails("no close frame comes"),
    }
}

fn fragments(web: &Web<'_>) -> CheckResult {
    let (mut member, hash) = (web.member()?, web.hash(0));
    let message = member.message(&hash, LEECHER).into_bytes();
    let (begin, rest) = message.split_at(20);
    for part in [frame(BEGIN, begin), frame(PING, b"x"), frame(REST, rest)] {
        member.write(&part);
    }
    member.reply(|reply| reply.value["info_hash"] == hash.as_str()).map(drop)
}

/// Passes where the connection ends with a code.
fn ends(mut member: Member<'_>, code: u16) -> CheckResult {
    let open = "RFC 6455, section 7.1.7, lets an endpoint end a connection without a code";
    match member.await_end() {
        Some(Closed::Frame(Some(found))) if found == code => Ok(()),
        Some(closed) => differs(open, format!("{closed:?}")),
        None => fails("the connection stays open"),
    }
}

fn unmasked(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    member.write(&[TEXT, 2, b'{', b'}']);
    ends(member, 1002)
}

fn too_long(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    let mut head = vec![TEXT, 0x80 | 127];
    head.extend_from_slice(&(1_u64 << 30).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    member.write(&head);
    ends(member, 1009)
}

fn invalid_utf8(web: &Web<'_>) -> CheckResult {
    let mut member = web.member()?;
    member.write(&frame(TEXT, b"{\"action\":\"\xFF\xFE\"}"));
    ends(member, 1007)
}

/// Passes where a text gets a failure, or the connection ends.
fn refused(web: &Web<'_>, text: &str) -> CheckResult {
    let mut member = web.member()?;
    match member.reply_to_bad(text) {
        Some(reply) => demand(reply.value["failure reason"].is_string(), || reply.shown()),
        None if member.closed.is_some() => Ok(()),
        None if member.pongs.is_empty() => fails("the connection hangs"),
        None => differs("no specification names the reply", "it is ignored"),
    }
}

fn invalid_json(web: &Web<'_>) -> CheckResult {
    worst_of(["{\"action\":\"announce\"", "[1]", "x"], |text| refused(web, text))
}

fn unknown_action(web: &Web<'_>) -> CheckResult {
    refused(web, r#"{"action":"resume","info_hash":"aaaaaaaaaaaaaaaaaaaa"}"#)
}
