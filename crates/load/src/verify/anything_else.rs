//! Checks of what is no request, and of what holds for every reply (BEP 15, "UDP tracker
//! protocol", "Errors").

use onrush_proto::{Family, Response};

use super::ask::Ask;
use super::connect::forged;
use super::dialogue::{Party, connect_request, fresh_hash, hex, scrape_request};
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer, skipped};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "transaction-id",
        group: Group::AnythingElse,
        expected: "every reply carries the transaction id of its request",
        source: "BEP 15, \"Connect\", \"Announce\", \"Scrape\"",
        hashes: 0,
        crowd: false,
        run: transaction,
    },
    Check {
        id: "one-reply",
        group: Group::AnythingElse,
        expected: "a request gets one reply",
        source: "BEP 15",
        hashes: 1,
        crowd: false,
        run: one_reply,
    },
    Check {
        id: "reply-from-asked-address",
        group: Group::AnythingElse,
        expected: "replies leave from the address and port that was asked",
        source: "clients and NATs drop others",
        hashes: 0,
        crowd: false,
        run: from_asked,
    },
    Check {
        id: "error-reply",
        group: Group::AnythingElse,
        expected: "an error has action 3, the request's transaction id and a text",
        source: "BEP 15, \"Errors\"",
        hashes: 1,
        crowd: false,
        run: error,
    },
    Check {
        id: "unknown-action",
        group: Group::AnythingElse,
        expected: "an unknown action meets silence",
        source: "BEP 15, \"UDP tracker protocol\"",
        hashes: 0,
        crowd: false,
        run: unknown_action,
    },
    Check {
        id: "unknown-action-unproven",
        group: Group::AnythingElse,
        expected: "an unknown action with a wrong connection id meets silence",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        crowd: false,
        run: unknown_action_unproven,
    },
    Check {
        id: "junk",
        group: Group::AnythingElse,
        expected: "bytes that are no request meet silence",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        crowd: false,
        run: junk,
    },
    Check {
        id: "short-datagrams",
        group: Group::AnythingElse,
        expected: "datagrams of 0, 1, 7 and 15 bytes meet silence",
        source: "BEP 15: every request has 16 bytes",
        hashes: 0,
        crowd: false,
        run: short,
    },
    Check {
        id: "source-port-0",
        group: Group::AnythingElse,
        expected: "datagrams from port 0 meet silence",
        source: "RFC 768: there is nobody to answer",
        hashes: 0,
        crowd: false,
        run: source_port_0,
    },
];

fn transaction(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    for _ in 0..4 {
        party.connect()?;
        party.exchange(&scrape_request(party.id(), &[fresh_hash()]))?;
        party.exchange(&Ask::new(fresh_hash(), 40_001).bytes(party.id()))?;
    }
    Ok(Verdict::Pass)
}

fn one_reply(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let announce = Ask::new(scene.hash(0), 40_001).bytes(party.id());
    for request in [connect_request(), announce, scrape_request(party.id(), &[scene.hash(0)])] {
        let replies = party.everything(&request)?;
        let [_, _, ..] = &replies[..] else { continue };
        // A network that doubles one datagram does not double the next one, too.
        let replies = party.everything(&request)?;
        if let [_, second, ..] = &replies[..] {
            return fails(format!("{} replies, the second: {}", replies.len(), hex(second)));
        }
    }
    Ok(Verdict::Pass)
}

fn from_asked(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.exchange(&scrape_request(party.id(), &[fresh_hash()]))?;
    Ok(Verdict::Pass)
}

fn error(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let family = Family::of(scene.tracker.address.ip());
    let mut any = false;
    for request in [scrape_request(party.id(), &[]), Ask::new(scene.hash(0), 0).bytes(party.id())] {
        let Ok(reply) = party.exchange(&request) else { continue };
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
        false => skipped("no request was met with an error"),
    }
}

fn unknown_action(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let open = "BEP 15, \"Errors\", lets a tracker say what is wrong to a proven address";
    for action in [3u8, 77] {
        let mut request = scrape_request(party.id(), &[fresh_hash()]);
        request[11] = action;
        let Some(reply) = party.reply_to_bad(&request)? else { continue };
        return match reply.starts_with(&[0, 0, 0, 3]) {
            true => Ok(prefer(false, open, || hex(&reply))),
            false => fails(hex(&reply)),
        };
    }
    Ok(Verdict::Pass)
}

fn unknown_action_unproven(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let mut request = scrape_request(forged(party.id()), &[fresh_hash()]);
    request[11] = 77;
    silent(&party, &request)
}

fn junk(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    for len in [16, 60, 200] {
        let mut bytes: Vec<u8> = (0..len).map(|_| rand::random()).collect();
        // No action that there is.
        bytes[8] |= 0x80;
        let verdict = silent(&party, &bytes)?;
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Pass)
}

fn short(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let connect = connect_request();
    for len in [0, 1, 7, 15] {
        if let Some(reply) = party.reply_to_bad(&connect[..len])? {
            return fails(format!("{len} bytes: {}", hex(&reply)));
        }
    }
    Ok(Verdict::Pass)
}

fn silent(party: &Party<'_>, request: &[u8]) -> Judged {
    let answered = party.reply_to_bad(request)?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}

fn source_port_0(_: &Scene<'_>) -> Judged {
    skipped("needs raw sockets: no ordinary socket sends from port 0")
}
