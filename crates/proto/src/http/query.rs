//! The query of an announce (BEP 3, "trackers"; BEP 21, 23) or a scrape (BEP 48): pairs of key and
//! value between `&`.
//!
//! Keys and values are percent-decoded to bytes, which need not be UTF-8; `+` is a plus. A `%`
//! without two hexadecimal digits makes its key unknown or its value invalid. Unknown keys are
//! ignored, among them `ip`: a tracker that uses it lets a client direct the traffic of others to
//! any address. Of a repeated key the last value counts, even an invalid one.

use super::split_before;
use crate::announce::Event;
use crate::id::{HEX_VALUES, InfoHash, PeerId};
use crate::scrape::HASH_LEN;

/// An announce over HTTP. Amounts of bytes and `key` are not read, as no tracker needs them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnounceQuery {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The client's peer id. Peers are identified by their endpoint, not by this.
    pub peer_id: PeerId,
    /// Where the peer listens; may be 0, which no peer can be reached at.
    pub port: u16,
    /// Whether `left` is 0: the peer misses nothing. A leecher may leave `left` out.
    pub seeder: bool,
    /// The event; texts that BEP 3 and BEP 21 do not define are read as none.
    pub event: Event,
    /// How many peers the client wants: negative for "as you like", as in [`crate::Announce`]; -1
    /// without a `numwant` that is a number.
    pub num_want: i32,
    /// Whether the client takes the peers as one string (BEP 23): unless `compact` is 0.
    pub compact: bool,
}

/// Why a query is no announce or scrape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BadQuery {
    /// An info hash is missing, or has not 20 bytes.
    InfoHash,
    /// An announce has several info hashes.
    InfoHashes,
    /// The peer id is missing, or has not 20 bytes.
    PeerId,
    /// The port is missing, or no number from 0 to 65535.
    Port,
}

impl BadQuery {
    /// The failure reason for the client (BEP 3, "trackers").
    pub const fn text(self) -> &'static str {
        match self {
            Self::InfoHash => "info_hash has to be 20 bytes",
            Self::InfoHashes => "an announce has one info_hash",
            Self::PeerId => "peer_id has to be 20 bytes",
            Self::Port => "port has to be a number from 1 to 65535",
        }
    }
}

impl AnnounceQuery {
    /// Reads the query of an announce, without its `?`.
    ///
    /// # Errors
    /// [`BadQuery`]: of several faults the one that is listed first.
    pub fn parse(query: &[u8]) -> Result<Self, BadQuery> {
        let (mut info_hash, mut peer_id, mut hashes) = (None, None, 0usize);
        let (mut port, mut left, mut num_want, mut compact) = (None, None, None, None);
        let mut event = Event::None;
        let mut pairs = Pairs { rest: query };
        while let Some(key) = pairs.key(&mut [0; LONGEST]) {
            match key {
                b"info_hash" => {
                    hashes += 1;
                    info_hash = pairs.id();
                }
                b"peer_id" => peer_id = pairs.id(),
                b"port" => port = pairs.number(),
                b"left" => left = pairs.number(),
                b"event" => event = pairs.event(),
                b"numwant" => num_want = pairs.number(),
                b"compact" => compact = pairs.number(),
                _ => pairs.skip(),
            }
        }
        let info_hash = InfoHash(info_hash.ok_or(BadQuery::InfoHash)?);
        if hashes > 1 {
            return Err(BadQuery::InfoHashes);
        }
        Ok(Self {
            info_hash,
            peer_id: PeerId(peer_id.ok_or(BadQuery::PeerId)?),
            port: port.and_then(|port| u16::try_from(port).ok()).ok_or(BadQuery::Port)?,
            seeder: left == Some(0),
            event,
            num_want: num_want
                .map_or(-1, |number| number.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
            compact: compact != Some(0),
        })
    }
}

/// Appends the first `max` different info hashes of a scrape's query to `hashes`, sorted among
/// themselves. There may be none: the tracker decides whether to answer such a request.
///
/// # Errors
/// [`BadQuery::InfoHash`] when one of the values, also behind the first `max`, has not 20 bytes;
/// then nothing is appended.
pub fn scrape_hashes(
    query: &[u8],
    max: usize,
    hashes: &mut Vec<[u8; HASH_LEN]>,
) -> Result<(), BadQuery> {
    let start = hashes.len();
    let mut pairs = Pairs { rest: query };
    while let Some(key) = pairs.key(&mut [0; LONGEST]) {
        if key != b"info_hash" {
            pairs.skip();
            continue;
        }
        let Some(hash) = pairs.id() else {
            hashes.truncate(start);
            return Err(BadQuery::InfoHash);
        };
        if hashes.len() - start < max
            && let Err(at) = hashes[start..].binary_search(&hash)
        {
            hashes.insert(start + at, hash);
        }
    }
    Ok(())
}

/// Bytes of the longest key (`info_hash`) and event (`completed`).
const LONGEST: usize = 9;

/// The rest of a query. A key is read first, then its value, or the value is skipped.
struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// The next key, decoded into `space` if it is encoded; an empty one is as good as any unknown
    /// key. `None` at the end.
    fn key<'k>(&mut self, space: &'k mut [u8; LONGEST]) -> Option<&'k [u8]>
    where
        'a: 'k,
    {
        if self.rest.is_empty() {
            return None;
        }
        let (key, rest) = split_before(self.rest, |byte| matches!(byte, b'=' | b'&' | b'%'));
        match rest {
            [b'=', value @ ..] => self.rest = value,
            [b'%', ..] => return Some(self.encoded_key(space)),
            _ => self.rest = rest,
        }
        Some(key)
    }

    /// A key of which a part is encoded: clients have no reason to do that.
    #[cold]
    fn encoded_key<'k>(&mut self, space: &'k mut [u8; LONGEST]) -> &'k [u8] {
        let (key, rest) = split_before(self.rest, |byte| matches!(byte, b'=' | b'&'));
        self.rest = rest.strip_prefix(b"=").unwrap_or(rest);
        Pairs { rest: key }.text(space).unwrap_or_default()
    }

    /// A value of 20 bytes.
    fn id(&mut self) -> Option<[u8; 20]> {
        let mut id = [0; 20];
        (self.text(&mut id)?.len() == 20).then_some(id)
    }

    /// A decimal number, which may have a minus sign; saturates.
    fn number(&mut self) -> Option<i64> {
        let (mut number, mut digits, mut negative) = (0i64, false, false);
        let valid = self.value(|byte| match byte {
            b'0'..=b'9' => {
                digits = true;
                number = number.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                true
            }
            b'-' if !digits && !negative => {
                negative = true;
                true
            }
            _ => false,
        });
        (valid && digits).then_some(if negative { -number } else { number })
    }

    fn event(&mut self) -> Event {
        self.text(&mut [0; LONGEST]).map_or(Event::None, Event::from_text)
    }

    /// A value, decoded into `space`; `None` if it is longer or invalid.
    fn text<'s>(&mut self, space: &'s mut [u8]) -> Option<&'s [u8]> {
        let mut length = 0;
        let valid = self.value(|byte| {
            let Some(place) = space.get_mut(length) else { return false };
            *place = byte;
            length += 1;
            true
        });
        valid.then_some(&space[..length])
    }

    /// Passes the bytes of a value to `take`, decoded, until it returns false. Returns whether it
    /// took all of them and each `%` has its digits. The next pair follows in any case.
    #[inline]
    fn value(&mut self, mut take: impl FnMut(u8) -> bool) -> bool {
        loop {
            let next = match self.rest {
                [] => return true,
                [b'&', rest @ ..] => {
                    self.rest = rest;
                    return true;
                }
                [b'%', rest @ ..] => octet(rest),
                [byte, rest @ ..] => Some((*byte, rest)),
            };
            match next {
                Some((byte, rest)) if take(byte) => self.rest = rest,
                _ => {
                    self.skip();
                    return false;
                }
            }
        }
    }

    /// Moves behind the rest of the value.
    fn skip(&mut self) {
        let (_, rest) = split_before(self.rest, |byte| byte == b'&');
        self.rest = rest.strip_prefix(b"&").unwrap_or(rest);
    }
}

/// The byte of two hexadecimal digits, and what follows them.
#[inline]
fn octet(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<2>()?;
    let values = &HEX_VALUES;
    let [high, low] = digits.map(|digit| values[usize::from(digit)]);
    // A byte that is no digit has a value above those of digits.
    (high | low < 16).then_some((high << 4 | low, rest))
}
