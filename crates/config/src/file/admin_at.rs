//! The ways to write where HTTP listens, the same in the file and on the command line.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Where HTTP listens, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAt {
    /// Nowhere.
    Off,
    /// At this address and port.
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

/// Why a text is no [`AdminAt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAdminAt {
    /// A port without an address: too easily every address of the host is meant by nobody.
    #[error(
        "the address is missing: write `127.0.0.1:{0}` for this host alone, or `0.0.0.0:{0}` for every \
         IPv4 address of it"
    )]
    NoAddress(u16),
    /// The address lacks its port; this is what it may be meant for.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_off_and_back() {
        for text in ["off", "127.0.0.1:6970", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(text.parse::<AdminAt>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = |text: &str| text.parse::<AdminAt>().unwrap_err().to_string();
        assert!(error(":6970").contains("`127.0.0.1:6970` for this host alone"));
        assert!(error("6970").contains("`0.0.0.0:6970` for every"));
        assert_eq!(error("::1"), "the port is missing: write `[::1]:6970`");
        assert_eq!(error("10.0.0.1"), "the port is missing: write `10.0.0.1:6970`");
        for text in ["", "on", "localhost:6970", "127.0.0.1:70000"] {
            assert!(error(text).ends_with("or `off`"), "{text}");
        }
    }
}
