//! Identifiers: newtypes, so that one can never be passed for another.

use std::fmt;
use std::str::FromStr;

/// SHA-1 of a torrent's info dictionary (BEP 3, "trackers"), or the truncated SHA-256 of a v2
/// torrent (BEP 52, "infohash"): 20 bytes chosen by strangers, never trusted to be uniform.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InfoHash(pub [u8; 20]);

/// What a client calls itself (BEP 3, "trackers"; its prefix names the software, BEP 20).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub [u8; 20]);

/// The proof that a client receives what is sent to its address (BEP 15, "UDP connections /
/// spoofing").
///
/// The number means something only to the tracker that made it. Never 0 on the wire: rtorrent
/// takes 0 for "no id".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Chosen by the client, echoed by the tracker, joins a response to its request (BEP 15,
/// "Connect", "Announce" and "Scrape").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TransactionId(pub u32);

/// Why a text is not an [`InfoHash`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidInfoHash {
    /// It has this many characters instead of 40.
    Length(usize),
    /// The character at this position (counted from 0) is no hexadecimal digit.
    Digit(usize),
}

impl fmt::Display for InvalidInfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(n) => write!(f, "an info hash is 40 hexadecimal digits, this has {n}"),
            Self::Digit(at) => write!(f, "character {} is no hexadecimal digit", at + 1),
        }
    }
}

impl std::error::Error for InvalidInfoHash {}

impl FromStr for InfoHash {
    type Err = InvalidInfoHash;

    /// Reads 40 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let characters = text.chars().count();
        if characters != 40 {
            return Err(InvalidInfoHash::Length(characters));
        }
        let mut bytes = [0u8; 20];
        for (at, character) in text.chars().enumerate() {
            let digit = character.to_digit(16).ok_or(InvalidInfoHash::Digit(at))?;
            bytes[at / 2] = bytes[at / 2] << 4 | digit as u8;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for InfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_hash_text_round_trips() {
        let text = "0123456789abcdef0123456789ABCDEF01234567";
        let hash: InfoHash = text.parse().unwrap();
        assert_eq!(hash.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(hash.to_string(), text.to_lowercase());
    }

    #[test]
    fn info_hash_errors_say_what_is_wrong() {
        assert_eq!("00".parse::<InfoHash>(), Err(InvalidInfoHash::Length(2)));
        let mut text = "0".repeat(40);
        text.replace_range(7..8, "g");
        assert_eq!(text.parse::<InfoHash>(), Err(InvalidInfoHash::Digit(7)));
        let multibyte = "é".repeat(40);
        assert_eq!(multibyte.parse::<InfoHash>(), Err(InvalidInfoHash::Digit(0)));
    }
}
