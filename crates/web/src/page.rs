//! The page at `/`: the announce URLs.

use std::io::Write;
use std::net::SocketAddr;
use std::str;

use onrush_tracker::running::{Addresses, Scheme};

/// The longest value of the field `Host` that the page shows.
const MAX_HOST: usize = 255;
/// The ports of URLs without one.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// Stands for the host where the browser does not name it.
const NO_HOST: &str = "HOST";

/// The page, with the ports that the tracker serves.
#[derive(Debug)]
pub(crate) struct Page {
    http: Vec<u16>,
    https: Vec<u16>,
    udp: Vec<u16>,
    has_webtorrent: bool,
}

impl Page {
    pub(crate) fn new(addresses: &Addresses, has_webtorrent: bool) -> Self {
        let ports = |addresses: &[SocketAddr]| {
            let mut ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        let Addresses { udp, http, https } = addresses;
        Self { http: ports(http), https: ports(https), udp: ports(udp), has_webtorrent }
    }

    /// Writes it for a browser that has come over `scheme` and sent this value of `Host`. Its own
    /// URL is the first one, as the network may map ports. The ones for WebTorrent follow, which
    /// have the ports of HTTP.
    pub(crate) fn write(&self, host: Option<&[u8]>, scheme: Scheme, body: &mut Vec<u8>) {
        let (http, https) = (("http", &self.http), ("https", &self.https));
        let (own, other, usual) = match scheme {
            Scheme::Http => (http, https, HTTP_PORT),
            Scheme::Https => (https, http, HTTPS_PORT),
        };
        let default = (NO_HOST, own.1.first().copied().unwrap_or(usual));
        let (name, port) = host.and_then(|host| name_and_port(host, usual)).unwrap_or(default);
        let same = own.1.iter().filter(|it| **it != port && own.1.contains(&port));
        let same = std::iter::once(&port).chain(same).map(|port| (own.0, *port));
        let others = [other, ("udp", &self.udp)].into_iter();
        let others = others.flat_map(|(scheme, ports)| ports.iter().map(move |it| (scheme, *it)));
        let urls = same.chain(others);
        let websocket = urls.clone().filter(|_| self.has_webtorrent);
        let websocket = websocket.filter_map(|(scheme, port)| match scheme {
            "http" => Some(("ws", port)),
            "https" => Some(("wss", port)),
            _ => None,
        });
        // Writing into memory does not fail.
        let _ = write!(
            body,
            "<!doctype html><meta charset=utf-8><title>BitTorrent tracker</title>\n\
             <h1>BitTorrent tracker</h1>\n<p>Add an announce URL to a torrent:</p>\n<pre>\n"
        );
        for (scheme, port) in urls.chain(websocket) {
            let _ = match (scheme, port) {
                ("http" | "ws", HTTP_PORT) | ("https" | "wss", HTTPS_PORT) => {
                    writeln!(body, "{scheme}://{name}/announce")
                }
                _ => writeln!(body, "{scheme}://{name}:{port}/announce"),
            };
        }
        body.extend_from_slice(b"</pre>\n");
    }
}

/// The name or address, and the port, of a value of `Host` (RFC 9110, section 7.2); the `usual`
/// port if it has none. `None` if it is not to be shown.
fn name_and_port(host: &[u8], usual: u16) -> Option<(&str, u16)> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(byte);
    if host.len() > MAX_HOST || !host.iter().all(is_part) {
        return None;
    }
    let host = str::from_utf8(host).ok()?;
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (host, usual),
    };
    (!name.is_empty()).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The URLs of the page for a value of `Host`.
    fn urls(http: &[u16], udp: &[u16], host: &str) -> Vec<String> {
        let addresses = |ports: &[u16]| -> Vec<SocketAddr> {
            ports.iter().map(|port| ([192, 0, 2, 1], *port).into()).collect()
        };
        let addresses = Addresses { udp: addresses(udp), http: addresses(http), https: vec![] };
        shown(&addresses, Scheme::Http, host, false)
    }

    fn shown(addresses: &Addresses, scheme: Scheme, host: &str, webtorrent: bool) -> Vec<String> {
        let mut body = Vec::new();
        Page::new(addresses, webtorrent).write(Some(host.as_bytes()), scheme, &mut body);
        let body = String::from_utf8(body).unwrap();
        body.lines().filter(|line| line.contains("/announce")).map(str::to_owned).collect()
    }

    #[test]
    fn the_urls_of_all_ports_are_listed_by_the_name_that_the_browser_has_used() {
        let both = urls(&[80, 6969, 80], &[6969, 6969], "t.example:6969");
        let expected = ["http://t.example:6969", "http://t.example", "udp://t.example:6969"];
        assert_eq!(both, expected.map(|url| format!("{url}/announce")));
        let mapped = urls(&[6969, 7000], &[], "[2001:db8::1]");
        assert_eq!(mapped, ["http://[2001:db8::1]/announce"]);
        let v6 = urls(&[6969], &[1], "[2001:db8::1]:6969");
        assert_eq!(v6, ["http://[2001:db8::1]:6969/announce", "udp://[2001:db8::1]:1/announce"]);
    }

    /// Those of WebTorrent come last where it is on.
    #[test]
    fn the_urls_of_https_come_first_for_a_browser_that_has_come_over_it() {
        let of = |port: u16| vec![([192, 0, 2, 1], port).into()];
        let addresses = Addresses { udp: of(6969), http: of(80), https: of(443) };
        for (scheme, host, webtorrent, expected) in [
            (Scheme::Https, "t", false, "https://t http://t udp://t:6969"),
            (Scheme::Http, "t", false, "http://t https://t udp://t:6969"),
            (Scheme::Https, "t:8443", false, "https://t:8443 http://t udp://t:6969"),
            (Scheme::Https, "t", true, "https://t http://t udp://t:6969 wss://t ws://t"),
            (Scheme::Http, "t:1", true, "http://t:1 https://t udp://t:6969 ws://t:1 wss://t"),
        ] {
            let expected = expected.split(' ').map(|url| format!("{url}/announce"));
            assert!(expected.eq(shown(&addresses, scheme, host, webtorrent)), "{scheme:?} {host}");
        }
    }

    #[test]
    fn a_host_that_is_no_name_is_not_shown() {
        for host in ["<script>", "", ":80", "t:x", "t:99999", &"a".repeat(256)] {
            assert_eq!(urls(&[6969], &[], host), ["http://HOST:6969/announce"], "{host}");
        }
    }
}
