//! Which datagrams the kernel drops before it queues them: a classic BPF program on each socket
//! (SO_ATTACH_FILTER), so that a flood costs no work in user space.
//!
//! The program knows a few *kinds* of payloads by one word. Payloads of any other kind are dropped,
//! as are datagrams from port 0. Each kind has a least length and one [`Check`]: either only a
//! share of the sources passes, chosen by a keyed hash of the address, or the lowest two bits of a
//! word have to be among the valid ones.
//!
//! The source of a share is an IPv4 address, or an IPv6 /64, as one host may use all of its
//! addresses. The hash is not cryptographic: an attacker who observes which of many sources pass
//! could find its keys, so that they have to change every few seconds.
//!
//! Sources: `Documentation/networking/filter.rst` (classic BPF, and the ancillary offset of the
//! network header). That offset 0 of a UDP socket's filter is the UDP header was measured; the
//! tests verify it.

use std::net::{IpAddr, SocketAddr};

/// What the kernel queues; it drops everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The offset in the payload of the word that tells its kind. Shorter payloads are dropped.
    pub kind_at: u32,
    /// The kinds that pass their own check.
    pub kinds: [Kind; 3],
}

/// A kind of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The word that tells the kind.
    pub value: u32,
    /// Shorter payloads are dropped. At least the end of every word that is read.
    pub min_len: u32,
    /// What else has to hold.
    pub check: Check,
}

/// What has to hold for a payload to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The payload begins with these two words, and its source is in the share.
    Share([u32; 2], Share),
    /// The lowest two bits of the word at offset `at` are a number whose bit in `valid` is set.
    Tag {
        /// The offset of the word.
        at: u32,
        /// Bit `n` is set if tag `n` is valid.
        valid: u8,
    },
}

/// A share of all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Sources with a hash up to this one are in the share.
    pub up_to: u32,
    /// The keys of the hash: for each of two words a factor, which is made odd, and an addend.
    pub keys: [u32; 4],
}

/// The bits of a tag.
pub(crate) const TAG: u32 = 3;
/// Constants of the finalizer of MurmurHash3 (Appleby, public domain), as facts.
pub(crate) const MIX: [u32; 2] = [0x85EB_CA6B, 0xC2B2_AE35];

impl Filter {
    /// Whether the kernel queues a datagram.
    pub fn passes(&self, payload: &[u8], source: SocketAddr) -> bool {
        let Some(kind) = word(payload, self.kind_at) else { return false };
        let Some(kind) = self.kinds.iter().find(|known| known.value == kind) else { return false };
        source.port() != 0 && payload.len() >= kind.min_len as usize && kind.passes(payload, source)
    }
}

impl Kind {
    fn passes(&self, payload: &[u8], source: SocketAddr) -> bool {
        match self.check {
            Check::Share(head, share) => {
                let begins = word(payload, 0) == Some(head[0]) && word(payload, 4) == Some(head[1]);
                begins && share.contains(source.ip())
            }
            Check::Tag { at, valid } => {
                word(payload, at).is_some_and(|word| valid >> (word & TAG) & 1 == 1)
            }
        }
    }
}

impl Share {
    /// Whether the share has this source.
    pub fn contains(&self, source: IpAddr) -> bool {
        let hash = match source {
            IpAddr::V4(ip) => self.mix(0, 0, ip.to_bits()),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                self.mix(1, self.mix(0, 0, (bits >> 96) as u32), (bits >> 64) as u32)
            }
        };
        hash <= self.up_to
    }

    /// The hash of a word, continued from the hash of the words before it.
    fn mix(&self, number: usize, before: u32, word: u32) -> u32 {
        let (factor, addend) = (self.keys[2 * number] | 1, self.keys[2 * number + 1]);
        let mut hash = (before ^ word).wrapping_mul(factor).wrapping_add(addend);
        for (shift, factor) in [(16, MIX[0]), (13, MIX[1])] {
            hash = (hash ^ (hash >> shift)).wrapping_mul(factor);
        }
        hash ^ (hash >> 16)
    }
}

/// The big-endian word at an offset.
fn word(payload: &[u8], at: u32) -> Option<u32> {
    let bytes = payload.get(at as usize..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_share_has_as_many_sources_as_it_says() {
        for keys in [[1, 2, 3, 4], [0xDEAD_BEEF, 7, 99, 0x8000_0000], [0; 4]] {
            for eighths in 1..8u32 {
                let share = Share { up_to: (1 << 29) * eighths - 1, keys };
                let v4 = (0..8_000u32).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x0A00_0000 + n)));
                let v6 = (0..8_000u128).map(|n| IpAddr::V6(Ipv6Addr::from_bits(n << 64 | 1)));
                for count in [
                    v4.filter(|source| share.contains(*source)).count(),
                    v6.filter(|source| share.contains(*source)).count(),
                ] {
                    let expected = 1_000 * eighths as usize;
                    assert!(count.abs_diff(expected) < 200, "{count} of {expected}, {keys:?}");
                }
            }
        }
    }

    /// An IPv6 /64 is one source.
    #[test]
    fn addresses_of_one_network_are_shed_together() {
        let share = Share { up_to: u32::MAX / 2, keys: [5, 6, 7, 8] };
        for network in 0..64u128 {
            let at = |host: u128| IpAddr::V6(Ipv6Addr::from_bits(network << 64 | host));
            assert!(
                (0..16).all(|host| share.contains(at(host * 0x1234_5678)) == share.contains(at(0)))
            );
        }
    }
}
