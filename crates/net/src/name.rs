//! Socket addresses in the kernel's own byte form: the name of a received datagram is passed back
//! to the kernel unchanged.
//!
//! ```text
//! sockaddr_in   (16 bytes)          sockaddr_in6 (28 bytes)
//! 0      2    4       8             0      2    4          8       24      28
//! +------+----+-------+-----+       +------+----+----------+-------+-------+
//! |family|port|address| zero|       |family|port|flow label|address| scope |
//! +------+----+-------+-----+       +------+----+----------+-------+-------+
//! ```
//!
//! Ports and addresses are big endian, the rest is the host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of the longest name.
pub(crate) const MAX_LEN: usize = 28;
/// Bytes of an IPv4 name.
pub(crate) const V4_LEN: u8 = 16;
/// Bytes of an IPv6 name.
pub(crate) const V6_LEN: u8 = 28;

/// The kernel's form of an address, and its length.
pub(crate) fn encode(address: SocketAddr) -> ([u8; MAX_LEN], u8) {
    let mut name = [0; MAX_LEN];
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&address.ip().octets());
            (name, V4_LEN)
        }
        SocketAddr::V6(address) => {
            name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            name[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
            name[8..24].copy_from_slice(&address.ip().octets());
            name[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            (name, V6_LEN)
        }
    }
}

/// The address in a name; `None` for a length that no name has.
#[inline]
pub(crate) fn decode(name: &[u8; MAX_LEN], len: u8) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([name[2], name[3]]);
    match len {
        V4_LEN => {
            let ip = Ipv4Addr::new(name[4], name[5], name[6], name[7]);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        V6_LEN => {
            let ip = Ipv6Addr::from(bytes::<16>(name, 8));
            let flow = u32::from_ne_bytes(bytes(name, 4));
            let scope = u32::from_ne_bytes(bytes(name, 24));
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
        }
        _ => None,
    }
}

/// A local address as [`crate::Return`] keeps it: IPv4 in the first four bytes.
pub(crate) fn encode_ip(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// `N` bytes of a name from `start`.
#[inline]
fn bytes<const N: usize>(name: &[u8; MAX_LEN], start: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&name[start..start + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_round_trip(v6 in any::<[u8; 16]>(), port: u16, flow: u32, scope: u32) {
            let address = SocketAddr::V6(SocketAddrV6::new(v6.into(), port, flow, scope));
            let (name, len) = encode(address);
            prop_assert_eq!(decode(&name, len), Some(address));
            let address = SocketAddr::from(([v6[0], v6[1], v6[2], v6[3]], port));
            let (name, len) = encode(address);
            prop_assert_eq!(decode(&name, len), Some(address));
        }
    }

    #[test]
    fn names_match_the_system_librarys() {
        for address in ["192.0.2.7:6969", "[2001:db8::7%3]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            let theirs = socket2::SockAddr::from(address);
            let (name, len) = encode(address);
            assert_eq!(theirs.len() as usize, usize::from(len));
            assert_eq!(theirs.as_socket(), decode(&name, len));
        }
    }

    #[test]
    fn other_lengths_are_not_addresses() {
        assert_eq!(decode(&[0; MAX_LEN], 0), None);
        assert_eq!(decode(&[0; MAX_LEN], 17), None);
    }
}
