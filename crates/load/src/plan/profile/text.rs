//! Bytes as text in TOML and JSON: a character stands for the byte of its number, so that names
//! and paths are readable and any byte can be written (`"\u0002"`).

use super::MAX_OPTIONS;

/// Checks the name of a profile.
pub(super) fn is_name(text: &str) -> Result<(), String> {
    has_length(text, 1, 40)
}

/// Checks the prefix of peer ids.
pub(super) fn is_prefix(text: &str) -> Result<(), String> {
    has_length(text, 8, 8)
}

/// Checks the options of announces.
pub(super) fn is_options(text: &str) -> Result<(), String> {
    has_length(text, 0, MAX_OPTIONS)
}

fn has_length(text: &str, least: usize, most: usize) -> Result<(), String> {
    match to_bytes(text) {
        Some(bytes) if (least..=most).contains(&bytes.len()) => Ok(()),
        Some(bytes) => Err(format!("it has {} characters", bytes.len())),
        None => Err("write characters up to U+00FF, each of which stands for a byte".to_owned()),
    }
}

/// The bytes that `text` stands for; `None` when a character is beyond U+00FF.
fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

/// `#[serde(with)]` for any number of bytes.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.iter().copied().map(char::from).collect::<String>())
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        super::to_bytes(&text).ok_or_else(|| D::Error::custom("a character beyond U+00FF"))
    }
}

/// `#[serde(with)]` for eight bytes.
pub(super) mod prefix {
    use serde::{Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        prefix: &[u8; 8],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        super::bytes::serialize(prefix, to)
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<[u8; 8], D::Error> {
        let bytes = super::bytes::deserialize(from)?;
        bytes.try_into().map_err(|_| D::Error::custom("not eight characters"))
    }
}
