//! The head of a request: request line and fields (RFC 9112, sections 2 to 6), as far as a tracker
//! needs them.

use httparse::{EMPTY_HEADER, Error, Header, Request, Status};
use onrush_tracker::refusal::HttpRefusal;

/// The longest head, in bytes, and so the longest target.
pub const MAX_HEAD: usize = 8 * 1024;
/// The most fields of a head.
const MAX_FIELDS: usize = 64;

/// The head of a GET without a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The request target.
    pub target: &'a [u8],
    /// The value of the field `Host`.
    pub host: Option<&'a [u8]>,
    /// Whether the client wants to keep the connection (RFC 9112, section 9.3).
    pub keep_alive: bool,
    /// Whether the request is of HTTP/1.0, in which a kept connection has to be announced.
    pub is_1_0: bool,
    /// Bytes of the head.
    pub len: usize,
    /// Whether nothing follows it.
    pub is_last: bool,
}

/// Reads the head at the beginning of `bytes`; `None` if its end is missing.
///
/// # Errors
/// The reason to refuse the request, and to close the connection: what follows is not known to be a
/// request.
pub fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, HttpRefusal> {
    Ok(parse_with(bytes, |_| ())?.map(|(head, ())| head))
}

/// Like [`parse`], with what `read` returns of the fields.
pub(crate) fn parse_with<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&[Header<'a>]) -> T,
) -> Result<Option<(Head<'a>, T)>, HttpRefusal> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(&bytes[..bytes.len().min(MAX_HEAD)]) {
        Ok(Status::Complete(len)) => {
            let head = of(&request, len, len == bytes.len())?;
            Ok(Some((head, read(request.headers))))
        }
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => Ok(None),
        // Without a line end in all of it, the target is too long.
        Ok(Status::Partial) if !bytes[..MAX_HEAD].contains(&b'\n') => {
            Err(HttpRefusal::TargetLength)
        }
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => Err(HttpRefusal::HeadLength),
        Err(Error::Version) if names_a_version(bytes) => Err(HttpRefusal::Version),
        Err(_) => Err(HttpRefusal::Malformed),
    }
}

fn of<'a>(request: &Request<'_, 'a>, len: usize, is_last: bool) -> Result<Head<'a>, HttpRefusal> {
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(HttpRefusal::Malformed);
    };
    let is_1_0 = request.version == Some(0);
    if method != "GET" {
        return Err(HttpRefusal::Method);
    }
    let (mut host, mut keep_alive, mut closes) = (None, !is_1_0, false);
    for Header { name, value } in request.headers.iter() {
        if name.eq_ignore_ascii_case("host") {
            host = Some(*value);
        } else if name.eq_ignore_ascii_case("connection") {
            keep_alive |= has_option(value, b"keep-alive");
            closes |= has_option(value, b"close");
        } else if name.eq_ignore_ascii_case("transfer-encoding")
            || (name.eq_ignore_ascii_case("content-length") && value.trim_ascii() != b"0")
        {
            return Err(HttpRefusal::Body);
        }
    }
    let keep_alive = keep_alive && !closes;
    Ok(Head { target: target.as_bytes(), host, keep_alive, is_1_0, len, is_last })
}

/// Whether a value of a field is a list with this option, in any case.
pub(crate) fn has_option(value: &[u8], option: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|it| it.trim_ascii().eq_ignore_ascii_case(option))
}

/// Whether the third word of a request line is a version of HTTP.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let third = line.and_then(|line| line.split(|byte| *byte == b' ').nth(2));
    third.is_some_and(|word| word.starts_with(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_alive(text: &str) -> bool {
        parse(text.as_bytes()).unwrap().unwrap().keep_alive
    }

    #[test]
    fn a_head_is_read_up_to_its_end() {
        let text = b"GET /announce?a=%20 HTTP/1.1\r\nhOsT: t.example:80\r\n\r\nGET /next";
        let head = parse(text).unwrap().unwrap();
        assert_eq!((head.target, head.host), (&b"/announce?a=%20"[..], Some(&b"t.example:80"[..])));
        assert_eq!((head.keep_alive, head.is_1_0, head.len), (true, false, text.len() - 9));
        let is_last = |bytes| parse(bytes).unwrap().unwrap().is_last;
        assert!(!is_last(text) && is_last(&text[..head.len]));
        for end in 0..head.len {
            assert_eq!(parse(&text[..end]), Ok(None), "{end} bytes are a part");
        }
        let bare = b"GET / HTTP/1.0\nHost: t\n\n";
        assert_eq!(parse(bare).unwrap().unwrap().len, bare.len(), "bare line feeds");
    }

    #[test]
    fn connections_are_kept_by_version_and_field() {
        assert!(keep_alive("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keep_alive("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep_alive("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        for fields in
            ["connection: keep-alive, Close", "Connection: close\r\nConnection: keep-alive"]
        {
            assert!(!keep_alive(&format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n")));
        }
        assert!(keep_alive("GET / HTTP/1.1\r\nConnection: Upgrade\r\n\r\n"));
    }

    #[test]
    fn each_bad_head_has_its_reason() {
        let fields = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
        let target = |len: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(len));
        let long_field = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(MAX_HEAD));
        let bad = [
            ("\0\u{1}\r\n\r\n".to_owned(), HttpRefusal::Malformed),
            ("GET /\r\n\r\n".to_owned(), HttpRefusal::Malformed),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), HttpRefusal::Malformed),
            ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), HttpRefusal::Malformed),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), HttpRefusal::Version),
            ("POST / HTTP/1.1\r\n\r\n".to_owned(), HttpRefusal::Method),
            ("get / HTTP/1.1\r\n\r\n".to_owned(), HttpRefusal::Method),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\n\r\n".to_owned(), HttpRefusal::Body),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), HttpRefusal::Body),
            (fields(65), HttpRefusal::HeadLength),
            (long_field, HttpRefusal::HeadLength),
            (target(MAX_HEAD), HttpRefusal::TargetLength),
        ];
        for (text, refusal) in bad {
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{text:.60}");
        }
        assert!(parse(fields(64).as_bytes()).is_ok());
        assert!(parse(b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").is_ok());
    }
}
