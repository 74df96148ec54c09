//! Announces and scrapes over HTTP: what the target of a GET asks for (BEP 3, "trackers"), and the
//! bencoded replies to it. A tracker parses heads of requests, and writes those of replies, itself;
//! [`client`] has the other direction.
//!
//! ```text
//! /announce?info_hash=%12%34...&peer_id=-XX0001-...&port=6881&uploaded=0&downloaded=0&left=0
//! /scrape?info_hash=%12%34...&info_hash=...
//! ```
//!
//! Queries are read in one pass and without allocation: they are most of the bytes that a tracker
//! gets over HTTP.

pub mod client;
mod query;
mod reply;

pub use query::{AnnounceQuery, BadQuery, scrape_hashes};
pub(crate) use reply::decimal;
pub use reply::{write_announce, write_failure, write_scrape};

/// The kind of request that the target of a GET names. Queries are without their `?`, and empty if
/// there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// The last segment of the path begins with `announce`; with the query.
    Announce(&'a [u8]),
    /// The last segment of the path begins with `scrape`; with the query.
    Scrape(&'a [u8]),
    /// `/`.
    Root,
    /// `/health`.
    Health,
    /// Any other path, and what has no path.
    Other,
}

impl<'a> Target<'a> {
    /// Reads a target in origin-form or absolute-form (RFC 9112, section 3.2). A fragment, which no
    /// client should send, is cut off. Paths are compared as they are: not percent-decoded.
    pub fn parse(target: &'a [u8]) -> Self {
        let Some(target) = origin_form(target) else { return Self::Other };
        let (path, rest) = split_before(target, |byte| matches!(byte, b'?' | b'#'));
        let query = match rest {
            [b'?', query @ ..] if query.contains(&b'#') => {
                split_before(query, |byte| byte == b'#').0
            }
            [b'?', query @ ..] => query,
            _ => &[],
        };
        let segment = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        match path {
            _ if segment.starts_with(b"announce") => Self::Announce(query),
            _ if segment.starts_with(b"scrape") => Self::Scrape(query),
            b"/health" => Self::Health,
            // An absolute-form may have no path, which is the same (RFC 9110, section 4.2.3).
            b"/" | b"" => Self::Root,
            _ => Self::Other,
        }
    }
}

/// The target without scheme and authority, if it has them; `None` if it is neither such a URL nor
/// begins with a path.
fn origin_form(target: &[u8]) -> Option<&[u8]> {
    if target.starts_with(b"/") {
        return Some(target);
    }
    let authority = [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    Some(split_before(authority, |byte| matches!(byte, b'/' | b'?' | b'#')).1)
}

/// Splits before the first byte that is an end; the second part is empty if there is none.
#[inline]
fn split_before(text: &[u8], is_end: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| is_end(*byte)).unwrap_or(text.len()))
}
