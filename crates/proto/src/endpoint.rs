//! A peer's address and port in the form in which responses carry them.
//!
//! ```text
//! IPv4 (BEP 15)                 IPv6 (BEP 7, BEP 15)
//! 0        4      6             0                 16     18
//! +--------+------+             +-----------------+------+
//! | ip     | port |             | ip              | port |
//! +--------+------+             +-----------------+------+
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port of clients that cannot accept connections. They count as peers and are never handed
/// out.
pub const UNCONNECTABLE_PORT: u16 = 1;

/// The address family of a datagram, and so of the peers in its response (BEP 15, "IPv6"; the sizes
/// are those of BEP 7). A datagram has no field for it: client and tracker take it from the socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Family {
    /// Peers of 6 bytes.
    V4,
    /// Peers of 18 bytes.
    V6,
}

impl Family {
    /// The family of an address; an IPv4-mapped IPv6 address is IPv4.
    #[inline]
    pub fn of(ip: IpAddr) -> Self {
        if ip.to_canonical().is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bytes of one peer in an announce response.
    pub const fn peer_len(self) -> usize {
        match self {
            Self::V4 => 6,
            Self::V6 => 18,
        }
    }

    /// The number of peers that one response carries at most, so that it stays within
    /// [`MAX_RESPONSE_LEN`](crate::MAX_RESPONSE_LEN): 200 or 67.
    pub const fn max_peers(self) -> usize {
        match self {
            Self::V4 => 200,
            Self::V6 => 67,
        }
    }
}

/// A peer's address and port in wire form, as stored by a tracker and sent in responses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Endpoint {
    /// Four bytes of address, two of port.
    V4([u8; 6]),
    /// Sixteen bytes of address, two of port.
    V6([u8; 18]),
}

impl Endpoint {
    /// From an address and a port. An IPv4-mapped IPv6 address becomes the IPv4 address it contains
    /// (RFC 4291, section 2.5.5.2): on the wire such a peer speaks IPv4.
    #[inline]
    pub fn new(ip: IpAddr, port: u16) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::v4(ip, port),
            IpAddr::V6(ip) => Self::v6(ip, port),
        }
    }

    /// From an IPv4 address and a port.
    #[inline]
    pub const fn v4(ip: Ipv4Addr, port: u16) -> Self {
        let [a, b, c, d] = ip.octets();
        let [high, low] = port.to_be_bytes();
        Self::V4([a, b, c, d, high, low])
    }

    /// From an IPv6 address that is not IPv4-mapped, and a port.
    #[inline]
    pub fn v6(ip: Ipv6Addr, port: u16) -> Self {
        let mut wire = [0; 18];
        wire[..16].copy_from_slice(&ip.octets());
        wire[16..].copy_from_slice(&port.to_be_bytes());
        Self::V6(wire)
    }

    /// The address.
    pub fn ip(&self) -> IpAddr {
        match self {
            Self::V4(wire) => IpAddr::from(crate::wire::bytes::<4>(wire, 0)),
            Self::V6(wire) => IpAddr::from(crate::wire::bytes::<16>(wire, 0)),
        }
    }

    /// The port; may be 0, which no peer can be reached at.
    pub fn port(&self) -> u16 {
        match self {
            Self::V4(wire) => crate::wire::u16(wire, 4),
            Self::V6(wire) => crate::wire::u16(wire, 16),
        }
    }

    /// The family, and with it the length of the wire form.
    pub const fn family(&self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }

    /// The bytes as a response carries them.
    pub const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::V4(wire) => wire,
            Self::V6(wire) => wire,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_form_is_address_then_port() {
        let v4 = Endpoint::new("192.0.2.7".parse().unwrap(), 0x1AE1);
        assert_eq!(v4, Endpoint::V4([192, 0, 2, 7, 0x1A, 0xE1]));
        let v6 = Endpoint::new("2001:db8::1".parse().unwrap(), 51413);
        assert_eq!((v6.port(), v6.family()), (51413, Family::V6));
        assert_eq!(v6.ip(), "2001:db8::1".parse::<IpAddr>().unwrap());
        assert_eq!(v6.as_bytes().len(), Family::V6.peer_len());
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let mapped = Endpoint::new("::ffff:192.0.2.7".parse().unwrap(), 80);
        assert_eq!(mapped, Endpoint::new("192.0.2.7".parse().unwrap(), 80));
    }
}
