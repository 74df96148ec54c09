//! Checks of connections over HTTP (RFC 9112, section 9).

use super::Check;
use super::client::Http;
use super::reply::Announced;
use crate::check::{CheckResult, Group, Needs, demand, differs, fails, prefer};
use crate::message::shown;
use crate::tcp::target::End;

/// Timeouts between the parts of a request.
const PAUSE: f64 = 0.05;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Connection, "keep-alive", Needs::Hashes(1), keep_alive)
        .expects("a connection of HTTP/1.1 serves several requests")
        .source("RFC 9112, section 9.3"),
    Check::new(Group::Connection, "connection-close", Needs::Hashes(1), close)
        .expects("with `Connection: close` the reply says the same, and the connection ends")
        .source("RFC 9112, section 9.6"),
    Check::new(Group::Connection, "http-1-0", Needs::Hashes(1), http_1_0)
        .expects("after the reply to a request of HTTP/1.0 the connection ends")
        .source("RFC 9112, section 9.3: clients wait for the end"),
    Check::new(Group::Connection, "pipelining", Needs::Hashes(1), pipelining)
        .expects("requests that are sent together are answered in their order")
        .source("RFC 9112, section 9.3.2"),
    Check::new(Group::Connection, "request-in-pieces", Needs::Hashes(1), pieces)
        .expects("a request that arrives in pieces is answered once it is complete")
        .source("RFC 9112, section 2.2: TCP divides requests as it likes"),
    Check::new(Group::Connection, "half-close", Needs::Hashes(1), half_close)
        .expects("a client that ends its direction after a request gets the reply")
        .source("RFC 9112, section 9.6"),
];

/// A request of HTTP/1.1 to announce a leecher.
fn announce(http: &Http<'_>, port: u16, fields: &str) -> String {
    let query = http.query(&http.leecher(port));
    http.request(&http.announce_target(&query), fields)
}

fn keep_alive(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    for n in 0..3 {
        connection.send(announce(http, 40_001, "").as_bytes());
        let Some(reply) = connection.reply_if_any()? else {
            return fails(format!("the connection ends after {n} replies that do not say so"));
        };
        if !reply.head.keep_alive && n < 2 {
            let open = "RFC 9112, section 9.3, lets a server close the connection";
            return differs(open, shown(reply.fields.as_bytes()));
        }
        Announced::read(reply)?;
    }
    Ok(())
}

fn close(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    connection.send(announce(http, 40_001, "Connection: close\r\n").as_bytes());
    let reply = connection.reply()?;
    demand(connection.read_to_end().is_some(), || "the connection stays open".to_owned())?;
    let open = "RFC 9112, section 9.6: a reply SHOULD say `Connection: close`";
    prefer(!reply.head.keep_alive, open, || shown(reply.fields.as_bytes()))
}

fn http_1_0(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    let request = announce(http, 40_001, "").replace("HTTP/1.1", "HTTP/1.0");
    connection.send(request.as_bytes());
    Announced::read(connection.reply()?)?;
    demand(connection.read_to_end().is_some(), || "the connection stays open".to_owned())
}

fn pipelining(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    // Of three announces the second is a failure, which shows the order.
    let bad = http.request(&http.announce_target(""), "");
    let all = [announce(http, 40_001, ""), bad, announce(http, 40_001, "")].concat();
    connection.send(all.as_bytes());
    for n in 0..3 {
        let Some(reply) = connection.reply_if_any()? else {
            let open = "RFC 9112, section 9.3.2: clients repeat what got no reply";
            return differs(open, format!("the connection ends after {n} replies"));
        };
        let failed = reply.failure().is_some() || reply.head.status >= 400;
        demand(failed == (n == 1), || format!("reply {n}: {}", reply.shown()))?;
    }
    Ok(())
}

fn pieces(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    let request = announce(http, 40_001, "Connection: close\r\n");
    let (start, rest) = request.split_at(10);
    let (middle, end) = rest.split_at(rest.len() - 3);
    for part in [start, middle] {
        connection.send(part.as_bytes());
        let is_silent = connection.is_silent(PAUSE);
        demand(is_silent, || {
            format!("before the request is complete: {}", shown(&connection.input))
        })?;
    }
    connection.send(end.as_bytes());
    Announced::read(connection.reply()?).map(drop)
}

fn half_close(http: &Http<'_>) -> CheckResult {
    let mut connection = http.target.connect()?;
    connection.send(announce(http, 40_001, "Connection: close\r\n").as_bytes());
    connection.finish();
    let open = "RFC 9112, section 9.6, does not oblige a server to answer then";
    let reply = connection.reply();
    let is_served = reply.is_ok() && connection.end != Some(End::Broken);
    prefer(is_served, open, || reply.err().map_or(String::new(), |finding| finding.seen))
}
