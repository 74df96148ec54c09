//! Bytes as text in TOML and JSON: a character stands for the byte of its number, so that names
//! and paths are readable and any byte can be written (`"\u0002"`).

/// The bytes that `text` stands for; `None` when a character is beyond U+00FF.
pub(super) fn to_bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect()
}

fn to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Any bytes.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::to_text(bytes))
    }

    pub(in super::super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        super::to_bytes(&text).ok_or_else(|| D::Error::custom("a character beyond U+00FF"))
    }
}

/// Exactly eight bytes.
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
