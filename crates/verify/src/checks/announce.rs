//! Checks of the form of announces and their replies (BEP 15, "Announce"; BEP 41; BEP 21).

use onrush_proto::ConnectionId;

use crate::check::{
    Check, CheckResult, Group, Needs, demand, demand_silence, demand_silence_or_error, prefer,
    tolerated,
};
use crate::exchange::Client;
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, STARTED, forged, hex, scrape_request};

/// The check that fails, and the only one, where a tracker serves no announce at all.
pub(crate) const FIRST: &str = "announce-98-bytes";

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, FIRST, Needs::Hashes(1), plain)
        .expects("an announce of 98 bytes is answered")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "announce-short", Needs::Hashes(1), short)
        .expects("an announce of 97 bytes is not answered")
        .source("BEP 15, \"Announce\": an announce has 98 bytes"),
    Check::new(Group::Announce, "announce-url-data", Needs::Hashes(1), url_data)
        .expects("an announce followed by the URL's path (109 bytes, libtorrent) is answered")
        .source("BEP 41, \"URLData\""),
    Check::new(Group::Announce, "announce-unknown-option", Needs::Hashes(1), unknown_option)
        .expects("unknown options and no-ops after an announce are skipped")
        .source("BEP 41"),
    Check::new(Group::Announce, "announce-broken-options", Needs::Hashes(1), broken_options)
        .expects("an announce with truncated options is answered")
        .source(
            "BEP 15, \"UDP tracker protocol\": packets may be longer; aria2 sends two bytes \
             that are no option",
        ),
    Check::new(Group::Announce, "announce-bad-id", Needs::Hashes(1), bad_id)
        .expects("announces with a wrong connection id are not answered")
        .source("BEP 15, \"UDP connections / spoofing\": the request is ignored"),
    Check::new(Group::Announce, "announce-no-amplification", Needs::Hashes(1), no_amplification)
        .expects("a reply to an unproven address is no longer than its request")
        .source("BEP 15, \"UDP connections / spoofing\""),
    Check::new(Group::Announce, "event-paused", Needs::Hashes(1), paused)
        .expects("event 4 (paused: a partial seed) is answered like no event")
        .source("BEP 21; libtorrent sends the number"),
    Check::new(Group::Announce, "event-unknown", Needs::Hashes(1), unknown_event)
        .expects("an undefined event is answered like no event")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "announce-port-0", Needs::Hashes(1), port_0)
        .expects("a peer at port 0 is refused with an error")
        .source("BEP 15, \"Errors\": port 0 is not reachable"),
    Check::new(Group::Announce, "announce-port-1", Needs::Hashes(1), port_1)
        .expects("a peer at port 1 is answered and counted, but not handed out")
        .source("clients that are not reachable announce port 1"),
    Check::new(Group::Announce, "interval-positive", Needs::Hashes(1), interval)
        .expects(
            "the interval is between a minute and a day; 0 fails, as clients would announce \
             without pause",
        )
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "interval-jitter", Needs::Hashes(1), jitter)
        .expects(
            "the interval varies, so that the peers of a swarm do not announce at the same \
             time",
        )
        .source("BEP 15, \"Announce\""),
];

fn plain(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    Ok(())
}

fn short(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let request = fixture.leecher(40_001).bytes(client.id()?);
    demand_silence_or_error(client, &request[..97])
}

fn with_options(fixture: &Fixture<'_>, client: &Client<'_>, options: &[u8]) -> CheckResult {
    let ask = AnnounceRequest { options: options.to_vec(), ..fixture.leecher(40_001) };
    let reply = client.announce(&ask)?;
    demand(reply.leechers <= 1 && reply.seeders == 0, || reply.counts())
}

fn url_data(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    with_options(fixture, client, b"\x02\x09/announce")
}

fn unknown_option(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    with_options(fixture, client, b"\x01\x01\x7F\x03abc\x01\x02\x02/a\x00rest")
}

fn broken_options(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    // A length past the end; a type without a length; bytes after the end-of-options mark.
    let all = [&b"\x02\xFF/an"[..], b"\x02", b"\x00\xFF\xFF"];
    // A client for each, which leaves the swarm before the next one.
    all.into_iter().try_for_each(|options| with_options(fixture, &fixture.client()?, options))
}

fn bad_id(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let ask = fixture.leecher(40_001);
    let ids = [ConnectionId(0), forged(client.id()?)];
    ids.into_iter().try_for_each(|id| demand_silence(client, &ask.bytes(id)))
}

fn no_amplification(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let asks: Vec<_> = (40_001..40_021).map(|port| fixture.leecher(port).want(0)).collect();
    client.announce_all(&asks)?;
    let id = forged(client.id()?);
    let announce = AnnounceRequest { event: 0, ..fixture.leecher(40_001) }.want(200).bytes(id);
    let scrape = scrape_request(id, &[fixture.hash(0)]);
    for request in [announce, scrape] {
        let reply = client.reply_to_bad(&request)?.unwrap_or_default();
        demand(reply.len() <= request.len(), || {
            format!("{} for {} bytes", hex(&reply), request.len())
        })?;
    }
    Ok(())
}

fn paused(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(40_001))?;
    let reply = client.announce(&fixture.leecher(40_002).event(4))?;
    demand(reply.peers.contains(&client.endpoint(40_001)), || {
        format!("the other peer is not listed: {}", reply.listed())
    })
}

fn unknown_event(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.connect()?;
    let open = "BEP 15 does not define events above 3, nor the reply to them";
    for event in [5, 0xFFFF_FFFF] {
        client.announce(&fixture.leecher(40_001).event(event)).map_err(tolerated(open))?;
    }
    Ok(())
}

fn port_0(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let reply = client.exchange(&fixture.leecher(0).bytes(client.id()?));
    let listed = client.announce(&fixture.leecher(40_001))?;
    demand(listed.peers.iter().all(|peer| peer.port() != 0), || {
        format!("port 0 is handed out: {}", listed.listed())
    })?;
    let open = "BEP 15 does not define the reply to a peer without a port";
    let reply = reply.map_err(tolerated(open))?;
    prefer(reply.starts_with(&[0, 0, 0, 3]), open, || hex(&reply))
}

fn port_1(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce(&fixture.leecher(1))?;
    let reply = client.announce(&fixture.leecher(40_001))?;
    let open = "BEP 15 does not define unreachable peers";
    prefer(reply.peers.iter().all(|peer| peer.port() != 1), open, || reply.listed())?;
    // A tracker that does not count the announcing peer still counts the other one.
    let counted = reply.leechers > 0 && client.announce(&fixture.leecher(40_002))?.leechers > 1;
    prefer(counted, open, || format!("it is not counted: {}", reply.counts()))
}

fn interval(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let reply = client.announce(&fixture.leecher(40_001))?;
    let seen = || format!("{} s: {}", reply.interval, hex(&reply.bytes));
    demand(reply.interval > 0, seen)?;
    let open = "BEP 15 leaves the interval to the tracker";
    prefer((60..=86_400).contains(&reply.interval), open, seen)
}

fn jitter(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut intervals = Vec::new();
    for n in 0..8 {
        let event = if n == 0 { STARTED } else { 0 };
        intervals.push(client.announce(&fixture.leecher(40_001).event(event))?.interval);
    }
    let open = "BEP 15 leaves the interval to the tracker";
    let varies = intervals.iter().any(|interval| *interval != intervals[0]);
    prefer(varies, open, || format!("{} s eight times", intervals[0]))
}
