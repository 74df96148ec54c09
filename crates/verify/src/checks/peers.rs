//! Checks of peer lists: which peers, and how many (BEP 15, "Announce", "IPv6"; BEP 7).

use std::collections::HashSet;
use std::net::Ipv4Addr;

use onrush_proto::Endpoint;

use crate::check::{Check, CheckResult, Group, Needs, demand, prefer, worst_of};
use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::{AnnounceReply, AnnounceRequest, hex};

/// Payload bytes that every path carries unfragmented: the minimum MTU of IPv6 less the headers of
/// IPv6 and UDP (RFC 8200, section 5).
const UNFRAGMENTED: usize = 1232;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "peers-in-wire-form", Needs::Hashes(1), wire_form)
        .expects(
            "peers are listed as source address and port, in 6 bytes over IPv4 and 18 over \
             IPv6",
        )
        .source("BEP 15, \"Announce\", \"IPv6\"; BEP 7"),
    Check::new(Group::Announce, "ip-field-ignored", Needs::Hashes(1), ip_field)
        .expects("a peer is listed under its source address, whatever its ip field says")
        .source("BEP 15, \"Announce\": otherwise a client can direct swarms at any address"),
    Check::new(Group::Announce, "asker-not-listed", Needs::Hashes(1), own_peer)
        .expects("a peer is not in the list that it gets")
        .source("BEP 15, \"Announce\": a client has no use for its own address"),
    Check::new(Group::Announce, "leecher-gets-both", Needs::Hashes(1), leecher_gets_both)
        .expects("a leecher gets seeders and leechers")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "seeder-gets-no-seeders", Needs::Hashes(1), seeder_gets_leechers)
        .expects("a seeder gets leechers only")
        .source("BEP 15, \"Announce\": seeders have no use for each other"),
    Check::new(Group::Announce, "everybody-is-handed-out", Needs::Hashes(1), every_peer)
        .expects("over several announces every peer of a swarm is listed")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-0", Needs::LargeSwarm, none)
        .expects("num_want 0 gives no peers")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-negative", Needs::LargeSwarm, default)
        .expects(
            "num_want -1 gives the tracker's default of 30 or more; other negative numbers \
             too",
        )
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-1", Needs::LargeSwarm, one)
        .expects("num_want 1 gives one peer")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-exact", Needs::LargeSwarm, exact)
        .expects(
            "num_want gives exactly the wanted number of peers where there are more, odd \
             numbers too",
        )
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-no-duplicates", Needs::LargeSwarm, no_duplicates)
        .expects("every listed peer is in the swarm, and none is listed twice")
        .source("BEP 15, \"Announce\""),
    Check::new(Group::Announce, "num-want-cap", Needs::LargeSwarm, cap)
        .expects("whatever num_want says, the reply has at most 1232 bytes")
        .source("RFC 8200, section 5: every path carries that unfragmented"),
];

fn wire_form(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let mut expected: HashSet<Endpoint> = [0x1234, 40_002].map(|port| client.endpoint(port)).into();
    client.announce_all(&[fixture.leecher(0x1234), fixture.seeder(40_002)])?;
    let other = fixture.second_client()?;
    if let Some(other) = &other {
        other.announce(&fixture.leecher(40_003))?;
        expected.insert(other.endpoint(40_003));
    }
    let reply = client.announce(&fixture.leecher(40_009))?;
    // Another check tests if the announcing peer is listed.
    let others = reply.peers.iter().copied().filter(|peer| *peer != client.endpoint(40_009));
    let others: Vec<Endpoint> = others.collect();
    let listed: HashSet<Endpoint> = others.iter().copied().collect();
    let right = listed == expected && others.len() == expected.len();
    demand(right, || format!("the swarm has {} others: {}", expected.len(), reply.listed()))
}

fn ip_field(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    // An address reserved for documentation (RFC 5737).
    let elsewhere = Ipv4Addr::new(192, 0, 2, 66);
    let mut claims = fixture.leecher(40_001);
    claims.fields.ip = elsewhere.to_bits();
    client.announce(&claims)?;
    let reply = client.announce(&fixture.leecher(40_002))?;
    let open = "BEP 15 allows a tracker to use the field (and with it attacks on third parties)";
    prefer(reply.peers.iter().all(|peer| peer.ip() != elsewhere), open, || reply.listed())?;
    let listed = reply.peers.contains(&client.endpoint(40_001));
    demand(listed, || format!("not under its source address: {}", reply.listed()))
}

fn own_peer(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce_all(&fixture.leechers([40_001, 40_002]))?;
    let open = "BEP 15 does not exclude the announcing peer, and clients skip their own address";
    worst_of([2, 0, 0], |event| {
        let reply = client.announce(&fixture.leecher(40_001).event(event))?;
        let own_peer = client.endpoint(40_001);
        prefer(!reply.peers.contains(&own_peer), open, || reply.listed())
    })
}

/// The reply to a peer of a swarm of two seeders and two leechers, and how many of each it lists.
fn from_small_swarm(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    peer: AnnounceRequest,
) -> Result<(AnnounceReply, usize, usize), ExchangeError> {
    client.announce_all(&fixture.seeders([40_001, 40_002]))?;
    client.announce_all(&fixture.leechers([40_003, 40_004]))?;
    let reply = client.announce(&peer)?;
    let listed =
        |ports: [u16; 2]| reply.peers.iter().filter(|peer| ports.contains(&peer.port())).count();
    let (seeders, leechers) = (listed([40_001, 40_002]), listed([40_003, 40_004]));
    Ok((reply, seeders, leechers))
}

fn leecher_gets_both(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let (reply, seeders, leechers) = from_small_swarm(fixture, client, fixture.leecher(40_009))?;
    demand(seeders > 0 && leechers > 0, || {
        format!("{seeders} of 2 seeders, {leechers} of 2 leechers: {}", hex(&reply.bytes))
    })
}

fn seeder_gets_leechers(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    let (reply, seeders, leechers) = from_small_swarm(fixture, client, fixture.seeder(40_009))?;
    demand(leechers > 0, || format!("it gets no leecher: {}", reply.listed()))?;
    prefer(seeders == 0, "BEP 15 does not say which peers a seeder gets", || reply.listed())
}

fn every_peer(fixture: &Fixture<'_>, client: &Client<'_>) -> CheckResult {
    client.announce_all(&fixture.seeders([40_001, 40_002, 40_003, 40_004]))?;
    client.announce_all(&fixture.leechers([40_005, 40_006, 40_007, 40_008]))?;
    let mut missing: HashSet<u16> = (40_001..40_009).collect();
    // A random list of 4 of 8 misses a given peer 32 times with a probability of 2^-32.
    for _ in 0..32 {
        let reply = client.announce(&fixture.leecher(40_009).want(4))?;
        reply.peers.iter().for_each(|peer| _ = missing.remove(&peer.port()));
    }
    let open = "BEP 15 does not say which peers are picked";
    prefer(missing.is_empty(), open, || {
        format!("{} of 8 peers are not listed in 32 announces of num_want 4", missing.len())
    })
}

/// The reply to a new leecher of the large swarm that wants `want` peers.
fn from_large_swarm(fixture: &Fixture<'_>, want: i32) -> Result<AnnounceReply, ExchangeError> {
    let hash = fixture.large_swarm()?.hash;
    let port = rand::random_range(50_000..60_000);
    fixture.client()?.announce(&AnnounceRequest::leecher(hash, port).want(want))
}

fn none(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    let reply = from_large_swarm(fixture, 0)?;
    prefer(reply.peers.is_empty(), "BEP 15 defines a default for -1 only", || reply.listed())
}

fn default(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    let wants = [
        (-1, 30, "BEP 15 leaves the default to the tracker"),
        (-200, 1, "BEP 15 defines a default for -1 only"),
    ];
    worst_of(wants, |(want, least, open)| {
        let reply = from_large_swarm(fixture, want)?;
        let seen = || format!("num_want {want}: {}", reply.listed());
        demand(want != -1 || !reply.peers.is_empty(), seen)?;
        prefer(reply.peers.len() >= least, open, seen)
    })
}

fn one(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    wants(fixture, &[1])
}

fn exact(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    wants(fixture, &[2, 3, 7, 10, 29])
}

fn wants(fixture: &Fixture<'_>, wants: &[u16]) -> CheckResult {
    worst_of(wants, |&want| {
        let reply = from_large_swarm(fixture, i32::from(want))?;
        let found = reply.peers.len();
        let seen = || format!("{found} peers for num_want {want}: {}", hex(&reply.bytes));
        demand(found <= usize::from(want), seen)?;
        let open = "BEP 15 lets a tracker give fewer than wanted";
        prefer(found == usize::from(want), open, seen)
    })
}

fn no_duplicates(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    let swarm: HashSet<_> = fixture.large_swarm()?.peers.iter().copied().collect();
    for _ in 0..4 {
        let reply = from_large_swarm(fixture, 60)?;
        // The swarm also has the ports that other checks announce meanwhile.
        let is_member =
            |peer: &Endpoint| swarm.contains(peer) || (50_000..60_000).contains(&peer.port());
        lists_members_once(&reply, is_member)?;
    }
    Ok(())
}

/// Passes where a reply lists members of the swarm only, each once.
pub(super) fn lists_members_once(
    reply: &AnnounceReply,
    is_member: impl Fn(&Endpoint) -> bool,
) -> CheckResult {
    let mut seen = HashSet::new();
    for peer in &reply.peers {
        let name = || format!("{} port {}", peer.ip(), peer.port());
        demand(is_member(peer), || {
            format!("{} is not in the swarm: {}", name(), hex(&reply.bytes))
        })?;
        demand(seen.insert(*peer), || format!("{} twice: {}", name(), hex(&reply.bytes)))?;
    }
    Ok(())
}

fn cap(fixture: &Fixture<'_>, _: &Client<'_>) -> CheckResult {
    let size = fixture.large_swarm()?.peers.len();
    let reply = from_large_swarm(fixture, i32::MAX)?;
    demand(reply.peers.len() <= size + 100, || {
        format!("more peers than the swarm has: {}", reply.listed())
    })?;
    prefer(reply.bytes.len() <= UNFRAGMENTED, "BEP 15 sets no limit", || {
        format!("{} peers, which some paths fragment: {}", reply.peers.len(), hex(&reply.bytes))
    })
}
