//! The header of the PROXY protocol, versions 1 and 2, with which a proxy begins a connection
//! (HAProxy's `doc/proxy-protocol.txt`, sections 2.1 and 2.2).
//!
//! ```text
//! 1   PROXY TCP4 192.0.2.7 198.51.100.1 40000 6969 CR LF
//!
//! 2   0        12        13       14       16
//!     | signature | 2, command | family | length | source, destination, both ports | further ... |
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::{self, FromStr};

/// The longest header of version 1, with its line end.
const MAX_LINE: usize = 107;
/// The longest header of version 2: further values, as of TLS, are behind the addresses.
pub const MAX_HEADER: usize = 4096;
/// The beginning of version 1.
const LINE: &[u8] = b"PROXY ";
/// The beginning of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses.
const HEAD_LEN: usize = 16;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client's address; an IPv4-mapped one is IPv4. `None` if the proxy names none, as for its
    /// health checks.
    pub source: Option<SocketAddr>,
    /// Bytes of the header.
    pub len: usize,
}

/// The bytes do not begin with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHeader;

/// Reads the header at the beginning of `bytes`; `None` if its end is missing.
///
/// # Errors
/// [`NoHeader`]: no further bytes can make it a header.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoHeader> {
    let begins_with = |text: &[u8]| bytes.iter().zip(text).all(|(byte, expected)| byte == expected);
    if begins_with(LINE) {
        parse_line(&bytes[..bytes.len().min(MAX_LINE)])
    } else if begins_with(SIGNATURE) {
        parse_binary(bytes)
    } else {
        Err(NoHeader)
    }
}

/// Version 1.
fn parse_line(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoHeader> {
    let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(NoHeader) };
    };
    let line = str::from_utf8(&bytes[..end]).map_err(|_| NoHeader)?;
    let source = source_of(line).ok_or(NoHeader)?;
    Ok(Some(ProxyHeader { source, len: end + 2 }))
}

/// The source of a line; `None` if the line is invalid.
fn source_of(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ').skip(1);
    let source = match words.next()? {
        "UNKNOWN" => return Some(None),
        "TCP4" => source_in::<Ipv4Addr>(&mut words)?,
        "TCP6" => source_in::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(Some(source))
}

/// The source among the words for source and destination, and their ports.
fn source_in<'a, A: FromStr + Into<IpAddr>>(
    words: &mut impl Iterator<Item = &'a str>,
) -> Option<SocketAddr> {
    let [source, _] = [words.next()?.parse::<A>().ok()?, words.next()?.parse::<A>().ok()?];
    let mut port = || {
        let word = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
        word.parse::<u16>().ok()
    };
    let [port, _] = [port()?, port()?];
    Some(SocketAddr::new(source.into().to_canonical(), port))
}

/// Version 2.
fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoHeader> {
    let is_local = match bytes.get(SIGNATURE.len()) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(NoHeader),
    };
    let Some([.., family, high, low]) = bytes.first_chunk::<HEAD_LEN>() else { return Ok(None) };
    let len = HEAD_LEN + usize::from(u16::from_be_bytes([*high, *low]));
    if len > MAX_HEADER {
        return Err(NoHeader);
    }
    let Some(addresses) = bytes.get(HEAD_LEN..len) else { return Ok(None) };
    let source = match family {
        // The proxy's own connection: the addresses have to be ignored.
        _ if is_local => None,
        // TCP over IPv4.
        0x11 => {
            let [a, b, c, d, _, _, _, _, high, low, ..] = *first::<12>(addresses)?;
            let port = u16::from_be_bytes([high, low]);
            Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
        }
        // TCP over IPv6.
        0x21 => {
            let addresses = first::<36>(addresses)?;
            let port = u16::from_be_bytes([addresses[32], addresses[33]]);
            let ip = IpAddr::from(*first::<16>(addresses)?);
            Some(SocketAddr::new(ip.to_canonical(), port))
        }
        // Unspecified, or no address of the internet.
        _ => None,
    };
    Ok(Some(ProxyHeader { source, len }))
}

fn first<const LEN: usize>(addresses: &[u8]) -> Result<&[u8; LEN], NoHeader> {
    addresses.first_chunk().ok_or(NoHeader)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header of version 2.
    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    fn source(bytes: impl AsRef<[u8]>) -> Result<Option<Option<SocketAddr>>, NoHeader> {
        parse(bytes.as_ref()).map(|header| header.map(|header| header.source))
    }

    #[test]
    fn a_header_of_version_1_is_a_line_of_at_most_107_bytes() {
        let named = |text: &str| Ok(Some(Some(text.parse().unwrap())));
        let v4 = "PROXY TCP4 198.51.100.7 192.0.2.1 40000 6969\r\n";
        assert_eq!(source(v4), named("198.51.100.7:40000"));
        assert_eq!(source("PROXY TCP6 2a00::7 2a00::1 0 80\r\n"), named("[2a00::7]:0"));
        let mapped = "PROXY TCP6 ::ffff:198.51.100.7 ::1 9 80\r\n";
        assert_eq!(source(mapped), named("198.51.100.7:9"));
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE - 16));
        for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ::1 ::1 1 2\r\n", &longest] {
            assert_eq!(source(line), Ok(Some(None)), "{line}");
        }
        let bad = "TCP4 198.51.100.7 192.0.2.1 40000 6969 1|TCP4 198.51.100.7 192.0.2.1 40000|\
                   TCP4  198.51.100.7 192.0.2.1 40000 6969|TCP4 198.51.100.7 ::1 40000 6969|\
                   TCP4 198.51.100.7 192.0.2.1 65536 6969|TCP4 198.51.100.7 192.0.2.1 +1 6969|\
                   TCP4 2a00::7 ::1 40000 6969|TCP6 198.51.100.7 192.0.2.1 40000 6969|\
                   UDP4 198.51.100.7 192.0.2.1 40000 6969|UNKNOWNS|";
        let bad = bad.split('|').map(|rest| format!("PROXY {rest}\r\n"));
        let others = ["proxy UNKNOWN\r\n", "GET / HTTP/1.1\r\n", "\u{16}\u{3}\u{1}"];
        let too_long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE - 15));
        for line in bad.chain(others.map(str::to_owned)).chain([too_long]) {
            assert_eq!(source(&line), Err(NoHeader), "{line}");
        }
    }

    #[test]
    fn a_header_of_version_2_names_a_source_of_tcp() {
        let v4 = [198, 51, 100, 7, 192, 0, 2, 1, 0x9C, 0x40, 0x1B, 0x39];
        let expected = Ok(Some(Some("198.51.100.7:40000".parse().unwrap())));
        assert_eq!(source(binary(0x21, 0x11, &v4)), expected);
        assert_eq!(source(binary(0x21, 0x11, &[&v4[..], &[4, 0, 0]].concat())), expected);
        let mapped = "::ffff:198.51.100.7".parse::<Ipv6Addr>().unwrap().octets();
        let v6 = [&mapped[..], &[0; 16], &v4[8..]].concat();
        assert_eq!(source(binary(0x21, 0x21, &v6)), expected);
        for unnamed in [
            binary(0x20, 0, &[]),
            binary(0x20, 0x11, &[]),
            binary(0x20, 0x11, &v4),
            binary(0x21, 0, &[]),
            binary(0x21, 0x12, &v4),
            binary(0x21, 0x31, &[0; 216]),
            binary(0x20, 0, &[0; MAX_HEADER - HEAD_LEN]),
        ] {
            assert_eq!(source(&unnamed), Ok(Some(None)), "{unnamed:?}");
        }
        for bad in [
            binary(0x22, 0x11, &v4),
            binary(0x11, 0x11, &v4),
            binary(0x21, 0x11, &v4[..11]),
            binary(0x21, 0x21, &v6[..35]),
            binary(0x20, 0, &[0; MAX_HEADER - HEAD_LEN + 1]),
        ] {
            assert_eq!(source(&bad), Err(NoHeader), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_header_is_read_however_its_bytes_arrive(
            source: SocketAddr,
            destination: SocketAddr,
            is_binary: bool,
            more in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            // Both are of the source's family.
            let mapped = |it: SocketAddr| match (source.is_ipv4(), it.ip()) {
                (false, IpAddr::V4(ip)) => ip.to_ipv6_mapped().into(),
                (true, IpAddr::V6(_)) => Ipv4Addr::LOCALHOST.into(),
                (_, ip) => ip,
            };
            let octets = |ip| match ip {
                IpAddr::V4(ip) => Ipv4Addr::octets(&ip).to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            let (to, ports) = (mapped(destination), [source.port(), destination.port()]);
            let header = if is_binary {
                let ports = ports.map(u16::to_be_bytes).concat();
                let body = [octets(source.ip()), octets(to), ports, more.clone()].concat();
                binary(0x21, if source.is_ipv4() { 0x11 } else { 0x21 }, &body)
            } else {
                let family = if source.is_ipv4() { 4 } else { 6 };
                let (from, [port, to_port]) = (source.ip(), ports);
                format!("PROXY TCP{family} {from} {to} {port} {to_port}\r\n").into_bytes()
            };
            let named = SocketAddr::new(source.ip().to_canonical(), source.port());
            let whole = ProxyHeader { source: Some(named), len: header.len() };
            for end in 0..header.len() {
                prop_assert_eq!(parse(&header[..end]), Ok(None), "{}", end);
            }
            prop_assert_eq!(parse(&[header, more].concat()), Ok(Some(whole)));
        }

        #[test]
        fn a_decision_does_not_change_with_further_bytes(
            begin in proptest::sample::select(vec![&b""[..], b"PROXY TCP4 1.1.1.1 ", SIGNATURE]),
            bytes: Vec<u8>,
        ) {
            let bytes = [begin, &bytes].concat();
            let whole = parse(&bytes);
            for end in 0..bytes.len() {
                let part = parse(&bytes[..end]);
                prop_assert!(part == Ok(None) || part == whole, "{}", end);
            }
        }
    }
}
