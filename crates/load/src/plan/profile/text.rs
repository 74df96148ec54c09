//! Bytes as text in TOML and JSON: a character stands for the byte of its number, so that names
//! and paths are readable and any byte can be written (`"\u0002"`). For `#[serde(with)]`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Checks the length of a text that stands for bytes.
pub(super) fn has_length<const LEAST: usize, const MOST: usize>(text: &str) -> Result<(), String> {
    match to_bytes(text) {
        Some(bytes) if (LEAST..=MOST).contains(&bytes.len()) => Ok(()),
        Some(bytes) => Err(format!("it has {} characters", bytes.len())),
        None => Err("write characters up to U+00FF, each of which stands for a byte".to_owned()),
    }
}

/// The bytes that `text` stands for; `None` when a character is beyond U+00FF.
fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

pub(super) fn serialize<S: Serializer>(bytes: impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&bytes.as_ref().iter().copied().map(char::from).collect::<String>())
}

pub(super) fn deserialize<'d, T: TryFrom<Vec<u8>>, D: Deserializer<'d>>(
    from: D,
) -> Result<T, D::Error> {
    let bytes = to_bytes(&String::deserialize(from)?);
    let bytes = bytes.ok_or_else(|| D::Error::custom("a character beyond U+00FF"))?;
    bytes.try_into().map_err(|_| D::Error::custom("a wrong number of characters"))
}
