//! Checks of the form of announces and their replies (BEP 15, "Announce"; BEP 41; BEP 21).

use onrush_proto::ConnectionId;

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer};
use crate::fixture::Fixture;
use crate::message::{AnnounceRequest, STARTED, forged, hex, scrape_request};

/// The check that fails, and the only one, where a tracker serves no announce at all.
pub(crate) const FIRST: &str = "announce-98-bytes";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: FIRST,
        group: Group::Announce,
        expected: "an announce of 98 bytes is answered",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: plain,
    },
    Check {
        id: "announce-short",
        group: Group::Announce,
        expected: "an announce of 97 bytes is not answered",
        source: "BEP 15, \"Announce\": an announce has 98 bytes",
        hashes: 1,
        large_swarm: false,
        run: short,
    },
    Check {
        id: "announce-url-data",
        group: Group::Announce,
        expected: "an announce followed by the URL's path (109 bytes, libtorrent) is answered",
        source: "BEP 41, \"URLData\"",
        hashes: 1,
        large_swarm: false,
        run: url_data,
    },
    Check {
        id: "announce-unknown-option",
        group: Group::Announce,
        expected: "unknown options and no-ops after an announce are skipped",
        source: "BEP 41",
        hashes: 1,
        large_swarm: false,
        run: unknown_option,
    },
    Check {
        id: "announce-broken-options",
        group: Group::Announce,
        expected: "an announce with truncated options is answered",
        source: "BEP 15, \"UDP tracker protocol\": packets may be longer; aria2 sends two bytes \
             that are no option",
        hashes: 1,
        large_swarm: false,
        run: broken_options,
    },
    Check {
        id: "announce-bad-id",
        group: Group::Announce,
        expected: "announces with a wrong connection id are not answered",
        source: "BEP 15, \"UDP connections / spoofing\": the request is ignored",
        hashes: 1,
        large_swarm: false,
        run: bad_id,
    },
    Check {
        id: "announce-no-amplification",
        group: Group::Announce,
        expected: "a reply to an unproven address is no longer than its request",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 1,
        large_swarm: false,
        run: no_amplification,
    },
    Check {
        id: "event-paused",
        group: Group::Announce,
        expected: "event 4 (paused: a partial seed) is answered like no event",
        source: "BEP 21; libtorrent sends the number",
        hashes: 1,
        large_swarm: false,
        run: paused,
    },
    Check {
        id: "event-unknown",
        group: Group::Announce,
        expected: "an undefined event is answered like no event",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: unknown_event,
    },
    Check {
        id: "announce-port-0",
        group: Group::Announce,
        expected: "a peer at port 0 is refused with an error",
        source: "BEP 15, \"Errors\": port 0 is not reachable",
        hashes: 1,
        large_swarm: false,
        run: port_0,
    },
    Check {
        id: "announce-port-1",
        group: Group::Announce,
        expected: "a peer at port 1 is answered and counted, but not handed out",
        source: "clients that are not reachable announce port 1",
        hashes: 1,
        large_swarm: false,
        run: port_1,
    },
    Check {
        id: "interval-positive",
        group: Group::Announce,
        expected: "the interval is between a minute and a day; 0 fails, as clients would announce \
             without pause",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: interval,
    },
    Check {
        id: "interval-jitter",
        group: Group::Announce,
        expected: "the interval varies, so that the peers of a swarm do not announce at the same \
             time",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: jitter,
    },
];

fn plain(fixture: &Fixture<'_>) -> CheckResult {
    fixture.client()?.announce(&fixture.leecher(40_001))?;
    Ok(Verdict::Pass)
}

fn short(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let request = fixture.leecher(40_001).bytes(client.id());
    let Some(reply) = client.reply_to_bad(&request[..97])? else { return Ok(Verdict::Pass) };
    if !reply.starts_with(&[0, 0, 0, 3]) {
        return fails(hex(&reply));
    }
    let open = "BEP 15, \"Errors\", allows an error to a proven address";
    Ok(prefer(false, open, || hex(&reply)))
}

fn with_options(fixture: &Fixture<'_>, options: &[u8]) -> CheckResult {
    let ask = AnnounceRequest { options: options.to_vec(), ..fixture.leecher(40_001) };
    let reply = fixture.client()?.announce(&ask)?;
    Ok(demand(reply.leechers <= 1 && reply.seeders == 0, || reply.counts()))
}

fn url_data(fixture: &Fixture<'_>) -> CheckResult {
    with_options(fixture, b"\x02\x09/announce")
}

fn unknown_option(fixture: &Fixture<'_>) -> CheckResult {
    with_options(fixture, b"\x01\x01\x7F\x03abc\x01\x02\x02/a\x00rest")
}

fn broken_options(fixture: &Fixture<'_>) -> CheckResult {
    // A length past the end; a type without a length; bytes after the end-of-options mark.
    for options in [&b"\x02\xFF/an"[..], b"\x02", b"\x00\xFF\xFF"] {
        with_options(fixture, options)?;
    }
    Ok(Verdict::Pass)
}

fn bad_id(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let ask = fixture.leecher(40_001);
    for id in [ConnectionId(0), forged(client.id())] {
        if let Some(reply) = client.reply_to_bad(&ask.bytes(id))? {
            return fails(hex(&reply));
        }
    }
    Ok(Verdict::Pass)
}

fn no_amplification(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let asks: Vec<_> = (40_001..40_021).map(|port| fixture.leecher(port).want(0)).collect();
    client.announce_all(&asks)?;
    let id = forged(client.id());
    let announce = AnnounceRequest { event: 0, ..fixture.leecher(40_001) }.want(200).bytes(id);
    let scrape = scrape_request(id, &[fixture.hash(0)]);
    for request in [announce, scrape] {
        let reply = client.reply_to_bad(&request)?;
        if let Some(reply) = reply.filter(|reply| reply.len() > request.len()) {
            return fails(format!("{} for {} bytes", hex(&reply), request.len()));
        }
    }
    Ok(Verdict::Pass)
}

fn paused(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(40_001))?;
    let reply = client.announce(&fixture.leecher(40_002).event(4))?;
    Ok(demand(reply.peers.contains(&client.endpoint(40_001)), || {
        format!("the other peer is not listed: {}", reply.listed())
    }))
}

fn unknown_event(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let open = "BEP 15 does not define events above 3, nor the reply to them";
    for event in [5, 0xFFFF_FFFF] {
        if let Err(error) = client.announce(&fixture.leecher(40_001).event(event)) {
            return Ok(prefer(false, open, || error.to_string()));
        }
    }
    Ok(Verdict::Pass)
}

fn port_0(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let reply = client.exchange(&fixture.leecher(0).bytes(client.id()));
    let listed = client.announce(&fixture.leecher(40_001))?;
    if listed.peers.iter().any(|peer| peer.port() == 0) {
        return fails(format!("port 0 is handed out: {}", listed.listed()));
    }
    let open = "BEP 15 does not define the reply to a peer without a port";
    Ok(match reply {
        Ok(reply) => prefer(reply.starts_with(&[0, 0, 0, 3]), open, || hex(&reply)),
        Err(error) => prefer(false, open, || error.to_string()),
    })
}

fn port_1(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce(&fixture.leecher(1))?;
    let listed = client.announce(&fixture.leecher(40_001))?;
    let open = "BEP 15 does not define unreachable peers";
    if listed.peers.iter().any(|peer| peer.port() == 1) {
        return Ok(prefer(false, open, || listed.listed()));
    }
    // A tracker that does not count the announcing peer still counts the other one.
    let counted = listed.leechers > 0 && client.announce(&fixture.leecher(40_002))?.leechers > 1;
    Ok(prefer(counted, open, || format!("it is not counted: {}", listed.counts())))
}

fn interval(fixture: &Fixture<'_>) -> CheckResult {
    let reply = fixture.client()?.announce(&fixture.leecher(40_001))?;
    let seen = format!("{} s: {}", reply.interval, hex(&reply.bytes));
    if reply.interval == 0 {
        return fails(seen);
    }
    let open = "BEP 15 leaves the interval to the tracker";
    Ok(prefer((60..=86_400).contains(&reply.interval), open, || seen))
}

fn jitter(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let mut intervals = Vec::new();
    for n in 0..8 {
        let event = if n == 0 { STARTED } else { 0 };
        intervals.push(client.announce(&fixture.leecher(40_001).event(event))?.interval);
    }
    let open = "BEP 15 leaves the interval to the tracker";
    let varies = intervals.iter().any(|interval| *interval != intervals[0]);
    Ok(prefer(varies, open, || format!("{} s eight times", intervals[0])))
}
