//! Bodies of replies over HTTP: one bencoded dictionary each, with its keys sorted (BEP 3,
//! "bencoding").
//!
//! ```text
//! d8:completei3e11:external ip4:....10:incompletei2e8:intervali1800e12:min intervali900e
//!     5:peers12:............e
//! d5:filesd20:....................d8:completei3e10:downloadedi9e10:incompletei2eeee
//! d14:failure reason4:busy8:retry ini2ee
//! ```

use std::io::Write as _;
use std::net::IpAddr;

use crate::announce::AnnounceHead;
use crate::endpoint::Family;
use crate::response::Peers;
use crate::scrape::{COUNTS_LEN, HASH_LEN, ScrapeCounts};

/// Appends the reply to an announce from `client` (BEP 3, "trackers"). `peers` are of the client's
/// family and in wire form, as over UDP; the transaction id is not used.
///
/// With `compact` they become the string `peers` (BEP 23) or, over IPv6, `peers6` (BEP 7), beside
/// which `peers` is empty. Otherwise `peers` is a list of dictionaries in
/// both families, without peer ids. `external ip` is the client's address (BEP 24); `min interval`
/// is half of the interval.
pub fn write_announce(
    head: &AnnounceHead,
    peers: &[u8],
    client: IpAddr,
    compact: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"d8:complete");
    integer(head.seeders, out);
    out.extend_from_slice(b"11:external ip");
    match client.to_canonical() {
        IpAddr::V4(ip) => string(&ip.octets(), out),
        IpAddr::V6(ip) => string(&ip.octets(), out),
    }
    out.extend_from_slice(b"10:incomplete");
    integer(head.leechers, out);
    out.extend_from_slice(b"8:interval");
    integer(head.interval, out);
    out.extend_from_slice(b"12:min interval");
    integer(head.interval / 2, out);
    out.extend_from_slice(b"5:peers");
    match Family::of(client) {
        family if !compact => list(Peers { family, bytes: peers }, out),
        Family::V4 => string(peers, out),
        Family::V6 => {
            out.extend_from_slice(b"0:6:peers6");
            string(peers, out);
        }
    }
    out.push(b'e');
}

/// Appends the reply to a scrape (BEP 48): `files` has the counts of each hash. `hashes` have to be
/// sorted and different, as the keys of a dictionary; `counts` are theirs in wire form (BEP 15,
/// "Scrape").
pub fn write_scrape(hashes: &[[u8; HASH_LEN]], counts: &[[u8; COUNTS_LEN]], out: &mut Vec<u8>) {
    debug_assert!(hashes.len() == counts.len() && hashes.is_sorted_by(|one, next| one < next));
    out.extend_from_slice(b"d5:filesd");
    for (hash, counts) in hashes.iter().zip(counts) {
        let counts = ScrapeCounts::parse(counts);
        string(hash, out);
        out.extend_from_slice(b"d8:complete");
        integer(counts.seeders, out);
        out.extend_from_slice(b"10:downloaded");
        integer(counts.completed, out);
        out.extend_from_slice(b"10:incomplete");
        integer(counts.leechers, out);
        out.push(b'e');
    }
    out.extend_from_slice(b"ee");
}

/// Appends a failure with its `reason` (BEP 3, "trackers") and, where waiting helps, the minutes
/// after which the client may try again (BEP 31).
pub fn write_failure(reason: &str, retry_in: Option<u32>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"d14:failure reason");
    string(reason.as_bytes(), out);
    if let Some(minutes) = retry_in {
        out.extend_from_slice(b"8:retry in");
        integer(minutes, out);
    }
    out.push(b'e');
}

/// Bytes of the longest IPv6 address as text.
const ADDRESS_LEN: usize = 39;

/// Peers as dictionaries, for clients that do not take a string.
fn list(peers: Peers<'_>, out: &mut Vec<u8>) {
    out.push(b'l');
    for peer in peers.iter() {
        let mut text = [0; ADDRESS_LEN];
        let mut rest = &mut text[..];
        write!(rest, "{}", peer.ip()).expect("an address has at most 39 characters");
        let unused = rest.len();
        out.extend_from_slice(b"d2:ip");
        string(&text[..ADDRESS_LEN - unused], out);
        out.extend_from_slice(b"4:port");
        integer(u32::from(peer.port()), out);
        out.push(b'e');
    }
    out.push(b'e');
}

#[inline]
fn integer(number: u32, out: &mut Vec<u8>) {
    out.push(b'i');
    decimal(u64::from(number), out);
    out.push(b'e');
}

#[inline]
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    decimal(bytes.len() as u64, out);
    out.push(b':');
    out.extend_from_slice(bytes);
}

/// Appends the digits of a number.
#[inline]
pub(crate) fn decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
