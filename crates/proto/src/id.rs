//! Identifiers: newtypes, so that no identifier can be passed in place of another. An info hash
//! also has a text form, which people write in lists, URLs and magnet links.

use std::fmt;
use std::str::FromStr;

/// SHA-1 of a torrent's info dictionary (BEP 3, "trackers"), or the truncated SHA-256 of a v2
/// torrent (BEP 52, "infohash"): 20 bytes chosen by clients, which need not be uniform.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct InfoHash(pub [u8; 20]);

/// The name that a client gives itself (BEP 3, "trackers"; its prefix names the software, BEP 20).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PeerId(pub [u8; 20]);

/// The proof that a client receives datagrams at its address (BEP 15, "UDP connections /
/// spoofing").
///
/// Only the tracker that issued the number can interpret it. Never 0 on the wire: rtorrent reads 0
/// as "no id".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConnectionId(pub u64);

/// Chosen by the client and echoed by the tracker, it matches a response to its request (BEP 15,
/// "Connect", "Announce" and "Scrape").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TransactionId(pub u32);

/// Bytes of an info hash in hexadecimal.
const HEX_LEN: usize = 40;
/// Bytes of an info hash in base32 (RFC 4648, section 6): 160 bits fill them without padding.
const BASE32_LEN: usize = 32;

impl InfoHash {
    /// Reads 40 hexadecimal digits, or 32 base32 characters (RFC 4648, section 6) as in older
    /// magnet links, of either case.
    ///
    /// # Errors
    /// [`InvalidInfoHash`]: the length, or the first wrong character.
    pub fn from_text(text: &[u8]) -> Result<Self, InvalidInfoHash> {
        match text.len() {
            HEX_LEN => decode::<4>(text, &HEX_VALUES, "hexadecimal"),
            BASE32_LEN => decode::<5>(text, &BASE32_VALUES, "base32"),
            length => Err(InvalidInfoHash::Length(length)),
        }
    }
}

/// Why a text is not an [`InfoHash`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidInfoHash {
    /// It has this many bytes, and neither of the two lengths.
    Length(usize),
    /// A character that its encoding does not have.
    Character {
        /// Its position, counted from 0.
        at: usize,
        /// The byte there.
        byte: u8,
        /// The encoding that a text of this length has: `hexadecimal` or `base32`.
        encoding: &'static str,
    },
}

impl fmt::Display for InvalidInfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "an info hash has 40 hexadecimal digits or 32 base32 characters, not {length}"
            ),
            Self::Character { at, byte, encoding } => {
                write!(
                    f,
                    "character {} is {:?}, which is not {encoding}",
                    at + 1,
                    char::from(*byte)
                )
            }
        }
    }
}

impl std::error::Error for InvalidInfoHash {}

impl FromStr for InfoHash {
    type Err = InvalidInfoHash;

    /// [`InfoHash::from_text`] of a string.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_text(text.as_bytes())
    }
}

/// Lowercase hexadecimal.
impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; HEX_LEN];
        for (digits, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *digits = [byte >> 4, byte & 15].map(|digit| HEX_DIGITS[usize::from(digit)]);
        }
        f.pad(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
const BASE32_CHARACTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// In a table of values: a byte that the encoding does not have.
const INVALID: u8 = 0xFF;
/// The value of each byte as a hexadecimal digit. Lists have millions of hashes, so a table decodes
/// them.
pub(crate) const HEX_VALUES: [u8; 256] = values(HEX_DIGITS);
/// The value of each byte as a base32 character.
const BASE32_VALUES: [u8; 256] = values(BASE32_CHARACTERS);

/// The inverse of an alphabet, for either case.
const fn values<const N: usize>(alphabet: &[u8; N]) -> [u8; 256] {
    let mut values = [INVALID; 256];
    let mut value = 0;
    while value < N {
        values[alphabet[value].to_ascii_lowercase() as usize] = value as u8;
        values[alphabet[value].to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    values
}

/// Appends the form that each byte of an id has in a text. The last byte of a form in the table is
/// its length: random bytes would mislead a branch for each.
pub(crate) fn expand<const N: usize>(id: &[u8; 20], forms: &[[u8; N]; 256], out: &mut Vec<u8>) {
    let mut end = out.len();
    out.resize(end + id.len() * N, 0);
    for byte in id {
        let form = &forms[usize::from(*byte)];
        out[end..end + N].copy_from_slice(form);
        end += usize::from(form[N - 1]);
    }
    out.truncate(end);
}

/// Decodes characters of `BITS` bits each, which together have exactly the bits of an info hash, by
/// the table of their `values`.
fn decode<const BITS: usize>(
    text: &[u8],
    values: &[u8; 256],
    encoding: &'static str,
) -> Result<InfoHash, InvalidInfoHash> {
    let mut hash = [0; 20];
    let (mut bits, mut pending, mut bytes) = (0u32, 0, hash.iter_mut());
    for (at, &byte) in text.iter().enumerate() {
        let value = values[usize::from(byte)];
        if value == INVALID {
            return Err(InvalidInfoHash::Character { at, byte, encoding });
        }
        bits = bits << BITS | u32::from(value);
        pending += BITS;
        if pending >= 8
            && let Some(place) = bytes.next()
        {
            pending -= 8;
            *place = (bits >> pending) as u8;
        }
    }
    Ok(InfoHash(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_text_forms_of_an_info_hash_are_read() {
        let hex = "0123456789abcdef0123456789ABCDEF01234567";
        let hash: InfoHash = hex.parse().unwrap();
        assert_eq!(hash.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(hash.to_string(), hex.to_lowercase());
        let (base32, hash) =
            ("AAAQEAYEAUDAOCAJBIFQYDIOB4IBCEQT", InfoHash(std::array::from_fn(|byte| byte as u8)));
        assert_eq!(base32.parse(), Ok(hash));
        assert_eq!(base32.to_lowercase().parse(), Ok(hash));
    }

    #[test]
    fn info_hash_errors_name_the_length_or_the_character() {
        assert_eq!("00".parse::<InfoHash>(), Err(InvalidInfoHash::Length(2)));
        let mut text = "0".repeat(40);
        text.replace_range(7..8, "g");
        let error = InvalidInfoHash::Character { at: 7, byte: b'g', encoding: "hexadecimal" };
        assert_eq!(text.parse::<InfoHash>(), Err(error));
        let error = InvalidInfoHash::Character { at: 31, byte: b'1', encoding: "base32" };
        assert_eq!(format!("{}1", "A".repeat(31)).parse::<InfoHash>(), Err(error));
        let multibyte = "é".repeat(20);
        let Err(error) = multibyte.parse::<InfoHash>() else { panic!("{multibyte} is refused") };
        assert!(matches!(error, InvalidInfoHash::Character { at: 0, byte: 0xC3, .. }));
    }
}
