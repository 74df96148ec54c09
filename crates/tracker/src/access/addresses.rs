//! Sets of source addresses, up to hundreds of thousands of CIDR blocks and ranges: sources that
//! are not served, and sources to which no limit applies. Kept as sorted ranges that neither touch
//! nor overlap, so that a lookup is one binary search among the ranges with the same first bits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Subnets};
use onrush_proto::Endpoint;
use onrush_swarm::SourceSet;

/// A range of addresses of one family: first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressBlock {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl FromStr for AddressBlock {
    type Err = String;

    /// An address, a CIDR block (the bits behind the prefix must be zero, as the block would be
    /// ambiguous otherwise), or two addresses with a hyphen between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let none = || format!("{:?} is not an address block", excerpt(text.as_bytes()));
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (first.trim().parse(), last.trim().parse());
            return match (first.map_err(|_| none())?, last.map_err(|_| none())?) {
                (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => Ok(Self::V4(first, last)),
                (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => Ok(Self::V6(first, last)),
                (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                    Err(format!("{text:?} ends before it begins"))
                }
                _ => Err(format!("{text:?} begins in one address family and ends in the other")),
            };
        }
        exact(text, none).map(Self::from)
    }
}

impl From<IpNet> for AddressBlock {
    fn from(net: IpNet) -> Self {
        match net {
            IpNet::V4(net) => Self::V4(net.network(), net.broadcast()),
            IpNet::V6(net) => Self::V6(net.network(), net.broadcast()),
        }
    }
}

/// The network that `text` names: an address or a CIDR block. IPv4-mapped ones are IPv4.
///
/// # Errors
/// A sentence for the operator, also if bits behind the prefix are set.
pub fn network(text: &str) -> Result<IpNet, String> {
    let none = || {
        let text = excerpt(text.as_bytes());
        format!("{text:?} is neither an address nor a prefix like 192.0.2.0/24 or 2001:db8::/32")
    };
    let net = exact(text, none)?;
    let mapped = match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => {
            v6.addr().to_ipv4_mapped().and_then(|v4| Ipv4Net::new(v4, v6.prefix_len() - 96).ok())
        }
        _ => None,
    };
    Ok(mapped.map_or(net, IpNet::V4))
}

/// The address or the network, unless bits behind its prefix are set; `none` is the error of any
/// other text.
fn exact(text: &str, none: impl Fn() -> String) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    let net = address.or_else(|_| text.parse()).map_err(|_| none())?;
    if net.addr() == net.network() {
        return Ok(net);
    }
    let (exact, prefix) = (net.trunc(), net.prefix_len());
    Err(format!("{text:?} has bits behind its prefix of {prefix}: {exact} or a longer prefix?"))
}

/// A set of addresses. Immutable, shared by all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    blocks: usize,
}

impl AddressSet {
    /// The set of these blocks, which may be in any order and overlap. A block of IPv4-mapped
    /// addresses counts as IPv4.
    pub fn new(blocks: impl IntoIterator<Item = AddressBlock>) -> Self {
        let set = Self::default().with(blocks);
        Self { blocks: set.v4.joined + set.v6.joined, ..set }
    }

    /// The set with these blocks added, which [`blocks`](Self::blocks) does not count. Takes time
    /// proportional to the length of both.
    pub fn with(&self, blocks: impl IntoIterator<Item = AddressBlock>) -> Self {
        let (mut v4, mut v6) =
            (self.v4.iter().collect::<Vec<_>>(), self.v6.iter().collect::<Vec<_>>());
        for block in blocks {
            match block {
                AddressBlock::V4(first, last) => v4.push((first.into(), last.into())),
                AddressBlock::V6(first, last) => {
                    match (first.to_ipv4_mapped(), last.to_ipv4_mapped()) {
                        (Some(first), Some(last)) => v4.push((first.into(), last.into())),
                        _ => v6.push((first.into(), last.into())),
                    }
                }
            }
        }
        Self { v4: Ranges::new(v4), v6: Ranges::new(v6), blocks: self.blocks }
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.v4.firsts.is_empty() && self.v6.firsts.is_empty()
    }

    /// The number of ranges, after joining blocks that touch.
    pub fn len(&self) -> usize {
        self.v4.firsts.len() + self.v6.firsts.len()
    }

    /// The number of distinct blocks that it was made of.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The fewest prefixes that together have exactly the addresses of the set.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        let v4 = self.v4.iter().map(|(first, last)| Ipv4Subnets::new(first.into(), last.into(), 0));
        let v6 = self.v6.iter().map(|(first, last)| Ipv6Subnets::new(first.into(), last.into(), 0));
        v4.flatten().map(IpNet::V4).chain(v6.flatten().map(IpNet::V6))
    }

    /// Whether the set has every address of `other`.
    pub fn contains_all(&self, other: &Self) -> bool {
        self.v4.contain_all(&other.v4) && self.v6.contain_all(&other.v6)
    }

    /// Whether the set has this IPv4 address.
    #[inline]
    pub fn contains_v4(&self, ip: Ipv4Addr) -> bool {
        !self.v4.firsts.is_empty() && self.v4.contain(ip.into())
    }

    /// Whether the set has this IPv6 address; for IPv4-mapped ones use
    /// [`contains_v4`](Self::contains_v4).
    #[inline]
    pub fn contains_v6(&self, ip: Ipv6Addr) -> bool {
        !self.v6.firsts.is_empty() && self.v6.contain(ip.into())
    }
}

impl SourceSet for AddressSet {
    fn contains(&self, endpoint: &Endpoint) -> bool {
        match endpoint.ip() {
            IpAddr::V4(ip) => self.contains_v4(ip),
            IpAddr::V6(ip) => self.contains_v6(ip),
        }
    }
}

/// The first 50 characters of an invalid entry, for messages.
pub fn excerpt(word: &[u8]) -> String {
    String::from_utf8_lossy(word).chars().take(50).collect()
}

/// An address as a number.
trait Number: Copy + Ord + Default + Into<u128> {
    /// The first [`BITS`] bits.
    fn bucket(self) -> usize;
}

/// Bits of an address that select a bucket of the index.
const BITS: u32 = 16;

impl Number for u32 {
    #[inline]
    fn bucket(self) -> usize {
        (self >> (32 - BITS)) as usize
    }
}

impl Number for u128 {
    #[inline]
    fn bucket(self) -> usize {
        (self >> (128 - BITS)) as usize
    }
}

/// Sorted ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<N> {
    firsts: Box<[N]>,
    lasts: Box<[N]>,
    /// The number of ranges that begin before each bucket. Empty below [`MIN_INDEXED`] ranges.
    before: Box<[u32]>,
    /// The number of distinct ranges that were joined to these.
    joined: usize,
}

/// Number of ranges from which on an index of 256 KiB pays.
const MIN_INDEXED: usize = 1024;

impl<N: Number> Ranges<N> {
    fn new(mut ranges: Vec<(N, N)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup();
        let number = ranges.len();
        let mut joined: Vec<(N, N)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first.into() <= (*end).into().saturating_add(1) => {
                    *end = (*end).max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        let (firsts, lasts): (Vec<N>, Vec<N>) = joined.into_iter().unzip();
        let mut before = Vec::new();
        if firsts.len() >= MIN_INDEXED {
            let mut at = 0;
            for bucket in 0..=1usize << BITS {
                while firsts.get(at).is_some_and(|first| first.bucket() < bucket) {
                    at += 1;
                }
                before.push(at as u32);
            }
        }
        Self { firsts: firsts.into(), lasts: lasts.into(), before: before.into(), joined: number }
    }

    fn iter(&self) -> impl Iterator<Item = (N, N)> + '_ {
        self.firsts.iter().copied().zip(self.lasts.iter().copied())
    }

    #[inline]
    fn contain(&self, number: N) -> bool {
        self.end_of_range(number).is_some_and(|last| number <= last)
    }

    fn contain_all(&self, other: &Self) -> bool {
        let mut ranges = other.firsts.iter().zip(&other.lasts);
        ranges.all(|(first, last)| self.end_of_range(*first).is_some_and(|end| *last <= end))
    }

    /// The end of the last range that begins at or before the number: no other one can contain it.
    #[inline]
    fn end_of_range(&self, number: N) -> Option<N> {
        let (from, to) = match self.before.get(number.bucket()..) {
            Some([from, to, ..]) => (*from as usize, *to as usize),
            _ => (0, self.firsts.len()),
        };
        let after = from + self.firsts[from..to].partition_point(|first| *first <= number);
        after.checked_sub(1).map(|at| self.lasts[at])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(text: &str) -> Result<AddressBlock, String> {
        text.parse()
    }

    #[test]
    fn blocks_are_addresses_prefixes_and_ranges() {
        let v4 = |first: &str, last: &str| {
            AddressBlock::V4(first.parse().unwrap(), last.parse().unwrap())
        };
        let v6 = |first: &str, last: &str| {
            AddressBlock::V6(first.parse().unwrap(), last.parse().unwrap())
        };
        assert_eq!(block("192.0.2.7"), Ok(v4("192.0.2.7", "192.0.2.7")));
        assert_eq!(block("192.0.2.0/24"), Ok(v4("192.0.2.0", "192.0.2.255")));
        assert_eq!(block("0.0.0.0/0"), Ok(v4("0.0.0.0", "255.255.255.255")));
        assert_eq!(block("192.0.2.9 - 192.0.3.1"), Ok(v4("192.0.2.9", "192.0.3.1")));
        assert_eq!(block("2001:db8::1"), Ok(v6("2001:db8::1", "2001:db8::1")));
        let last = "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(block("2001:db8::/32"), Ok(v6("2001:db8::", last)));
        for (text, said) in [
            ("nonsense", "\"nonsense\" is not an address block"),
            ("192.0.2.0/33", "is not an address block"),
            ("192.0.2.256", "is not an address block"),
            ("192.0.2.1/24", "has bits behind its prefix of 24: 192.0.2.0/24 or a longer prefix?"),
            ("192.0.2.9-192.0.2.1", "ends before it begins"),
            ("192.0.2.9-::1", "begins in one address family and ends in the other"),
            ("192.0.2.9-", "is not an address block"),
        ] {
            let error = block(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_network_is_an_address_or_an_exact_prefix() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
        ] {
            assert_eq!(network(text).unwrap().to_string(), expected);
        }
        for text in ["192.0.2.1/24", "192.0.2.0/33", "192.0.2.1-192.0.2.9", "nonsense", ""] {
            assert!(network(text).is_err(), "{text}");
        }
        assert!(network("2001:db8::1/32").unwrap_err().contains("2001:db8::/32"));
    }

    #[test]
    fn mapped_blocks_are_blocks_of_ipv4() {
        let list = AddressSet::new([block("::ffff:192.0.2.0/120").unwrap()]);
        assert!(list.contains_v4("192.0.2.9".parse().unwrap()));
        assert_eq!(list.len(), 1);
        assert!(AddressSet::default().is_empty() && !list.is_empty());
    }

    #[test]
    fn a_set_contains_another_whatever_the_blocks_of_both() {
        let set = |blocks: &[&str]| AddressSet::new(blocks.iter().map(|text| block(text).unwrap()));
        let mapped = "::ffff:192.0.2.1";
        let singles = set(&["192.0.2.0", "192.0.2.1", mapped, "192.0.2.3", "2001:db8::1"]);
        assert_eq!((singles.blocks(), singles.len()), (4, 3));
        let joined = set(&["192.0.2.0/31", "192.0.2.3", "2001:db8::1"]);
        let wider = set(&["192.0.2.0/24", "2001:db8::/32"]);
        assert!(joined.contains_all(&singles) && singles.contains_all(&joined));
        assert!(wider.contains_all(&singles) && !singles.contains_all(&wider));
        for less in [&["192.0.2.0/24"][..], &["192.0.2.0-192.0.2.2", "2001:db8::/32"], &[]] {
            assert!(!set(less).contains_all(&singles) && wider.contains_all(&set(less)));
        }
    }

    proptest! {
        /// Compared with a scan of the blocks, overlapping and touching, with and without an index.
        #[test]
        fn a_source_is_blocked_by_any_of_the_blocks(
            ranges in proptest::collection::vec((any::<u32>(), 0u32..1 << 18), 0..60),
            many: bool,
            asked in proptest::collection::vec(any::<u32>(), 40),
        ) {
            let mut ranges: Vec<(u32, u32)> =
                ranges.iter().map(|(first, len)| (*first, first.saturating_add(*len))).collect();
            if many {
                // Every other address, so that no ranges are joined.
                let numbers = (0..2 * MIN_INDEXED as u32).map(|n| 0x0505_0000 + 2 * n);
                ranges.extend(numbers.map(|n| (n, n)));
            }
            let wide = |n: u32| u128::from(n) << 96 | 7;
            let list = AddressSet::new(ranges.iter().flat_map(|(first, last)| {
                let v6 = (wide(*first).into(), wide(*last).into());
                [AddressBlock::V4((*first).into(), (*last).into()), AddressBlock::V6(v6.0, v6.1)]
            }));
            let edges = ranges.iter().flat_map(|(first, last)| {
                [first.wrapping_sub(1), *first, *last, last.wrapping_add(1)]
            });
            for number in asked.iter().copied().chain(edges.take(4_000)) {
                let blocked = ranges.iter().any(|(first, last)| (first..=last).contains(&&number));
                let address = Ipv4Addr::from(number);
                prop_assert_eq!(list.contains_v4(address), blocked, "{}", address);
                prop_assert_eq!(list.contains_v6(wide(number).into()), blocked);
            }
        }
    }
}
