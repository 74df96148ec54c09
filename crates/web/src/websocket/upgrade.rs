//! The upgrade of a connection from HTTP to WebSocket (RFC 6455, section 4.2).

use std::io::Write as _;

use httparse::Header;
use tungstenite::handshake::derive_accept_key;

use crate::head::has_option;

/// The key of a client, which shows by its answer that the server knows WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a>(&'a [u8]);

/// Why an upgrade to WebSocket fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadUpgrade {
    /// The version is not 13: 426 with [`VERSION_FIELD`] (RFC 6455, section 4.4).
    Version,
    /// The key is missing, or not the base64 form of 16 bytes: 400.
    Key,
}

/// The field of a response that names the version of WebSocket, with its line end.
pub const VERSION_FIELD: &str = "Sec-WebSocket-Version: 13\r\n";

/// The upgrade to WebSocket that the fields of a GET ask for, or `None`. Fields of HTTP/1.0 cannot
/// ask for any (RFC 9110, section 7.8).
///
/// # Errors
/// [`BadUpgrade`]: the version comes first.
pub fn requested<'a>(fields: &[Header<'a>]) -> Result<Option<Key<'a>>, BadUpgrade> {
    let (mut is_websocket, mut is_upgrade, mut version, mut key) = (false, false, None, None);
    for Header { name, value } in fields {
        if name.eq_ignore_ascii_case("upgrade") {
            is_websocket |= has_option(value, b"websocket");
        } else if name.eq_ignore_ascii_case("connection") {
            is_upgrade |= has_option(value, b"upgrade");
        } else if name.eq_ignore_ascii_case("sec-websocket-version") {
            version = Some(value.trim_ascii());
        } else if name.eq_ignore_ascii_case("sec-websocket-key") {
            key = Some(value.trim_ascii());
        }
    }
    if !is_websocket || !is_upgrade {
        return Ok(None);
    }
    if version != Some(b"13") {
        return Err(BadUpgrade::Version);
    }
    key.filter(|key| is_key(key)).map(Key).map(Some).ok_or(BadUpgrade::Key)
}

/// Appends the head of the response that accepts an upgrade; frames follow it.
pub fn accept(key: Key<'_>, out: &mut Vec<u8>) {
    // Writing into memory does not fail.
    let _ = write!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.0),
    );
}

/// Whether a key is 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.strip_suffix(b"==").is_some_and(|digits| digits.len() == 22 && digits.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn asked(fields: &str) -> Result<Option<String>, BadUpgrade> {
        let request = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let key = |fields: &[Header<'_>]| {
            let key = requested(fields)?;
            Ok(key.map(|Key(key)| String::from_utf8(key.to_vec()).unwrap()))
        };
        head::parse_with(request.as_bytes(), key).unwrap().unwrap().1
    }

    #[test]
    fn an_upgrade_has_all_of_its_fields() {
        let all = format!(
            "upgrade: h2c, WebSocket\r\nConnection: keep-alive, UPGRADE\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: {KEY}\r\n"
        );
        assert_eq!(asked(&all), Ok(Some(KEY.to_owned())));
        let with = |from: &str, to: &str| asked(&all.replace(from, to));
        assert_eq!(with("WebSocket", "webso"), Ok(None));
        assert_eq!(with("UPGRADE", "close"), Ok(None));
        assert_eq!(with(": 13", ": 8"), Err(BadUpgrade::Version));
        assert_eq!(with("version", "versions"), Err(BadUpgrade::Version));
        assert_eq!(with("websocket-key", "key"), Err(BadUpgrade::Key));
        for key in ["", "dGhlIHNhbXBsZSBub25jZ===", "dGhlIHNhbXBsZSBub25jZQAA", &KEY[1..]] {
            assert_eq!(with(KEY, key), Err(BadUpgrade::Key), "{key}");
        }
    }

    /// The example of RFC 6455, section 1.3.
    #[test]
    fn the_response_proves_the_key() {
        let mut response = Vec::new();
        accept(Key(KEY.as_bytes()), &mut response);
        let mut fields = [httparse::EMPTY_HEADER; 4];
        let mut head = httparse::Response::new(&mut fields);
        assert!(head.parse(&response).unwrap().is_complete());
        assert_eq!(head.code, Some(101));
        let fields = head.headers.iter().map(|it| (it.name, it.value)).collect::<Vec<_>>();
        let expected = [
            ("Upgrade", &b"websocket"[..]),
            ("Connection", b"Upgrade"),
            ("Sec-WebSocket-Accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ];
        assert_eq!(fields, expected);
    }
}
