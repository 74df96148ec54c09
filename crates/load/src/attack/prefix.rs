//! Address blocks whose members are the sources of datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Sources of a block by number. Sources of IPv6 differ in their /64, as far as the block is
/// larger than that, since trackers and hosts regard a /64 as one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    net: IpNet,
}

impl Prefix {
    pub(super) fn new(net: IpNet) -> Self {
        Self { net: net.trunc() }
    }

    /// The first block of the coarser level of a source, /24 or /48, in this one.
    pub(super) fn narrowed(self) -> Self {
        let len = self.net.prefix_len().max(if self.net.addr().is_ipv4() { 24 } else { 48 });
        let narrowed = IpNet::new(self.net.network(), len);
        Self { net: narrowed.expect("longer than a valid length") }
    }

    /// Source number `number`, modulo their count.
    pub(super) fn source(self, number: u64) -> IpAddr {
        match self.net {
            IpNet::V4(net) => {
                let mask = u32::MAX.checked_shr(net.prefix_len().into()).unwrap_or(0);
                Ipv4Addr::from_bits(net.addr().to_bits() | (number as u32 & mask)).into()
            }
            IpNet::V6(net) if net.prefix_len() >= 64 => {
                let mask = u128::MAX.checked_shr(net.prefix_len().into()).unwrap_or(0);
                Ipv6Addr::from_bits(net.addr().to_bits() | (u128::from(number) & mask)).into()
            }
            IpNet::V6(net) => {
                let mask = u64::MAX >> net.prefix_len();
                let subnet = u128::from(number & mask) << 64;
                Ipv6Addr::from_bits(net.addr().to_bits() | subnet | 1).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_in_their_block_and_differ() {
        for (net, number, source) in [
            ("10.64.0.0/10", 0, "10.64.0.0"),
            ("10.64.0.0/10", 0x3F_FFFF, "10.127.255.255"),
            ("10.64.0.0/10", 0x40_0001, "10.64.0.1"),
            ("192.0.2.7/32", 9, "192.0.2.7"),
            ("192.0.2.7/30", 1, "192.0.2.5"),
            ("0.0.0.0/0", 0x0102_0304, "1.2.3.4"),
            ("fd00::/48", 1, "fd00:0:0:1::1"),
            ("fd00::/48", 0x1_0002, "fd00:0:0:2::1"),
            ("fd00::/64", 5, "fd00::5"),
            ("fd00::/120", 0x101, "fd00::1"),
            ("fd00::9/128", 7, "fd00::9"),
            ("::/0", u64::MAX, "ffff:ffff:ffff:ffff::1"),
        ] {
            let found = Prefix::new(net.parse().unwrap()).source(number);
            assert_eq!(found, source.parse::<IpAddr>().unwrap(), "{net}, {number}");
        }
    }

    #[test]
    fn one_prefix_is_a_24_or_a_48() {
        for (net, narrowed) in [
            ("10.64.0.0/10", "10.64.0.0/24"),
            ("10.64.1.0/28", "10.64.1.0/28"),
            ("fd00::/32", "fd00::/48"),
        ] {
            let found = Prefix::new(net.parse().unwrap()).narrowed().net;
            assert_eq!(found, narrowed.parse::<IpNet>().unwrap());
        }
    }
}
