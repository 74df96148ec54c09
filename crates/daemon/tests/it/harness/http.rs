//! Requests to the admin side of a daemon over HTTP.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use onrush_proto::InfoHash;
use serde_json::Value;

use crate::harness::{Daemon, TIMEOUT, assert_parts};

/// The token in the file `token` of each home directory.
pub(crate) const TOKEN: &str = "of-the-tests-0123456789";

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    /// A response; `None` if its head is truncated.
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Self { status, head: head.to_owned(), body: body.to_owned() })
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Asserts that it is an error with this status, whose text contains these parts.
    #[track_caller]
    pub(crate) fn fails(&self, status: u16, parts: &[&str]) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_parts(self.json()["error"].as_str().expect("an error message"), parts);
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn request(
    admin: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<HttpResponse> {
    let stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    exchange(stream, method, path, headers, body)
}

/// Whether a GET request without a token succeeds.
pub(crate) fn is_up(admin: SocketAddr, path: &str) -> bool {
    request(admin, "GET", path, "", "").is_ok_and(|response| response.status == 200)
}

/// Sends one request without a token to a control socket.
pub(crate) fn request_at(socket: &Path, method: &str, path: &str) -> io::Result<HttpResponse> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    exchange(stream, method, path, "", "")
}

/// By HTTP 1.0, without chunks.
fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<HttpResponse> {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    HttpResponse::parse(&text).ok_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, text))
}

/// Sends one request with the token.
pub(crate) fn request_with_token(
    admin: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> io::Result<HttpResponse> {
    request(admin, method, path, &format!("Authorization: Bearer {TOKEN}\r\n"), body)
}

/// Adds info hashes to the access list (POST) or removes them (DELETE).
pub(crate) fn change_list(
    admin: SocketAddr,
    method: &str,
    hashes: &[InfoHash],
) -> io::Result<HttpResponse> {
    let hashes: Vec<String> = hashes.iter().map(InfoHash::to_string).collect();
    request_with_token(admin, method, "/api/v1/list", &format!("{{\"info_hashes\": {hashes:?}}}"))
}

impl Daemon {
    /// A GET request without the token.
    pub(crate) fn get(&self, path: &str) -> HttpResponse {
        request(self.admin(), "GET", path, "", "").unwrap()
    }

    /// A request with the token.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> HttpResponse {
        request_with_token(self.admin(), method, path, body).unwrap()
    }

    /// Adds info hashes to the access list (POST) or removes them (DELETE).
    pub(crate) fn change_list(&self, method: &str, hashes: &[InfoHash]) -> HttpResponse {
        change_list(self.admin(), method, hashes).unwrap()
    }

    /// All metrics.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").body)
    }
}

/// The samples of a page of metrics, by name with labels.
#[derive(Debug)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(crate) fn parse(page: &str) -> Self {
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| line.rsplit_once(' ').unwrap());
        Self(samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect())
    }

    /// The sum of the samples of a metric whose labels have these parts; there must be one.
    #[track_caller]
    pub(crate) fn sum(&self, name: &str, parts: &[&str]) -> f64 {
        let of = |full: &String| {
            full.split('{').next() == Some(name) && parts.iter().all(|part| full.contains(part))
        };
        let found: Vec<f64> =
            self.0.iter().filter(|(full, _)| of(full)).map(|(_, value)| *value).collect();
        assert!(!found.is_empty(), "no {name} with {parts:?} in {self:#?}");
        found.iter().sum()
    }
}
