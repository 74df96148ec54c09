//! Keyed hashing of values that clients choose: without the key, no client can aim at one place of
//! a table.
//!
//! Info hashes and endpoints are hashed differently. Nothing that leaves a shard depends on the
//! hash of an info hash, so a universal function under a secret key is enough, at a fifth of the
//! cost. Replies show which endpoints are neighbours, and so reveal something about their hashes,
//! which therefore need a function that does not leak its key: SipHash-1-3, as in Rust's own maps.

use std::hash::Hasher;

use onrush_proto::{Endpoint, Family, InfoHash};
use siphasher::sip::{SipHasher13, SipHasher24};

/// The key of a shard's tables.
pub(crate) struct Keys {
    names: Multilinear<5>,
    rows: SipHasher13,
    sources: SipHasher13,
    blocks: Multilinear<2>,
    /// Whether large swarms count the peers of each source.
    pub(crate) counts_sources: bool,
}

/// Bytes of an endpoint that name its source, its network, and its block.
pub(crate) const fn prefixes(family: Family) -> [usize; 3] {
    match family {
        Family::V4 => [4, 3, 2],
        Family::V6 => [8, 6, 4],
    }
}

/// The hashes of a peer's source and of the network and block around it, under the key of the
/// shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceHashes {
    /// Hash of the IPv4 address or the IPv6 /64.
    pub(crate) source: u64,
    /// Hash of the IPv4 /24 or the IPv6 /48.
    pub(crate) network: u64,
    /// Hash of the IPv4 /16 or the IPv6 /32.
    pub(crate) block: u64,
}

/// Shows nothing: a log must not reveal the key.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        // Independent words from one key: SipHash-2-4 of 0, 1, 2 and so on.
        let mut number = 0u64;
        let mut word = || {
            let mut hasher = SipHasher24::new_with_key(&key);
            hasher.write_u64(number);
            number += 1;
            hasher.finish()
        };
        Self {
            rows: SipHasher13::new_with_keys(word(), word()),
            names: Multilinear::new(&mut word),
            sources: SipHasher13::new_with_keys(word(), word()),
            blocks: Multilinear::new(&mut word),
            counts_sources: false,
        }
    }

    #[inline]
    pub(crate) fn info_hash(&self, info_hash: &InfoHash) -> u64 {
        let (words, _) = info_hash.0.as_chunks();
        self.names.hash(words.iter().map(|word| u32::from_le_bytes(*word)))
    }

    /// The hash of an endpoint in wire form. SipHash covers the length, so that endpoints of the
    /// two families never collide by construction.
    #[inline]
    pub(crate) fn row<const N: usize>(&self, row: &[u8; N]) -> u64 {
        self.rows.hash(row)
    }

    /// The hashes of an endpoint's source. Counts in replies show whether a peer was stored, and so
    /// something about the cells that a source shares with others: SipHash, as for endpoints. It
    /// covers the length, so that no source has the prefix of another level or family. Blocks have
    /// a universal hash: learning its key would take the addresses of many blocks.
    pub(crate) fn source(&self, endpoint: &Endpoint) -> SourceHashes {
        let (mut source, mut network) = (self.sources, self.sources);
        // Integers, as a hash of bytes takes half as many instructions again.
        let block = match *endpoint {
            Endpoint::V4([a, b, c, d, ..]) => {
                source.write_u32(u32::from_le_bytes([a, b, c, d]));
                network.write_u16(u16::from_le_bytes([a, b]));
                network.write_u8(c);
                u32::from(a) << 8 | u32::from(b)
            }
            Endpoint::V6([a, b, c, d, e, f, g, h, ..]) => {
                source.write_u64(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
                network.write_u32(u32::from_le_bytes([a, b, c, d]));
                network.write_u16(u16::from_le_bytes([e, f]));
                u32::from_le_bytes([a, b, c, d])
            }
        };
        let block = self.blocks.hash([block, endpoint.family() as u32].into_iter());
        SourceHashes { source: source.finish(), network: network.finish(), block }
    }
}

/// A universal hash of `N` words: over the random choice of the key, the 33 highest bits of the sum
/// are independent and uniform for any two names (Lemire and Kaser, "Strongly universal string
/// hashing is fast", 2014, theorem 1 with 32-bit words in the ring of 2^64).
struct Multilinear<const N: usize> {
    offset: u64,
    factors: [u64; N],
    /// Odd factors.
    stirs: [u64; 2],
}

impl<const N: usize> Multilinear<N> {
    fn new(word: &mut dyn FnMut() -> u64) -> Self {
        Self {
            offset: word(),
            factors: std::array::from_fn(|_| word()),
            stirs: std::array::from_fn(|_| word() | 1),
        }
    }

    #[inline]
    fn hash(&self, words: impl Iterator<Item = u32>) -> u64 {
        let mut sum = self.offset;
        for (word, factor) in words.zip(self.factors) {
            sum = sum.wrapping_add(u64::from(word).wrapping_mul(factor));
        }
        self.stirred(sum >> 31)
    }

    /// Distributes 33 bits over all parts of a hash: each value of a part has as many preimages as
    /// any other, within the deviation of a random function, so that uniform arguments give uniform
    /// parts. It breaks up the linear structure of the sum, which maps arithmetic sequences of
    /// names to arithmetic sequences of hashes: an unlucky step would fill one part of a table.
    #[inline]
    fn stirred(&self, bits: u64) -> u64 {
        let [first, second] = self.stirs;
        let bits = bits.wrapping_mul(first);
        (bits ^ (bits >> 32)).wrapping_mul(second).rotate_left(36)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Keys {
        let mut key = [7; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        Keys::new(key)
    }

    /// The parts that the index uses: bucket, table, tag.
    const PARTS: [fn(u64) -> usize; 3] = [
        |hash| hash as usize % 128,
        |hash| (hash >> 25) as usize % 128,
        |hash| (hash >> 57) as usize,
    ];

    fn numbered(number: u64, from: usize) -> InfoHash {
        let mut name = [0xA5; 20];
        name[from..from + 8].copy_from_slice(&number.to_le_bytes());
        InfoHash(name)
    }

    #[test]
    fn collisions_over_all_keys_are_as_rare_as_random() {
        let mut same = [0xA5; 20];
        same[19] ^= 0x80;
        let pairs = [
            (InfoHash([0; 20]), InfoHash([0xFF; 20])),
            (InfoHash([0xA5; 20]), InfoHash(same)),
            (numbered(1, 0), numbered(2, 0)),
            (numbered(0, 8), numbered(1 << 63, 8)),
        ];
        for (one, other) in pairs {
            for part in PARTS {
                let collisions = (0..12_800)
                    .map(key)
                    .filter(|key| part(key.info_hash(&one)) == part(key.info_hash(&other)))
                    .count();
                // 100 are expected, with a deviation of 10.
                assert!(
                    (50..150).contains(&collisions),
                    "{one:?} and {other:?} collide {collisions} times"
                );
            }
        }
    }

    /// Arithmetic sequences of names fill the parts of tables as random names would: chi-square
    /// over 128 cells, with a mean of 127 and a deviation of 16.
    #[test]
    fn arithmetic_sequences_spread_evenly() {
        for number in 0..50 {
            let key = key(number);
            for (from, step) in [(0, 1), (8, 1), (12, 1), (4, 1 << 32), (0, 0x0101_0101), (6, 77)] {
                for part in PARTS {
                    let mut cells = [0u32; 128];
                    for n in 0..12_800u64 {
                        cells[part(key.info_hash(&numbered(n * step, from)))] += 1;
                    }
                    let square = |&cell: &u32| (f64::from(cell) - 100.0).powi(2) / 100.0;
                    let square: f64 = cells.iter().map(square).sum();
                    assert!(
                        square < 250.0,
                        "{square} in steps of {step} from {from}, key {number}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_byte_of_the_key_and_of_a_name_changes_the_hash() {
        let name = InfoHash([9; 20]);
        let row = [1u8; 6];
        let mut seen = vec![(Keys::new([7; 16]).info_hash(&name), Keys::new([7; 16]).row(&row))];
        for at in 0..16 {
            let mut key = [7; 16];
            key[at] = 8;
            seen.push((Keys::new(key).info_hash(&name), Keys::new(key).row(&row)));
        }
        for at in 0..20 {
            let mut other = name;
            other.0[at] ^= 1;
            seen.push((Keys::new([7; 16]).info_hash(&other), at as u64));
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup_by_key(|(name, _)| *name);
        assert_eq!(seen.len(), all, "all hashes differ");
    }
}
