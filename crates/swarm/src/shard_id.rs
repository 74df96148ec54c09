//! The shard of an info hash: a secret multiply-shift over its five words.
//!
//! Clients choose info hashes, and must not be able to aim at one shard; yet the kernel has to
//! compute the same function in classic BPF, which has 32-bit multiplication and no tables. So: `h
//! = sum(word[i] * key[i]) mod 2^32`, then `shard = (h >> 16) * shards >> 16`. The sum is the
//! multilinear family of Carter and Wegman (1979) with odd keys; its high half is well mixed, and
//! the last step maps it to the shards without division (Lemire, 2019). Within a shard other keyed
//! hashes are used.

use onrush_proto::InfoHash;

/// The function from info hashes to shards. All workers and the kernel's steering program share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMap {
    key: [u32; 5],
    shards: u16,
}

impl ShardMap {
    /// A map to `shards` shards (1 to 65535) under a secret key. The key's words are made odd.
    ///
    /// # Panics
    /// When `shards` is 0.
    pub fn new(key: [u32; 5], shards: u16) -> Self {
        assert!(shards > 0, "a tracker has at least one shard");
        Self { key: key.map(|word| word | 1), shards }
    }

    /// The shard of an info hash, below [`shards`](Self::shards).
    #[inline]
    pub fn shard_of(&self, info_hash: &InfoHash) -> usize {
        let (words, _) = info_hash.0.as_chunks::<4>();
        let mut sum = 0u32;
        for (word, key) in words.iter().zip(self.key) {
            sum = sum.wrapping_add(u32::from_be_bytes(*word).wrapping_mul(key));
        }
        (((sum >> 16) * u32::from(self.shards)) >> 16) as usize
    }

    /// The number of shards.
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The multipliers, for a steering program that computes the same.
    pub fn key(&self) -> [u32; 5] {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    #[test]
    fn random_hashes_spread_evenly() {
        let mut rng = SmallRng::seed_from_u64(7);
        for shards in [1u16, 2, 3, 12, 47] {
            let map = ShardMap::new(rng.random(), shards);
            let mut counts = vec![0u32; usize::from(shards)];
            for _ in 0..20_000 {
                counts[map.shard_of(&InfoHash(rng.random()))] += 1;
            }
            let fair = 20_000 / u32::from(shards);
            for count in counts {
                assert!(count.abs_diff(fair) < 150 + fair / 5, "{count} of {fair} in {shards}");
            }
        }
    }

    #[test]
    fn hashes_that_differ_only_in_their_last_word_spread_too() {
        let map =
            ShardMap::new([0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1], 8);
        let mut counts = [0u32; 8];
        for n in 0..8_000u32 {
            let mut hash = [0xAA; 20];
            hash[16..].copy_from_slice(&n.to_be_bytes());
            counts[map.shard_of(&InfoHash(hash))] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
