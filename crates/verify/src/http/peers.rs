//! Checks of peer lists over HTTP (BEP 3, 7, 23).

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use super::Check;
use super::client::{CROWD, Http};
use super::query::set;
use super::reply::Announced;
use crate::check::{
    CheckResult, Finding, Group, Needs, demand, prefer, skipped, tolerated, worst_of,
};
use crate::message::AnnounceRequest;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Peers, "peers-in-wire-form", Needs::Hashes(1), wire_form)
        .expects("peers are listed as source address and port, 6 bytes over IPv4, 18 over IPv6")
        .source("BEP 23; BEP 7"),
    Check::new(Group::Peers, "peers6", Needs::Hashes(1), peers6)
        .expects("over IPv6 the peers are in `peers6`")
        .source("BEP 7"),
    Check::new(Group::Peers, "ip-key-ignored", Needs::Hashes(1), ip_key)
        .expects("a peer is listed under its source address, whatever its key `ip` says")
        .source("BEP 3, \"trackers\": the key serves attacks on third parties"),
    Check::new(Group::Peers, "asker-not-listed", Needs::Hashes(1), own_peer)
        .expects("a peer is not in the list that it gets")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Peers, "leecher-gets-both", Needs::Hashes(1), leecher_gets_both)
        .expects("a leecher gets seeders and leechers")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Peers, "seeder-gets-no-seeders", Needs::Hashes(1), seeder_gets_leechers)
        .expects("a seeder gets leechers only")
        .source("BEP 3, \"trackers\": seeders do not connect to each other"),
    Check::new(Group::Peers, "everybody-is-handed-out", Needs::Hashes(1), every_peer)
        .expects("over several announces every peer of a swarm is listed")
        .source("BEP 3, \"trackers\": a random selection"),
    Check::new(Group::Peers, "numwant-0", Needs::LargeSwarm, none)
        .expects("numwant=0 gives no peers")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Peers, "numwant-absent", Needs::LargeSwarm, default)
        .expects("without numwant, with a negative one and with a word there are 30 peers or more")
        .source("BEP 3, \"trackers\": typically 50"),
    Check::new(Group::Peers, "numwant-exact", Needs::LargeSwarm, exact)
        .expects("numwant gives exactly the wanted number of peers where there are more")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Peers, "numwant-huge", Needs::LargeSwarm, huge)
        .expects("whatever numwant says, only peers of the swarm are listed, each once")
        .source("BEP 3, \"trackers\""),
];

fn wire_form(http: &Http<'_>) -> CheckResult {
    http.announce(&http.leecher(40_001))?;
    let reply = http.announce(&http.leecher(40_002))?;
    // Behind a NAT the tracker sees another address.
    let is_local = |ip: IpAddr| !http.target.local.is_loopback() || ip == http.target.local;
    let is_family = |ip: IpAddr| ip.is_ipv4() == http.target.local.is_ipv4();
    let is_right = |ip| is_local(ip) && is_family(ip);
    let right = reply.peers.iter().any(|peer| peer.port() == 40_001 && is_right(peer.ip()));
    demand(right, || format!("{} is not listed: {}", http.target.local, reply.listed()))
}

fn peers6(http: &Http<'_>) -> CheckResult {
    if http.target.local.is_ipv4() {
        return skipped("the URL is of IPv4");
    }
    http.announce(&http.leecher(40_001))?;
    let reply = http.announce(&http.leecher(40_002))?;
    let found = reply.keys.text("peers6");
    demand(found.is_some_and(|peers| !peers.is_empty()), || reply.listed())
}

fn ip_key(http: &Http<'_>) -> CheckResult {
    // An address reserved for documentation (RFC 5737).
    let elsewhere = Ipv4Addr::new(192, 0, 2, 66);
    let claims = http.query(&http.leecher(40_001));
    http.ask(&format!("{claims}&ip={elsewhere}&ipv4={elsewhere}:40001"))?;
    http.announce(&http.leecher(40_002))?;
    let reply = http.announce(&http.leecher(40_003))?;
    let open = "BEP 3 allows a tracker to use the key (and with it attacks on third parties)";
    prefer(reply.peers.iter().all(|peer| peer.ip() != elsewhere), open, || reply.listed())?;
    let address = |port| reply.peers.iter().find(|peer| peer.port() == port).map(|it| it.ip());
    let is_source = address(40_001).is_some() && address(40_001) == address(40_002);
    demand(is_source, || format!("not under its source address: {}", reply.listed()))
}

fn own_peer(http: &Http<'_>) -> CheckResult {
    http.announce_all([http.leecher(40_001), http.leecher(40_002)])?;
    let open = "BEP 3 does not exclude the announcing peer, and clients skip their own address";
    worst_of([2, 0, 0], |event| {
        let reply = http.announce(&http.leecher(40_001).event(event))?;
        prefer(!reply.has(40_001), open, || reply.listed())
    })
}

/// The reply to a peer of a swarm of two seeders and two leechers, and how many of each it lists.
fn from_small_swarm(
    http: &Http<'_>,
    peer: AnnounceRequest,
) -> Result<(Announced, usize, usize), Finding> {
    http.announce_all([40_001, 40_002].map(|port| http.seeder(port)))?;
    http.announce_all([40_003, 40_004].map(|port| http.leecher(port)))?;
    let reply = http.announce(&peer)?;
    let listed = |ports: [u16; 2]| ports.into_iter().filter(|port| reply.has(*port)).count();
    let (seeders, leechers) = (listed([40_001, 40_002]), listed([40_003, 40_004]));
    Ok((reply, seeders, leechers))
}

fn leecher_gets_both(http: &Http<'_>) -> CheckResult {
    let (reply, seeders, leechers) = from_small_swarm(http, http.leecher(40_009))?;
    demand(seeders > 0 && leechers > 0, || {
        format!("{seeders} of 2 seeders, {leechers} of 2 leechers: {}", reply.listed())
    })
}

fn seeder_gets_leechers(http: &Http<'_>) -> CheckResult {
    let (reply, seeders, leechers) = from_small_swarm(http, http.seeder(40_009))?;
    demand(leechers > 0, || format!("it gets no leecher: {}", reply.listed()))?;
    prefer(seeders == 0, "BEP 3 does not say which peers a seeder gets", || reply.listed())
}

fn every_peer(http: &Http<'_>) -> CheckResult {
    let ports = [40_001, 40_002, 40_003, 40_004, 40_005, 40_006, 40_007, 40_008];
    http.announce_all(ports.map(|port| http.leecher(port)))?;
    let mut missing = HashSet::from(ports);
    // A random list of 4 of 8 misses a given peer 32 times with a probability of 2^-32.
    for _ in 0..32 {
        let reply = http.announce(&http.leecher(40_009).want(4))?;
        reply.peers.iter().for_each(|peer| _ = missing.remove(&peer.port()));
        if missing.is_empty() {
            break;
        }
    }
    prefer(missing.is_empty(), "BEP 3 does not say which peers are picked", || {
        format!("{} of 8 peers are not listed in 32 announces of numwant 4", missing.len())
    })
}

/// The reply to a new leecher of the large swarm with this `numwant`.
fn from_crowd(http: &Http<'_>, want: Option<&str>) -> Result<Announced, Finding> {
    let port = rand::random_range(50_000..60_000);
    let query = http.query(&AnnounceRequest::leecher(http.crowd()?, port));
    http.ask(&set(&query, "numwant", want))
}

fn none(http: &Http<'_>) -> CheckResult {
    let reply = from_crowd(http, Some("0"))?;
    prefer(reply.peers.is_empty(), "BEP 3 does not define 0", || reply.listed())
}

fn default(http: &Http<'_>) -> CheckResult {
    let open = "BEP 3 leaves the default to the tracker";
    worst_of([None, Some("-1"), Some("many")], |want| {
        let reply = match (from_crowd(http, want), want) {
            (reply, Some("many")) => reply.map_err(tolerated(open))?,
            (reply, _) => reply?,
        };
        demand(!reply.peers.is_empty(), || format!("{want:?}: {}", reply.listed()))?;
        prefer(reply.peers.len() >= 30, open, || format!("{want:?}: {}", reply.listed()))
    })
}

fn exact(http: &Http<'_>) -> CheckResult {
    worst_of([1, 2, 3, 7, 10, 29], |want| {
        let reply = from_crowd(http, Some(&want.to_string()))?;
        let seen = || format!("numwant {want}: {}", reply.listed());
        demand(reply.peers.len() <= want, seen)?;
        prefer(reply.peers.len() == want, "BEP 3 lets a tracker give fewer than wanted", seen)
    })
}

fn huge(http: &Http<'_>) -> CheckResult {
    for want in ["200", "2147483647", "99999999999999999999"] {
        let reply = from_crowd(http, Some(want))?;
        // The swarm also has the ports that other checks announce meanwhile.
        let is_member = |port: u16| {
            (20_000..20_000 + CROWD).contains(&port) || (50_000..60_000).contains(&port)
        };
        let mut found = HashSet::new();
        let right =
            reply.peers.iter().all(|peer| is_member(peer.port()) && found.insert(peer.port()));
        demand(right, || format!("numwant {want}: {}", reply.listed()))?;
    }
    Ok(())
}
