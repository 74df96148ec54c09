//! The types of values that TOML does not have, and checks of strings.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// An address of `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// `:6969` or `6969`: this port on all addresses, IPv4 and, where the host has it, IPv6.
    Port(u16),
    /// `192.0.2.1:6969`, `0.0.0.0:6969`, `[2001:db8::1]:6969` or `[::]:6969`: this address, which
    /// is required.
    Address(SocketAddr),
}

impl ListenAt {
    /// The socket addresses, each with whether it is optional on this host.
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

/// Why a string is not a [`ListenAt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidListen {
    /// An address without a port; here with the default one.
    #[error("the port is missing: write `{0}`")]
    NoPort(SocketAddr),
    /// Trackers answer requests of single clients.
    #[error("{0} is a multicast address; write a unicast address")]
    Multicast(IpAddr),
    /// IPv6 sockets are opened with IPV6_V6ONLY and would not receive datagrams for it.
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
                Ok(ip) => InvalidListen::NoPort(SocketAddr::new(ip, 6969)),
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

/// `admin.listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum AdminAt {
    /// No admin side.
    Off,
    /// This address and port.
    Address(SocketAddr),
}

impl fmt::Display for AdminAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Why a string is not an [`AdminAt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAdminAt {
    /// A port alone is not enough: the admin side must not become public by default.
    #[error(
        "the address is missing: write `127.0.0.1:{0}` for this host alone, or `0.0.0.0:{0}` for \
         all IPv4 addresses"
    )]
    NoAddress(u16),
    /// An address without a port; here with the default one.
    #[error("the port is missing: write `{0}`")]
    NoPort(SocketAddr),
    /// Anything else.
    #[error("write an address and a port, like `127.0.0.1:6970` or `[::1]:6970`, or `off`")]
    Form,
}

impl FromStr for AdminAt {
    type Err = InvalidAdminAt;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let port = text.strip_prefix(':').unwrap_or(text);
        Err(match (bare.parse::<IpAddr>(), port.parse()) {
            (Ok(ip), _) => InvalidAdminAt::NoPort(SocketAddr::new(ip, 6970)),
            (_, Ok(port)) => InvalidAdminAt::NoAddress(port),
            _ => InvalidAdminAt::Form,
        })
    }
}

impl TryFrom<String> for AdminAt {
    type Error = InvalidAdminAt;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// `workers.placement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlacementMode {
    /// By the number of workers.
    Auto,
    /// Socket workers and swarm workers.
    Split,
    /// Each worker has sockets and a shard.
    Colocated,
}

/// `access.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessMode {
    /// There is no list.
    Open,
    /// Only listed info hashes are served.
    Allow,
    /// Listed info hashes are not served.
    Deny,
}

/// `workers.pin`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Pin {
    /// One of the words.
    Mode(PinMode),
    /// The vCPUs in the order of the workers.
    Vcpus(Vec<usize>),
}

/// The words of `workers.pin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PinMode {
    /// If there are enough vCPUs.
    Auto,
    /// Required.
    On,
    /// The scheduler places the workers.
    Off,
}

/// Checks an absolute path.
pub(crate) fn is_path(text: &str) -> Result<(), String> {
    match text {
        _ if !text.starts_with('/') => {
            Err("write an absolute path: a service may start in any directory".to_owned())
        }
        _ if text.contains('\0') => Err("a path cannot contain a NUL character".to_owned()),
        _ => Ok(()),
    }
}

/// Checks the name of a user or a group. The remedy is that of the key.
pub(crate) fn is_name(text: &str) -> Result<(), String> {
    let is_invalid = |c: char| c.is_control() || c == ':' || c == '/';
    if text.is_empty() || text.contains(is_invalid) { Err(String::new()) } else { Ok(()) }
}

/// For `#[serde(deserialize_with)]`: a duration from whole seconds.
pub(crate) fn seconds<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_both_families_and_ipv6_is_optional() {
        for text in ["6969", ":6969"] {
            let listen: ListenAt = text.parse().unwrap();
            let addresses: Vec<_> = listen.addresses().map(|(a, o)| (a.to_string(), o)).collect();
            let expected = [("0.0.0.0:6969".to_owned(), false), ("[::]:6969".to_owned(), true)];
            assert_eq!(addresses, expected);
            assert_eq!(listen.to_string(), ":6969");
        }
    }

    #[test]
    fn an_explicit_address_is_required() {
        for text in ["1.2.3.4:6969", "[::1]:6969", "[::]:80", "[fe80::1%2]:6969", "0.0.0.0:0"] {
            let listen: ListenAt = text.parse().unwrap();
            let address = text.parse().unwrap();
            assert_eq!(listen.addresses().collect::<Vec<_>>(), [(address, false)]);
            assert_eq!(listen.to_string(), text);
        }
    }

    #[test]
    fn errors_of_listen_have_the_remedy() {
        let error = |text: &str| text.parse::<ListenAt>().unwrap_err().to_string();
        for text in ["1.2.3.4", "::1", "[::1]"] {
            let address = text.trim_matches(['[', ']']).parse().unwrap();
            let right = SocketAddr::new(address, 6969);
            assert!(error(text).ends_with(&format!("write `{right}`")), "{text}");
        }
        assert!(error("224.0.0.1:6969").contains("224.0.0.1 is a multicast address"));
        assert!(error("[ff02::1]:6969").contains("multicast"));
        assert!(error("[::ffff:1.2.3.4]:80").ends_with("write `1.2.3.4:80`"));
        for text in ["", ":", "localhost:6969", "70000", ":70000", "+6969", "1.2.3.4:", "1.2.3:6"] {
            assert!(error(text).starts_with("write an address and a port"), "{text}");
        }
    }

    #[test]
    fn admin_listens_at_an_address_or_not_at_all() {
        for text in ["off", "127.0.0.1:6970", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(text.parse::<AdminAt>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<AdminAt>().unwrap_err().to_string();
        assert!(error(":6970").contains("`127.0.0.1:6970` for this host alone"));
        assert!(error("6970").contains("`0.0.0.0:6970` for all"));
        assert!(error("::1").ends_with("write `[::1]:6970`"));
        assert!(error("10.0.0.1").ends_with("write `10.0.0.1:6970`"));
        for text in ["", "on", "localhost:6970", "127.0.0.1:70000"] {
            assert!(error(text).ends_with("or `off`"), "{text}");
        }
    }
}
