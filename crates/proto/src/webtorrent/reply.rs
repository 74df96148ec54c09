//! Messages to clients.
//!
//! A browser closes the connection after a message without a known `action`, and libtorrent up to
//! 2.1.0 after one without `info_hash`; both ignore further fields.

use std::io::Write as _;

use super::{Action, Answer, Offer};
use crate::id::{InfoHash, PeerId, expand};
use crate::scrape::{HASH_LEN, ScrapeCounts};

/// Appends the reply to an announce. `interval` is in seconds.
pub fn write_counts(info_hash: &InfoHash, interval: u32, counts: &ScrapeCounts, out: &mut Vec<u8>) {
    begin(Action::Announce, Some(info_hash), out);
    let ScrapeCounts { seeders, leechers, .. } = counts;
    text(
        format_args!(r#","interval":{interval},"complete":{seeders},"incomplete":{leechers}}}"#),
        out,
    );
}

/// Appends an offer of the peer `from`, for another peer.
pub fn write_offer(info_hash: &InfoHash, from: &PeerId, offer: &Offer<'_>, out: &mut Vec<u8>) {
    let Offer { offer_id, offer } = offer;
    forward(info_hash, from, &offer_id.0, ("offer", offer), out);
}

/// Appends the answer of the peer `from`, for the peer that it is to.
pub fn write_answer(info_hash: &InfoHash, from: &PeerId, answer: &Answer<'_>, out: &mut Vec<u8>) {
    let Answer { offer_id, answer, .. } = answer;
    forward(info_hash, from, &offer_id.0, ("answer", answer), out);
}

/// Appends the reply to a scrape: the counts of each hash.
pub fn write_scrape(
    counts: impl IntoIterator<Item = ([u8; HASH_LEN], ScrapeCounts)>,
    out: &mut Vec<u8>,
) {
    begin(Action::Scrape, None, out);
    out.extend_from_slice(br#","files":{"#);
    for (number, (hash, counts)) in counts.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        id(&hash, out);
        let ScrapeCounts { seeders, completed, leechers } = counts;
        text(
            format_args!(
                r#":{{"complete":{seeders},"incomplete":{leechers},"downloaded":{completed}}}"#
            ),
            out,
        );
    }
    out.extend_from_slice(b"}}");
}

/// Appends a failure with its `reason` and, where waiting helps, the minutes after which the client
/// may try again (BEP 31).
pub fn write_failure(
    action: Action,
    info_hash: Option<&InfoHash>,
    reason: &str,
    retry_in: Option<u32>,
    out: &mut Vec<u8>,
) {
    begin(action, info_hash, out);
    out.extend_from_slice(br#","failure reason":"#);
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(&mut *out, reason);
    if let Some(minutes) = retry_in {
        text(format_args!(r#","retry in":{minutes}"#), out);
    }
    out.push(b'}');
}

/// The first fields of a message.
pub(super) fn begin(action: Action, info_hash: Option<&InfoHash>, out: &mut Vec<u8>) {
    parts([r#"{"action":""#, action.name(), "\""], out);
    if let Some(info_hash) = info_hash {
        out.extend_from_slice(br#","info_hash":"#);
        id(&info_hash.0, out);
    }
}

fn forward(
    info_hash: &InfoHash,
    from: &PeerId,
    offer_id: &[u8; 20],
    (name, description): (&str, &str),
    out: &mut Vec<u8>,
) {
    begin(Action::Announce, Some(info_hash), out);
    out.extend_from_slice(br#","peer_id":"#);
    id(&from.0, out);
    out.extend_from_slice(br#","offer_id":"#);
    id(offer_id, out);
    parts([",\"", name, "\":", description, "}"], out);
}

fn parts<const N: usize>(parts: [&str; N], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

fn text(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    // Writing into memory does not fail.
    let _ = out.write_fmt(text);
}

/// An id as a string: a character for each byte, in UTF-8.
pub(super) fn id(bytes: &[u8; 20], out: &mut Vec<u8>) {
    out.push(b'"');
    expand(bytes, &FORMS, out);
    out.push(b'"');
}

/// The forms of bytes in a JSON string, with their lengths: those of `JSON.stringify`.
static FORMS: [[u8; 8]; 256] = {
    const fn short(letter: u8) -> [u8; 8] {
        [b'\\', letter, 0, 0, 0, 0, 0, 2]
    }
    let mut forms = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        forms[byte] = match byte as u8 {
            quoted @ (b'"' | b'\\') => short(quoted),
            8 => short(b'b'),
            b'\t' => short(b't'),
            b'\n' => short(b'n'),
            12 => short(b'f'),
            b'\r' => short(b'r'),
            control @ 0..0x20 => {
                let digit = b"0123456789abcdef"[(control & 15) as usize];
                [b'\\', b'u', b'0', b'0', b'0' + (control >> 4), digit, 0, 6]
            }
            plain @ 0x20..0x80 => [plain, 0, 0, 0, 0, 0, 0, 1],
            wide @ 0x80.. => [0xC0 | wide >> 6, 0x80 | wide & 0x3F, 0, 0, 0, 0, 0, 2],
        };
        byte += 1;
    }
    forms
};
