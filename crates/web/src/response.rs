//! Statuses and replies, written into buffers that the worker reuses.

use std::io::Write;

use onrush_tracker::refusal::HttpRefusal;

use crate::websocket::upgrade::VERSION_FIELD;

/// The status of everything that a tracker's client reads, failures included.
pub(crate) const OK: &str = "200 OK";
/// The status of a request of a client that is not served, on a connection of a proxy.
pub(crate) const FORBIDDEN: &str = "403 Forbidden";
/// The type of everything but the page.
pub(crate) const TEXT: &str = "text/plain";

/// What follows a reply on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Further requests.
    Keep,
    /// Further requests of HTTP/1.0, to which this has to be said.
    KeepOf1_0,
    /// Nothing: the connection is closed.
    Close,
}

/// The buffers of one response at a time.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// The body, written before the head, which contains its length.
    pub(crate) body: Vec<u8>,
    bytes: Vec<u8>,
}

impl Response {
    /// The whole response, with the body written so far; a new body begins.
    pub(crate) fn finish(&mut self, status: &str, content_type: &str, after: After) -> &[u8] {
        let connection = match after {
            After::Keep => "",
            After::KeepOf1_0 => "Connection: keep-alive\r\n",
            After::Close => "Connection: close\r\n",
        };
        let more = match &status[..3] {
            "405" => "Allow: GET\r\n",
            "426" => VERSION_FIELD,
            _ => "",
        };
        self.bytes.clear();
        // Writing into memory does not fail.
        let _ = write!(
            self.bytes,
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n{more}{connection}\r\n",
            self.body.len(),
        );
        self.bytes.append(&mut self.body);
        &self.bytes
    }
}

/// The status of a request that did not come from a tracker's client. `None` for reasons that a
/// client reads in a reply (BEP 3, `failure reason`).
pub(crate) fn status(refusal: HttpRefusal) -> Option<&'static str> {
    match refusal {
        HttpRefusal::Malformed
        | HttpRefusal::Body
        | HttpRefusal::NoTls
        | HttpRefusal::NoClient
        | HttpRefusal::Upgrade => Some("400 Bad Request"),
        HttpRefusal::TargetLength => Some("414 URI Too Long"),
        HttpRefusal::HeadLength => Some("431 Request Header Fields Too Large"),
        HttpRefusal::Method => Some("405 Method Not Allowed"),
        HttpRefusal::Version => Some("505 HTTP Version Not Supported"),
        HttpRefusal::UpgradeVersion => Some("426 Upgrade Required"),
        HttpRefusal::SourceLimit => Some(FORBIDDEN),
        HttpRefusal::Path => Some("404 Not Found"),
        HttpRefusal::InfoHash
        | HttpRefusal::InfoHashes
        | HttpRefusal::PeerId
        | HttpRefusal::PortValue
        | HttpRefusal::Message
        | HttpRefusal::Answer
        | HttpRefusal::Memberships
        | HttpRefusal::OtherPeerId => None,
    }
}
