//! The declaration of keys.

mod kind;
mod quantity;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use toml::{Table, Value};

pub(crate) use kind::describe;
pub use kind::{Kind, parses, texts};
pub use quantity::seconds;

/// Declares structs whose fields are keys of a TOML file. Each field has its documentation and,
/// behind `=`, a [`Key`]; the struct gets a constant `KEYS` with all of them. The documentation
/// of a field is at once its rustdoc, the comment in the default file and the text of the
/// reference page. `#[derive(..)]` of a struct has to include `serde::Deserialize`; structs and
/// fields may have one `#[serde(..)]` each.
#[macro_export]
macro_rules! keys {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($($derive:path),+ $(,)?)])?
        $(#[serde($($of_table:tt)+)])?
        $visibility:vis struct $name:ident {$(
            $(#[doc = $doc:literal])+
            $(#[serde($($serde:tt)+)])?
            $field_visibility:vis $field:ident: $type:ty = $key:expr
        ),+ $(,)?}
    )+) => {$(
        $(#[doc = $about])+
        $(#[derive($($derive),+)])?
        $(#[serde($($of_table)+)])?
        $visibility struct $name {$(
            $(#[doc = $doc])+
            $(#[serde($($serde)+)])?
            $field_visibility $field: $type,
        )+}

        impl $name {
            /// The keys of this table, in the order of the fields.
            pub const KEYS: &'static [$crate::Key] =
                &[$($key.named(stringify!($field), concat!($($doc, "\n"),+)),)+];
        }
    )+};
}

/// All that is known of a file: its keys and the texts around them.
#[derive(Debug)]
pub struct Schema {
    /// The keys of the file. Tables are keys, too ([`table`]).
    pub keys: &'static [Key],
    /// Names that users bring along from other programs, each with what to write here.
    pub hints: &'static [(&'static [&'static str], &'static str)],
    /// The comment at the top of the default file.
    pub head: &'static str,
}

impl Schema {
    /// The values of all keys that have a default.
    pub fn defaults(&self) -> Values {
        let mut values = Values::new();
        for (path, key) in self.leaves() {
            if let Absent::Default(text) = key.absent {
                flatten(text.parse().expect("a default is TOML"), path, &mut values);
            }
        }
        values
    }

    /// The key with this path, which may be in an entry of a list of tables: `clients.0.weight`.
    pub fn key(&self, path: &str) -> Option<&'static Key> {
        let mut parts = path.split('.');
        let mut key = named(self.keys, parts.next()?)?;
        while let Some(name) = parts.next() {
            key = match key.kind {
                Kind::Table(keys) => named(keys, name)?,
                Kind::Tables(keys, _) => named(keys, parts.next()?)?,
                _ => return None,
            };
        }
        Some(key)
    }

    /// Every key that is not a table, with its path, in the order of declaration.
    pub fn leaves(&self) -> Vec<(String, &'static Key)> {
        let mut leaves = Vec::new();
        add_leaves(self.keys, "", &mut leaves);
        leaves
    }
}

/// Values by the paths of their keys, like `limits.connections`. Entries of a list of tables are
/// numbered from 0: `clients.0.weight`; the list itself has no value.
pub type Values = BTreeMap<String, Value>;

/// The values of a struct whose fields are keys.
///
/// # Panics
/// When TOML has no form for one of them.
pub fn values_of(keys: &impl Serialize) -> Values {
    let mut values = Values::new();
    let root = Value::try_from(keys).expect("keys are plain data");
    flatten(root, String::new(), &mut values);
    values
}

fn flatten(value: Value, path: String, into: &mut Values) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                flatten(value, join(&path, &name), into);
            }
        }
        Value::Array(list) if list.first().is_some_and(Value::is_table) => {
            for (nth, value) in list.into_iter().enumerate() {
                flatten(value, join(&path, &nth.to_string()), into);
            }
        }
        value => _ = into.insert(path, value),
    }
}

/// The number of entries of a list of tables. An entry counts if it has all of `keys`, as do those
/// before it.
pub(crate) fn entries(keys: &[Key], list: &str, values: &Values) -> usize {
    let has = |nth: usize, key: &Key| values.contains_key(&format!("{list}.{nth}.{}", key.name));
    (0..).take_while(|nth| keys.iter().all(|key| has(*nth, key))).count()
}

/// The table of these keys, for serde.
pub(crate) fn nested(keys: &[Key], path: &str, values: &Values) -> Table {
    let mut table = Table::new();
    for key in keys {
        let path = join(path, key.name);
        let value = match key.kind {
            Kind::Table(keys) => Some(Value::Table(nested(keys, &path, values))),
            Kind::Tables(keys, _) => {
                let entry = |nth| Value::Table(nested(keys, &format!("{path}.{nth}"), values));
                Some(Value::Array((0..entries(keys, &path, values)).map(entry).collect()))
            }
            _ => values.get(&path).cloned(),
        };
        table.extend(value.map(|value| (key.name.to_owned(), value)));
    }
    table
}

/// One key of a file.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name in its table.
    pub name: &'static str,
    /// Its documentation.
    pub doc: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its value when the file does not have it.
    pub absent: Absent,
    /// When a change of its value has effect.
    pub applied: Applied,
    /// The part of the program that puts a change into force on a reload; empty otherwise.
    pub owner: &'static str,
}

/// The value of a key that is absent.
#[derive(Clone, Copy, Debug)]
pub enum Absent {
    /// The reader supplies the value of another file.
    Base,
    /// The key has this default, in TOML.
    Default(&'static str),
    /// The value is derived from other keys or from the host.
    Derived {
        /// From what, in words.
        from: &'static str,
        /// A typical explicit value, in TOML.
        example: &'static str,
    },
}

/// When a change of a value has effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// When the running process reads the file again.
    OnReload,
    /// When a successor serves in place of the running process, or after a restart.
    OnUpgrade,
    /// Only after a restart.
    OnRestart,
}

impl Key {
    /// An unnamed key that accepts values of this kind.
    pub const fn new(kind: Kind) -> Self {
        let (absent, applied) = (Absent::Base, Applied::OnUpgrade);
        Self { name: "", doc: "", kind, absent, applied, owner: "" }
    }

    /// Sets name and documentation ([`keys!`] calls this).
    pub const fn named(self, name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, ..self }
    }

    /// The default, in TOML.
    pub const fn default(self, value: &'static str) -> Self {
        Self { absent: Absent::Default(value), ..self }
    }

    /// For a key whose value is derived where it is absent: from what, and an example in TOML.
    pub const fn derived(self, from: &'static str, example: &'static str) -> Self {
        Self { absent: Absent::Derived { from, example }, ..self }
    }

    /// A change of the value has effect on a reload: `owner` is the part of the program that puts
    /// it into force.
    pub const fn on_reload(self, owner: &'static str) -> Self {
        Self { applied: Applied::OnReload, owner, ..self }
    }

    /// A change of the value has effect on a restart only, not even on an upgrade.
    pub const fn on_restart(self) -> Self {
        Self { applied: Applied::OnRestart, ..self }
    }

    /// The keys of a table; none of any other key.
    pub const fn keys(&self) -> &'static [Key] {
        match self.kind {
            Kind::Table(keys) => keys,
            _ => &[],
        }
    }

    /// The remedy for a value that is not accepted and whose intent is not clear.
    pub(crate) fn remedy(&self, path: &str) -> Option<String> {
        match (&self.kind, self.absent) {
            (Kind::Table(_), _) => {
                Some(format!("write `[{path}]` on a line of its own and its keys below"))
            }
            (Kind::Tables(..), _) => {
                Some(format!("write `[[{path}]]` on a line of its own for each entry"))
            }
            (_, Absent::Default(value)) => Some(format!("the default is {value}")),
            (_, Absent::Derived { from, example }) => {
                Some(format!("without this key: {from}; an example is {example}"))
            }
            (_, Absent::Base) => None,
        }
    }
}

/// A key for `true` or `false`.
pub const fn switch() -> Key {
    Key::new(Kind::Switch)
}

/// A key for an integer in a range; `unit` is what it counts, or empty.
pub const fn integer(range: RangeInclusive<i64>, unit: &'static str) -> Key {
    Key::new(Kind::Integer(range, unit))
}

/// A key for a number in a range, with or without a fraction.
pub const fn number(range: RangeInclusive<f64>) -> Key {
    Key::new(Kind::Number(range))
}

/// A key for one of a few words.
pub const fn word(words: &'static [&'static str]) -> Key {
    Key::new(Kind::Word(words))
}

/// A key for a string that `check` accepts ([`parses`](crate::parses) for any `FromStr`);
/// `expects` describes it, as in "an absolute path, in quotes".
pub const fn text(expects: &'static str, check: fn(&str) -> Result<(), String>) -> Key {
    Key::new(Kind::Text(expects, check))
}

/// A key for a list, with the number of entries that it may have.
pub const fn list(of: &'static Kind, entries: RangeInclusive<usize>) -> Key {
    Key::new(Kind::List(of, entries))
}

/// A key for one of a few words, or a list in place of a word.
pub const fn word_or_list(words: &'static [&'static str], list: &'static Kind) -> Key {
    Key::new(Kind::WordOrList(words, list))
}

/// A key that is a table of further keys.
pub const fn table(keys: &'static [Key]) -> Key {
    Key::new(Kind::Table(keys))
}

/// A key that is a list of 1 to `most` tables, each with all of these keys.
pub const fn tables(keys: &'static [Key], most: usize) -> Key {
    Key::new(Kind::Tables(keys, most))
}

/// The path of a key below a table.
pub(crate) fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

fn named(keys: &'static [Key], name: &str) -> Option<&'static Key> {
    keys.iter().find(|key| key.name == name)
}

fn add_leaves(keys: &'static [Key], path: &str, leaves: &mut Vec<(String, &'static Key)>) {
    for key in keys {
        let path = join(path, key.name);
        match key.kind {
            Kind::Table(keys) => add_leaves(keys, &path, leaves),
            _ => leaves.push((path, key)),
        }
    }
}
