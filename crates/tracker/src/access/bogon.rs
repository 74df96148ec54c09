//! Bogons: addresses that cannot be peers on the internet.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether an address cannot belong to a peer on the internet: private, shared, loopback,
/// link-local, documentation, benchmarking, multicast or reserved space (RFC 6890 and the IANA
/// special-purpose registries that it founded).
pub(crate) fn is_bogon_v4(ip: Ipv4Addr) -> bool {
    match ip.octets() {
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

/// The same for IPv6. The caller converts IPv4-mapped addresses first: this refuses all of them.
pub(crate) fn is_bogon_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        [0x2001, 0x0db8, ..] => true,            // documentation (RFC 3849)
        [0x3fff, 0x0000..=0x0fff, ..] => true,   // documentation (RFC 9637)
        [first, ..] => first & 0xe000 != 0x2000, // only 2000::/3 is assigned as global unicast
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn bogons_are_recognised_at_the_edges_of_their_ranges() {
        let bogon = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(ip) => is_bogon_v4(ip),
            IpAddr::V6(ip) => is_bogon_v6(ip),
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
