//! Checks of peer lists: which peers, and how many (BEP 15, "Announce", "IPv6"; BEP 7).

use std::collections::HashSet;
use std::net::Ipv4Addr;

use onrush_proto::Endpoint;

use crate::check::{Check, CheckResult, Group, Verdict, demand, fails, prefer};
use crate::exchange::ExchangeError;
use crate::fixture::Fixture;
use crate::message::{AnnounceReply, AnnounceRequest, hex};

/// Payload bytes that every path carries unfragmented: the minimum MTU of IPv6 less the headers of
/// IPv6 and UDP (RFC 8200, section 5).
const UNFRAGMENTED: usize = 1232;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "peers-in-wire-form",
        group: Group::Announce,
        expected: "peers are listed as source address and port, in 6 bytes over IPv4 and 18 over \
             IPv6",
        source: "BEP 15, \"Announce\", \"IPv6\"; BEP 7",
        hashes: 1,
        large_swarm: false,
        run: wire_form,
    },
    Check {
        id: "ip-field-ignored",
        group: Group::Announce,
        expected: "a peer is listed under its source address, whatever its ip field says",
        source: "BEP 15, \"Announce\": otherwise a client can direct swarms at any address",
        hashes: 1,
        large_swarm: false,
        run: ip_field,
    },
    Check {
        id: "asker-not-listed",
        group: Group::Announce,
        expected: "a peer is not in the list that it gets",
        source: "BEP 15, \"Announce\": a client has no use for its own address",
        hashes: 1,
        large_swarm: false,
        run: own_peer,
    },
    Check {
        id: "leecher-gets-both",
        group: Group::Announce,
        expected: "a leecher gets seeders and leechers",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: leecher_gets_both,
    },
    Check {
        id: "seeder-gets-no-seeders",
        group: Group::Announce,
        expected: "a seeder gets leechers only",
        source: "BEP 15, \"Announce\": seeders have no use for each other",
        hashes: 1,
        large_swarm: false,
        run: seeder_gets_leechers,
    },
    Check {
        id: "everybody-is-handed-out",
        group: Group::Announce,
        expected: "over several announces every peer of a swarm is listed",
        source: "BEP 15, \"Announce\"",
        hashes: 1,
        large_swarm: false,
        run: every_peer,
    },
    Check {
        id: "num-want-0",
        group: Group::Announce,
        expected: "num_want 0 gives no peers",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        large_swarm: true,
        run: none,
    },
    Check {
        id: "num-want-negative",
        group: Group::Announce,
        expected: "num_want -1 gives the tracker's default of 30 or more; other negative numbers \
             too",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        large_swarm: true,
        run: default,
    },
    Check {
        id: "num-want-1",
        group: Group::Announce,
        expected: "num_want 1 gives one peer",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        large_swarm: true,
        run: one,
    },
    Check {
        id: "num-want-exact",
        group: Group::Announce,
        expected: "num_want gives exactly the wanted number of peers where there are more, odd \
             numbers too",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        large_swarm: true,
        run: exact,
    },
    Check {
        id: "num-want-no-duplicates",
        group: Group::Announce,
        expected: "every listed peer is in the swarm, and none is listed twice",
        source: "BEP 15, \"Announce\"",
        hashes: 0,
        large_swarm: true,
        run: no_duplicates,
    },
    Check {
        id: "num-want-cap",
        group: Group::Announce,
        expected: "whatever num_want says, the reply has at most 1232 bytes",
        source: "RFC 8200, section 5: every path carries that unfragmented",
        hashes: 0,
        large_swarm: true,
        run: cap,
    },
];

fn wire_form(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let mut expected: HashSet<Endpoint> = [0x1234, 40_002].map(|port| client.endpoint(port)).into();
    client.announce_all(&[fixture.leecher(0x1234), fixture.seeder(40_002)])?;
    let other = fixture.second_client()?;
    if let Some(other) = &other {
        other.announce(&fixture.leecher(40_003))?;
        expected.insert(other.endpoint(40_003));
    }
    let reply = client.announce(&fixture.leecher(40_009))?;
    // Whether the announcing peer is listed is another check.
    let others = reply.peers.iter().copied().filter(|peer| *peer != client.endpoint(40_009));
    let others: Vec<Endpoint> = others.collect();
    let listed: HashSet<Endpoint> = others.iter().copied().collect();
    let right = listed == expected && others.len() == expected.len();
    Ok(demand(right, || format!("the swarm has {} others: {}", expected.len(), reply.listed())))
}

fn ip_field(fixture: &Fixture<'_>) -> CheckResult {
    // An address reserved for documentation (RFC 5737).
    let elsewhere = Ipv4Addr::new(192, 0, 2, 66);
    let client = fixture.client()?;
    client.announce(&AnnounceRequest { ip: elsewhere, ..fixture.leecher(40_001) })?;
    let reply = client.announce(&fixture.leecher(40_002))?;
    if reply.peers.iter().any(|peer| peer.ip() == elsewhere) {
        let open =
            "BEP 15 allows a tracker to use the field (and with it attacks on third parties)";
        return Ok(prefer(false, open, || reply.listed()));
    }
    let listed = reply.peers.contains(&client.endpoint(40_001));
    Ok(demand(listed, || format!("not under its source address: {}", reply.listed())))
}

fn own_peer(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    client.announce_all(&[fixture.leecher(40_001), fixture.leecher(40_002)])?;
    for event in [2, 0, 0] {
        let reply = client.announce(&fixture.leecher(40_001).event(event))?;
        if reply.peers.contains(&client.endpoint(40_001)) {
            let open =
                "BEP 15 does not exclude the announcing peer, and clients skip their own address";
            return Ok(Verdict::Differs { seen: reply.listed(), open });
        }
    }
    Ok(Verdict::Pass)
}

fn leecher_gets_both(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client.announce_all(&[40_001, 40_002].map(|port| AnnounceRequest::seeder(hash, port)))?;
    client.announce_all(&[40_003, 40_004].map(|port| fixture.leecher(port)))?;
    let reply = client.announce(&fixture.leecher(40_009))?;
    let seeders = reply.peers.iter().filter(|peer| [40_001, 40_002].contains(&peer.port()));
    let leechers = reply.peers.iter().filter(|peer| [40_003, 40_004].contains(&peer.port()));
    let (seeders, leechers) = (seeders.count(), leechers.count());
    Ok(demand(seeders > 0 && leechers > 0, || {
        format!("{seeders} of 2 seeders, {leechers} of 2 leechers: {}", hex(&reply.bytes))
    }))
}

fn seeder_gets_leechers(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client.announce_all(&[40_001, 40_002].map(|port| AnnounceRequest::seeder(hash, port)))?;
    client.announce_all(&[40_003, 40_004].map(|port| fixture.leecher(port)))?;
    let reply = client.announce(&AnnounceRequest::seeder(hash, 40_009))?;
    if !reply.peers.iter().any(|peer| [40_003, 40_004].contains(&peer.port())) {
        return fails(format!("it gets no leecher: {}", reply.listed()));
    }
    let none = !reply.peers.iter().any(|peer| [40_001, 40_002].contains(&peer.port()));
    let open = "BEP 15 does not say which peers a seeder gets";
    Ok(prefer(none, open, || reply.listed()))
}

fn every_peer(fixture: &Fixture<'_>) -> CheckResult {
    let client = fixture.client()?;
    let hash = fixture.hash(0);
    client.announce_all(
        &[40_001, 40_002, 40_003, 40_004].map(|port| AnnounceRequest::seeder(hash, port)),
    )?;
    client.announce_all(&[40_005, 40_006, 40_007, 40_008].map(|port| fixture.leecher(port)))?;
    let mut missing: HashSet<u16> = (40_001..40_009).collect();
    // A random list of 4 of 8 misses a given peer 32 times with a probability of 2^-32.
    for _ in 0..32 {
        let reply = client.announce(&fixture.leecher(40_009).want(4))?;
        reply.peers.iter().for_each(|peer| _ = missing.remove(&peer.port()));
    }
    let open = "BEP 15 does not say which peers are picked";
    Ok(prefer(missing.is_empty(), open, || {
        format!("{} of 8 peers are not listed in 32 announces of num_want 4", missing.len())
    }))
}

/// The reply to a new leecher of the large swarm that wants `want` peers.
fn from_large_swarm(fixture: &Fixture<'_>, want: i32) -> Result<AnnounceReply, ExchangeError> {
    let hash = fixture.large_swarm()?.hash;
    let port = rand::random_range(50_000..60_000);
    fixture.client()?.announce(&AnnounceRequest::leecher(hash, port).want(want))
}

fn none(fixture: &Fixture<'_>) -> CheckResult {
    let reply = from_large_swarm(fixture, 0)?;
    let open = "BEP 15 defines a default for -1 only";
    Ok(prefer(reply.peers.is_empty(), open, || reply.listed()))
}

fn default(fixture: &Fixture<'_>) -> CheckResult {
    let reply = from_large_swarm(fixture, -1)?;
    let open = "BEP 15 leaves the default to the tracker";
    match reply.peers.len() {
        0 => fails(reply.listed()),
        found if found < 30 => Ok(prefer(false, open, || reply.listed())),
        _ => {
            let open = "BEP 15 defines a default for -1 only";
            let reply = from_large_swarm(fixture, -200)?;
            Ok(prefer(!reply.peers.is_empty(), open, || format!("-200: {}", reply.listed())))
        }
    }
}

fn one(fixture: &Fixture<'_>) -> CheckResult {
    wants(fixture, &[1])
}

fn exact(fixture: &Fixture<'_>) -> CheckResult {
    wants(fixture, &[2, 3, 7, 10, 29])
}

fn wants(fixture: &Fixture<'_>, wants: &[u16]) -> CheckResult {
    let open = "BEP 15 lets a tracker give fewer than wanted";
    for &want in wants {
        let reply = from_large_swarm(fixture, i32::from(want))?;
        let found = reply.peers.len();
        if found != usize::from(want) {
            let seen = format!("{found} peers for num_want {want}: {}", hex(&reply.bytes));
            return match found > usize::from(want) {
                true => fails(seen),
                false => Ok(prefer(false, open, || seen)),
            };
        }
    }
    Ok(Verdict::Pass)
}

fn no_duplicates(fixture: &Fixture<'_>) -> CheckResult {
    let swarm: HashSet<_> = fixture.large_swarm()?.peers.iter().copied().collect();
    for _ in 0..4 {
        let reply = from_large_swarm(fixture, 60)?;
        let mut seen = HashSet::new();
        for peer in &reply.peers {
            // The swarm also has the ports that other checks announce meanwhile.
            if !swarm.contains(peer) && !(50_000..60_000).contains(&peer.port()) {
                let (ip, port) = (peer.ip(), peer.port());
                return fails(format!("{ip} port {port} is unknown: {}", hex(&reply.bytes)));
            }
            if !seen.insert(*peer) {
                let (ip, port) = (peer.ip(), peer.port());
                return fails(format!("{ip} port {port} twice: {}", hex(&reply.bytes)));
            }
        }
    }
    Ok(Verdict::Pass)
}

fn cap(fixture: &Fixture<'_>) -> CheckResult {
    let size = fixture.large_swarm()?.peers.len();
    let reply = from_large_swarm(fixture, i32::MAX)?;
    if reply.peers.len() > size + 100 {
        return fails(format!("more peers than the swarm has: {}", reply.listed()));
    }
    let open = "BEP 15 sets no limit";
    Ok(prefer(reply.bytes.len() <= UNFRAGMENTED, open, || {
        format!("{} peers, which some paths fragment: {}", reply.peers.len(), hex(&reply.bytes))
    }))
}
