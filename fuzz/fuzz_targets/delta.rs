//! Arbitrary bytes as the delta of an upgrade: no panic, memory in proportion to the bytes, and
//! stops that are accepted have one form. The bytes behind the stops become a block of peers with a
//! valid checksum, which is merged into shards: they stay within their ceiling, and a second merge
//! changes no peer.
#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use onrush_replica::delta::{Delta, Stop, read_stops, write_stops};
use onrush_fuzz::{NOW, snapshot_with};
use onrush_proto::{Endpoint, InfoHash};
use onrush_store::snapshot::format::MAX_BLOCK;
use onrush_swarm::{Shard, ShardMap, ShardSettings};
use onrush_tracker::access::AccessList;

/// The shortest stop, bytes.
const SHORTEST: usize = 20 + 1 + 6 + 4 + 4;
/// The ceiling of each of two shards, which some inputs reach.
const MAX_PEERS: u64 = 40;

/// Stops of the bytes, if they begin with valid ones, and the bytes behind them.
fn split(bytes: &[u8]) -> (Vec<Stop>, &[u8]) {
    let (mut from, mut stops) = (bytes, Vec::new());
    let read = read_stops(&mut from, |stop| stops.push(stop));
    assert!(stops.len() * SHORTEST <= bytes.len());
    if read.is_err() {
        return (Vec::new(), bytes);
    }
    let mut written = Vec::new();
    write_stops(&mut written, &stops).expect("a vector takes everything");
    assert_eq!(written, bytes[..bytes.len() - from.len()]);
    (stops, from)
}

/// Merges a delta; returns the number of peers without room, or `None` if it is refused.
fn merge(bytes: &[u8], shards: &mut [Shard]) -> Option<u64> {
    let map = ShardMap::new([1; 5], shards.len() as u16);
    let mut delta = Delta::new(bytes, map, Arc::new(AccessList::Open), NOW);
    while let Some(steps) = delta.next(&|| NOW).ok()? {
        for (shard, mut step) in shards.iter_mut().zip(steps) {
            while step(shard, NOW) {}
            shard.check();
        }
    }
    Some(delta.full())
}

fn peers(shards: &[Shard]) -> BTreeSet<(InfoHash, Endpoint)> {
    let swarms = shards.iter().flat_map(|shard| shard.swarms(NOW.moment));
    swarms
        .flat_map(|swarm| swarm.peers.into_iter().map(move |it| (swarm.info_hash, it.endpoint)))
        .collect()
}

fuzz_target!(|bytes: &[u8]| {
    let (stops, records) = split(bytes);
    if records.len() > MAX_BLOCK {
        return;
    }
    let (file, valid) = snapshot_with(records);
    let mut delta = Vec::new();
    write_stops(&mut delta, &stops).expect("a vector takes everything");
    delta.extend_from_slice(&file);
    let settings =
        ShardSettings { max_peers: MAX_PEERS, max_idle_swarms: 10, ..ShardSettings::default() };
    let mut shards = [1, 2].map(|seed| Shard::new(settings, [7; 16], seed));
    let full = merge(&delta, &mut shards);
    assert_eq!(full.is_some(), valid);
    if full == Some(0) {
        let before = peers(&shards);
        assert_eq!(merge(&delta, &mut shards), Some(0));
        assert_eq!(peers(&shards), before);
    }
});
