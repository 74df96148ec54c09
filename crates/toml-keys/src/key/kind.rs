//! The values that a key accepts: how to check one, and how to describe them in an error.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, de};
use toml::de::DeValue;
use toml::{Spanned, Value};

use super::{Key, quantity};
use crate::spelling;

/// Characters of a string that an error shows.
const SHOWN: usize = 60;

/// The values that a key accepts.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// An integer in a range, and what it counts; empty where that is plain.
    Integer(RangeInclusive<i64>, &'static str),
    /// A number with or without a fraction.
    Number(RangeInclusive<f64>),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A string: what it is, as in "an absolute path, in quotes", and a check. The error of the
    /// check is a remedy; if it is empty, the remedy of the key is shown.
    Text(&'static str, fn(&str) -> Result<(), String>),
    /// A list: what its entries are, and how many there may be.
    List(&'static Kind, RangeInclusive<usize>),
    /// One of these words, or a list.
    WordOrList(&'static [&'static str], &'static Kind),
    /// A table with these keys.
    Table(&'static [Key]),
    /// A list of 1 to this many tables, each with all of these keys.
    Tables(&'static [Key], usize),
}

/// A value that is not accepted.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Its place in the text.
    pub(crate) span: Range<usize>,
    /// The value, or its type.
    pub(crate) found: String,
    /// A correct value, where that is known.
    pub(crate) remedy: Option<String>,
}

impl Kind {
    /// The accepted values, as in "found 5, expected ...".
    pub fn expects(&self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Integer(range, unit) => {
                let with_units = quantity::example(unit);
                let with_units = with_units.map_or_else(String::new, |it| format!(", or {it}"));
                let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
                format!("an integer from {} to {}{unit}{with_units}", range.start(), range.end())
            }
            Self::Number(range) => format!("a number from {} to {}", range.start(), range.end()),
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::Text(expects, _) => (*expects).to_owned(),
            Self::List(of, range) => {
                let (least, most) = (range.start(), range.end());
                format!("a list of {least} to {most} entries, each {}", of.expects())
            }
            Self::WordOrList(words, list) => format!("{} or {}", quoted(words), list.expects()),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_, most) => format!("a list of 1 to {most} tables"),
        }
    }

    /// A value that is written without quotes, in TOML. A list is also written with commas between
    /// its entries alone.
    pub(crate) fn toml_of_plain<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let quoted = || Cow::Owned(Value::from(text).to_string());
        match self {
            Self::Text(..) | Self::Word(_) => quoted(),
            Self::WordOrList(..) if text.starts_with(char::is_alphabetic) => quoted(),
            Self::WordOrList(_, list) => list.toml_of_plain(text),
            // An IPv6 address begins like a list of TOML.
            Self::List(of, _) if DeValue::parse(text).is_err() || !text.contains('[') => {
                let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
                let entries: Vec<_> = entries.map(|entry| of.toml_of_plain(entry)).collect();
                Cow::Owned(format!("[{}]", entries.join(", ")))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// The value, or all that is wrong with it. Tables are read key by key and never accepted
    /// as a whole.
    pub(crate) fn accept(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, Vec<Mismatch>> {
        let mismatch = |found| {
            vec![Mismatch { span: value.span(), found, remedy: self.remedy(value.get_ref()) }]
        };
        match (self, value.get_ref()) {
            (Self::WordOrList(_, list), DeValue::Array(_)) => list.accept(value),
            (Self::List(of, range), DeValue::Array(entries)) => {
                if !range.contains(&entries.len()) {
                    return Err(mismatch(format!("a list of {}", entries.len())));
                }
                let (mut values, mut mismatches) = (Vec::new(), Vec::new());
                for entry in entries.iter() {
                    match of.accept(entry) {
                        Ok(value) => values.push(value),
                        Err(wrong) => mismatches.extend(wrong),
                    }
                }
                if mismatches.is_empty() { Ok(Value::Array(values)) } else { Err(mismatches) }
            }
            (_, single) => self
                .plain(value)
                .filter(|value| self.includes(value))
                .ok_or_else(|| mismatch(describe(single))),
        }
    }

    /// A value that it may accept; a time or a size with units becomes a number in the key's unit.
    fn plain(&self, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        match (self, value.get_ref()) {
            (Self::Integer(_, unit), DeValue::String(text)) => {
                quantity::parse(text, unit).map(Value::Integer)
            }
            _ => Value::deserialize(value.clone().into_deserializer()).ok(),
        }
    }

    /// Whether it accepts a value that is neither a list nor a table.
    fn includes(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Switch, Value::Boolean(_)) => true,
            (Self::Integer(range, _), Value::Integer(number)) => range.contains(number),
            (Self::Number(range), Value::Integer(number)) => range.contains(&(*number as f64)),
            (Self::Number(range), Value::Float(number)) => range.contains(number),
            (Self::Word(words) | Self::WordOrList(words, _), Value::String(text)) => {
                words.contains(&text.as_str())
            }
            (Self::Text(_, check), Value::String(text)) => check(text).is_ok(),
            _ => false,
        }
    }

    /// A correct value in place of one that is not accepted, if its meaning is clear.
    fn remedy(&self, value: &DeValue<'_>) -> Option<String> {
        let remedy = match (self, value) {
            (Self::Switch, DeValue::String(text)) if matches!(&**text, "true" | "false") => {
                "write it without quotes".to_owned()
            }
            (Self::Integer(..) | Self::Number(_), DeValue::String(text)) => {
                let unit = if let Self::Integer(_, unit) = self { unit } else { "" };
                match (text.trim().parse::<f64>(), quantity::example(unit)) {
                    (Ok(_), _) => "write the number without quotes".to_owned(),
                    (Err(_), Some(_)) if quantity::parse(text, unit).is_some() => return None,
                    (Err(_), Some(example)) => format!("write {unit}, or {example}"),
                    (Err(_), None) => "write a number, without a unit".to_owned(),
                }
            }
            (Self::Word(words) | Self::WordOrList(words, _), value) => {
                let word = match value {
                    DeValue::String(text) => word_meant(text, words)?,
                    DeValue::Boolean(true) if words.contains(&"on") => "on",
                    DeValue::Boolean(false) if words.contains(&"off") => "off",
                    _ => return None,
                };
                format!("did you mean \"{word}\"?")
            }
            (Self::Text(_, check), DeValue::String(text)) => check(text).err()?,
            (Self::Text(_, check), DeValue::Integer(number)) => match check(number.as_str()) {
                Ok(()) => format!("write it in quotes: \"{}\"", number.as_str()),
                Err(remedy) => remedy,
            },
            (Self::Text(_, check), DeValue::Boolean(false)) if check("off").is_ok() => {
                "write \"off\"".to_owned()
            }
            (Self::List(..), DeValue::String(text)) => {
                format!("write it as a list: [{text:?}]")
            }
            _ => return None,
        };
        Some(remedy).filter(|remedy| !remedy.is_empty())
    }
}

/// A check for [`text`](crate::text): whether the string parses as a `T`.
///
/// # Errors
/// The parser's error, if there is one.
pub fn parses<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// For `#[serde(deserialize_with = "texts")]`: a list of strings, each parsed as a `T`.
///
/// # Errors
/// When one does not parse.
pub fn texts<'d, T: FromStr<Err: Display>, D: Deserializer<'d>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}

/// The word that is misspelled, or that another program calls so.
fn word_meant<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    const ELSEWHERE: [(&str, &str); 5] = [
        ("warning", "warn"),
        ("information", "info"),
        ("critical", "error"),
        ("verbose", "debug"),
        ("none", "off"),
    ];
    let plain = spelling::plain(text);
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == plain);
    let known = elsewhere.and_then(|(_, word)| words.iter().find(|known| *known == word));
    known.copied().or_else(|| spelling::nearest(text, words.iter().copied()))
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// A value as an error shows it: long strings are cut, tables and lists are only named. Numbers
/// are escaped, as the parser recovers from control characters in them.
pub(crate) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > SHOWN => {
            format!("{:?}...", text.chars().take(SHOWN).collect::<String>())
        }
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string().escape_debug().to_string(),
        DeValue::Float(number) => number.to_string().escape_debug().to_string(),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
