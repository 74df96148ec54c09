//! Checks of datagrams that are no request, and of all replies (BEP 15, "UDP tracker protocol",
//! "Errors").

use onrush_proto::{Family, Response};

use crate::check::{
    Check, CheckResult, Group, Needs, demand, demand_silence, demand_silence_or_error, fails,
    skipped, worst_of,
};
use crate::exchange::Client;
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, connect_request, forged, fresh_hash, hex, scrape_request};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::AnythingElse, "transaction-id", Needs::Nothing, transaction)
        .expects("every reply carries the transaction id of its request")
        .source("BEP 15, \"Connect\", \"Announce\", \"Scrape\""),
    Check::new(Group::AnythingElse, "one-reply", Needs::Hashes(1), one_reply)
        .expects("a request gets one reply")
        .source("BEP 15"),
    Check::new(Group::AnythingElse, "reply-from-asked-address", Needs::Nothing, from_asked)
        .expects("replies come from the address and port that the request was sent to")
        .source("clients and NATs drop other replies"),
    Check::new(Group::AnythingElse, "error-reply", Needs::Hashes(1), error)
        .expects("an error has action 3, the request's transaction id and a text")
        .source("BEP 15, \"Errors\""),
    Check::new(Group::AnythingElse, "unknown-action", Needs::Nothing, unknown_action)
        .expects("an unknown action is not answered")
        .source("BEP 15, \"UDP tracker protocol\""),
    Check::new(Group::AnythingElse, "unknown-action-unproven", Needs::Nothing, unproven_action)
        .expects("an unknown action with a wrong connection id is not answered")
        .source("BEP 15, \"UDP connections / spoofing\""),
    Check::new(Group::AnythingElse, "junk", Needs::Nothing, junk)
        .expects("random bytes are not answered")
        .source("BEP 15, \"UDP connections / spoofing\""),
    Check::new(Group::AnythingElse, "short-datagrams", Needs::Nothing, short)
        .expects("datagrams of 0, 1, 7 and 15 bytes are not answered")
        .source("BEP 15: every request has at least 16 bytes"),
];

fn transaction(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    for _ in 0..4 {
        client.connect()?;
        client.exchange(&scrape_request(client.id()?, &[fresh_hash()]))?;
        client.exchange(&AnnounceRequest::leecher(fresh_hash(), 40_001).bytes(client.id()?))?;
    }
    Ok(())
}

fn one_reply(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let announce = fixture.leecher(40_001).bytes(client.id()?);
    for request in [connect_request(), announce, scrape_request(client.id()?, &[fixture.hash(0)])] {
        let replies = client.all_replies(&request)?;
        let [_, _, ..] = &replies[..] else { continue };
        // A network that duplicates one datagram hardly duplicates the next one too.
        let replies = client.all_replies(&request)?;
        if let [_, second, ..] = &replies[..] {
            return fails(format!("{} replies, the second: {}", replies.len(), hex(second)));
        }
    }
    Ok(())
}

fn from_asked(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.exchange(&scrape_request(client.id()?, &[fresh_hash()]))?;
    Ok(())
}

fn error(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let family = Family::of(fixture.target.address.ip());
    let mut any = false;
    for request in [scrape_request(client.id()?, &[]), fixture.leecher(0).bytes(client.id()?)] {
        let Ok(reply) = client.exchange(&request) else { continue };
        match Response::parse(&reply, family) {
            Ok(Response::Error(_, text)) => {
                any = true;
                demand(!text.is_empty(), || format!("no text: {}", hex(&reply)))?;
            }
            Ok(_) => {}
            Err(why) => return fails(format!("{why}: {}", hex(&reply))),
        }
    }
    match any {
        true => Ok(()),
        false => skipped("the tracker replied to no request with an error"),
    }
}

fn unknown_action(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    worst_of([3, 77], |action| {
        let mut request = scrape_request(client.id()?, &[fresh_hash()]);
        request[11] = action;
        demand_silence_or_error(client, &request)
    })
}

fn unproven_action(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut request = scrape_request(forged(client.id()?), &[fresh_hash()]);
    request[11] = 77;
    demand_silence(client, &request)
}

fn junk(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    for len in [16, 60, 200] {
        let mut bytes: Vec<u8> = (0..len).map(|_| rand::random()).collect();
        // An action number that no version of the protocol defines.
        bytes[8] |= 0x80;
        demand_silence(client, &bytes)?;
    }
    Ok(())
}

fn short(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let connect = connect_request();
    for len in [0, 1, 7, 15] {
        let reply = client.reply_to_bad(&connect[..len])?;
        reply.map_or(Ok(()), |reply| fails(format!("{len} bytes: {}", hex(&reply))))?;
    }
    Ok(())
}
