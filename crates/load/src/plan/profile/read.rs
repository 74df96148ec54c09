//! A profile out of TOML, or what is wrong with it: file, line, key, and what would be right.
//!
//! A file says what it does otherwise than its `base` (a profile that comes with the program;
//! `real` where it names none). The base written out as TOML is at once the list of all keys and
//! of their types, so the same walk reads files and `--set`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::limits::{self, Fits};
use super::{BUILT_IN, Profile, text};

/// Entries of a list at most.
const LONGEST_LIST: usize = 64;

/// One thing that is wrong.
#[derive(Debug, PartialEq)]
struct Wrong {
    /// The key: its path, with numbers for places in lists.
    path: String,
    what: String,
    help: Option<String>,
}

impl Wrong {
    fn new(path: &str, what: String) -> Self {
        Self { path: path.to_owned(), what, help: None }
    }
}

/// Reads a text that has every key.
///
/// # Errors
/// What the TOML parser says.
pub(super) fn complete(text: &str) -> Result<Profile, toml::de::Error> {
    toml::from_str(text)
}

/// Reads the text of the file called `name`.
///
/// # Errors
/// Everything that is wrong, a line each: `FILE:LINE: `key`: what; help`.
pub fn file(name: &str, text: &str) -> Result<Profile, String> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.first() {
        let at = error.span().map_or(text.len(), |span| span.start);
        return Err(format!("{name}:{}: syntax: {}", line(text, at), error.message()));
    }
    let mut spans = BTreeMap::new();
    find_spans(root.get_ref(), "", &mut spans);
    let problems = |wrong: &[Wrong]| {
        let mut wrong: Vec<_> =
            wrong.iter().map(|wrong| (span(&spans, &wrong.path), wrong)).collect();
        wrong.sort_by_key(|(span, _)| span.as_ref().map_or(usize::MAX, |span| span.start));
        let told = wrong.iter().map(|(span, wrong)| match span {
            Some(span) => told(&format!("{name}:{}", line(text, span.start)), wrong),
            None => told(name, wrong),
        });
        told.collect::<Vec<_>>().join("\n")
    };
    let mut written: toml::Table = text.parse().expect("it was parsed just now");
    let base = match base(written.remove("base")) {
        Ok(base) => base,
        Err(wrong) => return Err(problems(&[wrong])),
    };
    let mut value = as_value(&base);
    let mut wrong = Vec::new();
    merge(&mut value, Value::Table(written), "", &mut wrong);
    finish(value, wrong).map_err(|wrong| problems(&wrong))
}

/// The profile with each `KEY=VALUE` of `changes` carried out.
///
/// # Errors
/// Everything that is wrong, a line each.
pub fn change(profile: &Profile, changes: &[String]) -> Result<Profile, String> {
    let mut value = as_value(profile);
    let mut wrong = Vec::new();
    for change in changes {
        let Some((path, written)) = change.split_once('=') else {
            return Err(format!("--set {change}: expected KEY=VALUE, like mix.scrape=5"));
        };
        let (path, written) = (path.trim(), written.trim());
        match slot(&mut value, path) {
            Ok(slot) => merge(slot, as_written(written), path, &mut wrong),
            Err(found) => wrong.push(found),
        }
    }
    finish(value, wrong).map_err(|wrong| {
        let told = wrong.iter().map(|wrong| told("--set", wrong));
        told.collect::<Vec<_>>().join("\n")
    })
}

/// The profile that `value` is, if nothing was wrong so far and everything fits together.
fn finish(value: Value, mut wrong: Vec<Wrong>) -> Result<Profile, Vec<Wrong>> {
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let profile: Profile =
        value.try_into().map_err(|error| vec![Wrong::new("", format!("{error}"))])?;
    wrong.extend(limits::together(&profile).into_iter().map(|(path, what)| Wrong::new(path, what)));
    if wrong.is_empty() { Ok(profile) } else { Err(wrong) }
}

fn as_value(profile: &Profile) -> Value {
    Value::try_from(profile).expect("a profile is plain data")
}

fn base(written: Option<Value>) -> Result<Profile, Wrong> {
    let name = match written {
        None => "real".to_owned(),
        Some(Value::String(name)) => name,
        Some(other) => {
            let what = format!("found {}, expected the name of a profile", shown(&other));
            return Err(Wrong::new("base", what));
        }
    };
    Profile::named(&name).ok_or_else(|| Wrong {
        path: "base".into(),
        what: format!("there is no profile `{name}`"),
        help: Some(suggestion(&name, BUILT_IN.iter().map(|(name, ..)| *name), "the profiles are")),
    })
}

/// Writes `from` over `into`, which has every key there is.
fn merge(into: &mut Value, from: Value, path: &str, wrong: &mut Vec<Wrong>) {
    match (into, from) {
        (Value::Table(into), Value::Table(from)) => {
            for (key, value) in from {
                let path = join(path, &key);
                if let Some(slot) = into.get_mut(&key) {
                    merge(slot, value, &path, wrong);
                } else {
                    wrong.push(unknown(&path, &key, into));
                }
            }
        }
        (Value::Array(into), Value::Array(from)) => list(into, from, path, wrong),
        (Value::Table(_), other) => {
            let what = format!("found {}, expected a table", shown(&other));
            let help = Some(format!("write [{path}] on a line of its own and its keys below"));
            wrong.push(Wrong { path: path.to_owned(), what, help });
        }
        (Value::Array(_), other) => {
            let what = format!("found {}, expected a list of tables", shown(&other));
            let help = Some(format!("write [[{path}]] on a line of its own for each entry"));
            wrong.push(Wrong { path: path.to_owned(), what, help });
        }
        (into, value) => match limits::of(path) {
            Some(fits) => match leaf(value, fits) {
                Ok(value) => *into = value,
                Err(what) => wrong.push(Wrong::new(path, what)),
            },
            None => wrong.push(Wrong::new(path, "it cannot be set".into())),
        },
    }
}

/// A list replaces the whole list; each of its entries has every key.
fn list(into: &mut Vec<Value>, from: Vec<Value>, path: &str, wrong: &mut Vec<Wrong>) {
    if from.is_empty() || from.len() > LONGEST_LIST {
        let what = format!("found {} entries, expected 1 to {LONGEST_LIST}", from.len());
        wrong.push(Wrong::new(path, what));
        return;
    }
    let Some(Value::Table(like)) = into.first().cloned() else { return };
    into.clear();
    for (nth, entry) in from.into_iter().enumerate() {
        let path = format!("{path}.{nth}");
        if let Value::Table(entry) = &entry {
            let missing = like.keys().filter(|key| !entry.contains_key(*key));
            wrong.extend(missing.map(|key| {
                Wrong::new(&path, format!("`{key}` is missing: entries of a list have every key"))
            }));
        }
        let mut made = Value::Table(like.clone());
        merge(&mut made, entry, &path, wrong);
        into.push(made);
    }
}

/// `value` as the key has it, or what was found and expected.
fn leaf(value: Value, fits: Fits) -> Result<Value, String> {
    let expected = match fits {
        Fits::Number(low, high) => {
            let number = match value {
                Value::Integer(number) => Some(number as f64),
                Value::Float(number) => Some(number),
                _ => None,
            };
            match number {
                Some(number) if (low..=high).contains(&number) => return Ok(Value::Float(number)),
                _ => format!("a number from {low} to {high}"),
            }
        }
        Fits::Whole(low, high) => match value {
            Value::Integer(number) if (low..=high).contains(&number) => return Ok(value),
            _ => format!("a whole number from {low} to {high}"),
        },
        Fits::Text(least, most) => match value.as_str().map(text::to_bytes) {
            Some(Some(bytes)) if (least..=most).contains(&bytes.len()) => return Ok(value),
            Some(None) => "characters up to U+00FF, each of which stands for one byte".into(),
            _ if least == most => format!("text of {most} characters"),
            _ => format!("text of {least} to {most} characters"),
        },
        Fits::Word(words) => match value.as_str() {
            Some(word) if words.contains(&word) => return Ok(value),
            Some(word) => {
                let help = suggestion(word, words.iter().copied(), "the words are");
                return Err(format!("found \"{word}\": {help}"));
            }
            None => format!("one of \"{}\"", words.join("\", \"")),
        },
    };
    Err(format!("found {}, expected {expected}", shown(&value)))
}

/// The place of a path in a profile.
fn slot<'v>(root: &'v mut Value, path: &str) -> Result<&'v mut Value, Wrong> {
    let mut here = root;
    let mut walked = String::new();
    for part in path.split('.') {
        walked = join(&walked, part);
        here = match here {
            Value::Table(table) if !table.contains_key(part) => {
                return Err(unknown(path, part, table));
            }
            Value::Table(table) => &mut table[part],
            Value::Array(list) => {
                let last = list.len() - 1;
                let nth = part.parse().ok().filter(|nth: &usize| *nth <= last);
                let nth = nth.ok_or_else(|| {
                    Wrong::new(
                        path,
                        format!("found {part}, expected an entry's number, 0 to {last}"),
                    )
                })?;
                &mut list[nth]
            }
            _ => return Err(Wrong::new(path, "there is nothing below this key".into())),
        };
    }
    Ok(here)
}

/// A value as TOML has it; a bare word is text.
fn as_written(text: &str) -> Value {
    let parsed: Result<toml::Table, _> = format!("value = {text}").parse();
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn unknown(path: &str, key: &str, known: &toml::Table) -> Wrong {
    let known: Vec<_> = known.keys().map(String::as_str).collect();
    let help = Some(suggestion(key, known.iter().copied(), "the keys here are"));
    Wrong { path: path.to_owned(), what: "unknown key".into(), help }
}

/// The word that may be meant by `text`, else all of them.
fn suggestion<'k>(text: &str, words: impl Iterator<Item = &'k str> + Clone, all: &str) -> String {
    // The distance takes time by both lengths.
    let plain: String = text.to_lowercase().replace('-', "_").chars().take(64).collect();
    let near = words
        .clone()
        .map(|word| (strsim::damerau_levenshtein(&plain, &word.replace('-', "_")), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1))
        .min();
    match near {
        Some((_, word)) => format!("did you mean `{word}`?"),
        None => format!("{all} {}", words.collect::<Vec<_>>().join(", ")),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > 40 => {
            format!("text of {} characters", text.chars().count())
        }
        Value::Table(_) => "a table".into(),
        Value::Array(_) => "a list".into(),
        value => value.to_string(),
    }
}

fn told(place: &str, wrong: &Wrong) -> String {
    let mut line = format!("{place}: ");
    if !wrong.path.is_empty() {
        let _ = write!(line, "`{}`: ", wrong.path);
    }
    line.push_str(&wrong.what);
    if let Some(help) = &wrong.help {
        let _ = write!(line, "; {help}");
    }
    line
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The number of the line in which byte number `at` is, from 1.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Where each key stands.
fn find_spans(table: &DeTable<'_>, path: &str, spans: &mut BTreeMap<String, Range<usize>>) {
    for (key, value) in table {
        let path = join(path, key.get_ref());
        spans.insert(path.clone(), key.span());
        match value.get_ref() {
            DeValue::Table(table) => find_spans(table, &path, spans),
            DeValue::Array(entries) => {
                for (nth, entry) in entries.iter().enumerate() {
                    let path = format!("{path}.{nth}");
                    spans.insert(path.clone(), entry.span());
                    if let DeValue::Table(table) = entry.get_ref() {
                        find_spans(table, &path, spans);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Where a key stands, or else what it is in.
fn span(spans: &BTreeMap<String, Range<usize>>, path: &str) -> Option<Range<usize>> {
    let mut path = path;
    loop {
        if let Some(span) = spans.get(path) {
            return Some(span.clone());
        }
        path = path.rsplit_once('.')?.0;
    }
}

#[cfg(test)]
mod tests;
