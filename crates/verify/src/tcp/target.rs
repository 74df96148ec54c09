//! The tracker under test over TCP: its URL, TLS, and the time that is left.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;
use onrush_proto::http::client::ReplyHead;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Url, reach::reach, tls};
use crate::budget::Budget;
use crate::check::{Finding, Group, failure, no_time};
use crate::message::shown;
use crate::report::{Conformance, Row};

/// How long a reply may take, in timeouts: the time of all tries over UDP, as TCP repeats lost
/// segments itself.
pub(crate) const REPLY: f64 = 8.0;

/// Target and options of a run over HTTP or WebSocket.
#[derive(Clone, Debug)]
pub struct TcpSettings {
    /// The tracker's announce URL.
    pub url: Url,
    /// The same tracker's address of the other family.
    pub also: Option<SocketAddr>,
    /// Certificates that the tracker's has to be signed by; any is accepted without.
    pub ca: Option<PathBuf>,
    /// Info hashes that the tracker serves; empty where it serves any.
    pub hashes: Vec<InfoHash>,
    /// An eighth of the time that a reply may take, and how long silence lasts.
    pub timeout: Duration,
    /// Only this part of the list.
    pub only: Option<Group>,
}

/// The tracker under test.
#[derive(Debug)]
pub(crate) struct TcpTarget {
    pub(crate) url: Url,
    /// Its address of the other family, where it takes connections there.
    pub(crate) also: Option<SocketAddr>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) budget: Budget,
    /// This host's address towards the tracker.
    pub(crate) local: IpAddr,
    tls: Option<Arc<ClientConfig>>,
    opened: AtomicU64,
}

impl TcpTarget {
    /// Connects once.
    ///
    /// # Errors
    /// A sentence when the tracker takes no connection or has no valid TLS, or `--ca` is no file of
    /// certificates.
    pub(crate) fn new(settings: &TcpSettings) -> Result<Self, String> {
        let TcpSettings { url, also, ca, timeout, .. } = settings.clone();
        let tls = url.scheme.has_tls().then(|| tls::client(ca.as_deref(), false, false));
        let local = reach(url.address)?;
        let also = also.filter(|also| TcpStream::connect_timeout(also, timeout).is_ok());
        let (budget, opened) = (Budget::new(timeout), AtomicU64::new(0));
        let target = Self { url, also, ca, budget, local, tls: tls.transpose()?, opened };
        // Without TLS there is nothing to check.
        target.connect().map_err(|finding| finding.seen)?;
        Ok(target)
    }

    /// A connection, with TLS where the URL has it.
    pub(crate) fn connect(&self) -> Result<Connection<'_>, Finding> {
        self.connect_to(self.url.address, self.tls.as_ref())
    }

    /// A connection to an address of the tracker, with TLS where the URL has it.
    pub(crate) fn connect_beside(&self, address: SocketAddr) -> Result<Connection<'_>, Finding> {
        self.connect_to(address, self.tls.as_ref())
    }

    /// The report of a run that ends now.
    pub(crate) fn report(&self, rows: Vec<Row>) -> Conformance {
        let mut report = Conformance::new(self.url.to_string(), self.also, rows);
        report.connections = self.opened.load(Ordering::Relaxed);
        report.seconds = self.budget.seconds();
        report
    }

    /// A connection to an address of the tracker, without TLS or with this.
    pub(crate) fn connect_to(
        &self,
        address: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Connection<'_>, Finding> {
        if self.budget.is_over() {
            return Err(no_time());
        }
        self.opened.fetch_add(1, Ordering::Relaxed);
        let until = self.budget.deadline(REPLY);
        let broken = |error: io::Error| failure(format!("no connection to {address}: {error}"));
        let tcp = TcpStream::connect_timeout(&address, rest(until)).map_err(broken)?;
        tcp.set_nodelay(true).map_err(broken)?;
        tcp.set_write_timeout(Some(rest(until))).map_err(broken)?;
        let stream = match tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let client = ClientConnection::new(config.clone(), self.url.server_name());
                let client = client.map_err(|error| failure(error.to_string()))?;
                let mut stream = StreamOwned::new(client, tcp);
                while stream.conn.is_handshaking() {
                    stream.sock.set_read_timeout(Some(rest(until))).map_err(broken)?;
                    let done = stream.conn.complete_io(&mut stream.sock);
                    done.map_err(|error| failure(format!("no TLS with {address}: {error}")))?;
                }
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Connection { target: self, stream, input: Vec::new(), end: None })
    }
}

/// The time until then, which is not zero.
fn rest(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

/// TCP, or TLS over it.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => &tls.sock,
        }
    }

    /// The state of TLS, if there is any.
    pub(crate) fn tls(&self) -> Option<&ClientConnection> {
        if let Self::Tls(tls) = self { Some(&tls.conn) } else { None }
    }

    /// Ends a read at this time.
    pub(crate) fn read_until(&self, until: Instant) {
        // A socket that is broken says so when it is read.
        let _ = self.tcp().set_read_timeout(Some(rest(until)));
    }
}

impl Read for Stream {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(space),
            Self::Tls(tls) => tls.read(space),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

/// How a tracker has ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With FIN and, over TLS, close_notify before it.
    Clean,
    /// With FIN, over TLS without close_notify.
    Truncated,
    /// With a reset, or invalid TLS.
    Broken,
}

/// A connection, and what has arrived over it.
#[derive(Debug)]
pub(crate) struct Connection<'t> {
    pub(crate) target: &'t TcpTarget,
    pub(crate) stream: Stream,
    pub(crate) input: Vec<u8>,
    pub(crate) end: Option<End>,
}

impl Connection<'_> {
    /// Sends bytes. Where the tracker has closed the connection, reading shows that.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
    }

    /// Ends this direction.
    pub(crate) fn finish(&mut self) {
        let _ = self.stream.tcp().shutdown(Shutdown::Write);
    }

    /// Reads once more; whether bytes came before `until`. Notes the end.
    pub(crate) fn fill(&mut self, until: Instant) -> bool {
        let mut space = [0; 16 * 1024];
        while self.end.is_none() && Instant::now() < until {
            self.stream.read_until(until);
            match self.stream.read(&mut space) {
                Ok(0) => self.end = Some(End::Clean),
                Ok(len) => {
                    self.input.extend_from_slice(&space[..len]);
                    return true;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    io::ErrorKind::UnexpectedEof => self.end = Some(End::Truncated),
                    _ => self.end = Some(End::Broken),
                },
            }
        }
        false
    }

    /// Whether nothing arrives for so many timeouts, and the connection stays open.
    pub(crate) fn is_silent(&mut self, timeouts: f64) -> bool {
        self.input.is_empty()
            && !self.fill(self.target.budget.deadline(timeouts))
            && self.end.is_none()
    }

    /// Reads up to the end of the connection; `None` if it does not end in time.
    pub(crate) fn read_to_end(&mut self) -> Option<End> {
        let until = self.target.budget.deadline(REPLY);
        while self.fill(until) {}
        self.end
    }

    /// Reads the head of the next reply of HTTP, and leaves what follows; `None` where the tracker
    /// ends the connection before it.
    pub(crate) fn head(&mut self) -> Result<Option<(ReplyHead, String)>, Finding> {
        let until = self.target.budget.deadline(REPLY);
        loop {
            let bad = |why| failure(format!("no reply of HTTP ({why:?}): {}", shown(&self.input)));
            if let Some(head) = ReplyHead::parse(&self.input).map_err(bad)? {
                let fields: Vec<u8> = self.input.drain(..head.len).collect();
                return Ok(Some((head, String::from_utf8_lossy(&fields).into_owned())));
            }
            if !self.fill(until) {
                return match self.end {
                    Some(_) => Ok(None),
                    None => Err(failure("no reply, and the connection stays open")),
                };
            }
        }
    }
}

/// The value of a field of a head.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
