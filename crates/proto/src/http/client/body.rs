//! The body of a reply: one bencoded dictionary (BEP 3, 7, 23, 31, 48).

use std::net::IpAddr;

use super::BadReply;
use super::bencode::Cursor;
use crate::endpoint::{Endpoint, Family};
use crate::response::{Counts, Peers};
use crate::scrape::{COUNTS_LEN, HASH_LEN, ScrapeCounts};

/// Reads bodies, with memory that is used again for what is not contiguous in them.
#[derive(Debug, Default)]
pub struct BodyReader {
    /// Peers of dictionaries in wire form, by family.
    peers: [Vec<u8>; 2],
    hashes: Vec<[u8; HASH_LEN]>,
    counts: Vec<[u8; COUNTS_LEN]>,
}

/// A body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// The reply to an announce.
    Announce(AnnounceBody<'a>),
    /// The reply to a scrape.
    Scrape(Files<'a>),
    /// The failure of any request.
    Failure(Failure<'a>),
}

/// The reply to an announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnounceBody<'a> {
    /// Seconds until the next regular announce.
    pub interval: u32,
    /// `complete`, the peers that miss nothing. Not all trackers send it.
    pub seeders: Option<u32>,
    /// `incomplete`, the peers that miss something. Not all trackers send it.
    pub leechers: Option<u32>,
    /// The IPv4 peers.
    pub v4: Peers<'a>,
    /// The IPv6 peers.
    pub v6: Peers<'a>,
    /// Whether `peers` is a list of dictionaries, not a string.
    pub is_list: bool,
}

/// The reply to a scrape: hashes in ascending order, and as many counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files<'a> {
    /// The info hashes.
    pub hashes: &'a [[u8; HASH_LEN]],
    /// Their counts, in the same order.
    pub counts: Counts<'a>,
}

/// A failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure<'a> {
    /// The reason, which may be any bytes.
    pub reason: &'a [u8],
    /// The minutes after which the client may try again (BEP 31); none also for `never`.
    pub retry_in: Option<u32>,
}

/// The keys of a body. Others are read and ignored.
#[derive(Default)]
struct Keys<'a> {
    failure: Option<&'a [u8]>,
    retry_in: Option<u32>,
    interval: Option<u32>,
    seeders: Option<u32>,
    leechers: Option<u32>,
    peers: Option<&'a [u8]>,
    peers6: Option<&'a [u8]>,
    is_list: bool,
    has_files: bool,
}

impl BodyReader {
    /// Reads a body.
    ///
    /// # Errors
    /// The first fault.
    pub fn read<'a>(&'a mut self, body: &'a [u8]) -> Result<Body<'a>, BadReply> {
        self.peers.iter_mut().for_each(Vec::clear);
        self.hashes.clear();
        self.counts.clear();
        let (mut keys, mut cursor) = (Keys::default(), Cursor::new(body));
        cursor.dictionary(|key, value| self.value(&mut keys, key, value))?;
        if !cursor.is_at_end() {
            return Err(BadReply::Bencoding);
        }
        if let Some(reason) = keys.failure {
            return Ok(Body::Failure(Failure { reason, retry_in: keys.retry_in }));
        }
        if keys.has_files {
            let counts = Counts(&self.counts);
            return Ok(Body::Scrape(Files { hashes: &self.hashes, counts }));
        }
        let interval = keys.interval.ok_or(BadReply::Value)?;
        if keys.peers.is_none() && keys.peers6.is_none() && !keys.is_list {
            return Err(BadReply::Value);
        }
        let of = |family: Family, compact: Option<&'a [u8]>, listed: &'a [u8]| {
            let bytes = if listed.is_empty() { compact.unwrap_or_default() } else { listed };
            let is_whole = bytes.len().is_multiple_of(family.peer_len());
            is_whole.then_some(Peers { family, bytes }).ok_or(BadReply::Peers)
        };
        let [v4, v6] = &self.peers;
        Ok(Body::Announce(AnnounceBody {
            interval,
            seeders: keys.seeders,
            leechers: keys.leechers,
            v4: of(Family::V4, keys.peers, v4)?,
            v6: of(Family::V6, keys.peers6, v6)?,
            is_list: keys.is_list,
        }))
    }

    /// Reads the value of a key.
    fn value<'a>(
        &mut self,
        keys: &mut Keys<'a>,
        key: &[u8],
        value: &mut Cursor<'a>,
    ) -> Result<(), BadReply> {
        let number = |value: &mut Cursor<'a>| value.number()?.ok_or(BadReply::Value).map(Some);
        match key {
            b"failure reason" => keys.failure = Some(value.string()?),
            b"retry in" if value.is_next(b'i') => keys.retry_in = number(value)?,
            b"interval" => keys.interval = number(value)?,
            b"complete" => keys.seeders = number(value)?,
            b"incomplete" => keys.leechers = number(value)?,
            b"peers" if value.is_next(b'l') => {
                keys.is_list = true;
                value.list(|peer| self.peer(peer))?;
            }
            b"peers" => keys.peers = Some(value.string()?),
            b"peers6" => keys.peers6 = Some(value.string()?),
            b"files" => {
                keys.has_files = true;
                value.dictionary(|hash, counts| self.file(hash, counts))?;
            }
            _ => value.skip()?,
        }
        Ok(())
    }

    /// Reads a peer of a list. Names in place of addresses (BEP 3) are invalid here: a tracker
    /// knows the address of a peer.
    fn peer(&mut self, value: &mut Cursor<'_>) -> Result<(), BadReply> {
        let (mut ip, mut port) = (None, None);
        value.dictionary(|key, value| {
            match key {
                b"ip" => {
                    let text = std::str::from_utf8(value.string()?).map_err(|_| BadReply::Peers)?;
                    ip = Some(text.parse::<IpAddr>().map_err(|_| BadReply::Peers)?);
                }
                b"port" => port = value.number()?.and_then(|port| u16::try_from(port).ok()),
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let (Some(ip), Some(port)) = (ip, port) else { return Err(BadReply::Peers) };
        let endpoint = Endpoint::new(ip, port);
        self.peers[endpoint.family() as usize].extend_from_slice(endpoint.as_bytes());
        Ok(())
    }

    /// Reads the counts of a swarm.
    fn file(&mut self, hash: &[u8], value: &mut Cursor<'_>) -> Result<(), BadReply> {
        let (mut seeders, mut completed, mut leechers) = (None, None, None);
        value.dictionary(|key, value| {
            let number = |value: &mut Cursor<'_>| value.number()?.ok_or(BadReply::Value).map(Some);
            match key {
                b"complete" => seeders = number(value)?,
                b"downloaded" => completed = number(value)?,
                b"incomplete" => leechers = number(value)?,
                _ => value.skip()?,
            }
            Ok(())
        })?;
        let (Some(seeders), Some(leechers)) = (seeders, leechers) else {
            return Err(BadReply::Value);
        };
        let mut counts = [0; COUNTS_LEN];
        let completed = completed.unwrap_or(0);
        ScrapeCounts { seeders, completed, leechers }.write(&mut counts);
        self.hashes.push(hash.try_into().map_err(|_| BadReply::Value)?);
        self.counts.push(counts);
        Ok(())
    }
}
