//! All peers of a tracker whose workers run, in the format of a snapshot.

use std::io::{self, Read, Write};
use std::time::Duration;

use onrush_store::snapshot::encode::{Block, Encoder};
use onrush_store::snapshot::load::{LoadOptions, from_stream, reserve};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_swarm::{Restored, Shard, ShardMap};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::gather::ResultMissing;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::ShardStream;
use thiserror::Error;

use crate::delta::OLDER_IN_DUMP;
use crate::link::Link;

/// Why a dump was not loaded.
#[derive(Debug, Error)]
pub enum DumpError {
    /// The source failed, or its bytes are not a dump.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not all peers fit.
    #[error("limits.peers = {limit} has no room for {lost} of {peers} peers")]
    TooManyPeers {
        /// Peers of the sender that would be kept but for the limit.
        peers: u64,
        /// How many of them do not fit.
        lost: u64,
        /// `limits.peers`.
        limit: u64,
    },
}

/// Sends the peers of all shards, within `limit`. Waits for each block of a worker up to `timeout`.
///
/// # Errors
/// When the link fails, or a worker produces no block in time.
pub fn send(
    link: &impl Link,
    orders: &Orders,
    limit: Duration,
    timeout: Duration,
) -> io::Result<()> {
    let mut blocks: ShardStream<Block> =
        ShardStream::start(orders, Encoder::default).map_err(io::Error::other)?;
    let mut writer = SnapshotWriter::begin(link.writer(limit), link.now().unix)?;
    let missing = |_| io::Error::other(ResultMissing);
    while let Some(block) = blocks.next_by(|parts| link.wait(parts, timeout)).map_err(missing)? {
        writer.block(&block)?;
    }
    let (mut to, _) = writer.end(link.now().unix)?;
    to.flush()
}

/// Loads the dump of a process that stores `held` peers, into shards that share `limit` peers,
/// which is `limits.peers`. With `force`, those that do not fit are dropped. Calls `progress` once
/// per block.
///
/// # Errors
/// [`DumpError`], when the dump cannot be read, or has too many peers without `force`.
pub fn load(
    from: impl Read,
    held: u64,
    mut shards: Vec<&mut Shard>,
    options: LoadOptions<'_>,
    (limit, force): (u64, bool),
    progress: &mut dyn FnMut(),
) -> Result<(), DumpError> {
    // Without `force` no peer may be dropped, also if some of those held have expired and the
    // others are few enough.
    if held <= limit || !force {
        reserve(&mut shards, limit);
    }
    let loaded = from_stream(from, shards, options, progress).map_err(io::Error::other)?;
    log::info!("upgrade: {loaded}");
    let Restored { stored, full, .. } = loaded.peers;
    // Neither counts peers that were replaced while the others were sent, nor expired ones.
    let peers = held.min(stored + full);
    let lost = peers.saturating_sub(limit).max(full);
    if lost > 0 && !force {
        return Err(DumpError::TooManyPeers { peers, lost, limit });
    }
    if full > 0 {
        log::warn!("upgrade: {full} peers were dropped, as limits.peers = {limit} has no room");
    }
    Ok(())
}

/// How a dump is loaded that is written from `now` on.
pub fn load_options(map: ShardMap, access: &AccessList, now: Now) -> LoadOptions<'_> {
    // Its ages are right: by the wall clock, which may be set meanwhile, they could seem old.
    let now = Now { unix: 0, ..now };
    LoadOptions { map, access, now, extra_age: OLDER_IN_DUMP }
}

#[cfg(test)]
mod tests {
    use onrush_proto::{Endpoint, InfoHash};
    use onrush_swarm::{Moment, PeerView, ShardSettings};

    use super::*;

    const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

    fn shard(max_peers: u64) -> Shard {
        let settings = ShardSettings { max_peers, ..ShardSettings::default() };
        Shard::new(settings, [1; 16], 1)
    }

    /// A dump of this many peers, of which the first `crowd` share a swarm.
    fn dump_of(peers: u16, crowd: u16) -> Vec<u8> {
        let mut source = shard(peers.into());
        for number in 1..=peers {
            let spread = u32::from(number.max(crowd)).wrapping_mul(0x9E37_79B1).to_be_bytes();
            let hash = InfoHash(std::array::from_fn(|at| spread[at % 4]));
            let [high, low] = number.to_be_bytes();
            let endpoint = Endpoint::V4([192, 0, 2, 1, high, low]);
            let peer = PeerView { endpoint, seeder: true, age: 0 };
            source.restore(hash, 0, [peer].into_iter(), NOW.moment);
        }
        let mut writer = SnapshotWriter::begin(Vec::new(), NOW.unix).unwrap();
        writer.shards(&mut [source], NOW, Encoder::default(), &mut || {}).unwrap();
        writer.end(NOW.unix).unwrap().0
    }

    /// Loads a dump of `sent` peers, of a process that stores `held`, into shards that store
    /// `limit`. Returns the peers stored, or how many are too many.
    fn load_sent(held: u64, sent: u16, into: (u16, u64), force: bool) -> Result<u64, u64> {
        load_dump(held, &dump_of(sent, 0), into, force)
    }

    fn load_dump(
        held: u64,
        dump: &[u8],
        (shards, limit): (u16, u64),
        force: bool,
    ) -> Result<u64, u64> {
        let mut of_each: Vec<_> = (0..shards).map(|_| shard(limit / u64::from(shards))).collect();
        let options = load_options(ShardMap::new([3; 5], shards), &AccessList::Open, NOW);
        let all = of_each.iter_mut().collect();
        match load(dump, held, all, options, (limit, force), &mut || {}) {
            Ok(()) => Ok(of_each.iter().map(|shard| shard.totals().peers()).sum()),
            Err(DumpError::TooManyPeers { peers, lost, limit: named }) => {
                assert_eq!((peers - lost, named), (limit, limit));
                Err(lost)
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn peers_are_too_many_only_if_the_limit_is_smaller_than_what_is_held() {
        // 20 peers were replaced or stopped after they had been sent.
        assert_eq!(load_sent(1_000, 1_020, (1, 1_000), false), Ok(1_020));
        for shards in [1, 2, 3, 7] {
            assert_eq!(
                load_sent(1_000, 1_020, (shards, 1_000), false),
                Ok(1_020),
                "{shards} shards"
            );
            assert_eq!(load_sent(1_000, 1_020, (shards, 990), false), Err(10));
            let forced = load_sent(1_000, 1_020, (shards, 990), true).unwrap();
            assert!((700..=990).contains(&forced), "{forced} in {shards} shards");
            // The others have expired here.
            assert_eq!(load_sent(1_000, 900, (shards, 900), false), Ok(900), "{shards} shards");
        }
    }

    #[test]
    fn a_swarm_larger_than_the_part_of_its_shard_is_kept() {
        for force in [false, true] {
            let loaded = load_dump(4_000, &dump_of(4_000, 3_000), (8, 8_000), force);
            assert_eq!(loaded, Ok(4_000));
        }
    }
}
