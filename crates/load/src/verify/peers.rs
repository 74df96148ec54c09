//! Checks of peer lists: who is in them, and how many (BEP 15, "Announce", "IPv6"; BEP 7).

use std::collections::HashSet;
use std::net::Ipv4Addr;

use onrush_proto::Endpoint;

use super::ask::Ask;
use super::connect::leecher;
use super::dialogue::hex;
use super::scene::Scene;
use super::{Check, Group, Judged, Verdict, demand, fails, prefer};

/// Bytes that pass every path in one piece: the least MTU of IPv6 without its header and UDP's
/// (RFC 8200, section 5).
const ONE_PIECE: usize = 1232;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "peers-in-wire-form",
        group: Group::Announce,
        expected: "peers are listed as address and port, 6 bytes over IPv4, 18 over IPv6, by their source address",
        source: "BEP 15, \"Announce\", \"IPv6\"; BEP 7",
        hashes: 1,
        crowd: false,
        run: wire_form,
    },
    Check {
        id: "ip-field-ignored",
        group: Group::Announce,
        expected: "a peer is listed under its source address, whatever its ip field says",
        source: "BEP 15, \"Announce\": else anybody can point swarms at anybody",
        hashes: 1,
        crowd: false,
        run: ip_field,
    },
    Check {
        id: "asker-not-listed",
        group: Group::Announce,
        expected: "a peer is not in the list that it gets",
        source: "BEP 15, \"Announce\": a client has no use for itself",
        hashes: 1,
        crowd: false,
        run: asker,
    },
    Check {
        id: "leecher-gets-both",
        group: Group::Announce,
        expected: "a leecher gets seeders and leechers",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: leecher_gets_both,
    },
    Check {
        id: "seeder-gets-no-seeders",
        group: Group::Announce,
        expected: "a seeder gets leechers only",
        source: "BEP 15, \"Announce\": seeders have nothing for each other",
        hashes: 1,
        crowd: false,
        run: seeder_gets_leechers,
    },
    Check {
        id: "everybody-is-handed-out",
        group: Group::Announce,
        expected: "over some announces every peer of a swarm is handed out",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        crowd: false,
        run: everybody,
    },
    Check {
        id: "num-want-0",
        group: Group::Announce,
        expected: "num_want 0 gives no peers",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        crowd: true,
        run: none,
    },
    Check {
        id: "num-want-negative",
        group: Group::Announce,
        expected: "num_want -1 gives the tracker's default, 30 or more of many; other negative numbers too",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        crowd: true,
        run: default,
    },
    Check {
        id: "num-want-1",
        group: Group::Announce,
        expected: "num_want 1 gives one peer",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        crowd: true,
        run: one,
    },
    Check {
        id: "num-want-exact",
        group: Group::Announce,
        expected: "num_want gives exactly so many where there are more, odd numbers too",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        crowd: true,
        run: exact,
    },
    Check {
        id: "num-want-no-duplicates",
        group: Group::Announce,
        expected: "nobody is listed twice, and nobody who is not there",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        crowd: true,
        run: no_duplicates,
    },
    Check {
        id: "num-want-cap",
        group: Group::Announce,
        expected: "however many are wanted, the reply is one datagram of 1232 bytes at most",
        source: "RFC 8200, section 5: what every path carries in one piece",
        hashes: 0,
        crowd: true,
        run: cap,
    },
];

fn wire_form(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let mut expected: HashSet<Endpoint> = [0x1234, 40_002].map(|port| party.endpoint(port)).into();
    party.announce_all(&[leecher(scene, 0x1234), Ask::seeder(scene.hash(0), 40_002)])?;
    let other = scene.other_party()?;
    if let Some(other) = &other {
        other.announce(&leecher(scene, 40_003))?;
        expected.insert(other.endpoint(40_003));
    }
    let reply = party.announce(&leecher(scene, 40_009))?;
    // Whether the asker is listed is another check.
    let others = reply.peers.iter().copied().filter(|peer| *peer != party.endpoint(40_009));
    let others: Vec<Endpoint> = others.collect();
    let listed: HashSet<Endpoint> = others.iter().copied().collect();
    let right = listed == expected && others.len() == expected.len();
    Ok(demand(right, || format!("{} are there: {}", expected.len(), reply.listed())))
}

fn ip_field(scene: &Scene<'_>) -> Judged {
    // A documentation address (RFC 5737): nobody's.
    let elsewhere = Ipv4Addr::new(192, 0, 2, 66);
    let party = scene.party()?;
    party.announce(&Ask { ip: elsewhere, ..leecher(scene, 40_001) })?;
    let reply = party.announce(&leecher(scene, 40_002))?;
    let obeyed = reply.peers.iter().any(|peer| peer.ip() == elsewhere);
    if obeyed {
        let open =
            "BEP 15 lets a client name an address (and lets it send strangers' traffic there)";
        return Ok(prefer(false, open, || reply.listed()));
    }
    let there = reply.peers.contains(&party.endpoint(40_001));
    Ok(demand(there, || format!("not under its source address: {}", reply.listed())))
}

fn asker(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    party.announce_all(&[leecher(scene, 40_001), leecher(scene, 40_002)])?;
    for event in [2, 0, 0] {
        let reply = party.announce(&leecher(scene, 40_001).event(event))?;
        if reply.peers.contains(&party.endpoint(40_001)) {
            let open = "BEP 15 does not say that the peers are others; clients know themselves";
            return Ok(Verdict::Differs { seen: reply.listed(), open });
        }
    }
    Ok(Verdict::Pass)
}

fn leecher_gets_both(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[40_001, 40_002].map(|port| Ask::seeder(hash, port)))?;
    party.announce_all(&[40_003, 40_004].map(|port| leecher(scene, port)))?;
    let reply = party.announce(&leecher(scene, 40_009))?;
    let seeders = reply.peers.iter().filter(|peer| [40_001, 40_002].contains(&peer.port()));
    let leechers = reply.peers.iter().filter(|peer| [40_003, 40_004].contains(&peer.port()));
    let (seeders, leechers) = (seeders.count(), leechers.count());
    Ok(demand(seeders > 0 && leechers > 0, || {
        format!("{seeders} seeders and {leechers} leechers of two each: {}", hex(&reply.bytes))
    }))
}

fn seeder_gets_leechers(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[40_001, 40_002].map(|port| Ask::seeder(hash, port)))?;
    party.announce_all(&[40_003, 40_004].map(|port| leecher(scene, port)))?;
    let reply = party.announce(&Ask::seeder(hash, 40_009))?;
    if !reply.peers.iter().any(|peer| [40_003, 40_004].contains(&peer.port())) {
        return fails(format!("it gets no leecher: {}", reply.listed()));
    }
    let none = !reply.peers.iter().any(|peer| [40_001, 40_002].contains(&peer.port()));
    let open = "BEP 15 does not say which peers a seeder gets";
    Ok(prefer(none, open, || reply.listed()))
}

fn everybody(scene: &Scene<'_>) -> Judged {
    let party = scene.party()?;
    let hash = scene.hash(0);
    party.announce_all(&[40_001, 40_002, 40_003, 40_004].map(|port| Ask::seeder(hash, port)))?;
    party.announce_all(&[40_005, 40_006, 40_007, 40_008].map(|port| leecher(scene, port)))?;
    let mut missing: HashSet<u16> = (40_001..40_009).collect();
    // Each is missed with a chance of a half: all of 32 times, once in 500 million runs.
    for _ in 0..32 {
        let reply = party.announce(&leecher(scene, 40_009).want(4))?;
        reply.peers.iter().for_each(|peer| _ = missing.remove(&peer.port()));
    }
    let open = "BEP 15 does not say which peers are picked";
    Ok(prefer(missing.is_empty(), open, || {
        format!("{} of 4 seeders and 4 leechers never, by fours in 32 announces", missing.len())
    }))
}

/// The crowd's reply to a newcomer that wants so many, from a port of the check's own.
fn from_crowd(scene: &Scene<'_>, want: i32) -> Result<super::ask::Announced, super::Trouble> {
    let hash = scene.crowd()?.hash;
    let port = rand::random_range(50_000..60_000);
    scene.party()?.announce(&Ask::new(hash, port).want(want))
}

fn none(scene: &Scene<'_>) -> Judged {
    let reply = from_crowd(scene, 0)?;
    let open = "BEP 15 gives only -1 a meaning of its own";
    Ok(prefer(reply.peers.is_empty(), open, || reply.listed()))
}

fn default(scene: &Scene<'_>) -> Judged {
    let reply = from_crowd(scene, -1)?;
    let open = "BEP 15 leaves the default to the tracker";
    match reply.peers.len() {
        0 => fails(reply.listed()),
        found if found < 30 => Ok(prefer(false, open, || reply.listed())),
        _ => {
            let open = "BEP 15 gives only -1 a meaning of its own";
            let reply = from_crowd(scene, -200)?;
            Ok(prefer(!reply.peers.is_empty(), open, || format!("-200: {}", reply.listed())))
        }
    }
}

fn one(scene: &Scene<'_>) -> Judged {
    wants(scene, &[1])
}

fn exact(scene: &Scene<'_>) -> Judged {
    wants(scene, &[2, 3, 7, 10, 29])
}

fn wants(scene: &Scene<'_>, wants: &[u16]) -> Judged {
    let open = "BEP 15 lets a tracker give fewer than wanted";
    for &want in wants {
        let reply = from_crowd(scene, i32::from(want))?;
        let found = reply.peers.len();
        if found != usize::from(want) {
            let seen = format!("{found} of {want} wanted: {}", hex(&reply.bytes));
            return match found > usize::from(want) {
                true => fails(seen),
                false => Ok(prefer(false, open, || seen)),
            };
        }
    }
    Ok(Verdict::Pass)
}

fn no_duplicates(scene: &Scene<'_>) -> Judged {
    let crowd: HashSet<_> = scene.crowd()?.peers.iter().copied().collect();
    for _ in 0..4 {
        let reply = from_crowd(scene, 60)?;
        let mut seen = HashSet::new();
        for peer in &reply.peers {
            // Other checks' peers come and go.
            if !crowd.contains(peer) && !(50_000..60_000).contains(&peer.port()) {
                let (ip, port) = (peer.ip(), peer.port());
                return fails(format!("{ip} port {port} is not there: {}", hex(&reply.bytes)));
            }
            if !seen.insert(*peer) {
                let (ip, port) = (peer.ip(), peer.port());
                return fails(format!("{ip} port {port} twice: {}", hex(&reply.bytes)));
            }
        }
    }
    Ok(Verdict::Pass)
}

fn cap(scene: &Scene<'_>) -> Judged {
    let crowd = scene.crowd()?.peers.len();
    let reply = from_crowd(scene, i32::MAX)?;
    if reply.peers.len() > crowd + 100 {
        return fails(format!("more than there are: {}", reply.listed()));
    }
    let open = "BEP 15 sets no limit";
    Ok(prefer(reply.bytes.len() <= ONE_PIECE, open, || {
        format!(
            "{} peers, cut into fragments on some paths: {}",
            reply.peers.len(),
            hex(&reply.bytes)
        )
    }))
}
