//! Checks of connects and of connection ids (BEP 15, "UDP connections / spoofing", "Connect").

use onrush_proto::ConnectionId;

use super::ask::Ask;
use super::dialogue::{Party, Trouble, connect_request, fresh_hash, hex, scrape_request};
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer, skipped};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "connect-reply",
        group: Group::Connect,
        expected: "a connect is answered with exactly 16 bytes of action 0",
        source: "BEP 15, \"Connect\"; aria2 takes no other length",
        hashes: 0,
        crowd: false,
        run: reply,
    },
    Check {
        id: "connect-id-not-zero",
        group: Group::Connect,
        expected: "a connection id is never 0",
        source: "rtorrent takes 0 for none",
        hashes: 0,
        crowd: false,
        run: id_not_zero,
    },
    Check {
        id: "connect-extra-bytes",
        group: Group::Connect,
        expected: "a connect with bytes behind the 16 is answered",
        source: "BEP 15, \"UDP tracker protocol\": no exact size is to be expected",
        hashes: 0,
        crowd: false,
        run: extra_bytes,
    },
    Check {
        id: "connect-wrong-magic",
        group: Group::Connect,
        expected: "a connect with another magic number meets silence",
        source: "BEP 15, \"Connect\"",
        hashes: 0,
        crowd: false,
        run: wrong_magic,
    },
    Check {
        id: "connect-short",
        group: Group::Connect,
        expected: "a connect of 15 bytes meets silence",
        source: "BEP 15, \"Connect\": a connect has 16 bytes",
        hashes: 0,
        crowd: false,
        run: short,
    },
    Check {
        id: "connect-id-serves-often",
        group: Group::Connect,
        expected: "one connection id serves several requests",
        source: "BEP 15, \"Time outs\": it is good for a minute at the client",
        hashes: 1,
        crowd: false,
        run: serves_often,
    },
    Check {
        id: "connect-two-ids",
        group: Group::Connect,
        expected: "an id stays good when the same client connects again",
        source: "BEP 15, \"Time outs\": it is good for a minute at the client",
        hashes: 1,
        crowd: false,
        run: two_ids,
    },
    Check {
        id: "connect-id-from-another-port",
        group: Group::Connect,
        expected: "an id is good from another port of the same address",
        source: "libtorrent keeps ids per address; carrier NATs change ports",
        hashes: 1,
        crowd: false,
        run: another_port,
    },
    Check {
        id: "connect-id-from-another-address",
        group: Group::Connect,
        expected: "an id is not good from another address",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        crowd: false,
        run: another_address,
    },
];

fn mute<'t>(scene: &Scene<'t>) -> Result<Party<'t>, Trouble> {
    Party::mute(scene.tracker, scene.tracker.address, scene.tracker.sources[0])
}

fn reply(scene: &Scene<'_>) -> Judged {
    let (_, reply) = mute(scene)?.connect()?;
    Ok(demand(reply.len() == 16, || hex(&reply)))
}

fn id_not_zero(scene: &Scene<'_>) -> Judged {
    let party = mute(scene)?;
    for _ in 0..4 {
        let (id, reply) = party.connect()?;
        if id.0 == 0 {
            return fails(hex(&reply));
        }
    }
    Ok(Verdict::Pass)
}

fn extra_bytes(scene: &Scene<'_>) -> Judged {
    let party = mute(scene)?;
    let mut request = connect_request();
    request.extend_from_slice(&[0xA5; 17]);
    let reply = party.exchange(&request)?;
    Ok(demand(reply.len() == 16 && reply[..4] == [0; 4], || hex(&reply)))
}

fn wrong_magic(scene: &Scene<'_>) -> Judged {
    let party = mute(scene)?;
    let mut request = connect_request();
    request[7] ^= 0x55;
    let Some(reply) = party.reply_to_bad(&request)? else { return Ok(Verdict::Pass) };
    if reply.len() > request.len() {
        return fails(format!("more bytes than were sent: {}", hex(&reply)));
    }
    let open = "BEP 15 names the number, but not what a tracker does with another";
    Ok(prefer(false, open, || hex(&reply)))
}

fn short(scene: &Scene<'_>) -> Judged {
    let party = mute(scene)?;
    let answered = party.reply_to_bad(&connect_request()[..15])?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}

fn serves_often(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    for _ in 0..5 {
        party.announce(&leecher(scene, 40_001))?;
    }
    Ok(Verdict::Pass)
}

fn two_ids(scene: &Scene<'_>) -> Judged {
    let party = mute(scene)?;
    let (first, _) = party.connect()?;
    party.connect()?;
    party.take_id(first);
    party.announce(&leecher(scene, 40_001))?;
    Ok(Verdict::Pass)
}

fn another_port(scene: &Scene<'_>) -> Judged {
    let (one, other) = (scene.party()?, mute(scene)?);
    other.take_id(one.id());
    let open = "BEP 15 leaves it to the tracker what an id is good for";
    Ok(match other.announce(&leecher(scene, 40_001)) {
        Ok(_) => Verdict::Pass,
        Err(trouble) => prefer(false, open, || trouble.to_string()),
    })
}

fn another_address(scene: &Scene<'_>) -> Judged {
    let Some(other) = scene.other_party()? else {
        return skipped("there is one address here to ask from (name two with --source)");
    };
    let sources = &scene.tracker.sources;
    let outside = scene.tracker.outside_of(sources[0]);
    if scene.tracker.outside_of(sources[1]) == outside {
        return skipped(format!("both addresses here are {outside} to the tracker: a NAT's"));
    }
    let id = scene.party()?.id();
    if other.id() == id {
        return fails(format!("two addresses get the same id, {:016x}", id.0));
    }
    let request = scrape_request(id, &[fresh_hash()]);
    let reply = other.reply_to_bad(&request)?;
    // An error to a foreign id is another check's matter.
    let served = reply.filter(|reply| reply.starts_with(&[0, 0, 0, 2]));
    Ok(demand(served.is_none(), || {
        format!("a scrape is served: {}", hex(&served.unwrap_or_default()))
    }))
}

/// An id that no tracker has given out to us: one bit of ours is wrong.
pub(super) fn forged(id: ConnectionId) -> ConnectionId {
    ConnectionId(id.0 ^ 0x0000_0400_0020_0001)
}

/// Checks read better with this than with the constructor.
pub(super) fn leecher(scene: &Scene<'_>, port: u16) -> Ask {
    Ask::new(scene.hash(0), port)
}
