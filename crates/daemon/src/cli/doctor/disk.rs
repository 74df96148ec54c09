//! Room for snapshots: a new one is written beside the previous one.

use onrush_text::numbers::bytes;

use super::facts::StateDisk;
use super::{Facts, Finding};

const NAME: &str = "disk";
/// Bytes of a snapshot per peer: 32 per swarm and 8 per IPv4 peer, with two peers in a swarm on
/// average.
const BYTES_PER_PEER: u64 = 24;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.state_disk.iter().map(|disk| of(disk, facts.settings.limits.peers)).collect()
}

fn of(disk: &StateDisk, peers: u64) -> Finding {
    let StateDisk { directory, free, snapshot } = disk;
    // The previous snapshot stays until the new one is complete.
    let two = 2 * peers.saturating_mul(BYTES_PER_PEER);
    let has = format!("{} are free in {}", bytes(*free), directory.display());
    if free < snapshot {
        let size = bytes(*snapshot);
        let what = format!("{has}, and the next snapshot needs about {size}: it will fail");
        return Finding::problem(NAME, what)
            .fix(format!("df -h {}; remove files there", directory.display()))
            .keep("a larger file system, or `state_dir` on another one");
    }
    if free.saturating_add(*snapshot) < two {
        let what = format!(
            "{has}, and two snapshots of limits.peers take about {}: they will fail before the \
             limit is reached",
            bytes(two)
        );
        return Finding::note(NAME, what).fix("a larger file system, or a lower limits.peers");
    }
    Finding::ok(NAME, format!("{has}: two snapshots of limits.peers fit"))
}
