//! Keyed hashing of what strangers choose: without the key, nobody can aim at one place of a
//! table. SipHash-1-3, as in Rust's own maps: a tracker's answers show no hash values.

use onrush_proto::InfoHash;
use siphasher::sip::SipHasher13;

/// The key of a shard's tables.
pub(crate) struct Keys(SipHasher13);

/// Shows nothing: whoever reads a log must not learn the key.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&key))
    }

    #[inline]
    pub(crate) fn info_hash(&self, info_hash: &InfoHash) -> u64 {
        self.0.hash(&info_hash.0)
    }

    /// Of an endpoint in wire form. SipHash covers the length, so that endpoints of the two
    /// families and info hashes never stand for one another.
    #[inline]
    pub(crate) fn row<const N: usize>(&self, row: &[u8; N]) -> u64 {
        self.0.hash(row)
    }
}
