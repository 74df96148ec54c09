//! The address of a tracker as people write it: an announce URL, or host and port.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

/// The expected form, for error messages.
const EXPECTED: &str = "expected HOST:PORT or udp://HOST:PORT/announce, like 127.0.0.1:6969, \
                        [::1]:6969 or tracker.example.org:6969";

/// The resolved address of a tracker, from `udp://HOST:PORT/announce` or `HOST:PORT`. The path of a
/// URL is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerAddress {
    /// IPv4 first; at least one.
    all: Vec<SocketAddr>,
}

impl TrackerAddress {
    /// The first address: that of IPv4 where the host has one.
    pub fn first(&self) -> SocketAddr {
        self.all[0]
    }

    /// All addresses, each once, those of IPv4 first.
    pub fn all(&self) -> &[SocketAddr] {
        &self.all
    }

    /// The first address of the other family than `address`.
    pub fn of_other_family(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.all.iter().copied().find(|other| other.is_ipv4() != address.is_ipv4())
    }
}

impl FromStr for TrackerAddress {
    type Err = String;

    /// Parses the text and looks the host up.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = host_and_port(text)?;
        let found = (host, port)
            .to_socket_addrs()
            .map_err(|error| format!("the name `{host}` cannot be resolved: {error}"))?;
        let mut all: Vec<SocketAddr> = found.map(plain).collect();
        all.sort_by_key(SocketAddr::is_ipv6);
        all.dedup();
        if all.is_empty() {
            return Err(format!("the name `{host}` has no address"));
        }
        match all.iter().map(SocketAddr::ip).find(|ip| !is_unicast(ip)) {
            None => Ok(Self { all }),
            Some(ip) => Err(format!(
                "{ip} is not a unicast address; a tracker on this host is at 127.0.0.1 or [::1]"
            )),
        }
    }
}

/// Splits an address into its host, without brackets, and its port.
fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    let authority = match text.split_once("://") {
        None => text,
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("udp") => {
            rest.split(['/', '?', '#']).next().unwrap_or(rest)
        }
        Some((scheme, _)) => {
            return Err(format!("`{scheme}://` is not the URL of a UDP tracker; {EXPECTED}"));
        }
    };
    let parts = authority.rsplit_once(':').filter(|_| !authority.ends_with(']'));
    let (host, port) = parts.ok_or_else(|| format!("there is no port; {EXPECTED}"))?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) if is_ipv6(inner) => inner,
        None if !host.is_empty() && !host.contains(['[', ']', ':', '@', '/', ' ']) => host,
        _ => return Err(format!("`{host}` is no host; {EXPECTED}")),
    };
    match port.parse() {
        Ok(0) => Err("port 0 cannot be sent to".into()),
        Ok(port) => Ok((host, port)),
        Err(_) => Err(format!("`{port}` is no port; {EXPECTED}")),
    }
}

/// Whether it is an IPv6 address, with or without a zone, like `fe80::1%eth0`.
fn is_ipv6(host: &str) -> bool {
    let (address, _) = host.split_once('%').unwrap_or((host, ""));
    address.parse::<Ipv6Addr>().is_ok()
}

fn is_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || broadcast)
}

/// Turns an IPv4-mapped address (RFC 4291, section 2.5.5.2) into the IPv4 address, over which the
/// datagrams travel.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Result<String, String> {
        text.parse::<TrackerAddress>().map(|address| address.first().to_string())
    }

    #[test]
    fn urls_and_addresses_are_accepted() {
        for (text, expected) in [
            ("127.0.0.1:6969", "127.0.0.1:6969"),
            ("[::1]:6969", "[::1]:6969"),
            ("[fe80::1%3]:6969", "[fe80::1%3]:6969"),
            ("[::ffff:127.0.0.1]:6969", "127.0.0.1:6969"),
            ("udp://127.0.0.1:6969", "127.0.0.1:6969"),
            ("udp://127.0.0.1:6969/", "127.0.0.1:6969"),
            ("udp://127.0.0.1:6969/announce", "127.0.0.1:6969"),
            ("UDP://[2001:db8::1]:80/announce?key=1#x", "[2001:db8::1]:80"),
        ] {
            assert_eq!(first(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_are_resolved() {
        for text in ["localhost:6969", "udp://localhost:6969/announce"] {
            let address: TrackerAddress = text.parse().unwrap();
            let first = address.first();
            assert!(first.ip().is_loopback() && first.port() == 6969, "{address:?}");
            let other = address.of_other_family(first);
            assert!(other.is_none_or(|other| first.is_ipv4() && other.is_ipv6()), "{address:?}");
        }
    }

    #[test]
    fn errors_name_the_expected_form() {
        for (text, named) in [
            ("", "HOST:PORT"),
            ("tracker", "no port"),
            ("127.0.0.1", "no port"),
            ("udp://tracker.example.org/announce", "no port"),
            ("127.0.0.1:0", "port 0"),
            ("127.0.0.1:x", "`x` is no port"),
            ("127.0.0.1:70000", "`70000` is no port"),
            (":6969", "is no host"),
            ("[tracker]:6969", "is no host"),
            ("user@host:6969", "is no host"),
            ("http://127.0.0.1:6969/announce", "`http://` is not the URL of a UDP tracker"),
            ("[::1]", "no port"),
            ("::1", "[::1]:6969"),
            ("fe80::1%eth0:6969", "`fe80::1%eth0` is no host"),
            ("0.0.0.0:6969", "not a unicast address"),
            ("[::]:6969", "not a unicast address"),
            ("239.0.0.1:6969", "not a unicast address"),
            ("255.255.255.255:6969", "not a unicast address"),
        ] {
            let error = first(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    /// `.invalid` never resolves (RFC 6761, section 6.4).
    #[test]
    fn a_name_without_address_is_named() {
        let error = first("udp://tracker.invalid:6969/announce").unwrap_err();
        assert!(error.contains("`tracker.invalid`"), "{error}");
    }
}
