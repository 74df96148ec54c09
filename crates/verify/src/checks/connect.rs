//! Checks of connects and connection ids (BEP 15, "UDP connections / spoofing", "Connect").

use crate::check::{Check, CheckResult, Group, Needs, demand, demand_silence, skipped, tolerated};
use crate::exchange::Client;
use crate::fixture::Fixture;
use crate::message::{connect_request, fresh_hash, hex, scrape_request};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Connect, "connect-reply", Needs::Nothing, reply)
        .expects("a connect is answered with exactly 16 bytes of action 0")
        .source("BEP 15, \"Connect\"; aria2 accepts no other length"),
    Check::new(Group::Connect, "connect-id-not-zero", Needs::Nothing, id_not_zero)
        .expects("a connection id is never 0")
        .source("rtorrent reads 0 as no connection id"),
    Check::new(Group::Connect, "connect-extra-bytes", Needs::Nothing, extra_bytes)
        .expects("a connect with bytes after the 16 is answered")
        .source("BEP 15, \"UDP tracker protocol\": packets may be longer"),
    Check::new(Group::Connect, "connect-wrong-magic", Needs::Nothing, wrong_magic)
        .expects("a connect with another magic number is not answered")
        .source("BEP 15, \"Connect\": a connect begins with 0x41727101980"),
    Check::new(Group::Connect, "connect-short", Needs::Nothing, short)
        .expects("a connect of 15 bytes is not answered")
        .source("BEP 15, \"Connect\": a connect has 16 bytes"),
    Check::new(Group::Connect, "connect-id-serves-often", Needs::Hashes(1), serves_often)
        .expects("one connection id serves several requests")
        .source("BEP 15, \"Time outs\": a client may use an id for a minute"),
    Check::new(Group::Connect, "connect-two-ids", Needs::Hashes(1), two_ids)
        .expects("an id stays valid when the same client connects again")
        .source("BEP 15, \"Time outs\": a client may use an id for a minute"),
    Check::new(Group::Connect, "connect-id-from-another-port", Needs::Hashes(1), another_port)
        .expects("an id is valid from another port of the same address")
        .source("libtorrent keeps ids per address; carrier NATs change ports"),
    Check::new(Group::Connect, "connect-id-from-another-address", Needs::Nothing, another_address)
        .expects("an id is not valid from another address")
        .source("BEP 15, \"UDP connections / spoofing\""),
];

fn reply(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let (_, reply) = client.connect()?;
    demand(reply.len() == 16, || hex(&reply))
}

fn id_not_zero(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    for _ in 0..4 {
        let (id, reply) = client.connect()?;
        demand(id.0 != 0, || hex(&reply))?;
    }
    Ok(())
}

fn extra_bytes(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut request = connect_request();
    request.extend_from_slice(&[0xA5; 17]);
    let reply = client.exchange(&request)?;
    demand(reply.len() == 16 && reply[..4] == [0; 4], || hex(&reply))
}

fn wrong_magic(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut request = connect_request();
    request[7] ^= 0x55;
    demand_silence(client, &request)
}

fn short(_: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    demand_silence(client, &connect_request()[..15])
}

fn serves_often(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    for _ in 0..5 {
        client.announce(&fixture.leecher(40_001))?;
    }
    Ok(())
}

fn two_ids(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let (first, _) = client.connect()?;
    client.connect()?;
    client.set_id(first);
    client.announce(&fixture.leecher(40_001))?;
    Ok(())
}

fn another_port(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let other = fixture.client()?;
    other.set_id(client.id()?);
    let open = "BEP 15 does not say whether an id is bound to a port";
    other.announce(&fixture.leecher(40_001)).map_err(tolerated(open))?;
    Ok(())
}

fn another_address(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let Some(other) = fixture.second_client()? else {
        return skipped("this host has one source address (name two with --source)");
    };
    other.connect()?;
    let sources = &fixture.target.sources;
    let outside = fixture.target.external(sources[0]);
    if fixture.target.external(sources[1]) == outside {
        return skipped(format!("a NAT maps both source addresses to {outside}"));
    }
    let id = client.id()?;
    demand(other.id()? != id, || format!("two addresses get the same id: {:016x}", id.0))?;
    let reply = other.reply_to_bad(&scrape_request(id, &[fresh_hash()]))?.unwrap_or_default();
    // Another check tests the error reply to a wrong id.
    demand(!reply.starts_with(&[0, 0, 0, 2]), || format!("a scrape is served: {}", hex(&reply)))
}
