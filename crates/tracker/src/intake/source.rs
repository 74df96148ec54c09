//! The source of a request. The checks are compiled once per address family.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onrush_proto::{Endpoint, Family};

use crate::access::addresses::AddressSet;
use crate::access::{is_bogon_v4, is_bogon_v6};

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

    /// Whether the address cannot belong to a peer on the internet.
    fn is_bogon(self) -> bool;

    /// Whether the block list has the address.
    fn is_blocked(self, list: &AddressSet) -> bool;

    /// The peer at `port` of this address.
    fn endpoint(self, port: u16) -> Endpoint;
}

impl SourceAddress for Ipv4Addr {
    const FAMILY: Family = Family::V4;

    #[inline]
    fn is_bogon(self) -> bool {
        is_bogon_v4(self)
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

    #[inline]
    fn is_bogon(self) -> bool {
        is_bogon_v6(self)
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
