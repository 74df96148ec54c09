//! The conforming tracker over HTTP and HTTPS, with one fault at a time: a thread per connection.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use onrush_proto::http::{
    AnnounceQuery, Target, scrape_hashes, write_announce, write_failure, write_scrape,
};
use onrush_testing::tls::{Issued, PKCS_ECDSA_P256_SHA256};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::faulty::Fault;
use super::over_tcp::{HttpTracker, Listener};

/// The fault of what carries the replies; those of the tracker are [`Fault`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Right,
    // Replies
    UntilEnd,
    Longer,
    RepeatsKey,
    // Requests
    NoAbsolute,
    PageAnywhere,
    ServesPost,
    /// A field without a colon; other malformed requests end the connection.
    ServesBadField,
    KeepsMalformed,
    HangsOnLong,
    // Announces
    NoCounts,
    AlwaysList,
    AlwaysCompact,
    ListByDefault,
    RetryWord,
    UpperCaseOnly,
    NoNeedless,
    NoBareSigns,
    HashFirst,
    NoUnknown,
    DefaultHash,
    /// Of 21 bytes to 20; one of 19 gets status 400.
    CutsHash,
    FirstHash,
    AnyPeerId,
    WrapsPort,
    NoEmptyEvent,
    NoPaused,
    NoUnknownEvent,
    /// Ten peers without a number, none for a negative one.
    FewByDefault,
    OtherKey6,
    // Scrapes
    OtherSwarm,
    TwiceInFiles,
    AnyScrapeHash,
    // Connections
    Closes,
    IgnoresClose,
    SaysNoClose,
    Keeps10,
    OneOfPipeline,
    OneRead,
    EndsWithClient,
    // TLS
    Only12,
    Only13,
    NoAlpn,
    NoNotify,
    NoTickets,
    /// Announces, on connections that end behind each reply, as those behind status 404 do.
    ServesPlain,
}

/// A tracker over HTTP at unused ports of 127.0.0.1 and ::1.
pub(crate) struct HttpServer {
    /// Its addresses: IPv4, then IPv6 where the host has it.
    pub(crate) addresses: Vec<SocketAddr>,
    scheme: &'static str,
    _listeners: Vec<Listener>,
}

struct State {
    wire: Wire,
    tls: Option<Arc<ServerConfig>>,
    tracker: HttpTracker,
}

impl HttpServer {
    /// A tracker with one of both faults.
    pub(crate) fn start(fault: Fault, wire: Wire, has_tls: bool) -> Self {
        let state = Arc::new(State {
            wire,
            tls: has_tls.then(|| server_config(wire)),
            tracker: HttpTracker::new(fault),
        });
        let listen = |ip| {
            let state = Arc::clone(&state);
            Listener::start(ip, move |stream| _ = accept(stream, &state))
        };
        let listeners: Vec<_> = ["127.0.0.1", "::1"].into_iter().flat_map(listen).collect();
        let addresses = listeners.iter().map(|listener| listener.address).collect();
        let scheme = if has_tls { "https" } else { "http" };
        Self { addresses, scheme, _listeners: listeners }
    }

    /// Its announce URL over IPv4 (0) or IPv6 (1).
    pub(crate) fn url(&self, family: usize) -> String {
        format!("{}://{}/announce", self.scheme, self.addresses[family])
    }
}

fn server_config(wire: Wire) -> Arc<ServerConfig> {
    let issued = Issued::with(&["localhost"], &PKCS_ECDSA_P256_SHA256, 2100);
    let versions = match wire {
        Wire::Only12 => &[&TLS12][..],
        Wire::Only13 => &[&TLS13],
        _ => &[&TLS13, &TLS12],
    };
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_protocol_versions(versions).unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![issued.der], key).unwrap();
    if wire != Wire::NoAlpn {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    if wire == Wire::NoTickets {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Arc::new(config)
}

/// A stream whose end may come with close_notify.
trait Wired: Read + Write {
    fn tcp(&self) -> &TcpStream;
    fn notify(&mut self) {}
}

impl Wired for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wired for StreamOwned<ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }

    fn notify(&mut self) {
        self.conn.send_close_notify();
        let _ = self.flush();
    }
}

fn accept(stream: TcpStream, state: &State) -> io::Result<()> {
    let source = stream.peer_addr()?;
    let Some(config) = &state.tls else { return serve(stream, state, source) };
    let mut first = [0];
    stream.peek(&mut first)?;
    match (state.wire, first) {
        (Wire::ServesPlain, [b'G']) => serve(stream, state, source),
        _ => {
            let tls = ServerConnection::new(Arc::clone(config)).unwrap();
            serve(StreamOwned::new(tls, stream), state, source)
        }
    }
}

/// What follows a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Keep,
    Close,
}

/// Serves a connection to its end, and then takes what is still on its way, so that no reset
/// destroys a reply.
fn serve(mut stream: impl Wired, state: &State, source: SocketAddr) -> io::Result<()> {
    let (mut input, mut space) = (Vec::new(), [0; 4096]);
    loop {
        let end = loop {
            if state.wire == Wire::HangsOnLong && input.len() > 8192 {
                return swallow(&mut stream);
            }
            let end = input.windows(4).position(|end| end == b"\r\n\r\n");
            let is_long = end.is_none() && input.len() > 8192;
            match end {
                Some(end) => break Some(end + 4),
                None if is_long => break None,
                None if state.wire == Wire::OneRead && !input.is_empty() => break None,
                None => match stream.read(&mut space)? {
                    0 => return Ok(()),
                    len => input.extend_from_slice(&space[..len]),
                },
            }
        };
        let Some(end) = end else {
            let status = match (state.wire, input.contains(&b'\n')) {
                (Wire::OneRead, _) => "400 Bad Request",
                (_, true) => "431 Too Large",
                (_, false) => "414 Too Long",
            };
            stream.write_all(&state.reply(status, &[], "", Some("close")))?;
            break;
        };
        let head: Vec<u8> = input.drain(..end).collect();
        if state.wire == Wire::OneOfPipeline {
            input.clear();
        }
        if state.wire == Wire::EndsWithClient && input.is_empty() {
            stream.tcp().set_read_timeout(Some(Duration::from_millis(30)))?;
            match stream.read(&mut space) {
                Ok(0) => return Ok(()),
                Ok(len) => input.extend_from_slice(&space[..len]),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(_) => {}
            }
            stream.tcp().set_read_timeout(None)?;
        }
        let (reply, then) = state.request(&head, source);
        stream.write_all(&reply)?;
        stream.flush()?;
        if then == Then::Close {
            break;
        }
    }
    if state.wire != Wire::NoNotify {
        stream.notify();
    }
    stream.tcp().shutdown(std::net::Shutdown::Write)?;
    stream.tcp().set_read_timeout(Some(Duration::from_secs(10)))?;
    swallow(&mut stream)
}

/// Takes what comes up to the end.
fn swallow(stream: &mut impl Wired) -> io::Result<()> {
    while stream.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

impl State {
    /// The reply to a request, and what follows it.
    fn request(&self, head: &[u8], source: SocketAddr) -> (Vec<u8>, Then) {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.trim_end().lines();
        let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        let fields: Option<HashMap<_, _>> = lines
            .map(|line| line.split_once(": "))
            .map(|field| field.map(|(name, value)| (name.to_ascii_lowercase(), value)))
            .collect();
        let (&[method, target, version], Some(fields)) = (&words[..], fields) else {
            return match self.wire {
                // Three words: it is a field that is malformed.
                Wire::ServesBadField if words.len() == 3 => {
                    (self.reply("200 OK", b"ok", "", Some("close")), Then::Close)
                }
                Wire::ServesBadField => (Vec::new(), Then::Close),
                Wire::KeepsMalformed => (self.reply("400 Bad", b"", "", None), Then::Keep),
                _ => (self.reply("400 Bad", b"", "", Some("close")), Then::Close),
            };
        };
        if method != "GET" && !(method == "POST" && self.wire == Wire::ServesPost) {
            return (self.reply("405 No", b"", "Allow: GET\r\n", Some("close")), Then::Close);
        }
        let asked = fields.get("connection").copied();
        let is_1_0 = version == "HTTP/1.0";
        let keeps = match (is_1_0, asked) {
            _ if matches!(self.wire, Wire::Closes | Wire::UntilEnd | Wire::ServesPlain) => false,
            (_, Some("close")) => self.wire == Wire::IgnoresClose,
            (true, Some("keep-alive")) => true,
            (true, _) => self.wire == Wire::Keeps10,
            (false, _) => true,
        };
        let says = match self.wire {
            Wire::Closes => None,
            Wire::SaysNoClose if !keeps => None,
            _ if !keeps => Some("close"),
            _ if is_1_0 => Some("keep-alive"),
            _ => None,
        };
        let (status, body) = self.body(target, source);
        (self.reply(status, &body, "", says), if keeps { Then::Keep } else { Then::Close })
    }

    fn reply(&self, status: &str, body: &[u8], more: &str, connection: Option<&str>) -> Vec<u8> {
        let length = match self.wire {
            Wire::UntilEnd => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let connection = connection.map_or(String::new(), |it| format!("Connection: {it}\r\n"));
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n{length}{more}{connection}\r\n"
        );
        let mut reply = [head.as_bytes(), body].concat();
        if self.wire == Wire::Longer {
            reply.extend_from_slice(b"\r\n");
        }
        reply
    }

    /// Status and body of the reply to a GET.
    fn body(&self, target: &str, source: SocketAddr) -> (&'static str, Vec<u8>) {
        let mut body = Vec::new();
        match Target::parse(target.as_bytes()) {
            _ if self.wire == Wire::NoAbsolute && !target.starts_with('/') => {
                return ("404 Not Found", body);
            }
            Target::Announce(query) => {
                let query = std::str::from_utf8(query).unwrap();
                let len = super::value(query, "info_hash").map(str::len);
                if self.wire == Wire::CutsHash && len == Some(19) {
                    return ("400 Bad Request", body);
                }
                self.announce(query, source, &mut body);
            }
            Target::Scrape(query) => {
                self.scrape(std::str::from_utf8(query).unwrap(), source, &mut body);
            }
            _ if self.wire == Wire::PageAnywhere => return ("200 OK", b"hello".to_vec()),
            _ => return ("404 Not Found", body),
        }
        if self.wire == Wire::RepeatsKey {
            body.pop();
            body.extend_from_slice(b"8:intervali900ee");
        }
        ("200 OK", body)
    }

    /// The query without what a fault accepts; a failure if the fault refuses it.
    fn admitted(&self, query: &str) -> Result<String, &'static str> {
        let has = |text: &str| query.contains(text);
        let (known, set) = (has("info_hash="), |key, value| super::set(query, key, value));
        let value = |key| super::value(query, key).unwrap_or_default();
        let is_refused = match self.wire {
            Wire::UpperCaseOnly => has_lower_case(query),
            Wire::NoNeedless => has("%2d%6f%52"),
            Wire::NoBareSigns => value("info_hash").contains(['!', '$', '\'', '(']),
            Wire::HashFirst => known && !query.starts_with("info_hash="),
            Wire::NoUnknown => has("azver="),
            Wire::NoEmptyEvent => has("&event=&"),
            Wire::NoPaused => has("event=paused"),
            Wire::NoUnknownEvent => has("event=resumed"),
            _ => false,
        };
        if is_refused {
            return Err("no");
        }
        Ok(match self.wire {
            Wire::DefaultHash if !known => format!("{query}&info_hash={}", "z".repeat(20)),
            Wire::CutsHash if value("info_hash").len() == 21 => {
                set("info_hash", &value("info_hash")[..20])
            }
            Wire::FewByDefault if !has("numwant=") => format!("{query}&numwant=10"),
            Wire::FewByDefault if has("numwant=-") => set("numwant", "0"),
            Wire::FirstHash if query.matches("info_hash=").count() > 1 => {
                query[..query.rfind("&info_hash=").unwrap()].to_owned()
            }
            Wire::AnyPeerId if value("peer_id").len() < 20 => {
                super::set(&format!("{query}&peer_id="), "peer_id", &"p".repeat(20))
            }
            Wire::WrapsPort => {
                set("port", &((value("port").parse().unwrap_or(0_u32)) as u16).to_string())
            }
            _ => query.to_owned(),
        })
    }

    fn announce(&self, query: &str, source: SocketAddr, body: &mut Vec<u8>) {
        let admitted = match self.admitted(query) {
            Ok(query) => query,
            Err(why) => return self.fail(why, body),
        };
        let query = match AnnounceQuery::parse(admitted.as_bytes()) {
            Ok(query) => query,
            Err(bad) => return self.fail(bad.text(), body),
        };
        let ip = super::value(&admitted, "ip").and_then(|ip| ip.parse::<Ipv4Addr>().ok());
        let ip = ip.map_or(0, Ipv4Addr::to_bits);
        let (head, peers) = match self.tracker.announce(&query, ip, source) {
            Ok(reply) => reply,
            Err(why) => return self.fail(&why, body),
        };
        let compact = match self.wire {
            Wire::AlwaysCompact => true,
            Wire::AlwaysList => false,
            Wire::ListByDefault if !admitted.contains("compact=") => false,
            _ => query.compact,
        };
        write_announce(&head, &peers, source.ip(), compact, body);
        let replace = |from: &[u8], to: &[u8], body: &mut Vec<u8>| {
            let at = body.windows(from.len()).position(|part| part == from);
            at.map(|at| body.splice(at..at + from.len(), to.iter().copied()).count());
        };
        match self.wire {
            Wire::NoCounts => {
                replace(b"8:complete", b"8:complexe", body);
                replace(b"10:incomplete", b"10:incomplexe", body);
            }
            Wire::OtherKey6 => replace(b"6:peers6", b"6:peers9", body),
            _ => {}
        }
    }

    fn scrape(&self, query: &str, source: SocketAddr, body: &mut Vec<u8>) {
        let mut hashes = Vec::new();
        let is_bad = scrape_hashes(query.as_bytes(), 100, &mut hashes).is_err();
        if self.wire == Wire::UpperCaseOnly && has_lower_case(query) || is_bad {
            match self.wire {
                Wire::AnyScrapeHash => body.extend_from_slice(b"d5:filesdee"),
                _ => self.fail("info_hash has to be 20 bytes", body),
            }
            return;
        }
        let counts = match self.tracker.scrape(&mut hashes, source) {
            Ok(counts) => counts,
            Err(why) => return self.fail(&why, body),
        };
        write_scrape(&hashes, &counts, body);
        let more = match self.wire {
            Wire::OtherSwarm => [0xFF; 20],
            Wire::TwiceInFiles if query.matches("info_hash").count() > hashes.len() => hashes[0],
            _ => return,
        };
        body.truncate(body.len() - 2);
        body.extend_from_slice(b"20:");
        body.extend_from_slice(&more);
        body.extend_from_slice(b"d8:completei0e10:downloadedi0e10:incompletei0eeee");
    }

    fn fail(&self, reason: &str, body: &mut Vec<u8>) {
        write_failure(reason, None, body);
        if self.wire == Wire::RetryWord {
            body.pop();
            body.extend_from_slice(b"8:retry in4:soone");
        }
    }
}

/// Whether a percent-encoded byte has digits of lower case.
fn has_lower_case(query: &str) -> bool {
    let mut encoded = query.split('%').skip(1).filter_map(|rest| rest.get(..2));
    encoded.any(|digits| digits.contains(|it: char| it.is_ascii_lowercase()))
}
