//! The announce URL of a tracker over HTTP or WebSocket.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use rustls::pki_types::ServerName;
use strum::{AsRefStr, EnumString};

use crate::address::TrackerAddress;

/// The expected form, for error messages.
const EXPECTED: &str = "expected SCHEME://HOST:PORT/PATH with http, https, ws or wss";

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, EnumString)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive)]
pub enum Scheme {
    /// Requests over HTTP.
    Http,
    /// Requests over HTTP, by TLS.
    Https,
    /// Messages of WebTorrent over WebSocket.
    Ws,
    /// Messages of WebTorrent over WebSocket, by TLS.
    Wss,
}

impl Scheme {
    /// Whether connections have TLS.
    pub const fn has_tls(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }

    /// Whether it is of WebSocket.
    pub const fn is_websocket(self) -> bool {
        matches!(self, Self::Ws | Self::Wss)
    }
}

/// An announce URL, with its host looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Its scheme.
    pub scheme: Scheme,
    /// The first address of its host, IPv4 before IPv6.
    pub address: SocketAddr,
    /// The first address of the other family.
    pub also: Option<SocketAddr>,
    /// Host and port as they are in it.
    pub authority: String,
    /// The path of announces or of the WebSocket, which may have a query.
    pub announce: String,
    /// The path of scrapes: the last segment begins with `scrape` where that of announces begins
    /// with `announce` (BEP 48); none otherwise, and over WebSocket.
    pub scrape: Option<String>,
}

impl Url {
    /// The name that the certificate is for.
    ///
    /// # Panics
    /// Never: a host that was looked up is a name or an address.
    pub fn server_name(&self) -> ServerName<'static> {
        let host = host(&self.authority).0;
        match host.parse::<IpAddr>() {
            Ok(ip) => ip.into(),
            Err(_) => ServerName::try_from(host.to_owned()).expect("a host that was looked up"),
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_ref(), self.authority, self.announce)
    }
}

impl FromStr for Url {
    type Err = String;

    /// Parses the text and looks the host up.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| EXPECTED.to_owned())?;
        let unknown = |_| format!("`{scheme}://` is no such URL; {EXPECTED}");
        let scheme: Scheme = scheme.parse().map_err(unknown)?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("the path has a character that has to be percent-encoded".into());
        }
        let path = match path {
            "" | "/" if scheme.is_websocket() => "/".to_owned(),
            "" | "/" => "/announce".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let (host, port) = host(authority);
        let port = port.unwrap_or(if scheme.has_tls() { "443" } else { "80" });
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let all = format!("{bracketed}:{port}").parse::<TrackerAddress>()?;
        let (address, also) = (all.first(), all.of_other_family(all.first()));
        if ServerName::try_from(host.split('%').next().unwrap_or(host)).is_err() {
            return Err(format!("`{host}` is no host; {EXPECTED}"));
        }
        let scrape = if scheme.is_websocket() { None } else { scrape_path(&path) };
        let authority = authority.to_owned();
        Ok(Self { scheme, address, also, authority, announce: path, scrape })
    }
}

/// The host of an authority without brackets, and its port.
fn host(authority: &str) -> (&str, Option<&str>) {
    let parts = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let (host, port) = parts.map_or((authority, None), |(host, port)| (host, Some(port)));
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (inner.unwrap_or(host), port)
}

fn scrape_path(announce: &str) -> Option<String> {
    let path = announce.split('?').next().unwrap_or(announce);
    let (before, last) = path.rsplit_once('/')?;
    let rest = last.strip_prefix("announce")?;
    Some(format!("{before}/scrape{rest}{}", &announce[path.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, address, announce, scrape) in [
            ("http://127.0.0.1", "127.0.0.1:80", "/announce", Some("/scrape")),
            ("HTTPS://[::1]/", "[::1]:443", "/announce", Some("/scrape")),
            (
                "http://127.0.0.1:7/x/announce.php?k=1#y",
                "127.0.0.1:7",
                "/x/announce.php?k=1",
                Some("/x/scrape.php?k=1"),
            ),
            ("http://127.0.0.1:7/a/x", "127.0.0.1:7", "/a/x", None),
            ("ws://127.0.0.1:7", "127.0.0.1:7", "/", None),
            ("WSS://127.0.0.1/announce", "127.0.0.1:443", "/announce", None),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.address, url.announce.as_str()), (address.parse().unwrap(), announce));
            assert_eq!(url.scrape.as_deref(), scrape);
            assert_eq!(url.scheme.has_tls(), url.address.port() == 443);
            assert_eq!(url.scheme.is_websocket(), text.to_lowercase().starts_with("ws"));
        }
        let url: Url = "https://localhost:1/announce".parse().unwrap();
        assert!(url.address.ip().is_loopback());
        assert_eq!(url.server_name(), ServerName::try_from("localhost").unwrap());
        assert_eq!(url.to_string(), "https://localhost:1/announce");
        let url: Url = "https://[::1]:1/announce".parse().unwrap();
        assert!(matches!(url.server_name(), ServerName::IpAddress(_)));
    }

    #[test]
    fn errors_name_the_expected_form() {
        for (text, named) in [
            ("127.0.0.1:6969", "expected SCHEME://"),
            ("udp://127.0.0.1:6969", "`udp://`"),
            ("http://", "is no host"),
            ("http://127.0.0.1:x/", "`x` is no port"),
            ("http://127.0.0.1/a b", "percent-encoded"),
            ("http://user@127.0.0.1/", "is no host"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
