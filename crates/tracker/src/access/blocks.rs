//! Blocks of sources made while the tracker runs, with a counter of refused requests for each.
//!
//! Only a request that is refused anyway looks for its block. The control side gives out the slots
//! of the counters.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

pub use ipnet::IpNet;

use super::addresses::{AddressBlock, AddressSet};
use super::member_counts::MemberCounts;

/// Blocks of sources. Immutable except for the counters, shared by all workers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceBlocks {
    refused: Arc<AddressSet>,
    slots: HashMap<IpNet, usize>,
    /// The lengths of prefixes that occur, the longest first, of IPv4 and of IPv6.
    lengths: [Box<[u8]>; 2],
    counts: Arc<MemberCounts>,
}

impl SourceBlocks {
    /// The blocks of these networks, each with its slot in `counts`, beside the sources that the
    /// configuration blocks.
    pub fn new(
        blocks: impl IntoIterator<Item = (IpNet, usize)>,
        configured: &AddressSet,
        counts: Arc<MemberCounts>,
    ) -> Self {
        let slots: HashMap<IpNet, usize> = blocks.into_iter().collect();
        let lengths = [true, false].map(|v4| {
            let of_family = slots.keys().filter(|net| net.addr().is_ipv4() == v4);
            let lengths: BTreeSet<u8> = of_family.map(IpNet::prefix_len).collect();
            lengths.into_iter().rev().collect()
        });
        let refused = configured.with(slots.keys().copied().map(AddressBlock::from));
        Self { refused: Arc::new(refused), slots, lengths, counts }
    }

    /// Whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The sources of the blocks and of the configuration.
    pub fn refused(&self) -> &Arc<AddressSet> {
        &self.refused
    }

    /// Counts a request from `ip` at its block, if there is one: that with the longest prefix. Only
    /// the thread of `member` may call this with its number.
    pub fn count(&self, member: usize, ip: IpAddr) {
        if let Some(slot) = self.slot_of(ip) {
            self.counts.add(member, slot);
        }
    }

    /// Sets the count of a member that counts elsewhere. Only the thread of `member` may call this.
    pub fn set_count(&self, member: usize, slot: usize, count: u64) {
        self.counts.set(member, slot, count);
    }

    /// Each block with the slot in which [`count`](Self::count) counts its requests.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, usize)> + '_ {
        self.slots.iter().map(|(net, slot)| (*net, *slot))
    }

    fn slot_of(&self, ip: IpAddr) -> Option<usize> {
        let lengths = &self.lengths[usize::from(ip.is_ipv6())];
        lengths.iter().find_map(|length| {
            let net = IpNet::new(ip, *length).ok()?.trunc();
            self.slots.get(&net).copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::access::addresses::network;

    fn blocks(networks: &[&str], configured: &[&str]) -> SourceBlocks {
        let networks = networks.iter().map(|text| network(text).unwrap());
        let configured = AddressSet::new(configured.iter().map(|text| text.parse().unwrap()));
        let counts = Arc::new(MemberCounts::new(2, 16));
        SourceBlocks::new(networks.zip(0..), &configured, counts)
    }

    #[test]
    fn a_request_counts_at_the_longest_prefix_and_for_its_member() {
        let blocks = blocks(&["192.0.2.0/24", "192.0.0.0/16", "2001:db8::/32"], &["9.9.9.9"]);
        for (member, ip) in [
            (0, "192.0.2.7"),
            (1, "192.0.2.8"),
            (0, "192.0.3.1"),
            (1, "2001:db8::1"),
            // Not of a block, and a member that is unknown.
            (0, "9.9.9.9"),
            (0, "2001:db9::1"),
            (7, "192.0.2.7"),
        ] {
            blocks.count(member, ip.parse().unwrap());
        }
        assert_eq!([0, 1, 2, 3, 99].map(|slot| blocks.counts.sum(slot)), [2, 1, 1, 0, 0]);
        let refused = blocks.refused();
        assert!(refused.contains_v4("9.9.9.9".parse().unwrap()));
        assert!(refused.contains_v4("192.0.9.9".parse().unwrap()));
        assert!(!refused.contains_v4("192.1.0.0".parse().unwrap()));
        assert_eq!((blocks.len(), refused.len()), (3, 3));
    }

    /// The network with this many bits of an address that shares its first bits with the others.
    fn net(v6: bool, bits: u8, length: u8) -> IpNet {
        let address = match v6 {
            false => IpAddr::V4(Ipv4Addr::new(192, 0, 2, bits)),
            true => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, bits.into())),
        };
        let length = if v6 { 120 + length } else { 24 + length };
        IpNet::new(address, length).unwrap().trunc()
    }

    proptest! {
        #[test]
        fn a_source_belongs_to_the_longest_of_the_prefixes_that_contain_it(
            nets in prop::collection::vec((any::<bool>(), any::<u8>(), 0u8..=8), 0..12),
        ) {
            let nets: Vec<IpNet> = nets.into_iter().map(|(v6, at, len)| net(v6, at, len)).collect();
            let numbered = nets.iter().copied().zip(0..);
            let blocks = SourceBlocks::new(numbered, &AddressSet::default(), Arc::default());
            let families = [false, true].into_iter();
            for (v6, bits) in families.flat_map(|v6| (0..=255).map(move |bits| (v6, bits))) {
                let ip = net(v6, bits, 8).addr();
                let containing = nets.iter().filter(|net| net.contains(&ip));
                let longest = containing.max_by_key(|net| net.prefix_len());
                let found = blocks.slot_of(ip).map(|slot| nets[slot]);
                prop_assert_eq!(found, longest.copied());
                let refused = match ip {
                    IpAddr::V4(ip) => blocks.refused().contains_v4(ip),
                    IpAddr::V6(ip) => blocks.refused().contains_v6(ip),
                };
                prop_assert_eq!(refused, longest.is_some());
            }
        }
    }
}
