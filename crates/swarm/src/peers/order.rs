//! The order in which a walk visits the peers of a swarm: by family, then by the bit-reversed keyed
//! hash of the endpoint.
//!
//! The order is a property of the peer alone, independent of its list and of the swarm's form: a
//! peer keeps its position while others are added and removed, lists change their form and chunks
//! are split or joined. A chunk of a [`ChunkedSet`](super::chunked_set::ChunkedSet) has the peers
//! whose hashes agree in their lowest bits, so in reversed order it is a run of hashes without
//! gaps.

use onrush_proto::{Endpoint, Family};

use crate::keys::Keys;

/// The position of a walk: every peer before it was visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WalkPosition {
    pub(super) family: u8,
    pub(super) hash: u64,
}

impl WalkPosition {
    /// The beginning.
    pub(crate) const FIRST: Self = Self { family: Family::V4 as u8, hash: 0 };

    /// The position of a peer.
    pub(super) fn of(endpoint: &Endpoint, keys: &Keys) -> Self {
        let hash = match endpoint {
            Endpoint::V4(row) => keys.row(row),
            Endpoint::V6(row) => keys.row(row),
        };
        Self { family: endpoint.family() as u8, hash: hash.reverse_bits() }
    }

    /// The beginning of the next family, if there is one.
    pub(super) fn next_family(self) -> Option<Self> {
        (self.family == Family::V4 as u8).then_some(Self { family: Family::V6 as u8, hash: 0 })
    }
}

/// A run of reversed hashes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Run {
    /// All hashes whose lowest `bits` bits equal those of `chunk`.
    pub(super) fn of_chunk(chunk: usize, bits: u32) -> Self {
        let first = (chunk as u64).reverse_bits();
        Self { first, last: first | u64::MAX.checked_shr(bits).unwrap_or(0) }
    }

    pub(super) fn has(&self, place: u64) -> bool {
        (self.first..=self.last).contains(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_runs_one_after_the_other() {
        assert_eq!(Run::of_chunk(0, 0), Run { first: 0, last: u64::MAX });
        for bits in 1..6 {
            let mut runs: Vec<_> = (0..1 << bits).map(|chunk| Run::of_chunk(chunk, bits)).collect();
            runs.sort_unstable_by_key(|run| run.first);
            assert_eq!((runs[0].first, runs[runs.len() - 1].last), (0, u64::MAX));
            assert!(runs.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
            for hash in [0x1234_5678_9ABC_DEF0u64, 77, u64::MAX, 1 << 63] {
                let chunk = (hash & ((1 << bits) - 1)) as usize;
                assert!(Run::of_chunk(chunk, bits).has(hash.reverse_bits()));
            }
        }
    }
}
