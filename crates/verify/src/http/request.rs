//! Checks of the form of requests and replies (RFC 9110, RFC 9112; BEP 3, "bencoding").

use onrush_proto::http::client::{BodyReader, Framing};

use super::Check;
use super::client::Http;
use super::reply::Reply;
use crate::check::{CheckResult, Group, Needs, demand, differs, fails, prefer, skipped, worst_of};
use crate::message::shown;
use crate::tcp::target::{Connection, End};

/// Bytes of a target or a head that no client needs.
const TOO_LONG: usize = 20 * 1024;

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Request, "content-length", Needs::Hashes(1), content_length)
        .expects("a reply says how long its body is, and has as many bytes")
        .source("RFC 9112, section 6.3: a client cannot tell a part from the whole otherwise"),
    Check::new(Group::Request, "bencoding", Needs::Hashes(1), bencoding)
        .expects(
            "replies are bencoded in the one valid form: keys in ascending order, each once, and \
             nothing behind the dictionary",
        )
        .source("BEP 3, \"bencoding\""),
    Check::new(Group::Request, "absolute-target", Needs::Hashes(1), absolute_target)
        .expects("a request whose target is the whole URL is served")
        .source("RFC 9112, section 3.2.2: as clients send it to proxies"),
    Check::new(Group::Request, "unknown-path", Needs::Nothing, unknown_path)
        .expects("another path gets status 404")
        .source("RFC 9110, section 15.5.5"),
    Check::new(Group::Request, "post", Needs::Nothing, post)
        .expects("POST gets status 405, which names the allowed methods")
        .source("RFC 9110, section 15.5.6"),
    Check::new(Group::Request, "malformed", Needs::Nothing, malformed)
        .expects("what is no request gets status 400")
        .source("RFC 9112, section 3"),
    Check::new(Group::Request, "malformed-closes", Needs::Nothing, malformed_closes)
        .expects("after what is no request the connection is closed, and nothing else is served")
        .source("RFC 9112, section 9.3: what follows may be a request of somebody else"),
    Check::new(Group::Request, "long-target", Needs::Nothing, long_target)
        .expects("a target of 20 KiB gets status 414")
        .source("RFC 9110, section 15.5.15"),
    Check::new(Group::Request, "long-head", Needs::Nothing, long_head)
        .expects("a field of 20 KiB gets status 431")
        .source("RFC 6585, section 5"),
];

fn content_length(http: &Http<'_>) -> CheckResult {
    let query = http.query(&http.leecher(40_001));
    let mut connection = http.target.connect()?;
    let request = http.request(&http.announce_target(&query), "Connection: close\r\n");
    connection.send(request.as_bytes());
    let reply = connection.reply()?;
    // The connection may stay open: another check tests that.
    connection.is_silent(1.0);
    demand(connection.input.is_empty(), || {
        format!("behind the body follows {}", shown(&connection.input))
    })?;
    let open = "RFC 9112, section 6.3, lets a body end with the connection";
    prefer(reply.head.framing != Framing::UntilEnd, open, || shown(reply.fields.as_bytes()))
}

fn bencoding(http: &Http<'_>) -> CheckResult {
    let list = http.query(&http.leecher(40_001)).replace("compact=1", "compact=0");
    let mut replies = vec![http.announce(&http.leecher(40_002))?.reply];
    replies.push(http.get(&http.announce_target(&list))?);
    if http.target.url.scrape.is_some() {
        replies.push(http.scrape_reply(&[http.hash(0)])?);
    }
    // A failure, at most trackers.
    replies.push(http.get(&http.announce_target("port=1"))?);
    for reply in replies.iter().filter(|reply| reply.head.status == 200) {
        if let Err(why) = BodyReader::default().read(&reply.body) {
            return fails(format!("{why:?}: {}", reply.shown()));
        }
    }
    Ok(())
}

fn absolute_target(http: &Http<'_>) -> CheckResult {
    let url = &http.target.url;
    let target = http.announce_target(&http.query(&http.leecher(40_001)));
    let whole = format!("{}://{}{target}", url.scheme.as_ref(), url.authority);
    let reply = http.get(&whole)?;
    let served = reply.head.status == 200 && reply.failure().is_none();
    demand(served && reply.dictionary().is_ok(), || reply.shown())
}

fn unknown_path(http: &Http<'_>) -> CheckResult {
    let reply = http.get("/no-such-path")?;
    let seen = || reply.shown();
    demand(reply.head.status >= 400 || reply.failure().is_some(), seen)?;
    prefer(reply.head.status == 404, "RFC 9110 allows other statuses of 400 to 499", seen)
}

fn post(http: &Http<'_>) -> CheckResult {
    let request = http.request(&http.announce_target(""), "Connection: close\r\n");
    let request = format!("POST{}Content-Length: 0\r\n\r\n", &request[3..request.len() - 2]);
    let reply = http.exchange(request.as_bytes())?;
    let open = "RFC 9110 does not forbid a tracker to serve POST, or to refuse it otherwise";
    let names_methods = reply.field("allow").is_some_and(|allow| allow.contains("GET"));
    prefer(reply.head.status == 405 && names_methods, open, || {
        format!("{}: {}", shown(reply.fields.as_bytes()), reply.shown())
    })
}

/// The reply to what is no valid request; `None` where the connection is closed instead.
fn to_bad(http: &Http<'_>, text: &str) -> Result<Option<Reply>, crate::check::Finding> {
    let mut connection = http.target.connect()?;
    connection.send(text.as_bytes());
    match connection.reply_if_any() {
        Err(_) if connection.end == Some(End::Broken) => Ok(None),
        reply => reply,
    }
}

/// Passes with this status; other refusals are differences.
fn demand_status(http: &Http<'_>, text: &str, status: u16) -> CheckResult {
    const OPEN: &str = "RFC 9110, section 15.5: other statuses of 400 to 499 and the end of the \
                        connection are refusals, too";
    match to_bad(http, text)? {
        None => differs(OPEN, "the connection is closed without a reply"),
        Some(reply) if reply.head.status == status => Ok(()),
        Some(reply) if reply.head.status >= 400 || reply.failure().is_some() => {
            differs(OPEN, reply.shown())
        }
        Some(reply) => fails(reply.shown()),
    }
}

fn malformed(http: &Http<'_>) -> CheckResult {
    let texts = ["\0\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"];
    worst_of(texts, |text| demand_status(http, text, 400))
}

fn malformed_closes(http: &Http<'_>) -> CheckResult {
    let mut connection: Connection<'_> = http.target.connect()?;
    let behind = http.request("/", "");
    connection.send(format!("\0\x01\x02 \r\n\r\n{behind}").as_bytes());
    let Some(_) = connection.read_to_end() else {
        return fails(format!("it stays open: {}", shown(&connection.input)));
    };
    let replies = connection.input.windows(7).filter(|word| *word == b"HTTP/1.").count();
    demand(replies <= 1, || format!("{replies} replies: {}", shown(&connection.input)))
}

fn long_target(http: &Http<'_>) -> CheckResult {
    let target = http.announce_target(&format!("x={}", "a".repeat(TOO_LONG)));
    match demand_status(http, &http.request(&target, ""), 414) {
        // Without a limit there is nothing to refuse, and a failure about the missing info hash.
        Err(finding) if finding.seen.contains("failure reason") => {
            skipped("targets of 20 KiB are read")
        }
        result => result,
    }
}

fn long_head(http: &Http<'_>) -> CheckResult {
    let field = format!("X-Long: {}\r\n", "a".repeat(TOO_LONG));
    let target = http.announce_target("");
    match demand_status(http, &http.request(&target, &field), 431) {
        Err(finding) if finding.seen.contains("failure reason") => {
            skipped("fields of 20 KiB are read")
        }
        result => result,
    }
}
