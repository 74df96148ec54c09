//! The client's side of HTTP: queries as clients send them, and a strict reader of replies, for
//! tests of trackers. A reply is read in two steps: its [head](ReplyHead), which says where it
//! ends, and its [body](BodyReader).

mod bencode;
mod body;
mod head;

pub use body::{AnnounceBody, Body, BodyReader, Failure, Files};
pub use head::{Framing, MAX_BODY, ReplyHead};

use crate::announce::Announce;
use crate::id::{InfoHash, expand};

/// Why bytes are not the reply of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BadReply {
    /// The head is malformed or over 8 KiB (RFC 9112), or the length of the body is.
    Head,
    /// The body is longer than [`MAX_BODY`].
    Long,
    /// The body is no bencoding (BEP 3), or has bytes behind its dictionary.
    Bencoding,
    /// The keys of a dictionary are not in ascending order, or not each once (BEP 3).
    KeyOrder,
    /// A key that the reply needs is missing, or a value is of another type or out of its range.
    Value,
    /// A list of peers has a part of a peer (BEP 7, 23), or an invalid one.
    Peers,
}

/// Appends the query of an announce, without its `?` (BEP 3, "trackers"; BEP 23). Options and ids
/// of BEP 15 are not in it. A negative `num_want` and the event of a regular announce are left out.
pub fn write_announce_query(announce: &Announce<'_>, compact: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"info_hash=");
    expand(&announce.info_hash.0, &FORMS, out);
    out.extend_from_slice(b"&peer_id=");
    expand(&announce.peer_id.0, &FORMS, out);
    let numbers = [
        (&b"&port="[..], u64::from(announce.port)),
        (b"&uploaded=", announce.uploaded),
        (b"&downloaded=", announce.downloaded),
        (b"&left=", announce.left),
        (b"&compact=", u64::from(compact)),
    ];
    for (key, number) in numbers {
        out.extend_from_slice(key);
        super::reply::decimal(number, out);
    }
    if let Ok(wanted) = u64::try_from(announce.num_want) {
        out.extend_from_slice(b"&numwant=");
        super::reply::decimal(wanted, out);
    }
    if let Some(event) = announce.event.to_text() {
        out.extend_from_slice(b"&event=");
        out.extend_from_slice(event.as_bytes());
    }
    out.extend_from_slice(b"&key=");
    out.extend(announce.key.to_be_bytes().iter().flat_map(|byte| digits(*byte)));
}

/// Appends the query of a scrape, without its `?` (BEP 48): empty without info hashes.
pub fn write_scrape_query(info_hashes: impl Iterator<Item = InfoHash>, out: &mut Vec<u8>) {
    for (nth, hash) in info_hashes.enumerate() {
        out.extend_from_slice(if nth == 0 { b"info_hash=" } else { b"&info_hash=" });
        expand(&hash.0, &FORMS, out);
    }
}

/// The forms of bytes in a query, with their lengths: all but the unreserved characters are
/// percent-encoded (RFC 3986, section 2.3).
static FORMS: [[u8; 4]; 256] = {
    let mut forms = [[0; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        forms[byte] = match byte as u8 {
            plain @ (b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~') => {
                [plain, 0, 0, 1]
            }
            other => {
                let [high, low] = digits(other);
                [b'%', high, low, 3]
            }
        };
        byte += 1;
    }
    forms
};

/// The hexadecimal digits of a byte.
const fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}
