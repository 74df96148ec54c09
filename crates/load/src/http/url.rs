//! The announce URL of a tracker over HTTP.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use onrush_verify::address::TrackerAddress;
use rustls::pki_types::ServerName;

/// The expected form, for error messages.
const EXPECTED: &str = "expected http://HOST:PORT/announce or https://HOST:PORT/announce";

/// An announce URL, with its host looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is `https://`.
    pub tls: bool,
    /// The first address of its host, IPv4 before IPv6.
    pub address: SocketAddr,
    /// Host and port as they are in it.
    pub authority: String,
    /// The path of announces, which may have a query.
    pub announce: String,
    /// The path of scrapes: the last segment begins with `scrape` where that of announces begins
    /// with `announce` (BEP 48); none otherwise.
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
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.announce)
    }
}

impl FromStr for Url {
    type Err = String;

    /// Parses the text and looks the host up.
    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| EXPECTED.to_owned())?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(format!("`{scheme}://` is not HTTP; {EXPECTED}")),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("the path has a character that has to be percent-encoded".into());
        }
        let path = match path {
            "" | "/" => "/announce".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let (host, port) = host(authority);
        let port = port.unwrap_or(if tls { "443" } else { "80" });
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let address = format!("{bracketed}:{port}").parse::<TrackerAddress>()?.first();
        if ServerName::try_from(host.split('%').next().unwrap_or(host)).is_err() {
            return Err(format!("`{host}` is no host; {EXPECTED}"));
        }
        let scrape = scrape_path(&path);
        Ok(Self { tls, address, authority: authority.to_owned(), announce: path, scrape })
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
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.address, url.announce.as_str()), (address.parse().unwrap(), announce));
            assert_eq!(url.scrape.as_deref(), scrape);
            assert_eq!(url.tls, text.starts_with("HTTPS"));
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
            ("127.0.0.1:6969", "expected http://"),
            ("udp://127.0.0.1:6969", "`udp://` is not HTTP"),
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
