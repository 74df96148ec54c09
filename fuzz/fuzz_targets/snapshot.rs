//! Arbitrary bytes as a snapshot: no panic, and valid snapshots are loaded. Checksums are corrected
//! first, so that the parser behind them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_fuzz::{NOW, snapshot_with};
use onrush_store::snapshot::format::{self, SnapshotCounts};
use onrush_store::snapshot::load::{LoadOptions, from_stream, verify};
use onrush_swarm::{Shard, ShardMap, ShardSettings};
use onrush_tracker::access::AccessList;

fuzz_target!(|bytes: &[u8]| {
    let _ = verify(bytes, &mut || {});
    if bytes.len() > format::MAX_BLOCK {
        return;
    }
    let (file, valid) = snapshot_with(bytes);
    assert_eq!(verify(file.as_slice(), &mut || {}).is_ok(), valid);
    let settings = ShardSettings {
        peer_lifetime: 3600,
        max_peers: 1_000,
        max_idle_swarms: 10,
        ..ShardSettings::default()
    };
    let mut shard = Shard::new(settings, [7; 16], 1);
    let map = ShardMap::new([1; 5], 1);
    let options = LoadOptions { map, access: &AccessList::Open, now: NOW, extra_age: 0 };
    let file = file.as_slice();
    let loaded = from_stream(file, vec![&mut shard], options, &mut || {});
    shard.check();
    if let Ok(loaded) = loaded {
        let counts = verify(file, &mut || {}).expect("a loaded file is valid");
        let SnapshotCounts { v4, v6, .. } = counts;
        let peers = loaded.peers;
        assert_eq!(peers.stored + peers.expired + peers.full, v4 + v6);
    }
});
