//! Checks of datagrams that are no request, and of all replies (BEP 15, "UDP tracker protocol",
//! "Errors").

use onrush_proto::{Family, Response};

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer, skipped};
use crate::exchange::Client;
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, connect_request, forged, fresh_hash, hex, scrape_request};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "transaction-id",
        group: Group::AnythingElse,
        expected: "every reply carries the transaction id of its request",
        source: "BEP 15, \"Connect\", \"Announce\", \"Scrape\"",
        hashes: 0,
        large_swarm: false,
        run: transaction,
    },
    Check {
        id: "one-reply",
        group: Group::AnythingElse,
        expected: "a request gets one reply",
        source: "BEP 15",
        hashes: 1,
        large_swarm: false,
        run: one_reply,
    },
    Check {
        id: "reply-from-asked-address",
        group: Group::AnythingElse,
        expected: "replies come from the address and port that the request was sent to",
        source: "clients and NATs drop other replies",
        hashes: 0,
        large_swarm: false,
        run: from_asked,
    },
    Check {
        id: "error-reply",
        group: Group::AnythingElse,
        expected: "an error has action 3, the request's transaction id and a text",
        source: "BEP 15, \"Errors\"",
        hashes: 1,
        large_swarm: false,
        run: error,
    },
    Check {
        id: "unknown-action",
        group: Group::AnythingElse,
        expected: "an unknown action is not answered",
        source: "BEP 15, \"UDP tracker protocol\"",
        hashes: 0,
        large_swarm: false,
        run: unknown_action,
    },
    Check {
        id: "unknown-action-unproven",
        group: Group::AnythingElse,
        expected: "an unknown action with a wrong connection id is not answered",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        large_swarm: false,
        run: unknown_action_unproven,
    },
    Check {
        id: "junk",
        group: Group::AnythingElse,
        expected: "random bytes are not answered",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        large_swarm: false,
        run: junk,
    },
    Check {
        id: "short-datagrams",
        group: Group::AnythingElse,
        expected: "datagrams of 0, 1, 7 and 15 bytes are not answered",
        source: "BEP 15: every request has at least 16 bytes",
        hashes: 0,
        large_swarm: false,
        run: short,
    },
    Check {
        id: "source-port-0",
        group: Group::AnythingElse,
        expected: "datagrams from source port 0 are not answered",
        source: "RFC 768: port 0 means that no reply is expected",
        hashes: 0,
        large_swarm: false,
        run: source_port_0,
    },
];

fn transaction(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    for _ in 0..4 {
        client.connect()?;
        client.exchange(&scrape_request(client.id(), &[fresh_hash()]))?;
        client.exchange(&AnnounceRequest::leecher(fresh_hash(), 40_001).bytes(client.id()))?;
    }
    Ok(Verdict::Pass)
}

fn one_reply(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let announce = AnnounceRequest::leecher(fixture.hash(0), 40_001).bytes(client.id());
    for request in [connect_request(), announce, scrape_request(client.id(), &[fixture.hash(0)])] {
        let replies = client.all_replies(&request)?;
        let [_, _, ..] = &replies[..] else { continue };
        // A network that duplicates one datagram hardly duplicates the next one too.
        let replies = client.all_replies(&request)?;
        if let [_, second, ..] = &replies[..] {
            return fails(format!("{} replies, the second: {}", replies.len(), hex(second)));
        }
    }
    Ok(Verdict::Pass)
}

fn from_asked(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.exchange(&scrape_request(client.id(), &[fresh_hash()]))?;
    Ok(Verdict::Pass)
}

fn error(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let family = Family::of(fixture.target.address.ip());
    let mut any = false;
    for request in [
        scrape_request(client.id(), &[]),
        AnnounceRequest::leecher(fixture.hash(0), 0).bytes(client.id()),
    ] {
        let Ok(reply) = client.exchange(&request) else { continue };
        match Response::parse(&reply, family) {
            Ok(Response::Error(_, text)) => {
                any = true;
                if text.is_empty() {
                    return fails(format!("no text: {}", hex(&reply)));
                }
            }
            Ok(_) => {}
            Err(why) => return fails(format!("{why}: {}", hex(&reply))),
        }
    }
    match any {
        true => Ok(Verdict::Pass),
        false => skipped("the tracker replied to no request with an error"),
    }
}

fn unknown_action(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let open = "BEP 15, \"Errors\", allows an error to a proven address";
    for action in [3u8, 77] {
        let mut request = scrape_request(client.id(), &[fresh_hash()]);
        request[11] = action;
        let Some(reply) = client.reply_to_bad(&request)? else { continue };
        return match reply.starts_with(&[0, 0, 0, 3]) {
            true => Ok(prefer(false, open, || hex(&reply))),
            false => fails(hex(&reply)),
        };
    }
    Ok(Verdict::Pass)
}

fn unknown_action_unproven(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let mut request = scrape_request(forged(client.id()), &[fresh_hash()]);
    request[11] = 77;
    silent(&client, &request)
}

fn junk(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    for len in [16, 60, 200] {
        let mut bytes: Vec<u8> = (0..len).map(|_| rand::random()).collect();
        // An action number that no version of the protocol defines.
        bytes[8] |= 0x80;
        let verdict = silent(&client, &bytes)?;
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

fn short(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let connect = connect_request();
    for len in [0, 1, 7, 15] {
        if let Some(reply) = client.reply_to_bad(&connect[..len])? {
            return fails(format!("{len} bytes: {}", hex(&reply)));
        }
    }
    Ok(Verdict::Pass)
}

fn silent(client: &Client<'_>, request: &[u8]) -> CheckResult {
    let answered = client.reply_to_bad(request)?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}

fn source_port_0(_: &Fixture<'_>) -> CheckResult {
    skipped("sending from port 0 needs a raw socket")
}
