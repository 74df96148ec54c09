//! Reads JSON into places, without a tree of values.

use std::fmt;

use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::Action;
use crate::id::HEX_VALUES;

/// The next key of an object.
pub(super) fn next_key<'a, A: MapAccess<'a>, K: Word>(
    object: &mut A,
) -> Result<Option<K>, A::Error> {
    let mut key = None;
    let found = object.next_key_seed(Into(&mut key))?;
    Ok(found.and(key))
}

/// Reads the value of the last key into a place.
pub(super) fn read<'a, A: MapAccess<'a>, R: Read<'a>>(
    object: &mut A,
    place: &mut R,
) -> Result<(), A::Error> {
    object.next_value_seed(Into(place))
}

pub(super) fn skip_list<'a, A: SeqAccess<'a>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// A value of a text, or of a number.
pub(super) trait Word: Sized {
    /// `None` if the text has another meaning.
    fn of(text: &str) -> Option<Self>;

    /// A number has no meaning for most.
    fn of_number(_: f64) -> Option<Self> {
        None
    }
}

impl Word for Action {
    fn of(text: &str) -> Option<Self> {
        [Self::Announce, Self::Scrape].into_iter().find(|action| action.name() == text)
    }
}

/// An id as a string of 20 characters up to U+00FF.
impl Word for [u8; 20] {
    fn of(text: &str) -> Option<Self> {
        let (mut id, mut rest) = ([0; 20], text.as_bytes());
        for byte in &mut id {
            *byte = character(&mut rest)?;
        }
        rest.is_empty().then_some(id)
    }
}

/// The id in a JSON string, as [`Word::of`] its text, which is not copied.
pub(super) fn id_of(string: &RawValue) -> Option<[u8; 20]> {
    let string = string.get().as_bytes();
    let mut rest = string.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let id = take(&mut rest)?;
    rest.is_empty().then_some(id)
}

/// Takes as many characters up to U+00FF from the inside of a JSON string, which need not be valid.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for byte in &mut bytes {
        *byte = match **rest {
            [b'\\', b'u', b'0', b'0', high, low, ..] => {
                *rest = &rest[6..];
                HEX_VALUES[usize::from(high)] << 4 | HEX_VALUES[usize::from(low)]
            }
            [b'\\', escaped, ..] => {
                *rest = &rest[2..];
                match escaped {
                    b'u' => return None,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'f' => 12,
                    b'r' => b'\r',
                    quoted => quoted,
                }
            }
            _ => character(rest)?,
        };
    }
    Some(bytes)
}

/// Takes a character up to U+00FF from UTF-8: one byte or two, without a branch, which random bytes
/// would mislead.
fn character(rest: &mut &[u8]) -> Option<u8> {
    let first = *rest.first()?;
    let second = rest.get(1).copied().unwrap_or_default();
    let is_wide = first >= 0x80;
    if first > 0xC3 {
        return None;
    }
    *rest = rest.get(1 + usize::from(is_wide)..)?;
    Some(if is_wide { first << 6 | second & 0x3F } else { first })
}

/// A place for a value of any type. What the place has no use for is skipped.
pub(super) trait Read<'a> {
    /// Forgets the value of an earlier field of the same name.
    fn clear(&mut self) {}

    fn text(&mut self, _: &str) {}

    fn number(&mut self, _: f64) {}

    fn list<A: SeqAccess<'a>>(&mut self, list: A) -> Result<(), A::Error> {
        skip_list(list)
    }

    fn object<A: MapAccess<'a>>(&mut self, mut object: A) -> Result<(), A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

impl<T: Word> Read<'_> for Option<T> {
    fn clear(&mut self) {
        *self = None;
    }

    fn text(&mut self, text: &str) {
        *self = T::of(text);
    }
}

/// Reads any value into a place.
pub(super) struct Into<'p, R>(pub(super) &'p mut R);

impl<'a, R: Read<'a>> DeserializeSeed<'a> for Into<'_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        self.0.clear();
        json.deserialize_any(self)
    }
}

impl<'a, R: Read<'a>> Visitor<'a> for Into<'_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.text(text);
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.0.number(number);
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, list: A) -> Result<(), A::Error> {
        self.0.list(list)
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<(), A::Error> {
        self.0.object(object)
    }
}

/// Whether a value is a string, with surrogates in pairs only. Most strings are not decoded for
/// that.
pub(super) fn is_string(value: &RawValue) -> bool {
    let text = value.get();
    let is_decodable = || serde_json::from_str::<String>(text).is_ok();
    text.starts_with('"') && (!text.contains("\\u") || is_decodable())
}
