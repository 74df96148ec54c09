//! Checks of connects and connection ids (BEP 15, "UDP connections / spoofing", "Connect").

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer, skipped};
use crate::fixture::Fixture;
use crate::message::{connect_request, fresh_hash, hex, scrape_request};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "connect-reply",
        group: Group::Connect,
        expected: "a connect is answered with exactly 16 bytes of action 0",
        source: "BEP 15, \"Connect\"; aria2 accepts no other length",
        hashes: 0,
        large_swarm: false,
        run: reply,
    },
    Check {
        id: "connect-id-not-zero",
        group: Group::Connect,
        expected: "a connection id is never 0",
        source: "rtorrent reads 0 as no connection id",
        hashes: 0,
        large_swarm: false,
        run: id_not_zero,
    },
    Check {
        id: "connect-extra-bytes",
        group: Group::Connect,
        expected: "a connect with bytes after the 16 is answered",
        source: "BEP 15, \"UDP tracker protocol\": packets may be longer",
        hashes: 0,
        large_swarm: false,
        run: extra_bytes,
    },
    Check {
        id: "connect-wrong-magic",
        group: Group::Connect,
        expected: "a connect with another magic number is not answered",
        source: "BEP 15, \"Connect\"",
        hashes: 0,
        large_swarm: false,
        run: wrong_magic,
    },
    Check {
        id: "connect-short",
        group: Group::Connect,
        expected: "a connect of 15 bytes is not answered",
        source: "BEP 15, \"Connect\": a connect has 16 bytes",
        hashes: 0,
        large_swarm: false,
        run: short,
    },
    Check {
        id: "connect-id-serves-often",
        group: Group::Connect,
        expected: "one connection id serves several requests",
        source: "BEP 15, \"Time outs\": a client may use an id for a minute",
        hashes: 1,
        large_swarm: false,
        run: serves_often,
    },
    Check {
        id: "connect-two-ids",
        group: Group::Connect,
        expected: "an id stays valid when the same client connects again",
        source: "BEP 15, \"Time outs\": a client may use an id for a minute",
        hashes: 1,
        large_swarm: false,
        run: two_ids,
    },
    Check {
        id: "connect-id-from-another-port",
        group: Group::Connect,
        expected: "an id is valid from another port of the same address",
        source: "libtorrent keeps ids per address; carrier NATs change ports",
        hashes: 1,
        large_swarm: false,
        run: another_port,
    },
    Check {
        id: "connect-id-from-another-address",
        group: Group::Connect,
        expected: "an id is not valid from another address",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 0,
        large_swarm: false,
        run: another_address,
    },
];

fn reply(fixture: &Fixture<'_>) -> CheckResult {
    let (_, reply) = fixture.unconnected_client()?.connect()?;
    Ok(demand(reply.len() == 16, || hex(&reply)))
}

fn id_not_zero(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.unconnected_client()?;
    for _ in 0..4 {
        let (id, reply) = client.connect()?;
        if id.0 == 0 {
            return fails(hex(&reply));
        }
    }
    Ok(Verdict::Pass)
}

fn extra_bytes(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.unconnected_client()?;
    let mut request = connect_request();
    request.extend_from_slice(&[0xA5; 17]);
    let reply = client.exchange(&request)?;
    Ok(demand(reply.len() == 16 && reply[..4] == [0; 4], || hex(&reply)))
}

fn wrong_magic(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.unconnected_client()?;
    let mut request = connect_request();
    request[7] ^= 0x55;
    let Some(reply) = client.reply_to_bad(&request)? else { return Ok(Verdict::Pass) };
    if reply.len() > request.len() {
        return fails(format!("the reply is longer than the request: {}", hex(&reply)));
    }
    let open = "BEP 15 does not define the reply to another magic number";
    Ok(prefer(false, open, || hex(&reply)))
}

fn short(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.unconnected_client()?;
    let answered = client.reply_to_bad(&connect_request()[..15])?;
    Ok(demand(answered.is_none(), || hex(&answered.unwrap_or_default())))
}

fn serves_often(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    for _ in 0..5 {
        client.announce(&fixture.leecher(40_001))?;
    }
    Ok(Verdict::Pass)
}

fn two_ids(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.unconnected_client()?;
    let (first, _) = client.connect()?;
    client.connect()?;
    client.set_id(first);
    client.announce(&fixture.leecher(40_001))?;
    Ok(Verdict::Pass)
}

fn another_port(fixture: &Fixture<'_>) -> CheckResult {
    let (one, other) = (fixture.client()?, fixture.unconnected_client()?);
    other.set_id(one.id());
    let open = "BEP 15 does not say whether an id is bound to a port";
    Ok(match other.announce(&fixture.leecher(40_001)) {
        Ok(_) => Verdict::Pass,
        Err(error) => prefer(false, open, || error.to_string()),
    })
}

fn another_address(fixture: &Fixture<'_>) -> CheckResult {
    let Some(other) = fixture.second_client()? else {
        return skipped("this host has one source address (name two with --source)");
    };
    let sources = &fixture.target.sources;
    let outside = fixture.target.external(sources[0]);
    if fixture.target.external(sources[1]) == outside {
        return skipped(format!("a NAT maps both source addresses to {outside}"));
    }
    let id = fixture.client()?.id();
    if other.id() == id {
        return fails(format!("two addresses get the same id: {:016x}", id.0));
    }
    let request = scrape_request(id, &[fresh_hash()]);
    let reply = other.reply_to_bad(&request)?;
    // Whether a wrong id is met with an error is another check.
    let served = reply.filter(|reply| reply.starts_with(&[0, 0, 0, 2]));
    Ok(demand(served.is_none(), || {
        format!("a scrape is served: {}", hex(&served.unwrap_or_default()))
    }))
}
