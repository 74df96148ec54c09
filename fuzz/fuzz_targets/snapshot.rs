//! Arbitrary bytes as a snapshot: no panic, and valid snapshots are loaded. Checksums are corrected
//! first, so that the parser behind them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_store::snapshot::format::{self, BLOCK_HEAD_LEN, Records, SnapshotCounts};
use onrush_store::snapshot::load::{LoadOptions, from_stream, verify};
use onrush_swarm::{Moment, Shard, ShardMap, ShardSettings};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;

const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

/// A complete snapshot with these records, and whether the records are valid.
fn snapshot_with(records: &[u8]) -> (Vec<u8>, bool) {
    let mut file = format::head(NOW.unix).to_vec();
    let mut block = vec![0; BLOCK_HEAD_LEN];
    block.extend_from_slice(records);
    format::close_block(&mut block, NOW.unix - 100);
    file.extend_from_slice(&block);
    let counts = Records::new(records).count();
    file.extend_from_slice(&format::end(counts.unwrap_or_default(), NOW.unix));
    (file, counts.is_ok())
}

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
