//! Checks of queries: encodings, order, and what is invalid (BEP 3, "trackers"; RFC 3986).

use onrush_proto::InfoHash;

use super::Check;
use super::announce::served;
use super::client::Http;
use crate::check::{CheckResult, Group, Needs, demand, prefer, worst_of};
use crate::message::AnnounceRequest;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Announce, "percent-lower-case", Needs::Hashes(1), lower_case)
        .expects("any byte may be encoded, with hexadecimal digits of lower case")
        .source("RFC 3986, sections 2.1 and 2.3; transmission sends them"),
    Check::new(Group::Announce, "percent-only-needed", Needs::Hashes(1), only_needed)
        .expects("characters that a query may contain need not be encoded")
        .source("RFC 3986, section 3.4"),
    Check::new(Group::Announce, "keys-in-any-order", Needs::Hashes(1), any_order)
        .expects("the order of the keys does not matter")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "unknown-keys", Needs::Hashes(1), unknown_keys)
        .expects("unknown keys, empty ones and keys without a value are ignored")
        .source("clients send keys of many extensions"),
    Check::new(Group::Announce, "no-info-hash", Needs::Nothing, no_info_hash)
        .expects("an announce without an info hash is a failure")
        .source("BEP 3, \"trackers\": `failure reason`"),
    Check::new(Group::Announce, "bad-info-hash", Needs::Nothing, bad_info_hash)
        .expects("an info hash of 19 or 21 bytes is a failure")
        .source("BEP 3, \"trackers\": 20 bytes"),
    Check::new(Group::Announce, "two-info-hashes", Needs::Hashes(2), two_info_hashes)
        .expects("an announce with two info hashes is a failure")
        .source("BEP 3, \"trackers\": one info hash"),
    Check::new(Group::Announce, "bad-peer-id", Needs::Hashes(1), bad_peer_id)
        .expects("an announce without a peer id, or with one of 19 bytes, is a failure")
        .source("BEP 3, \"trackers\": 20 bytes"),
    Check::new(Group::Announce, "bad-port", Needs::Hashes(1), bad_port)
        .expects("an announce without a port, or with one above 65535, is a failure")
        .source("BEP 3, \"trackers\""),
    Check::new(Group::Announce, "announce-port-0", Needs::Hashes(1), port_0)
        .expects("a peer at port 0 is a failure, and not handed out")
        .source("BEP 3, \"trackers\": port 0 is not reachable"),
    Check::new(Group::Announce, "announce-port-1", Needs::Hashes(1), port_1)
        .expects("a peer at port 1 is answered, but not handed out")
        .source("clients that are not reachable announce port 1"),
];

/// The query with another value of a key, or without the key.
pub(super) fn set(query: &str, key: &str, value: Option<&str>) -> String {
    let pairs = query.split('&').filter_map(|pair| match pair.split_once('=') {
        Some((found, _)) if found == key => value.map(|value| format!("{key}={value}")),
        _ => Some(pair.to_owned()),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Passes if an info hash in this form is the same as in the usual one.
fn demand_same(http: &Http<'_>, hash: InfoHash, form: &str) -> CheckResult {
    let query = http.query(&AnnounceRequest::leecher(hash, 40_001));
    demand_swarm(http, hash, &set(&query, "info_hash", Some(form)))
}

/// Passes if this announce of port 40001 is one to the swarm.
fn demand_swarm(http: &Http<'_>, hash: InfoHash, query: &str) -> CheckResult {
    http.ask(query)?;
    let reply = http.announce(&AnnounceRequest::leecher(hash, 40_002))?;
    demand(reply.has(40_001), || format!("the swarm is another one: {}", reply.listed()))
}

fn encoded(id: [u8; 20]) -> String {
    id.iter().map(|byte| format!("%{byte:02x}")).collect()
}

fn lower_case(http: &Http<'_>) -> CheckResult {
    let (hash, request) = (http.hash(0), http.leecher(40_001));
    let query = set(&http.query(&request), "peer_id", Some(&encoded(request.fields.peer_id.0)));
    demand_swarm(http, hash, &set(&query, "info_hash", Some(&encoded(hash.0))))
}

fn only_needed(http: &Http<'_>) -> CheckResult {
    if http.session.pool.is_limited() {
        return crate::check::skipped("needs an info hash of certain characters");
    }
    let mut hash = *b"aZ0-._~!$'()*,;:@/?x";
    // Another one in each run: two at once would remove each other's peers.
    hash[16..].fill_with(|| rand::random_range(b'A'..=b'Z'));
    let form = std::str::from_utf8(&hash).expect("ASCII").to_owned();
    demand_same(http, InfoHash(hash), &form)
}

fn any_order(http: &Http<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    let reversed: Vec<_> = query.split('&').rev().collect();
    served(http, &reversed.join("&"))
}

fn unknown_keys(http: &Http<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    served(http, &format!("supportcrypto=1&&flag&=x&azver=3&{query}&corrupt=0&trackerid="))
}

fn no_info_hash(http: &Http<'_>) -> CheckResult {
    let query = http.query(&AnnounceRequest::leecher(InfoHash([0; 20]), 40_001));
    http.refused(&set(&query, "info_hash", None), None)
}

fn bad_info_hash(http: &Http<'_>) -> CheckResult {
    let query = http.query(&AnnounceRequest::leecher(InfoHash([0; 20]), 40_001));
    worst_of([19, 21], |len| http.refused(&set(&query, "info_hash", Some(&"a".repeat(len))), None))
}

fn two_info_hashes(http: &Http<'_>) -> CheckResult {
    // Whichever of them the tracker takes, the peer is removed from.
    http.query(&AnnounceRequest::leecher(http.hash(1), 40_001));
    let query = http.query(&http.leecher(40_001));
    let both = format!("{query}&info_hash={}", encoded(http.hash(1).0));
    http.refused(&both, Some("BEP 3 does not say which of repeated keys counts"))
}

fn bad_peer_id(http: &Http<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    let open = Some("BEP 23 made peer ids unnecessary for lists");
    worst_of([None, Some("nineteen-characters")], |id| {
        http.refused(&set(&query, "peer_id", id), open)
    })
}

fn bad_port(http: &Http<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    // The peer that a number of 16 bits would make of it.
    http.query(&http.leecher((70_000 - 65_536) as u16));
    let open = "BEP 3 does not define the reply";
    let results =
        [None, Some("70000")].map(|port| http.refused(&set(&query, "port", port), Some(open)));
    let listed = http.announce(&http.leecher(40_002))?;
    demand(listed.peers.is_empty() || !listed.has(4_464), || {
        format!("a peer at another port is handed out: {}", listed.listed())
    })?;
    worst_of(results, |result| result)
}

fn port_0(http: &Http<'_>) -> CheckResult {
    let open = "BEP 3 does not define the reply to a peer without a port";
    let result = http.refused(&http.query(&http.leecher(0)), Some(open));
    let listed = http.announce(&http.leecher(40_001))?;
    demand(!listed.has(0), || format!("port 0 is handed out: {}", listed.listed()))?;
    result
}

fn port_1(http: &Http<'_>) -> CheckResult {
    http.announce(&http.leecher(1))?;
    let listed = http.announce(&http.leecher(40_001))?;
    prefer(!listed.has(1), "BEP 3 does not define unreachable peers", || listed.listed())
}
