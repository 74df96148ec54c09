//! The client's address in fields of a request. A proxy appends an address to those that it has
//! received, which a client can forge. The last address that is no trusted proxy is the client's: a
//! trusted proxy has appended it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str;

use onrush_tracker::proxies::{ClientAddress, Proxies};

/// The client that the values of a request's fields of the configured name give, in their order.
/// `None` if they do not name it, or name nothing but trusted proxies.
pub fn client<'a>(
    mut values: impl DoubleEndedIterator<Item = &'a [u8]>,
    proxies: &Proxies,
) -> Option<SocketAddr> {
    let is_last = |node: &Option<SocketAddr>| !node.is_some_and(|it| proxies.contain(it.ip()));
    let last = match proxies.client_address {
        ClientAddress::XForwardedFor => {
            let entries = values.rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
            entries.map(address).find(is_last)
        }
        ClientAddress::XRealIp => {
            let value = values.next()?;
            values.next().is_none().then(|| address(value)).filter(is_last)
        }
        ClientAddress::Forwarded => {
            values.rev().find_map(|value| last_of_forwarded(value, is_last))
        }
        ClientAddress::ProxyProtocol => None,
    };
    last.flatten()
}

/// The last node of a value of `Forwarded` (RFC 7239, section 4) that `is_last` accepts. A value
/// that is malformed anywhere has no node: the part from the client may begin a quoted string that
/// contains the part from the proxy.
fn last_of_forwarded(
    value: &[u8],
    is_last: impl Fn(&Option<SocketAddr>) -> bool,
) -> Option<Option<SocketAddr>> {
    let mut last = None;
    for element in split_unquoted(value, b',') {
        let mut node = None;
        for pair in split_unquoted(element, b';') {
            let Some((name, value)) = parameter(pair.trim_ascii()) else { return Some(None) };
            if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
                return Some(None);
            }
        }
        let node = node.and_then(address);
        if is_last(&node) {
            last = Some(node);
        }
    }
    last
}

/// The parts of a text between separators that are not in quoted strings (RFC 9110, section 5.6.4).
fn split_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |byte| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => is_escaped = is_quoted,
            _ => {}
        }
        !is_quoted && *byte == separator
    })
}

/// Name and value of a parameter. A value is a quoted string, of which the inner part is returned
/// unchanged, or text without quotes, backslashes and blanks.
fn parameter(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&pair[..at], &pair[at + 1..]);
    let is_token = |text: &[u8]| {
        let is_part = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        !text.is_empty() && text.iter().all(is_part)
    };
    let value = match value {
        [b'"', inner @ .., b'"'] if is_quotable(inner) => inner,
        _ if is_token(value) => value,
        _ => return None,
    };
    is_token(name).then_some((name, value))
}

/// Whether a text can be the inner part of a quoted string.
fn is_quotable(text: &[u8]) -> bool {
    let mut is_escaped = false;
    for byte in text {
        is_escaped = match byte {
            _ if is_escaped => false,
            b'"' => return false,
            byte => *byte == b'\\',
        };
    }
    !is_escaped
}

/// The address of an entry: an address, which may be in brackets and may have a port. The port may
/// be obfuscated (RFC 7239, section 6). An IPv4-mapped address is IPv4.
fn address(entry: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(entry.trim_ascii()).ok()?;
    let (ip, port): (IpAddr, _) = if let Some(bracketed) = text.strip_prefix('[') {
        let (ip, port) = bracketed.split_once(']')?;
        (ip.parse::<Ipv6Addr>().ok()?.into(), port)
    } else if let Ok(ip) = text.parse() {
        (ip, "")
    } else {
        let (ip, port) = text.split_at(text.find(':')?);
        (ip.parse::<Ipv4Addr>().ok()?.into(), port)
    };
    let port = match port.strip_prefix(':') {
        Some(obfuscated) if obfuscated.starts_with('_') => 0,
        // No sign, which `parse` would take.
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => number.parse().ok()?,
        Some(_) => return None,
        None if port.is_empty() => 0,
        None => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use onrush_tracker::access::addresses::AddressSet;
    use proptest::prelude::*;

    use super::*;

    /// The proxies 192.0.2.0/24 and 2001:db8::/32.
    fn proxies(client_address: ClientAddress) -> Proxies {
        let blocks = ["192.0.2.0/24", "2001:db8::/32"].map(|text| text.parse().unwrap());
        Proxies { addresses: AddressSet::new(blocks), client_address }
    }

    /// The client that fields with these values give, as text; empty without one.
    fn client_of(by: ClientAddress, values: &[impl AsRef<[u8]>]) -> String {
        let client = client(values.iter().map(AsRef::as_ref), &proxies(by));
        client.map(|it| it.to_string()).unwrap_or_default()
    }

    #[test]
    fn x_forwarded_for_is_read_from_the_right_to_the_first_address_that_is_no_proxy() {
        for (values, expected) in [
            (&["198.51.100.7"][..], "198.51.100.7:0"),
            (&["203.0.113.9, 198.51.100.7"], "198.51.100.7:0"),
            (&["203.0.113.9, 198.51.100.7 ,192.0.2.1,2001:db8::1"], "198.51.100.7:0"),
            (&["203.0.113.9", "198.51.100.7", "192.0.2.1"], "198.51.100.7:0"),
            (&["203.0.113.9", "198.51.100.7:81, [2001:db8::1]:80"], "198.51.100.7:81"),
            (&["2a00::1"], "[2a00::1]:0"),
            (&["[2a00::1]"], "[2a00::1]:0"),
            (&["[2a00::1]:65535"], "[2a00::1]:65535"),
            (&["::ffff:198.51.100.7"], "198.51.100.7:0"),
            (&["[::ffff:198.51.100.7]:9, ::ffff:192.0.2.7"], "198.51.100.7:9"),
            (&["what, ever, 198.51.100.7"], "198.51.100.7:0"),
            (&["198.51.100.7", ""], ""),
            (&[], ""),
        ] {
            assert_eq!(client_of(ClientAddress::XForwardedFor, values), expected, "{values:?}");
        }
        let bad = "192.0.2.1, 192.0.2.2|198.51.100.7, unknown|198.51.100.7, unknown, 192.0.2.1|\
                   198.51.100.7, |198.51.100.7:65536|198.51.100.7:+80|198.51.100.7:|198.51.100.7x|\
                   [198.51.100.7]|[2a00::1|[2a00::1]80|2a00::1%2|t.example|";
        for value in bad.split('|') {
            assert_eq!(client_of(ClientAddress::XForwardedFor, &[value]), "", "{value}");
        }
    }

    #[test]
    fn x_real_ip_is_one_address_that_is_no_proxy() {
        for (values, expected) in [
            (&["198.51.100.7"][..], "198.51.100.7:0"),
            (&["2a00::1"], "[2a00::1]:0"),
            (&["192.0.2.1"], ""),
            (&["198.51.100.7, 198.51.100.7"], ""),
            (&["198.51.100.7", "198.51.100.7"], ""),
            (&[""], ""),
            (&[], ""),
        ] {
            assert_eq!(client_of(ClientAddress::XRealIp, values), expected, "{values:?}");
        }
    }

    #[test]
    fn forwarded_is_read_like_x_forwarded_for() {
        for (values, expected) in [
            (&["for=198.51.100.7"][..], "198.51.100.7:0"),
            (&["FOR=198.51.100.7;proto=http;by=192.0.2.1"], "198.51.100.7:0"),
            (&["proto=http; For=\"198.51.100.7:8080\""], "198.51.100.7:8080"),
            (&["for=\"[2a00::1]:4711\""], "[2a00::1]:4711"),
            (&["for=\"[2a00::1]:_port\""], "[2a00::1]:0"),
            (&["for=203.0.113.9, for=198.51.100.7 ,for=192.0.2.1"], "198.51.100.7:0"),
            (&["for=203.0.113.9", "for=198.51.100.7", "for=\"[2001:db8::1]\""], "198.51.100.7:0"),
            (&["for=198.51.100.7;host=\"a\\\", for=203.0.113.9;b=\\\\\""], "198.51.100.7:0"),
            (&["malformed", "for=198.51.100.7"], "198.51.100.7:0"),
            (&[], ""),
        ] {
            assert_eq!(client_of(ClientAddress::Forwarded, values), expected, "{values:?}");
        }
        let bad = "for=192.0.2.1|for=198.51.100.7, for=unknown|for=198.51.100.7, proto=http|\
                   for=198.51.100.7, for=_hidden, for=192.0.2.1|for=203.0.113.9;for=198.51.100.7|\
                   for= 198.51.100.7|for=\"198.51.100.7|for=\"198.51.100.7\\\"|for=\"\"|1.2.3.4|";
        // With the client's quote, what its proxy has quoted is not, and the rest is.
        let requoted = "for=203.0.113.9, a=\", for=\"[2a00::1]\";host=\"x, for=203.0.113.9;b=\"|\
                        a=\", for=\"[2a00::1]\";host=\"x, for=203.0.113.9;b=\\\"\"";
        for value in bad.split('|').chain(requoted.split('|')) {
            assert_eq!(client_of(ClientAddress::Forwarded, &[value]), "", "{value}");
        }
        assert_eq!(client_of(ClientAddress::ProxyProtocol, &["198.51.100.7"]), "");
    }

    /// An entry: an address, or none.
    fn entry() -> impl Strategy<Value = Option<SocketAddr>> {
        let ip = prop_oneof![
            Just("192.0.2.9".parse::<IpAddr>().unwrap()),
            Just("2001:db8::9".parse::<IpAddr>().unwrap()),
            any::<Ipv4Addr>().prop_map(IpAddr::from),
            any::<Ipv6Addr>().prop_map(|ip| IpAddr::from(ip).to_canonical()),
        ];
        proptest::option::weighted(0.9, (ip, any::<u16>()).prop_map(SocketAddr::from))
    }

    /// Writes entries, in one field or several.
    fn written(entries: &[Option<SocketAddr>], forms: &[u8], by: ClientAddress) -> Vec<String> {
        let mut values = vec![String::new()];
        for (number, (entry, form)) in entries.iter().zip(forms.iter().cycle()).enumerate() {
            let node = match entry {
                None => ["unknown", "_x"][usize::from(form % 2)].to_owned(),
                Some(it) if form & 1 == 0 => it.to_string(),
                Some(SocketAddr::V6(it)) => format!("[{}]:{}", it.ip(), it.port()),
                Some(SocketAddr::V4(it)) => {
                    format!("[{}]:{}", it.ip().to_ipv6_mapped(), it.port())
                }
            };
            let text = match by {
                ClientAddress::Forwarded => format!("by=x;For=\"{node}\""),
                _ => node,
            };
            let last = values.last_mut().unwrap();
            match number {
                0 => *last = text,
                _ if form & 2 == 0 => values.push(text),
                _ => *last = format!("{last}, {text}"),
            }
        }
        values
    }

    proptest! {
        /// Compared with a walk over the entries before they were written.
        #[test]
        fn a_list_is_walked_from_its_end(
            entries in proptest::collection::vec(entry(), 1..8),
            forms in proptest::collection::vec(any::<u8>(), 1..8),
            is_forwarded: bool,
        ) {
            let lists = [ClientAddress::XForwardedFor, ClientAddress::Forwarded];
            let by = lists[usize::from(is_forwarded)];
            let trusted = proxies(by);
            let mut expected = None;
            for entry in entries.iter().rev() {
                expected = *entry;
                if !entry.is_some_and(|it| trusted.contain(it.ip())) {
                    break;
                }
                expected = None;
            }
            let values = written(&entries, &forms, by);
            let found = client(values.iter().map(|value| value.as_bytes()), &trusted);
            prop_assert_eq!(found, expected, "{:?}", values);
        }

        /// The client may have sent any bytes, in the same field or in an earlier one.
        #[test]
        fn what_the_proxy_has_appended_decides(
            sent: Vec<u8>,
            text in "[a-z0-9.,;:=\"\\\\ ]{0,60}",
        ) {
            for sent in [&sent[..], text.as_bytes()] {
                let same = [sent, b", 198.51.100.7"].concat();
                let next = [sent, b"198.51.100.7"];
                let expected = "198.51.100.7:0";
                prop_assert_eq!(client_of(ClientAddress::XForwardedFor, &[same]), expected);
                prop_assert_eq!(client_of(ClientAddress::XForwardedFor, &next), expected);
                let next = [sent, b"for=198.51.100.7"];
                prop_assert_eq!(client_of(ClientAddress::Forwarded, &next), expected);
                let appended = ", for=\"198.51.100.7\";host=\"x, for=203.0.113.9;a=\\\"b\"";
                let same = [sent, appended.as_bytes()].concat();
                let found = client_of(ClientAddress::Forwarded, &[same]);
                prop_assert!(found.is_empty() || found == expected, "{}", found);
            }
        }
    }
}
