//! Which TOML values are good for which type, and how to say what is expected.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use log::LevelFilter;
use onrush_proto::InfoHash;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::keys::Key;
use super::{AdminAt, Field, Item, ListenAt, Origin};
use onrush_tracker::access::blocks::AddressBlock;

/// A type that is written as one of a few words.
pub trait Words: Copy + PartialEq + 'static {
    /// Each word and what it stands for.
    const WORDS: &'static [(&'static str, Self)];

    /// What a word stands for.
    fn of_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
    }
}

/// `workers.placement`: how the work is laid out over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// By the number of workers.
    #[default]
    Auto,
    /// Socket workers and swarm workers.
    Split,
    /// Every worker has sockets and a shard.
    Colocated,
}

impl Words for Shape {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("split", Self::Split), ("colocated", Self::Colocated)];
}

/// `access.mode`: what `access.info_hashes` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessMode {
    /// Nothing.
    #[default]
    Open,
    /// Only these are served.
    Allow,
    /// All but these are served.
    Deny,
}

impl Words for AccessMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("open", Self::Open), ("allow", Self::Allow), ("deny", Self::Deny)];
}

/// `log.level`: the least level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub LevelFilter);

impl Default for Level {
    fn default() -> Self {
        Self(LevelFilter::Off)
    }
}

impl Words for Level {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self(LevelFilter::Off)),
        ("error", Self(LevelFilter::Error)),
        ("warn", Self(LevelFilter::Warn)),
        ("info", Self(LevelFilter::Info)),
        ("debug", Self(LevelFilter::Debug)),
        ("trace", Self(LevelFilter::Trace)),
    ];
}

/// `workers.pin`: whether each worker stays on a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// When there are enough of them.
    #[default]
    Auto,
    /// On the first usable ones.
    On,
    /// The scheduler decides.
    Off,
    /// On these, in the order of the workers.
    List(Vec<usize>),
}

/// What is wrong with a value: where, what was found, and what may help.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) span: Range<usize>,
    pub(crate) found: String,
    pub(crate) help: Option<String>,
}

impl Wrong {
    fn new(value: &Spanned<DeValue<'_>>) -> Self {
        Self { span: value.span(), found: describe(value.get_ref()), help: None }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

/// A [`Field`] of any type, as the table of keys refers to it.
pub(crate) trait Slot {
    /// What is good for it, as in "found 5, expected ...".
    fn expects(&self, key: &Key) -> String;
    /// Takes a value of the file, or says what is wrong with it.
    fn read(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<(), Vec<Wrong>>;
    /// Says that nobody gave this value.
    fn forget_origin(&mut self);
}

impl<T: Value> Slot for Field<T> {
    fn expects(&self, key: &Key) -> String {
        T::expects(key)
    }

    fn read(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> Result<(), Vec<Wrong>> {
        match T::read(key, value) {
            Ok(read) => {
                *self = Self { value: read, origin: Origin::File(value.span()) };
                Ok(())
            }
            Err(wrongs) => {
                self.origin = Origin::Broken;
                Err(wrongs)
            }
        }
    }

    fn forget_origin(&mut self) {
        self.origin = Origin::Default;
    }
}

/// A type that a key can have.
trait Value: Sized {
    fn expects(key: &Key) -> String;
    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>>;
}

impl<T: Value> Value for Option<T> {
    fn expects(key: &Key) -> String {
        T::expects(key)
    }

    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        T::read(key, value).map(Some)
    }
}

impl Value for bool {
    fn expects(_: &Key) -> String {
        "true or false".to_owned()
    }

    fn read(_: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        value.get_ref().as_bool().ok_or_else(|| {
            vec![match value.get_ref() {
                DeValue::String(text) if matches!(&**text, "true" | "false") => {
                    Wrong::new(value).help("write it without quotes")
                }
                _ => Wrong::new(value),
            }]
        })
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn expects(key: &Key) -> String {
                format!("an integer {} ({})", span_of(&key.range), key.unit)
            }

            fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
                integer(&key.range, value).map_err(|wrong| vec![wrong])
            }
        }
    )*};
}

integers!(u16 u32 u64 usize);

impl<T: Words> Value for T {
    fn expects(_: &Key) -> String {
        let words: Vec<_> = T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("one of {}", words.join(", "))
    }

    fn read(_: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        let words = || T::WORDS.iter().map(|(word, _)| *word);
        value.get_ref().as_str().and_then(T::of_word).ok_or_else(|| {
            let meant =
                value.get_ref().as_str().and_then(|text| super::suggest::nearest(text, words()));
            let wrong = Wrong::new(value);
            vec![match meant {
                Some(word) => wrong.help(format!("did you mean \"{word}\"?")),
                None => wrong,
            }]
        })
    }
}

impl Value for PathBuf {
    fn expects(_: &Key) -> String {
        "an absolute path, in quotes".to_owned()
    }

    fn read(_: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        let path = value.get_ref().as_str().map(PathBuf::from);
        match path {
            Some(path)
                if path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0) =>
            {
                Ok(path)
            }
            Some(_) => Err(vec![
                Wrong::new(value).help("begin it with `/`: a service may start in any directory"),
            ]),
            None => Err(vec![Wrong::new(value)]),
        }
    }
}

/// Names of users and groups.
impl Value for String {
    fn expects(_: &Key) -> String {
        "a name, in quotes".to_owned()
    }

    fn read(_: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        let good = |name: &&str| {
            !name.is_empty() && !name.contains(|c: char| c.is_control() || c == ':' || c == '/')
        };
        let name = value.get_ref().as_str().filter(good);
        name.map(str::to_owned).ok_or_else(|| vec![Wrong::new(value)])
    }
}

impl Value for Vec<Item<ListenAt>> {
    fn expects(key: &Key) -> String {
        format!("a list of addresses with ports, {} of them", span_of(&key.range))
    }

    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        list(key, value, |entry| {
            let wrong = Wrong::new(entry);
            match entry.get_ref() {
                DeValue::String(text) => {
                    text.parse().map_err(|error| wrong.help(format!("{error}")))
                }
                DeValue::Integer(port) => Err(wrong.help(format!("write it as \":{port}\""))),
                _ => Err(wrong),
            }
        })
    }
}

impl Value for AdminAt {
    fn expects(_: &Key) -> String {
        "an address with a port, in quotes, or \"off\"".to_owned()
    }

    fn read(_: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        let wrong = Wrong::new(value);
        let read = match value.get_ref() {
            DeValue::String(text) => text.parse().map_err(|error| wrong.help(format!("{error}"))),
            DeValue::Boolean(false) => Err(wrong.help("write \"off\"")),
            DeValue::Integer(port) => Err(wrong.help(format!("write it as \"127.0.0.1:{port}\""))),
            _ => Err(wrong),
        };
        read.map_err(|wrong| vec![wrong])
    }
}

impl Value for Vec<Item<InfoHash>> {
    fn expects(key: &Key) -> String {
        format!(
            "a list of info hashes, 40 hexadecimal digits each, {} of them",
            span_of(&key.range)
        )
    }

    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        list(key, value, |entry| {
            let wrong = Wrong::new(entry);
            match entry.get_ref() {
                DeValue::String(text) => {
                    text.parse().map_err(|error| wrong.help(format!("{error}")))
                }
                _ => Err(wrong),
            }
        })
    }
}

impl Value for Vec<Item<AddressBlock>> {
    fn expects(key: &Key) -> String {
        format!("a list of addresses, blocks and ranges, {} of them", span_of(&key.range))
    }

    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        list(key, value, |entry| {
            let wrong = Wrong::new(entry);
            match entry.get_ref() {
                DeValue::String(text) => text.parse().map_err(|error: String| wrong.help(error)),
                _ => Err(wrong),
            }
        })
    }
}

/// The highest vCPU number that Linux can be built for (`NR_CPUS`, arch/x86/Kconfig).
const LAST_VCPU: u64 = 8191;

impl Value for Pin {
    fn expects(_: &Key) -> String {
        "\"auto\", \"on\", \"off\" or a list of vCPU numbers, one for each worker".to_owned()
    }

    fn read(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Self, Vec<Wrong>> {
        match value.get_ref() {
            DeValue::String(text) if text == "auto" => Ok(Self::Auto),
            DeValue::String(text) if text == "on" => Ok(Self::On),
            DeValue::String(text) if text == "off" => Ok(Self::Off),
            DeValue::Boolean(true) => Err(vec![Wrong::new(value).help("write \"on\"")]),
            DeValue::Boolean(false) => Err(vec![Wrong::new(value).help("write \"off\"")]),
            DeValue::Array(_) => {
                let items = list(key, value, |entry| integer(&Some(0..=LAST_VCPU), entry))?;
                Ok(Self::List(items.into_iter().map(|item| item.value).collect()))
            }
            _ => Err(vec![Wrong::new(value)]),
        }
    }
}

/// A list whose entries `read` understands; all of its problems, not only the first. A key's
/// range says how many entries there may be.
fn list<T>(
    key: &Key,
    value: &Spanned<DeValue<'_>>,
    read: impl Fn(&Spanned<DeValue<'_>>) -> Result<T, Wrong>,
) -> Result<Vec<Item<T>>, Vec<Wrong>> {
    let DeValue::Array(entries) = value.get_ref() else {
        let wrong = Wrong::new(value);
        return Err(vec![match value.get_ref() {
            DeValue::String(text) => wrong.help(format!("write it as a list: [{text:?}]")),
            _ => wrong,
        }]);
    };
    if key.range.as_ref().is_some_and(|range| !range.contains(&(entries.len() as u64))) {
        let found = if entries.is_empty() {
            "an empty list".to_owned()
        } else {
            format!("a list of {}", entries.len())
        };
        return Err(vec![Wrong { span: value.span(), found, help: None }]);
    }
    let mut items = Vec::with_capacity(entries.len());
    let mut wrongs = Vec::new();
    for entry in entries.iter() {
        match read(entry) {
            Ok(value) => items.push(Item { value, origin: Origin::File(entry.span()) }),
            Err(wrong) => wrongs.push(wrong),
        }
    }
    if wrongs.is_empty() { Ok(items) } else { Err(wrongs) }
}

/// An integer in a range that its type can hold.
fn integer<T: TryFrom<u64>>(
    range: &Option<RangeInclusive<u64>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<T, Wrong> {
    let wrong = Wrong::new(value);
    match value.get_ref() {
        DeValue::Integer(number) => number_of(number)
            .filter(|number| range.as_ref().is_none_or(|range| range.contains(number)))
            .and_then(|number| T::try_from(number).ok())
            .ok_or(wrong),
        DeValue::String(text) if text.trim().parse::<u64>().is_ok() => {
            Err(wrong.help("write the number without quotes"))
        }
        DeValue::String(_) => {
            Err(wrong.help("write a plain number; its unit is part of the key's meaning"))
        }
        _ => Err(wrong),
    }
}

/// `None` for what is negative or does not fit: no range goes there.
fn number_of(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn span_of(range: &Option<RangeInclusive<u64>>) -> String {
    match range {
        Some(range) => format!("from {} to {}", range.start(), range.end()),
        None => String::new(),
    }
}

/// A value as its finder would call it, cut when it is long.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() > 60 => {
            format!("{:?}...", text.chars().take(60).collect::<String>())
        }
        DeValue::String(text) => format!("{text:?}"),
        // The parser's numbers may hold control characters that it has complained of or let pass.
        DeValue::Integer(number) => number.to_string().escape_debug().to_string(),
        DeValue::Float(number) => number.to_string().escape_debug().to_string(),
        DeValue::Boolean(switch) => switch.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
