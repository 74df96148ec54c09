//! The page at `/`: the announce URLs.

use std::io::Write;
use std::net::SocketAddr;
use std::str;

use onrush_tracker::running::Addresses;

/// The longest value of the field `Host` that the page shows.
const MAX_HOST: usize = 255;
/// The port of a URL of HTTP without one.
const HTTP_PORT: u16 = 80;
/// Stands for the host where the browser does not name it.
const NO_HOST: &str = "HOST";

/// The page, with the ports that the tracker serves.
#[derive(Debug)]
pub(crate) struct Page {
    http: Vec<u16>,
    udp: Vec<u16>,
}

impl Page {
    pub(crate) fn new(addresses: &Addresses) -> Self {
        let ports = |addresses: &[SocketAddr]| {
            let mut ports: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        Self { http: ports(&addresses.http), udp: ports(&addresses.udp) }
    }

    /// Writes it for a browser that has sent this value of `Host`. Its own URL is the first one, as
    /// the network may map ports.
    pub(crate) fn write(&self, host: Option<&[u8]>, body: &mut Vec<u8>) {
        let default = (NO_HOST, self.http.first().copied().unwrap_or(HTTP_PORT));
        let (name, port) = host.and_then(name_and_port).unwrap_or(default);
        let others = self.http.iter().filter(|it| **it != port && self.http.contains(&port));
        let http = std::iter::once(&port).chain(others).map(|port| ("http", *port));
        let urls = http.chain(self.udp.iter().map(|port| ("udp", *port)));
        // Writing into memory does not fail.
        let _ = write!(
            body,
            "<!doctype html><meta charset=utf-8><title>BitTorrent tracker</title>\n\
             <h1>BitTorrent tracker</h1>\n<p>Add an announce URL to a torrent:</p>\n<pre>\n"
        );
        for (scheme, port) in urls {
            let _ = match (scheme, port) {
                ("http", HTTP_PORT) => writeln!(body, "http://{name}/announce"),
                _ => writeln!(body, "{scheme}://{name}:{port}/announce"),
            };
        }
        body.extend_from_slice(b"</pre>\n");
    }
}

/// The name or address, and the port, of a value of `Host` (RFC 9110, section 7.2). `None` if it is
/// not to be shown.
fn name_and_port(host: &[u8]) -> Option<(&str, u16)> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(byte);
    if host.len() > MAX_HOST || !host.iter().all(is_part) {
        return None;
    }
    let host = str::from_utf8(host).ok()?;
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (host, HTTP_PORT),
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
        let page = Page::new(&addresses);
        let mut body = Vec::new();
        page.write(Some(host.as_bytes()), &mut body);
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

    #[test]
    fn a_host_that_is_no_name_is_not_shown() {
        for host in ["<script>", "", ":80", "t:x", "t:99999", &"a".repeat(256)] {
            assert_eq!(urls(&[6969], &[], host), ["http://HOST:6969/announce"], "{host}");
        }
    }
}
