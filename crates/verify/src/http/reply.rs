//! Replies over HTTP as the checks read them: leniently, so that one fault fails one check.

use std::net::IpAddr;

use onrush_proto::http::client::{BadReply, ReplyHead};
use onrush_proto::{Endpoint, InfoHash};

use super::bencode::Value;
use crate::check::{Finding, demand, failure, skipped};
use crate::message::shown;
use crate::tcp::target::{Connection, End, REPLY, field};

/// A reply.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) head: ReplyHead,
    /// The text of the head.
    pub(super) fields: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// The value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }

    /// The dictionary of the body.
    pub(super) fn dictionary(&self) -> Result<Value, Finding> {
        let value = Value::parse(&self.body).filter(|it| matches!(it, Value::Dictionary(_)));
        value.ok_or_else(|| failure(format!("no bencoded dictionary: {}", self.shown())))
    }

    /// The text of its failure (BEP 3, "trackers").
    pub(super) fn failure(&self) -> Option<String> {
        let value = Value::parse(&self.body)?;
        value.text("failure reason").map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// The status and the first bytes of the body, for a report.
    pub(super) fn shown(&self) -> String {
        format!("status {}: {}", self.head.status, shown(&self.body))
    }
}

impl Connection<'_> {
    /// Reads the next reply.
    pub(super) fn reply(&mut self) -> Result<Reply, Finding> {
        self.reply_if_any()?.ok_or_else(|| failure("the connection is closed without a reply"))
    }

    /// Reads the next reply; `None` where the tracker ends the connection before it.
    pub(super) fn reply_if_any(&mut self) -> Result<Option<Reply>, Finding> {
        let until = self.target.budget.deadline(REPLY);
        let mut joined = Vec::new();
        loop {
            let bad = |why: BadReply| {
                failure(format!("no reply of HTTP ({why:?}): {}", shown(&self.input)))
            };
            if let Some(head) = ReplyHead::parse(&self.input).map_err(bad)?
                && let Some((body, len)) =
                    head.body(&self.input, self.end.is_some(), &mut joined).map_err(bad)?
            {
                let fields = String::from_utf8_lossy(&self.input[..head.len]).into_owned();
                let reply = Reply { head, fields, body: body.to_vec() };
                self.input.drain(..len);
                return Ok(Some(reply));
            }
            if self.fill(until) {
                continue;
            }
            return match (self.end, self.input.is_empty()) {
                (None, _) if self.target.budget.is_over() => Err(crate::check::no_time()),
                (None, true) => Err(failure("no reply, and the connection stays open")),
                (None, false) => {
                    Err(failure(format!("the rest is missing: {}", shown(&self.input))))
                }
                (Some(End::Broken), true) => Err(failure("the connection is reset")),
                (Some(_), true) => Ok(None),
                (Some(_), false) if !joined.is_empty() => Err(failure("the last chunk is missing")),
                // The end of a body without a length.
                (Some(_), false) if self.has_head() => continue,
                (Some(_), false) => Err(failure(format!("a part: {}", shown(&self.input)))),
            };
        }
    }

    /// Whether a head without a length of its body has arrived.
    fn has_head(&self) -> bool {
        use onrush_proto::http::client::Framing;
        let head = ReplyHead::parse(&self.input).ok().flatten();
        head.is_some_and(|head| head.framing == Framing::UntilEnd)
    }
}

/// The reply to an announce.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub(super) reply: Reply,
    pub(super) keys: Value,
    /// Seconds until the next announce; 0 if they are missing.
    pub(super) interval: i64,
    /// All listed peers.
    pub(super) peers: Vec<Endpoint>,
    /// Whether `peers` is a list of dictionaries.
    pub(super) is_list: bool,
}

impl Announced {
    pub(super) fn read(reply: Reply) -> Result<Self, Finding> {
        let keys = reply.dictionary()?;
        if let Some(text) = reply.failure() {
            return Err(failure(format!("a failure: \"{text}\"")));
        }
        demand(reply.head.status == 200, || reply.shown())?;
        let bad = || failure(format!("peers are malformed: {}", reply.shown()));
        let mut peers = Vec::new();
        let is_list = matches!(keys.get("peers"), Some(Value::List(_)));
        match keys.get("peers") {
            Some(Value::List(list)) => {
                for peer in list {
                    peers.push(listed(peer).ok_or_else(bad)?);
                }
            }
            Some(Value::Text(text)) if text.len().is_multiple_of(6) => {
                peers.extend(text.as_chunks::<6>().0.iter().map(endpoint::<6, 4>));
            }
            None => {}
            Some(_) => return Err(bad()),
        }
        match keys.get("peers6") {
            Some(Value::Text(text)) if text.len().is_multiple_of(18) => {
                peers.extend(text.as_chunks::<18>().0.iter().map(endpoint::<18, 16>));
            }
            None => {}
            Some(_) => return Err(bad()),
        }
        let interval = keys.number("interval").unwrap_or(0);
        Ok(Self { reply, keys, interval, peers, is_list })
    }

    /// Seeders and leechers. Not all trackers send them.
    pub(super) fn counts(&self) -> Result<(i64, i64), Finding> {
        match (self.keys.number("complete"), self.keys.number("incomplete")) {
            (Some(seeders), Some(leechers)) => Ok((seeders, leechers)),
            _ => Err(skipped("the reply has no counts").expect_err("a finding")),
        }
    }

    /// Whether a peer at this port is listed.
    pub(super) fn has(&self, port: u16) -> bool {
        self.peers.iter().any(|peer| peer.port() == port)
    }

    /// The number of peers and the body, for a report.
    pub(super) fn listed(&self) -> String {
        format!("{} peers: {}", self.peers.len(), self.reply.shown())
    }
}

/// A peer in wire form of `N` bytes, of which the first `IP` are its address.
fn endpoint<const N: usize, const IP: usize>(bytes: &[u8; N]) -> Endpoint
where
    IpAddr: From<[u8; IP]>,
{
    let ip: [u8; IP] = *bytes.first_chunk().expect("an address");
    Endpoint::new(IpAddr::from(ip), u16::from_be_bytes([bytes[N - 2], bytes[N - 1]]))
}

/// A peer of a list.
fn listed(peer: &Value) -> Option<Endpoint> {
    let ip: IpAddr = std::str::from_utf8(peer.text("ip")?).ok()?.parse().ok()?;
    Some(Endpoint::new(ip, u16::try_from(peer.number("port")?).ok()?))
}

/// The counts of a swarm in a scrape (BEP 48).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct File {
    pub(super) seeders: i64,
    pub(super) completed: i64,
    pub(super) leechers: i64,
}

/// The files of the reply to a scrape; a failure is an error.
pub(super) fn files(reply: &Reply) -> Result<Vec<(InfoHash, File)>, Finding> {
    if let Some(text) = reply.failure() {
        return Err(failure(format!("a failure: \"{text}\"")));
    }
    let bad = |why: &str| failure(format!("{why}: {}", reply.shown()));
    let keys = reply.dictionary()?;
    let Some(Value::Dictionary(files)) = keys.get("files") else {
        return Err(bad("no dictionary `files`"));
    };
    let file = |(hash, file): &(Vec<u8>, Value)| {
        let hash = <[u8; 20]>::try_from(&hash[..]).map_err(|_| bad("a key is no info hash"))?;
        let count = |key| file.number(key).ok_or_else(|| bad("a count is missing"));
        let (seeders, leechers) = (count("complete")?, count("incomplete")?);
        Ok((InfoHash(hash), File { seeders, completed: count("downloaded")?, leechers }))
    };
    files.iter().map(file).collect()
}
