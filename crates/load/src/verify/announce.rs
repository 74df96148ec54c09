//! Checks of the form of announces and their replies (BEP 15, "Announce"; BEP 41; BEP 21).

use onrush_proto::ConnectionId;

use super::ask::{Ask, STARTED};
use super::connect::{forged, leecher};
use super::dialogue::hex;
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer};

/// The check that says so when no announce is served at all.
pub(super) const FIRST: &str = "announce-98-bytes";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: FIRST,
        group: Group::Announce,
        expected: "an announce of 98 bytes is answered",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: plain,
    },
    Check {
        id: "announce-short",
        group: Group::Announce,
        expected: "an announce of 97 bytes meets silence",
        source: "BEP 15, \"Announce\": an announce has 98 bytes",
        hashes: 1,
        crowd: false,
        run: short,
    },
    Check {
        id: "announce-url-data",
        group: Group::Announce,
        expected: "an announce with the URL's path behind it (109 bytes, libtorrent) is answered",
        source: "BEP 41, \"URLData\"",
        hashes: 1,
        crowd: false,
        run: url_data,
    },
    Check {
        id: "announce-unknown-option",
        group: Group::Announce,
        expected: "unknown options and no-ops behind an announce are skipped",
        source: "BEP 41",
        hashes: 1,
        crowd: false,
        run: unknown_option,
    },
    Check {
        id: "announce-broken-options",
        group: Group::Announce,
        expected: "options that break off are no reason to refuse",
        source: "BEP 15, \"UDP tracker protocol\": no exact size is to be expected; aria2 sends two bytes that are none",
        hashes: 1,
        crowd: false,
        run: broken_options,
    },
    Check {
        id: "announce-bad-id",
        group: Group::Announce,
        expected: "announces with a wrong connection id meet silence",
        source: "BEP 15, \"UDP connections / spoofing\": the request is ignored",
        hashes: 1,
        crowd: false,
        run: bad_id,
    },
    Check {
        id: "announce-no-amplification",
        group: Group::Announce,
        expected: "whoever has not proven an address gets no more bytes than it sent",
        source: "BEP 15, \"UDP connections / spoofing\"",
        hashes: 1,
        crowd: false,
        run: no_amplification,
    },
    Check {
        id: "event-paused",
        group: Group::Announce,
        expected: "event 4 (paused: a partial seed) is answered like no event",
        source: "BEP 21; libtorrent sends the number",
        hashes: 1,
        crowd: false,
        run: paused,
    },
    Check {
        id: "event-unknown",
        group: Group::Announce,
        expected: "an event without a meaning is answered like no event",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: unknown_event,
    },
    Check {
        id: "announce-port-0",
        group: Group::Announce,
        expected: "a peer at port 0 is refused with an error",
        source: "BEP 15, \"Errors\": nobody can be reached there",
        hashes: 1,
        crowd: false,
        run: port_0,
    },
    Check {
        id: "announce-port-1",
        group: Group::Announce,
        expected: "a peer at port 1 is answered and counted, but not handed out",
        source: "clients announce 1 when they cannot be reached",
        hashes: 1,
        crowd: false,
        run: port_1,
    },
    Check {
        id: "interval-positive",
        group: Group::Announce,
        expected: "the interval is between a minute and a day",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: interval,
    },
    Check {
        id: "interval-jitter",
        group: Group::Announce,
        expected: "the interval is not the same each time, so that swarms do not fall into step",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: jitter,
    },
];

fn plain(scene: &Scene<'_>) -> Judged {
    scene.party()?.announce(&leecher(scene, 40_001))?;
    Ok(Verdict::Pass)
}

fn short(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let request = leecher(scene, 40_001).bytes(party.id());
    let Some(reply) = party.reply_to_bad(&request[..97])? else { return Ok(Verdict::Pass) };
    if !reply.starts_with(&[0, 0, 0, 3]) {
        return fails(hex(&reply));
    }
    let open = "BEP 15, \"Errors\", lets a tracker say what is wrong to a proven address";
    Ok(prefer(false, open, || hex(&reply)))
}

fn with_options(scene: &Scene<'_>, options: &[u8]) -> Judged {
    let ask = Ask { options: options.to_vec(), ..leecher(scene, 40_001) };
    let reply = scene.party()?.announce(&ask)?;
    Ok(demand(reply.leechers <= 1 && reply.seeders == 0, || reply.counts()))
}

fn url_data(scene: &Scene<'_>) -> Judged {
    with_options(scene, b"\x02\x09/announce")
}

fn unknown_option(scene: &Scene<'_>) -> Judged {
    with_options(scene, b"\x01\x01\x7F\x03abc\x01\x02\x02/a\x00rest")
}

fn broken_options(scene: &Scene<'_>) -> Judged {
    // A length past the end; a type without its length; bytes behind the end mark.
    for options in [&b"\x02\xFF/an"[..], b"\x02", b"\x00\xFF\xFF"] {
        with_options(scene, options)?;
    }
    Ok(Verdict::Pass)
}

fn bad_id(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let ask = leecher(scene, 40_001);
    for id in [ConnectionId(0), forged(party.id())] {
        if let Some(reply) = party.reply_to_bad(&ask.bytes(id))? {
            return fails(hex(&reply));
        }
    }
    Ok(Verdict::Pass)
}

fn no_amplification(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let asks: Vec<_> = (40_001..40_021).map(|port| leecher(scene, port).want(0)).collect();
    party.announce_all(&asks)?;
    let id = forged(party.id());
    let announce = Ask { event: 0, ..leecher(scene, 40_001) }.want(200).bytes(id);
    let scrape = super::dialogue::scrape_request(id, &[scene.hash(0)]);
    for request in [announce, scrape] {
        let reply = party.reply_to_bad(&request)?;
        if let Some(reply) = reply.filter(|reply| reply.len() > request.len()) {
            return fails(format!("{} for {} bytes", hex(&reply), request.len()));
        }
    }
    Ok(Verdict::Pass)
}

fn paused(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    let reply = party.announce(&leecher(scene, 40_002).event(4))?;
    Ok(demand(reply.peers.contains(&party.endpoint(40_001)), || {
        format!("the other peer is not listed: {}", reply.listed())
    }))
}

fn unknown_event(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let open = "BEP 15 gives no meaning to events above 3, and does not say what to do with them";
    for event in [5, 0xFFFF_FFFF] {
        if let Err(trouble) = party.announce(&leecher(scene, 40_001).event(event)) {
            return Ok(prefer(false, open, || trouble.to_string()));
        }
    }
    Ok(Verdict::Pass)
}

fn port_0(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let reply = party.exchange(&leecher(scene, 0).bytes(party.id()));
    let listed = party.announce(&leecher(scene, 40_001))?;
    if listed.peers.iter().any(|peer| peer.port() == 0) {
        return fails(format!("port 0 is handed out: {}", listed.listed()));
    }
    let open = "BEP 15 does not say how a peer without a port is refused";
    Ok(match reply {
        Ok(reply) => prefer(reply.starts_with(&[0, 0, 0, 3]), open, || hex(&reply)),
        Err(trouble) => prefer(false, open, || trouble.to_string()),
    })
}

fn port_1(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 1))?;
    let listed = party.announce(&leecher(scene, 40_001))?;
    let open = "BEP 15 knows no peers that cannot be reached";
    if listed.peers.iter().any(|peer| peer.port() == 1) {
        return Ok(prefer(false, open, || listed.listed()));
    }
    // A tracker that does not count the asker still has the other one to count.
    let counted = listed.leechers > 0 && party.announce(&leecher(scene, 40_002))?.leechers > 1;
    Ok(prefer(counted, open, || format!("it is not counted: {}", listed.counts())))
}

fn interval(scene: &Scene<'_>) -> Judged {
    let reply = scene.party()?.announce(&leecher(scene, 40_001))?;
    let open = "BEP 15 leaves the interval to the tracker";
    Ok(prefer((60..=86_400).contains(&reply.interval), open, || {
        format!("{} s: {}", reply.interval, hex(&reply.bytes))
    }))
}

fn jitter(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let mut intervals = Vec::new();
    for n in 0..8 {
        let event = if n == 0 { STARTED } else { 0 };
        intervals.push(party.announce(&leecher(scene, 40_001).event(event))?.interval);
    }
    let open = "BEP 15 leaves the interval to the tracker";
    let varies = intervals.iter().any(|interval| *interval != intervals[0]);
    Ok(prefer(varies, open, || format!("{} s eight times", intervals[0])))
}
