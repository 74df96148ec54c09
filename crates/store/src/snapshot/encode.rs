//! Encodes the swarms and peers of a walk over a shard as blocks of a snapshot.

use onrush_proto::Endpoint;
use onrush_swarm::{Shard, SwarmSummary, Visitor};

use super::format::{self, BLOCK_HEAD_LEN, RECORD_LEN, SnapshotCounts};
use onrush_tracker::clock::Now;
use onrush_tracker::stream::ShardReader;

/// Bytes at which a block is closed. A step of the walk may exceed it, far below
/// [`format::MAX_BLOCK`].
const FULL: usize = 128 << 10;

/// Swarms and peers per step in a running shard: about 20 us when they are not in the CPU caches.
const STEP: usize = 192;

/// A visitor of a walk that fills blocks, by default with all peers.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The open block, empty before its first swarm; its first bytes are reserved for the head.
    block: Vec<u8>,
    open: Option<Open>,
    counts: SnapshotCounts,
    /// Peers that last announced more than this many seconds ago are left out.
    max_age: Option<u32>,
}

/// The record being written.
#[derive(Debug)]
struct Open {
    at: usize,
    swarm: SwarmSummary,
    peers: (u32, u32),
    continued: bool,
}

/// A closed block.
#[derive(Debug)]
pub struct Block {
    /// The block with its head.
    pub bytes: Vec<u8>,
    /// The records and peers in it.
    pub counts: SnapshotCounts,
}

impl Encoder {
    /// An encoder of the peers that announced in the last `seconds`, and of swarms that became
    /// empty in that time.
    pub fn since(seconds: u32) -> Self {
        Self { max_age: Some(seconds), ..Self::default() }
    }

    /// Closes and returns the block if it is full or `last`. `unix` is the time that ages refer to,
    /// in seconds since 1970.
    pub fn block(&mut self, unix: u64, last: bool) -> Option<Block> {
        self.close();
        let min_len = if last { BLOCK_HEAD_LEN + 1 } else { FULL };
        if self.block.len() < min_len {
            return None;
        }
        let mut bytes = std::mem::take(&mut self.block);
        format::close_block(&mut bytes, unix);
        Some(Block { bytes, counts: std::mem::take(&mut self.counts) })
    }

    /// Writes the head of the open record, or drops the record if it holds nothing.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Open { at, swarm, peers, continued } = open;
        let peers_or_idle = match swarm.idle_for {
            Some(idle_for) if self.max_age.is_none_or(|max_age| idle_for <= max_age) => {
                Err(idle_for)
            }
            None if peers != (0, 0) => Ok(peers),
            // An empty first record carries `completed`; the following ones carry peers only.
            None if !continued && self.max_age.is_none() => Ok(peers),
            _ => {
                self.block.truncate(at);
                return;
            }
        };
        let head = format::record_head(&swarm.info_hash, swarm.completed, peers_or_idle);
        self.block[at..at + RECORD_LEN].copy_from_slice(&head);
        self.counts += SnapshotCounts { records: 1, v4: peers.0.into(), v6: peers.1.into() };
    }
}

impl ShardReader for Encoder {
    type Message = Block;

    fn read(&mut self, shard: &mut Shard, now: Now) -> (Option<Block>, bool) {
        let more = shard.walk_with_peers(now.moment, STEP, self);
        (self.block(now.unix, !more), more)
    }
}

impl Visitor for Encoder {
    fn swarm(&mut self, swarm: &SwarmSummary, continued: bool) {
        self.close();
        if self.block.is_empty() {
            self.block.reserve(FULL + FULL / 4);
            self.block.resize(BLOCK_HEAD_LEN, 0);
        }
        let at = self.block.len();
        self.open = Some(Open { at, swarm: *swarm, peers: (0, 0), continued });
        self.block.resize(at + RECORD_LEN, 0);
    }

    fn peer(&mut self, endpoint: &Endpoint, seeder: bool, age: u32) {
        let Some(open) = &mut self.open else { return };
        if self.max_age.is_some_and(|max_age| age > max_age) {
            return;
        }
        match endpoint {
            Endpoint::V4(_) => open.peers.0 += 1,
            Endpoint::V6(_) => open.peers.1 += 1,
        }
        self.block.extend_from_slice(endpoint.as_bytes());
        self.block.extend_from_slice(&format::stamp(age, seeder));
    }
}
