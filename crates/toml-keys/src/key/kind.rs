//! The values that a key accepts: how to check one, and how to describe them in an error.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};
use toml::de::DeValue;
use toml::{Spanned, Value};

use super::Key;
use crate::spelling;

/// Characters of a string that an error shows.
const SHOWN: usize = 60;

/// The values that a key accepts.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// An integer.
    Integer {
        /// The least value.
        least: i64,
        /// The greatest value.
        most: i64,
        /// What it counts; empty where that is plain.
        unit: &'static str,
    },
    /// A number with or without a fraction.
    Number {
        /// The least value.
        least: f64,
        /// The greatest value.
        most: f64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A string.
    Text {
        /// What it is, as in "an absolute path, in quotes".
        expects: &'static str,
        /// The error is a remedy; if it is empty, the remedy of the key is shown.
        check: fn(&str) -> Result<(), String>,
    },
    /// A list.
    List {
        /// What its entries are.
        of: &'static Kind,
        /// The least number of entries.
        least: usize,
        /// The greatest number of entries.
        most: usize,
    },
    /// One of these words, or a list.
    WordOrList(&'static [&'static str], &'static Kind),
    /// A table with these keys.
    Table(&'static [Key]),
    /// A list of tables, each with all of these keys.
    Tables {
        /// The keys of each.
        keys: &'static [Key],
        /// The greatest number of tables.
        most: usize,
    },
}

/// A value that is not accepted.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Its place in the text.
    pub(crate) span: Range<usize>,
    /// The value, or its type.
    pub(crate) found: String,
    /// What to write in its place, where that is known.
    pub(crate) remedy: Option<String>,
}

impl Mismatch {
    pub(crate) fn new(value: &Spanned<DeValue<'_>>) -> Self {
        Self { span: value.span(), found: describe(value.get_ref()), remedy: None }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()).filter(|remedy| !remedy.is_empty()), ..self }
    }
}

impl Kind {
    /// The accepted values, as in "found 5, expected ...".
    pub fn expects(&self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Integer { least, most, unit: "" } => format!("an integer from {least} to {most}"),
            Self::Integer { least, most, unit } => {
                format!("an integer from {least} to {most} ({unit})")
            }
            Self::Number { least, most } => format!("a number from {least} to {most}"),
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::Text { expects, .. } => (*expects).to_owned(),
            Self::List { of, least, most } => {
                format!("a list of {least} to {most} entries, each {}", of.expects())
            }
            Self::WordOrList(words, list) => format!("{} or {}", quoted(words), list.expects()),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables { most, .. } => format!("a list of 1 to {most} tables"),
        }
    }

    /// The value, or all that is wrong with it. Tables are read key by key and never accepted
    /// as a whole.
    pub(crate) fn accept(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, Vec<Mismatch>> {
        let accepted = match self {
            Self::List { of, least, most } => return list(of, *least, *most, value),
            Self::WordOrList(_, of) if value.get_ref().is_array() => return of.accept(value),
            Self::Switch => switch(value),
            Self::Integer { least, most, .. } => integer(*least, *most, value),
            Self::Number { least, most } => number(*least, *most, value),
            Self::Word(words) | Self::WordOrList(words, _) => word(words, value),
            Self::Text { check, .. } => text(*check, value),
            Self::Table(_) | Self::Tables { .. } => Err(Mismatch::new(value)),
        };
        accepted.map_err(|mismatch| vec![mismatch])
    }
}

/// A check for [`text`](crate::text): whether the string parses as a `T`.
///
/// # Errors
/// What the parser says.
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

fn switch(value: &Spanned<DeValue<'_>>) -> Result<Value, Mismatch> {
    match value.get_ref() {
        DeValue::Boolean(on) => Ok(Value::Boolean(*on)),
        DeValue::String(text) if matches!(&**text, "true" | "false") => {
            Err(Mismatch::new(value).remedy("write it without quotes"))
        }
        _ => Err(Mismatch::new(value)),
    }
}

fn integer(least: i64, most: i64, value: &Spanned<DeValue<'_>>) -> Result<Value, Mismatch> {
    let mismatch = Mismatch::new(value);
    match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|number| (least..=most).contains(number))
            .map_or(Err(mismatch), |number| Ok(Value::Integer(number))),
        _ => Err(number_in_quotes(value)),
    }
}

fn number(least: f64, most: f64, value: &Spanned<DeValue<'_>>) -> Result<Value, Mismatch> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => return Err(number_in_quotes(value)),
    };
    let in_range = number.filter(|number| (least..=most).contains(number));
    in_range.map_or_else(|| Err(Mismatch::new(value)), |number| Ok(Value::Float(number)))
}

fn number_in_quotes(value: &Spanned<DeValue<'_>>) -> Mismatch {
    match value.get_ref() {
        DeValue::String(text) if text.trim().parse::<f64>().is_ok() => {
            Mismatch::new(value).remedy("write the number without quotes")
        }
        DeValue::String(_) => Mismatch::new(value).remedy("write a number, without a unit"),
        _ => Mismatch::new(value),
    }
}

fn word(words: &'static [&'static str], value: &Spanned<DeValue<'_>>) -> Result<Value, Mismatch> {
    let meant = match value.get_ref() {
        DeValue::String(text) if words.contains(&&**text) => {
            return Ok(Value::String(text.to_string()));
        }
        DeValue::String(text) => spelling::nearest(text, words.iter().copied()),
        DeValue::Boolean(on) => {
            let meant = if *on { "on" } else { "off" };
            words.contains(&meant).then_some(meant)
        }
        _ => None,
    };
    let remedy = meant.map_or_else(String::new, |word| format!("did you mean \"{word}\"?"));
    Err(Mismatch::new(value).remedy(remedy))
}

fn text(
    check: fn(&str) -> Result<(), String>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Value, Mismatch> {
    let mismatch = Mismatch::new(value);
    // A value of another type that would be right in quotes.
    let unquoted = |text: String| match check(&text) {
        Ok(()) => format!("write it in quotes: \"{text}\""),
        Err(remedy) => remedy,
    };
    match value.get_ref() {
        DeValue::String(text) => match check(text) {
            Ok(()) => Ok(Value::String(text.to_string())),
            Err(remedy) => Err(mismatch.remedy(remedy)),
        },
        DeValue::Integer(number) => Err(mismatch.remedy(unquoted(number.as_str().to_owned()))),
        DeValue::Boolean(false) if check("off").is_ok() => Err(mismatch.remedy("write \"off\"")),
        _ => Err(mismatch),
    }
}

fn list(
    of: &Kind,
    least: usize,
    most: usize,
    value: &Spanned<DeValue<'_>>,
) -> Result<Value, Vec<Mismatch>> {
    let mismatch = Mismatch::new(value);
    let DeValue::Array(entries) = value.get_ref() else {
        return Err(vec![match value.get_ref() {
            DeValue::String(text) => mismatch.remedy(format!("write it as a list: [{text:?}]")),
            _ => mismatch,
        }]);
    };
    if !(least..=most).contains(&entries.len()) {
        let found = format!("a list of {}", entries.len());
        return Err(vec![Mismatch { found, ..mismatch }]);
    }
    let mut values = Vec::with_capacity(entries.len());
    let mut mismatches = Vec::new();
    for entry in entries.iter() {
        match of.accept(entry) {
            Ok(value) => values.push(value),
            Err(wrong) => mismatches.extend(wrong),
        }
    }
    if mismatches.is_empty() { Ok(Value::Array(values)) } else { Err(mismatches) }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// A value as an error shows it: long strings are cut, tables and lists are only named. Numbers
/// are escaped, as the parser recovers from control characters in them.
fn describe(value: &DeValue<'_>) -> String {
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
