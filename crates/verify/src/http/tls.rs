//! Checks of TLS (RFC 8446, RFC 5246).

use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, SupportedProtocolVersion};

use super::Check;
use super::client::Http;
use super::reply::Announced;
use crate::check::{CheckResult, Group, Needs, demand, failure, prefer, tolerated};
use crate::message::shown;
use crate::tcp::target::{Connection, End};
use crate::tcp::tls::client_of;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Tls, "tls-1-3", Needs::Hashes(1), tls_1_3)
        .expects("TLS 1.3 is spoken")
        .source("RFC 9325, section 3.1.1"),
    Check::new(Group::Tls, "tls-1-2", Needs::Hashes(1), tls_1_2)
        .expects("TLS 1.2 is spoken")
        .source("RFC 9325, section 3.1.1; clients with older libraries"),
    Check::new(Group::Tls, "alpn", Needs::Hashes(1), alpn)
        .expects("of the protocols that a client offers (ALPN) http/1.1 is chosen")
        .source("RFC 7301, section 3.2"),
    Check::new(Group::Tls, "close-notify", Needs::Hashes(1), close_notify)
        .expects("a connection ends with close_notify")
        .source("RFC 8446, section 6.1: a client cannot tell an end from an attack otherwise"),
    Check::new(Group::Tls, "resumption", Needs::Hashes(1), resumption)
        .expects("a client that connects again resumes its session")
        .source("RFC 8446, section 2.2: a full handshake costs a hundred times as much"),
    Check::new(Group::Tls, "plain-http", Needs::Hashes(1), plain_http)
        .expects("HTTP without TLS is refused, and the connection closed")
        .source("RFC 8446, section 6.2"),
];

/// An announce by one version of TLS; the connection after the reply.
fn by<'h>(
    http: &'h Http<'_>,
    version: &'static SupportedProtocolVersion,
) -> Result<Connection<'h>, crate::check::Finding> {
    let config = client_of(http.target.ca.as_deref(), false, &[version]).map_err(failure)?;
    let mut connection = http.target.connect_to(http.target.url.address, Some(&config))?;
    announce(http, &mut connection)?;
    Ok(connection)
}

fn announce(http: &Http<'_>, connection: &mut Connection<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    let request = http.request(&http.announce_target(&query), "Connection: close\r\n");
    connection.send(request.as_bytes());
    Announced::read(connection.reply()?).map(drop)
}

fn tls_1_3(http: &Http<'_>) -> CheckResult {
    let open = "RFC 9325, section 3.1.1: TLS 1.2 may do";
    by(http, &TLS13).map(drop).map_err(tolerated(open))
}

fn tls_1_2(http: &Http<'_>) -> CheckResult {
    let open = "RFC 9325, section 3.1.1: TLS 1.3 may do where all clients have it";
    by(http, &TLS12).map(drop).map_err(tolerated(open))
}

fn alpn(http: &Http<'_>) -> CheckResult {
    let connection = http.target.connect()?;
    let found = connection.stream.tls().and_then(|tls| tls.alpn_protocol());
    let open = "RFC 7301, section 3.1, lets a server ignore the offer";
    prefer(found == Some(b"http/1.1"), open, || format!("{:?}", found.map(<[u8]>::escape_ascii)))
}

fn close_notify(http: &Http<'_>) -> CheckResult {
    for version in [&TLS13, &TLS12] {
        // Other checks test whether there are both.
        let Ok(mut connection) = by(http, version) else { continue };
        let end = connection.read_to_end();
        demand(end == Some(End::Clean), || format!("{version:?}: {end:?}"))?;
    }
    Ok(())
}

fn resumption(http: &Http<'_>) -> CheckResult {
    let config = client_of(http.target.ca.as_deref(), true, &[&TLS13, &TLS12]).map_err(failure)?;
    let mut kind = None;
    for _ in 0..2 {
        let mut connection = http.target.connect_to(http.target.url.address, Some(&config))?;
        kind = connection.stream.tls().and_then(|tls| tls.handshake_kind());
        announce(http, &mut connection)?;
        // The ticket may come behind the reply.
        connection.read_to_end();
    }
    let open = "RFC 8446, section 4.6.1, lets a server send no ticket";
    prefer(kind == Some(HandshakeKind::Resumed), open, || format!("{kind:?}"))
}

fn plain_http(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect_to(http.target.url.address, None)?;
    // A tracker that serves announces may have no page at `/`.
    let target = http.announce_target(&http.query(&http.leecher(40_001)));
    connection.send(http.request(&target, "").as_bytes());
    if let Ok(Some(reply)) = connection.reply_if_any() {
        let is_refused = reply.head.status >= 300 || reply.failure().is_some();
        demand(is_refused, || format!("it is served: {}", reply.shown()))?;
    }
    let end = connection.read_to_end();
    demand(end.is_some(), || format!("it stays open: {}", shown(&connection.input)))
}
