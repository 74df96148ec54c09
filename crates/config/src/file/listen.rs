//! The ways to write an address to listen on, the same in the file and on the command line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// What to listen on, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// `:6969` or `6969`: this port on every address, IPv4 and, where the host has it, IPv6.
    Port(u16),
    /// `192.0.2.1:6969`, `0.0.0.0:6969`, `[2001:db8::1]:6969` or `[::]:6969`: this address and no
    /// other. The tracker does not start without it.
    Address(SocketAddr),
}

impl ListenAt {
    /// The socket addresses, each with whether it may be missing on this host.
    pub(crate) fn addresses(self) -> impl Iterator<Item = (SocketAddr, bool)> {
        let (first, second) = match self {
            Self::Port(port) => (
                (SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), false),
                Some((SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), true)),
            ),
            Self::Address(address) => ((address, false), None),
        };
        [Some(first), second].into_iter().flatten()
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, ":{port}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Why a text is no [`ListenAt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidListen {
    /// The address lacks its port; this is what it may be meant for.
    #[error("the port is missing: write `{0}`")]
    NoPort(String),
    /// Datagrams of a group are for its members, a tracker is asked by one client at a time.
    #[error("{0} is a multicast address; a tracker listens on unicast addresses")]
    Multicast(IpAddr),
    /// IPv6 sockets are opened for IPv6 alone, so nothing would arrive here.
    #[error("this is an IPv4 address in IPv6 form: write `{0}`")]
    Mapped(SocketAddr),
    /// Anything else.
    #[error(
        "write an address and a port, like `192.0.2.1:6969` or `[2001:db8::1]:6969`, or `:6969` \
         for every address of both families"
    )]
    Form,
}

impl FromStr for ListenAt {
    type Err = InvalidListen;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if port.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(port) = port.parse()
        {
            return Ok(Self::Port(port));
        }
        let Ok(address) = text.parse::<SocketAddr>() else {
            let bare = text.trim_start_matches('[').trim_end_matches(']');
            return Err(match bare.parse::<IpAddr>() {
                Ok(ip) => InvalidListen::NoPort(SocketAddr::new(ip, 6969).to_string()),
                Err(_) => InvalidListen::Form,
            });
        };
        match address.ip() {
            ip if ip.is_multicast() => Err(InvalidListen::Multicast(ip)),
            ip if ip.to_canonical() != ip => {
                Err(InvalidListen::Mapped(SocketAddr::new(ip.to_canonical(), address.port())))
            }
            _ => Ok(Self::Address(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<ListenAt>().unwrap_err().to_string()
    }

    #[test]
    fn a_port_alone_is_both_families_and_ipv6_may_be_missing() {
        for text in ["6969", ":6969"] {
            let listen: ListenAt = text.parse().unwrap();
            let addresses: Vec<_> = listen.addresses().map(|(a, o)| (a.to_string(), o)).collect();
            let expected = [("0.0.0.0:6969".to_owned(), false), ("[::]:6969".to_owned(), true)];
            assert_eq!(addresses, expected);
            assert_eq!(listen.to_string(), ":6969");
        }
    }

    #[test]
    fn an_address_is_itself_and_required() {
        for text in ["1.2.3.4:6969", "[::1]:6969", "[::]:80", "[fe80::1%2]:6969", "0.0.0.0:0"] {
            let listen: ListenAt = text.parse().unwrap();
            let address = text.parse().unwrap();
            assert_eq!(listen.addresses().collect::<Vec<_>>(), [(address, false)]);
            assert_eq!(listen.to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        assert_eq!(error("1.2.3.4"), "the port is missing: write `1.2.3.4:6969`");
        assert_eq!(error("::1"), "the port is missing: write `[::1]:6969`");
        assert_eq!(error("[::1]"), "the port is missing: write `[::1]:6969`");
        assert!(error("224.0.0.1:6969").contains("224.0.0.1 is a multicast address"));
        assert!(error("[ff02::1]:6969").contains("multicast"));
        assert!(error("[::ffff:1.2.3.4]:80").ends_with("write `1.2.3.4:80`"));
        for text in ["", ":", "localhost:6969", "70000", ":70000", "+6969", "1.2.3.4:", "1.2.3:6"] {
            assert!(error(text).starts_with("write an address and a port"), "{text}");
        }
    }
}
