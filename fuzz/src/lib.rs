//! What several fuzz targets need: snapshots with valid checksums, so that fuzzing reaches the
//! parser behind them.

use onrush_store::snapshot::format::{self, BLOCK_HEAD_LEN, Records};
use onrush_swarm::Moment;
use onrush_tracker::clock::Now;

/// The time at which a target loads.
pub const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

/// A complete snapshot of one block with these records, written 100 s before [`NOW`], and whether
/// the records are valid.
pub fn snapshot_with(records: &[u8]) -> (Vec<u8>, bool) {
    let mut file = format::head(NOW.unix).to_vec();
    let mut block = vec![0; BLOCK_HEAD_LEN];
    block.extend_from_slice(records);
    format::close_block(&mut block, NOW.unix - 100);
    file.extend_from_slice(&block);
    let counts = Records::new(records).count();
    file.extend_from_slice(&format::end(counts.unwrap_or_default(), NOW.unix));
    (file, counts.is_ok())
}
