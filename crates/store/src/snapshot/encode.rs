//! From a walk over a shard to blocks of a snapshot.

use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{SwarmSummary, Visitor};

use super::format::{self, BLOCK_HEAD_LEN, RECORD_LEN, SnapshotCounts};

/// Bytes at which a block is closed. What a step of a walk shows goes beyond it, and stays far below what a
/// block may have.
const FULL: usize = 128 << 10;

/// Writes down what a walk shows.
#[derive(Debug)]
pub struct Encoder {
    /// The block that is being filled, behind room for its head.
    block: Vec<u8>,
    open: Option<Open>,
    tally: SnapshotCounts,
    /// What was heard of longer ago, in seconds, is left out.
    youngest: Option<u32>,
}

/// The record that is being written.
#[derive(Debug)]
struct Open {
    at: usize,
    info_hash: InfoHash,
    completed: u32,
    idle_for: Option<u32>,
    peers: (u32, u32),
    goes_on: bool,
}

/// A block that is closed, with what is in it.
#[derive(Debug)]
pub struct Block {
    /// All of it.
    pub bytes: Vec<u8>,
    /// What is in it.
    pub tally: SnapshotCounts,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Of everything.
    pub fn new() -> Self {
        Self { block: empty(), open: None, tally: SnapshotCounts::default(), youngest: None }
    }

    /// Only of what was heard of in the last `seconds`.
    pub fn of_the_last(seconds: u32) -> Self {
        Self { youngest: Some(seconds), ..Self::new() }
    }

    /// Closes the block, if it is full or `last`. `unix` is the time at which the ages are right.
    pub fn block(&mut self, unix: u64, last: bool) -> Option<Block> {
        self.close();
        let enough = if last { BLOCK_HEAD_LEN + 1 } else { FULL };
        if self.block.len() < enough {
            return None;
        }
        let mut bytes = std::mem::replace(&mut self.block, if last { Vec::new() } else { empty() });
        format::close_block(&mut bytes, unix);
        Some(Block { bytes, tally: std::mem::take(&mut self.tally) })
    }

    /// Ends the record that is being written.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Open { at, info_hash, completed, idle_for, peers, goes_on } = open;
        let counts = match idle_for {
            Some(idle_for) if self.youngest.is_none_or(|youngest| idle_for <= youngest) => {
                Err(idle_for)
            }
            None if peers != (0, 0) => Ok(peers),
            // A swarm whose peers are all elsewhere says something only where it begins.
            None if !goes_on && self.youngest.is_none() => Ok(peers),
            _ => {
                self.block.truncate(at);
                return;
            }
        };
        let head = format::record_head(&info_hash, completed, counts);
        self.block[at..at + RECORD_LEN].copy_from_slice(&head);
        self.tally += SnapshotCounts { records: 1, v4: peers.0.into(), v6: peers.1.into() };
    }
}

fn empty() -> Vec<u8> {
    let mut block = Vec::with_capacity(FULL + FULL / 4);
    block.resize(BLOCK_HEAD_LEN, 0);
    block
}

impl Visitor for Encoder {
    fn swarm(&mut self, swarm: &SwarmSummary, goes_on: bool) {
        self.close();
        if self.block.is_empty() {
            self.block = empty();
        }
        let SwarmSummary { info_hash, completed, idle_for, .. } = *swarm;
        self.open = Some(Open {
            at: self.block.len(),
            info_hash,
            completed,
            idle_for,
            peers: (0, 0),
            goes_on,
        });
        self.block.resize(self.block.len() + RECORD_LEN, 0);
    }

    fn peer(&mut self, endpoint: &Endpoint, seeder: bool, age: u32) {
        let Some(open) = &mut self.open else { return };
        if self.youngest.is_some_and(|youngest| age > youngest) {
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
