//! The types of values that TOML does not have, and checks of strings.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// An address to listen on; an explicit one is never optional. The tracker also starts without an
/// optional address of the admin side that is in use.
pub use onrush_net::bind::Address as Listen;
use onrush_tracker::proxies::ClientAddress;
use onrush_tracker::refusal::MAX_ERROR_TEXT;
use serde::{Deserialize, Deserializer, de};

/// An entry of `listen`: `:6969` or `6969` is this port on all addresses, IPv4 and, where the host
/// has it, IPv6; `192.0.2.1:6969` or `[::]:6969` is this address, which is required.
#[derive(Clone, Debug)]
pub(crate) struct ListenAt(pub(crate) Vec<Listen>);

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if port.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(port) = port.parse()
        {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            return Ok(Self(vec![
                Listen { address: v4, optional: false },
                Listen { address: v6, optional: true },
            ]));
        }
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Err(port_is_missing(text, 6969).unwrap_or_else(|| {
                "write an address and a port, like `192.0.2.1:6969` or `[2001:db8::1]:6969`, or \
                 `:6969` for every address of both families"
                    .to_owned()
            }));
        };
        let (ip, canonical) = (address.ip(), address.ip().to_canonical());
        if ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
            let kind = if ip.is_multicast() { "multicast" } else { "broadcast" };
            return Err(format!("{ip} is a {kind} address; write a unicast address"));
        }
        // IPv6 sockets are opened with IPV6_V6ONLY and would not receive datagrams for it.
        if ip != canonical {
            let address = SocketAddr::new(canonical, address.port());
            return Err(format!("this is an IPv4 address in IPv6 form: write `{address}`"));
        }
        Ok(Self(vec![Listen { address, optional: false }]))
    }
}

/// The address of the admin side; `None` for "off".
fn admin_at(text: &str) -> Result<Option<Listen>, String> {
    if text == "off" {
        return Ok(None);
    }
    if let Ok(address) = text.parse() {
        return Ok(Some(Listen { address, optional: false }));
    }
    if let Some(error) = port_is_missing(text, 6970) {
        return Err(error);
    }
    // A port alone is not enough: the admin side must not become public by default.
    Err(match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        Ok(port) => format!(
            "the address is missing: write `127.0.0.1:{port}` for this host alone, or \
             `0.0.0.0:{port}` for all IPv4 addresses"
        ),
        Err(_) => "write an address and a port, like `127.0.0.1:6970` or `[::1]:6970`, or `off`"
            .to_owned(),
    })
}

/// The error for an address without a port, with the default one. The last group of an IPv6 address
/// without brackets may be meant as the port.
fn port_is_missing(text: &str, port: u16) -> Option<String> {
    let ip: IpAddr = text.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let missing = format!("the port is missing: write `{}`", SocketAddr::new(ip, port));
    let meant = text.rsplit_once(':').and_then(|(ip, port)| {
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok().filter(|port| *port > 0)?))
    });
    Some(match meant {
        Some(meant) => format!("an IPv6 address is in brackets: write `{meant}`, or if {missing}"),
        None => missing,
    })
}

/// Checks `admin.listen`.
pub(crate) fn is_admin_at(text: &str) -> Result<(), String> {
    admin_at(text).map(drop)
}

/// For `#[serde(deserialize_with)]`: `admin.listen`.
pub(crate) fn admin<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Listen>, D::Error> {
    admin_at(&String::deserialize(from)?).map_err(de::Error::custom)
}

/// For `#[serde(default)]`: `admin.listen` if the file does not have it.
pub(crate) fn default_admin() -> Option<Listen> {
    Some(Listen { address: (Ipv4Addr::LOCALHOST, 6970).into(), optional: true })
}

/// For `#[serde(deserialize_with)]`: `http.client_address`.
pub(crate) fn client_address<'d, D: Deserializer<'d>>(from: D) -> Result<ClientAddress, D::Error> {
    let name = String::deserialize(from)?;
    let found = ClientAddress::ALL.iter().find(|it| it.name() == name);
    found.copied().ok_or_else(|| de::Error::custom(format!("{name:?} is not known")))
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

/// `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For humans.
    Text,
    /// For programs.
    Json,
}

/// `workers.pin`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pin {
    /// If there are enough vCPUs.
    Auto,
    /// Required.
    On,
    /// The scheduler places the workers.
    Off,
    /// The vCPUs in the order of the workers.
    #[serde(untagged)]
    Vcpus(Vec<usize>),
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

/// A file of the list of info hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFile {
    /// Its path.
    pub path: PathBuf,
    /// The text of the error for its entries, if it has one of its own.
    pub error: Option<String>,
}

impl ListFile {
    /// Its name in statistics: that of the file.
    pub fn name(&self) -> Cow<'_, str> {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy()
    }
}

impl FromStr for ListFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, error) = match text.split_once(": ") {
            Some((path, error)) => (path, Some(error)),
            None => (text, None),
        };
        is_path(path)?;
        error.map_or(Ok(()), is_error_text)?;
        Ok(Self { path: path.into(), error: error.map(str::to_owned) })
    }
}

/// Checks the text of an error reply.
pub(crate) fn is_error_text(text: &str) -> Result<(), String> {
    let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    match text.len() {
        0 => Err("write what the client shows to its user".to_owned()),
        1..=MAX_ERROR_TEXT if is_printable => Ok(()),
        1..=MAX_ERROR_TEXT => Err("write ASCII characters: clients show others wrongly".to_owned()),
        length => Err(format!(
            "write at most {MAX_ERROR_TEXT} characters, and not {length}: an error reply is no \
             longer than the announce that it answers"
        )),
    }
}

/// Checks an entry of `admin.hosts`.
pub(crate) fn is_host_name(text: &str) -> Result<(), String> {
    let bare = text.trim_start_matches('[').split(']').next().unwrap_or(text);
    if bare.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok() {
        return Err("addresses are always accepted: remove this entry".to_owned());
    }
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let name = rest.split([':', '/']).next().unwrap_or(rest).trim_end_matches('.');
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match name.len() <= 253 && name.split('.').all(is_label) {
        true if name == text => Ok(()),
        true => Err(format!("write the name alone: \"{name}\"")),
        false => Err("write a name like \"tracker.example.org\"; there are no wildcards, and \
                      names that are not ASCII are written in their form with xn--"
            .to_owned()),
    }
}

/// Checks an entry of `xdp.interfaces`: what `dev_valid_name` of the kernel accepts.
pub(crate) fn is_interface(text: &str) -> Result<(), String> {
    let is_invalid = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    match text.len() {
        1..=15 if !text.contains(is_invalid) && text != "." && text != ".." => Ok(()),
        _ => Err("write a name that `ip link` shows, like \"eth0\"".to_owned()),
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

    fn listen(text: &str) -> Vec<(String, bool)> {
        let ListenAt(listen) = text.parse().unwrap();
        listen.iter().map(|listen| (listen.address.to_string(), listen.optional)).collect()
    }

    #[test]
    fn a_port_is_both_families_and_an_explicit_address_is_required() {
        let both = [("0.0.0.0:6969".to_owned(), false), ("[::]:6969".to_owned(), true)];
        assert_eq!((listen("6969"), listen(":6969")), (both.to_vec(), both.to_vec()));
        for text in ["1.2.3.4:6969", "[::1]:6969", "[::]:80", "[fe80::1%2]:6969", "0.0.0.0:0"] {
            assert_eq!(listen(text), [(text.to_owned(), false)]);
        }
    }

    #[test]
    fn errors_of_listen_have_the_remedy() {
        let error = |text: &str| text.parse::<ListenAt>().map(drop).unwrap_err();
        for text in ["1.2.3.4", "::1", "[::1]"] {
            let address = text.trim_matches(['[', ']']).parse().unwrap();
            let right = SocketAddr::new(address, 6969);
            assert!(error(text).ends_with(&format!("write `{right}`")), "{text}");
        }
        assert!(error("224.0.0.1:6969").contains("224.0.0.1 is a multicast address"));
        assert!(error("[ff02::1]:6969").contains("multicast"));
        assert!(error("255.255.255.255:6969").contains("255.255.255.255 is a broadcast address"));
        assert!(error("[::ffff:1.2.3.4]:80").ends_with("write `1.2.3.4:80`"));
        for text in ["", ":", "localhost:6969", "70000", ":70000", "+6969", "1.2.3.4:", "1.2.3:6"] {
            assert!(error(text).starts_with("write an address and a port"), "{text}");
        }
    }

    #[test]
    fn host_names_have_neither_port_nor_wildcard() {
        for text in ["tracker.example.org", "onrush", "a_b-c.XN--P1AI"] {
            assert_eq!(is_host_name(text), Ok(()), "{text}");
        }
        for text in ["a.example:80", "http://a.example/", "a.example.", "https://a.example:1/x"] {
            assert_eq!(is_host_name(text).unwrap_err(), "write the name alone: \"a.example\"");
        }
        for text in ["192.0.2.7", "::1", "[::1]", "[::1]:6970", "192.0.2.7:6970"] {
            assert!(is_host_name(text).unwrap_err().contains("always accepted"), "{text}");
        }
        for text in ["", "*.example.org", "a b", "a..b", "bücher.example", ":80", &"a".repeat(64)]
        {
            assert!(is_host_name(text).unwrap_err().contains("xn--"), "{text}");
        }
    }

    #[test]
    fn interfaces_have_names_of_at_most_15_characters() {
        for text in ["eth0", "enp0s31f6.100", "veth-a_b@1", "123456789012345"] {
            assert_eq!(is_interface(text), Ok(()), "{text}");
        }
        for text in ["", ".", "..", "a b", "a/b", "eth0:1", "1234567890123456", "a\n"] {
            assert!(is_interface(text).unwrap_err().contains("ip link"), "{text}");
        }
    }

    #[test]
    fn files_of_lists_may_have_an_error_text() {
        let file = |text: &str| text.parse::<ListFile>().map(|file| (file.path, file.error));
        assert_eq!(file("/a/b.txt"), Ok(("/a/b.txt".into(), None)));
        assert_eq!(file("/a:b"), Ok(("/a:b".into(), None)));
        let of = |text: String| file(&format!("/a: {text}")).map(|(_, error)| error);
        assert_eq!(of("see https://x: y".to_owned()), Ok(Some("see https://x: y".to_owned())));
        assert!(of("a".repeat(90)).is_ok());
        for (text, part) in [
            (String::new(), "write what the client shows"),
            ("a".repeat(91), "at most 90 characters, and not 91"),
            ("b\u{fc}cher".to_owned(), "ASCII"),
            ("a\tb".to_owned(), "ASCII"),
        ] {
            assert!(of(text.clone()).unwrap_err().contains(part), "{text}");
        }
        assert!(file("a.txt").unwrap_err().contains("absolute path"));
    }

    #[test]
    fn admin_listens_at_an_address_or_not_at_all() {
        assert_eq!(admin_at("off"), Ok(None));
        for text in ["127.0.0.1:6970", "[::1]:0", "0.0.0.0:80"] {
            let address = text.parse().unwrap();
            assert_eq!(admin_at(text), Ok(Some(Listen { address, optional: false })));
        }
        for (text, end) in [
            (
                ":6970",
                "`127.0.0.1:6970` for this host alone, or `0.0.0.0:6970` for all IPv4 addresses",
            ),
            ("6970", "`0.0.0.0:6970` for all IPv4 addresses"),
            ("::1", "write `[::1]:6970`"),
            ("10.0.0.1", "write `10.0.0.1:6970`"),
            ("", "or `off`"),
            ("on", "or `off`"),
            ("localhost:6970", "or `off`"),
            ("127.0.0.1:70000", "or `off`"),
        ] {
            let error = admin_at(text).unwrap_err();
            assert!(error.ends_with(end), "{text}: {error}");
        }
    }
}
