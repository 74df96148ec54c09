//! Proxies in front of web workers, which are trusted to name the clients.

use std::net::IpAddr;

use crate::access::addresses::AddressSet;
use crate::refusal::reasons;

reasons! {
    /// How a trusted proxy names the client.
    ClientAddress {
        /// In the last entry of the request's field of this name that is no trusted proxy.
        XForwardedFor = "x-forwarded-for",
        /// In the request's only field of this name.
        XRealIp = "x-real-ip",
        /// In the last parameter `for` of the request's field of this name that is no trusted proxy
        /// (RFC 7239).
        Forwarded = "forwarded",
        /// In a header of the PROXY protocol, version 1 or 2, with which the connection begins.
        ProxyProtocol = "proxy-protocol",
    }
}

/// The proxies that are trusted, and how they name the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxies {
    /// Their addresses.
    pub addresses: AddressSet,
    /// How each of them names the client.
    pub client_address: ClientAddress,
}

impl Proxies {
    /// Whether an address, IPv4 or IPv6 but not IPv4-mapped, is that of a proxy.
    pub fn contain(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.addresses.contains_v4(ip),
            IpAddr::V6(ip) => self.addresses.contains_v6(ip),
        }
    }
}
