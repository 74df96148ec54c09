//! The source of a request. The checks are compiled once per address family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onrush_proto::{Endpoint, Family};

use crate::access::addresses::AddressSet;

/// The source of a request. The type of the address is the family that the client uses: an
/// IPv4-mapped address is an [`Ipv4Addr`] here.
#[derive(Clone, Copy, Debug)]
pub struct Source<A> {
    /// The address.
    pub ip: A,
    /// The port that the request came from, not the announced one.
    pub port: u16,
}

/// The checks of an address that depend on its family.
pub trait SourceAddress: Copy + Into<IpAddr> {
    /// The family.
    const FAMILY: Family;

    /// Whether the address cannot belong to a peer on the internet (a bogon): private, shared,
    /// loopback, link-local, documentation, benchmarking, multicast or reserved space (RFC 6890 and
    /// the IANA special-purpose registries that it founded).
    fn is_bogon(self) -> bool;

    /// Whether the block list has the address.
    fn is_blocked(self, list: &AddressSet) -> bool;

    /// The peer at `port` of this address.
    fn endpoint(self, port: u16) -> Endpoint;
}

impl SourceAddress for Ipv4Addr {
    const FAMILY: Family = Family::V4;

    fn is_bogon(self) -> bool {
        match self.octets() {
            [0 | 10 | 127 | 224..=255, ..] => true, // this network, private, loopback, multicast up
            [100, 64..=127, ..] => true,            // shared by carriers (RFC 6598)
            [169, 254, ..] => true,                 // link-local
            [172, 16..=31, ..] | [192, 168, ..] => true, // private (RFC 1918)
            [192, 0, 0 | 2, _] => true,             // protocol assignments, documentation
            [198, 18 | 19, ..] => true,             // benchmarking (RFC 2544)
            [198, 51, 100, _] | [203, 0, 113, _] => true, // documentation (RFC 5737)
            _ => false,
        }
    }

    #[inline]
    fn is_blocked(self, list: &AddressSet) -> bool {
        list.contains_v4(self)
    }

    #[inline]
    fn endpoint(self, port: u16) -> Endpoint {
        Endpoint::v4(self, port)
    }
}

impl SourceAddress for Ipv6Addr {
    const FAMILY: Family = Family::V6;

    fn is_bogon(self) -> bool {
        match self.segments() {
            [0x2001, 0x0db8, ..] => true,            // documentation (RFC 3849)
            [0x3fff, 0x0000..=0x0fff, ..] => true,   // documentation (RFC 9637)
            [first, ..] => first & 0xe000 != 0x2000, // only 2000::/3 is assigned as global unicast
        }
    }

    #[inline]
    fn is_blocked(self, list: &AddressSet) -> bool {
        list.contains_v6(self)
    }

    #[inline]
    fn endpoint(self, port: u16) -> Endpoint {
        Endpoint::v6(self, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bogons_are_recognised_at_the_edges_of_their_ranges() {
        let bogon = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(ip) => ip.is_bogon(),
            IpAddr::V6(ip) => ip.is_bogon(),
        };
        for address in [
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "2001:db8::1",
            "3fff:fff::1",
        ] {
            assert!(bogon(address), "{address}");
        }
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2000::1",
            "2a01:4f8::1",
            "3fff:1000::1",
        ] {
            assert!(!bogon(address), "{address}");
        }
    }
}
