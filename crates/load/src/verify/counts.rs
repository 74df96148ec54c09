//! Checks of who is counted as what (BEP 15, "Announce"; BEP 48 for the words).

use onrush_proto::ScrapeCounts;

use super::ask::{Ask, COMPLETED, STOPPED};
use super::connect::leecher;
use super::dialogue::{Party, Trouble};
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer, skipped};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "counts-order",
        group: Group::Announce,
        expected: "leechers come before seeders, and left 0 makes a seeder",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: order,
    },
    Check {
        id: "asker-counted",
        group: Group::Announce,
        expected: "the counts include the asking peer at once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: asker,
    },
    Check {
        id: "announce-twice",
        group: Group::Announce,
        expected: "a peer that announces twice is one peer",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: twice,
    },
    Check {
        id: "peer-id-makes-no-peer",
        group: Group::Announce,
        expected: "another peer id at the same address and port is the same peer",
        source: "BEP 15, \"Announce\": lists name peers by address and port",
        hashes: 1,
        crowd: false,
        run: peer_id,
    },
    Check {
        id: "seeder-leeches-again",
        group: Group::Announce,
        expected: "a seeder that announces left > 0 is a leecher again, counted once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: leeches_again,
    },
    Check {
        id: "completed-makes-a-seeder",
        group: Group::Announce,
        expected: "a leecher that completes with left 0 is a seeder, counted once",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: completes,
    },
    Check {
        id: "stopped-removes",
        group: Group::Announce,
        expected: "a peer that stops is neither counted nor listed any more",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: stopped,
    },
    Check {
        id: "stopped-gets-no-peers",
        group: Group::Announce,
        expected: "a peer that stops is given no peers",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: leaver_gets_none,
    },
    Check {
        id: "stopped-creates-no-swarm",
        group: Group::Announce,
        expected: "a stranger that stops is answered, and makes no swarm",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: stranger_stops,
    },
    Check {
        id: "completed-counts",
        group: Group::Announce,
        expected: "event completed adds one to what scrapes report",
        source: "BEP 15, \"Scrape\"; BEP 48: completions that the tracker was told of",
        hashes: 1,
        crowd: false,
        run: completed_counts,
    },
    Check {
        id: "completed-counts-once",
        group: Group::Announce,
        expected: "a peer that completes again is not counted again",
        source: "BEP 48",
        hashes: 1,
        crowd: false,
        run: completed_once,
    },
    Check {
        id: "completed-needs-left-0",
        group: Group::Announce,
        expected: "event completed with bytes left counts no completion",
        source: "BEP 48",
        hashes: 1,
        crowd: false,
        run: completed_with_left,
    },
    Check {
        id: "completed-by-a-newcomer",
        group: Group::Announce,
        expected: "event completed counts for a peer that was not known before, too",
        source: "BEP 48",
        hashes: 1,
        crowd: false,
        run: newcomer_completes,
    },
    Check {
        id: "completed-stays",
        group: Group::Announce,
        expected: "completions stay counted when the peer has left",
        source: "BEP 48",
        hashes: 1,
        crowd: false,
        run: completed_stays,
    },
    Check {
        id: "families-count-together",
        group: Group::Announce,
        expected: "seeders and leechers of both families are counted together, and listed apart",
        source: "BEP 15, \"IPv6\"; BEP 7",
        hashes: 1,
        crowd: false,
        run: families,
    },
];

/// The counts of the scene's swarm.
fn scrape(scene: &Scene<'_>, party: &Party<'_>) -> Result<ScrapeCounts, Trouble> {
    match party.scrape(&[scene.hash(0)]) {
        // Some trackers refuse to scrape a swarm that is not there.
        Err(Trouble::Refused { .. }) => Ok(ScrapeCounts::default()),
        counts => Ok(counts?.first().copied().unwrap_or_default()),
    }
}

/// Seeders and leechers by a scrape, which nobody has to join for, and the same in words.
fn around(scene: &Scene<'_>, party: &Party<'_>) -> Result<(u32, u32, String), Trouble> {
    let counts = scrape(scene, party)?;
    let text = format!(
        "a scrape gives {} seeders, {} completed, {} leechers",
        counts.seeders, counts.completed, counts.leechers
    );
    Ok((counts.seeders, counts.leechers, text))
}

/// Passes where a scrape counts so many.
fn counted(scene: &Scene<'_>, party: &Party<'_>, seeders: u32, leechers: u32) -> Judged {
    let (found_seeders, found_leechers, text) = around(scene, party)?;
    Ok(demand((found_seeders, found_leechers) == (seeders, leechers), || {
        format!("{text}, not {seeders} and {leechers}")
    }))
}

fn order(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[40_001, 40_002, 40_003].map(|port| Ask::seeder(hash, port)))?;
    party.announce(&leecher(scene, 40_004))?;
    let reply = party.announce(&leecher(scene, 40_004).event(0))?;
    // The asker need not be counted: another check.
    Ok(demand(reply.seeders == 3 && reply.leechers <= 1, || {
        format!("3 seeders and a leecher are there, counted are {}", reply.counts())
    }))
}

fn asker(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let first = party.announce(&leecher(scene, 40_001))?;
    let second = party.announce(&Ask::seeder(scene.hash(0), 40_002))?;
    let open = "BEP 15 does not say whether the asking peer is counted";
    let right = (first.leechers, second.leechers, second.seeders) == (1, 1, 1);
    Ok(prefer(right, open, || if first.leechers == 1 { second.counts() } else { first.counts() }))
}

fn twice(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    for event in [2, 0, 0] {
        party.announce(&leecher(scene, 40_001).event(event))?;
    }
    counted(scene, &party, 0, 1)
}

fn peer_id(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    party.announce(&Ask { peer_id: [b'z'; 20], ..leecher(scene, 40_001) })?;
    let (seeders, leechers, text) = around(scene, &party)?;
    let open = "BEP 15 does not say what makes a peer another one";
    Ok(prefer((seeders, leechers) == (0, 1), open, || text))
}

fn leeches_again(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&Ask::seeder(scene.hash(0), 40_001))?;
    party.announce(&leecher(scene, 40_001).event(0))?;
    counted(scene, &party, 0, 1)
}

fn completes(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    party.announce(&Ask::seeder(scene.hash(0), 40_001).event(COMPLETED))?;
    counted(scene, &party, 1, 0)
}

fn stopped(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[leecher(scene, 40_001), Ask::seeder(hash, 40_002)])?;
    party.announce(&leecher(scene, 40_001).event(STOPPED))?;
    let verdict = counted(scene, &party, 1, 0)?;
    if verdict != Verdict::Pass {
        return Ok(verdict);
    }
    let reply = party.announce(&leecher(scene, 40_003))?;
    let gone = !reply.peers.contains(&party.endpoint(40_001));
    Ok(demand(gone, || format!("it is still listed: {}", reply.listed())))
}

fn leaver_gets_none(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce_all(&[40_001, 40_002, 40_003].map(|port| leecher(scene, port)))?;
    let reply = party.announce(&leecher(scene, 40_001).event(STOPPED))?;
    let open = "BEP 15 does not say what a peer that leaves is told";
    Ok(prefer(reply.peers.is_empty(), open, || reply.listed()))
}

fn stranger_stops(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let before = scrape(scene, &party)?;
    party.announce(&leecher(scene, 40_001).event(STOPPED))?;
    counted(scene, &party, before.seeders, before.leechers)
}

fn completed_counts(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let mut seen = String::new();
    // An announce that had to be repeated may have been counted twice: not three times in a row.
    for port in [40_001, 40_002, 40_003] {
        party.announce(&leecher(scene, port))?;
        let before = scrape(scene, &party)?.completed;
        party.announce(&Ask::seeder(scene.hash(0), port).event(COMPLETED))?;
        let after = scrape(scene, &party)?.completed;
        if after.checked_sub(1) == Some(before) {
            return Ok(Verdict::Pass);
        }
        seen = format!("{before} before, {after} after it");
        if after <= before {
            break;
        }
    }
    fails(seen)
}

fn newcomer_completes(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let before = scrape(scene, &party)?.completed;
    party.announce(&Ask::seeder(scene.hash(0), 40_001).event(COMPLETED))?;
    let after = scrape(scene, &party)?.completed;
    let open = "BEPs 15 and 48 do not say whether a peer has to be known to complete";
    Ok(prefer(after > before, open, || format!("{before} before, {after} after it")))
}

fn completed_stays(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    party.announce(&Ask::seeder(scene.hash(0), 40_001).event(COMPLETED))?;
    let before = scrape(scene, &party)?.completed;
    if before == 0 {
        return skipped("no completion is counted");
    }
    party.announce(&Ask::seeder(scene.hash(0), 40_001).event(STOPPED))?;
    let after = scrape(scene, &party)?.completed;
    let open = "BEPs 15 and 48 do not say for how long completions are kept";
    Ok(prefer(after == before, open, || format!("{before} before it left, {after} after")))
}

fn completed_once(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce(&leecher(scene, 40_001))?;
    let before = scrape(scene, &party)?.completed;
    for _ in 0..3 {
        party.announce(&Ask::seeder(scene.hash(0), 40_001).event(COMPLETED))?;
    }
    let after = scrape(scene, &party)?.completed;
    let open = "BEPs 15 and 48 do not say whether a peer can complete twice";
    Ok(prefer(after <= before.saturating_add(1), open, || {
        format!("{before} before, {after} after one peer's three")
    }))
}

fn completed_with_left(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let before = scrape(scene, &party)?.completed;
    party.announce(&leecher(scene, 40_001).event(COMPLETED))?;
    let after = scrape(scene, &party)?.completed;
    let open = "BEPs 15 and 48 do not say what wins, the event or the bytes left";
    Ok(prefer(after == before, open, || format!("{before} before, {after} after it")))
}

fn families(scene: &Scene<'_>) -> Judged {
    let Some(also) = scene.tracker.also else {
        return skipped("no address of the other family was named that answers (see --also)");
    };
    let source = match also.ip() {
        ip if ip.is_loopback() => ip,
        ip if ip.is_ipv4() => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let here = scene.party()?;
    let there = Party::join(scene.tracker, also, source)?;
    here.announce_all(&[leecher(scene, 40_001), Ask::seeder(scene.hash(0), 40_002)])?;
    there.announce_all(&[40_003, 40_004, 40_005].map(|port| leecher(scene, port)))?;
    // A peer of another family would break the layout, or be none of these.
    for (party, ports, address) in
        [(&there, 40_003..=40_005, also), (&here, 40_001..=40_002, scene.tracker.address)]
    {
        let reply = party.announce(&leecher(scene, *ports.start()).event(0))?;
        if !reply.peers.iter().all(|peer| ports.contains(&peer.port())) {
            return fails(format!("others are listed over {address}: {}", reply.listed()));
        }
    }
    let open = "BEP 15 does not say whose peers the counts are of";
    let reply = here.announce(&leecher(scene, 40_001).event(0))?;
    // The asker need not be counted: another check.
    Ok(prefer(reply.seeders == 1 && (3..=4).contains(&reply.leechers), open, || {
        format!("{}; here are a seeder and a leecher, over {also} 3 leechers", reply.counts())
    }))
}
