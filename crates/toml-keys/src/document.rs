//! A file, with flags over it, read according to a schema. Reading continues after a problem, so
//! that one run reports all of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::de::{DeArray, DeTable, DeValue, Error};
use toml::{Spanned, Table, Value};

use crate::key::{Key, Kind, Mismatch, Schema, get, join, put, table_in};
use crate::problem::{At, Problem, Problems};
use crate::source::Source;

/// Bytes of a file. A list of 100,000 info hashes takes about 5 MB.
pub const MAX_FILE_LEN: u64 = 16 << 20;

/// The values of a file and of the flags over it, and the problems found so far.
#[derive(Clone, Debug)]
pub struct Document {
    schema: &'static Schema,
    source: Source,
    values: Table,
    origins: BTreeMap<String, Origin>,
    problems: Problems,
    /// The flag whose value is being read; `None` while it is the file.
    flag: Option<&'static str>,
}

/// Where the value of a key comes from. Keys without an origin have the value of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// These bytes of the file.
    File(Range<usize>),
    /// This flag.
    Flag(&'static str),
    /// The value was not accepted, which is reported; the value of the base is in its place.
    Rejected,
}

impl Document {
    /// Reads `text` over `base`, which has every key that is not derived; `name` stands for the
    /// file in messages.
    pub fn parse(schema: &'static Schema, base: Table, name: &str, text: &str) -> Self {
        let source = Source::new(name, text);
        let mut document = Self {
            schema,
            source,
            values: Table::new(),
            origins: BTreeMap::new(),
            problems: Problems::default(),
            flag: None,
        };
        let mut values = base;
        let text = document.source.text().to_owned();
        let (root, errors) = DeTable::parse_recoverable(&text);
        match errors.as_slice() {
            [] => document.table(schema.keys, root.get_ref(), "", &mut values),
            errors => document.syntax(errors),
        }
        document.values = values;
        document
    }

    /// Reads a file over `base`.
    ///
    /// # Errors
    /// When it cannot be read, is longer than [`MAX_FILE_LEN`] or is not UTF-8.
    pub fn load(schema: &'static Schema, base: Table, path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let whole = |what: String| Problems::from(Problem::in_file(&name, "", what));
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes))
            .map_err(|error| whole(format!("the file cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_FILE_LEN {
            return Err(whole(format!("the file is longer than {MAX_FILE_LEN} bytes")));
        }
        match str::from_utf8(&bytes) {
            Ok(text) => Ok(Self::parse(schema, base, &name, text)),
            Err(error) => {
                let start = error.valid_up_to();
                let source = Source::new(&name, &String::from_utf8_lossy(&bytes));
                let what = format!("byte {:#04x} is not UTF-8, as TOML must be", bytes[start]);
                let at = At::Place(source.place(start..start + 1));
                Err(Problem::new(at, "", what, None).into())
            }
        }
    }

    /// Reads the value of a flag over the file's: TOML, or a string without quotes. `path` is
    /// the path of a key; entries of a list of tables are numbered from 0 (`clients.0.weight`).
    pub fn set(&mut self, flag: &'static str, path: &str, value: &str) {
        let value = DeValue::parse(value).unwrap_or_else(|_| {
            Spanned::new(0..value.len(), DeValue::String(Cow::Borrowed(value)))
        });
        self.flag = Some(flag);
        let mut values = std::mem::take(&mut self.values);
        self.set_below(self.schema.keys, &mut values, "", path, &value);
        self.values = values;
        self.flag = None;
    }

    /// Removes the value of a derived key.
    pub fn unset(&mut self, path: &str) {
        put(&mut self.values, path, None);
        self.origins.remove(path);
    }

    /// The values as a struct. For rejected values it has those of the base.
    ///
    /// # Panics
    /// When the declaration of a key accepts a value that its field does not.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        self.values.clone().try_into().expect("a key accepts what its field can hold")
    }

    /// The value of a key, if it has one.
    pub fn value(&self, path: &str) -> Option<&Value> {
        get(&self.values, path)
    }

    /// The values of all keys that have one.
    pub fn values(&self) -> &Table {
        &self.values
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The flag that the value of a key comes from.
    pub fn flag_of(&self, path: &str) -> Option<&'static str> {
        match self.origins.get(path) {
            Some(Origin::Flag(flag)) => Some(flag),
            _ => None,
        }
    }

    /// Whether the file or a flag gives an accepted value for a key.
    pub fn is_given(&self, path: &str) -> bool {
        matches!(self.origins.get(path), Some(Origin::File(_) | Origin::Flag(_)))
    }

    /// Whether the value of a key was rejected, so that what follows from it is no news.
    pub fn is_rejected(&self, path: &str) -> bool {
        self.origins.get(path) == Some(&Origin::Rejected)
    }

    /// Adds a problem with the value of a key that was accepted by itself.
    pub fn problem(&mut self, path: &str, what: String, remedy: Option<&str>) {
        let origin = self.origin(path);
        self.add(origin, path, what, remedy);
    }

    /// Adds a problem with one entry of a list, from 0.
    pub fn problem_in_list(&mut self, path: &str, nth: usize, what: String) {
        let origin = match self.origin(path) {
            Some(Origin::File(span)) => Some(Origin::File(self.entry_span(path, nth, span))),
            origin => origin,
        };
        self.add(origin, path, what, None);
    }

    /// Whether any problem was found so far.
    pub fn has_problems(&self) -> bool {
        self.problems.total() > 0
    }

    /// Ends reading.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn finish(self) -> Result<(), Problems> {
        self.problems.into_result()
    }

    /// The origin of a key, or of the table that it is in.
    fn origin(&self, path: &str) -> Option<Origin> {
        let origin = self.origins.get(path);
        let parent = || self.origin(path.rsplit_once('.')?.0);
        origin.cloned().or_else(parent)
    }

    fn add(&mut self, origin: Option<Origin>, path: &str, what: String, remedy: Option<&str>) {
        let at = match origin {
            Some(Origin::File(span)) => At::Place(self.source.place(span)),
            Some(Origin::Flag(flag)) => At::Flag(flag),
            Some(Origin::Rejected) | None => At::File(self.source.name().to_owned()),
        };
        self.problems.add(|| Problem::new(at, path, what, remedy.map(str::to_owned)));
    }

    /// The place of an entry, found by parsing once more: spans of long lists are not kept.
    fn entry_span(&self, path: &str, nth: usize, list: Range<usize>) -> Range<usize> {
        let (root, _) = DeTable::parse_recoverable(self.source.text());
        let mut parts = path.split('.');
        let first = parts.next().and_then(|part| root.get_ref().get(part));
        let found =
            first.and_then(|first| parts.try_fold(first, |value, part| value.get_ref().get(part)));
        found.and_then(|value| value.get_ref().get(nth)).map_or(list, Spanned::span)
    }

    /// Errors of the TOML parser, one per line. Keys are not read: the parser's recovery may have
    /// put them anywhere.
    fn syntax(&mut self, errors: &[Error]) {
        let end = self.source.text().len();
        let mut last_line = 0;
        for error in errors {
            let span = error.span().unwrap_or(end..end);
            let line = self.source.line_of(span.start);
            if line == last_line {
                continue;
            }
            last_line = line;
            let source = &self.source;
            self.problems.add(|| {
                let what = format!("syntax: {}", error.message());
                let remedy = Some(syntax_remedy(source.line(line)));
                Problem::new(At::Place(source.place(span)), "", what, remedy)
            });
        }
    }

    fn table(&mut self, keys: &'static [Key], entries: &DeTable<'_>, path: &str, into: &mut Table) {
        for (name, value) in entries {
            match keys.iter().find(|key| key.name == name.get_ref()) {
                Some(key) => self.entry(key, value, &join(path, key.name), into),
                None => self.unknown(keys, name, value, path, into),
            }
        }
    }

    fn entry(
        &mut self,
        key: &'static Key,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        into: &mut Table,
    ) {
        match (&key.kind, value.get_ref()) {
            (Kind::Table(keys), DeValue::Table(entries)) => {
                self.accepted(path, value.span());
                self.table(keys, entries, path, table_in(into, key.name));
            }
            (Kind::Tables { keys, most }, DeValue::Array(entries))
                if (1..=*most).contains(&entries.len()) =>
            {
                self.accepted(path, value.span());
                let problems = self.problems.total();
                let tables = self.tables(keys, entries, path);
                // Entries with problems may lack keys that their struct needs.
                if self.problems.total() == problems {
                    into.insert(key.name.to_owned(), Value::Array(tables));
                }
            }
            (kind, _) => match kind.accept(value) {
                Ok(accepted) => {
                    self.accepted(path, value.span());
                    into.insert(key.name.to_owned(), accepted);
                }
                Err(mismatches) => {
                    self.origins.insert(path.to_owned(), Origin::Rejected);
                    mismatches.into_iter().for_each(|wrong| self.mismatch(key, path, wrong));
                }
            },
        }
    }

    fn accepted(&mut self, path: &str, span: Range<usize>) {
        let origin = self.flag.map_or(Origin::File(span), Origin::Flag);
        self.origins.insert(path.to_owned(), origin);
    }

    /// A list of tables replaces the whole list of the base; each has to have every key.
    fn tables(&mut self, keys: &'static [Key], entries: &DeArray<'_>, path: &str) -> Vec<Value> {
        let mut tables = Vec::new();
        for (nth, entry) in entries.iter().enumerate() {
            let path = format!("{path}.{nth}");
            let mut table = Table::new();
            let DeValue::Table(entries) = entry.get_ref() else {
                let found = Mismatch::new(entry).found;
                self.at(entry.span(), &path, format!("found {found}, expected a table"), None);
                continue;
            };
            self.accepted(&path, entry.span());
            self.table(keys, entries, &path, &mut table);
            for key in keys.iter().filter(|key| !entries.contains_key(key.name)) {
                let what = format!("`{}` is missing: each entry needs all keys", key.name);
                self.at(entry.span(), &path, what, None);
            }
            tables.push(Value::Table(table));
        }
        tables
    }

    fn mismatch(&mut self, key: &Key, path: &str, wrong: Mismatch) {
        let what = format!("found {}, expected {}", wrong.found, key.kind.expects());
        self.at(wrong.span, path, what, wrong.remedy.or_else(|| key.remedy(path)));
    }

    /// An unknown key, or an unknown table, which is read as the one that it probably means, for
    /// the sake of the problems in it.
    fn unknown(
        &mut self,
        keys: &'static [Key],
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        path: &str,
        into: &mut Table,
    ) {
        let shown = join(path, &cut(name.get_ref()));
        match value.get_ref() {
            DeValue::Table(entries) if path.is_empty() => {
                let (remedy, meant) = self.schema.table_remedy(name.get_ref());
                self.at(name.span(), &shown, "unknown table".to_owned(), Some(remedy));
                if let Some(key) = meant {
                    self.table(key.keys(), entries, key.name, table_in(into, key.name));
                }
            }
            _ => {
                let remedy = self.schema.remedy(keys, path, name.get_ref());
                self.at(name.span(), &shown, "unknown key".to_owned(), Some(remedy));
            }
        }
    }

    fn set_below(
        &mut self,
        keys: &'static [Key],
        into: &mut Table,
        above: &str,
        path: &str,
        value: &Spanned<DeValue<'_>>,
    ) {
        let (name, below) = path.split_once('.').map_or((path, None), |(n, b)| (n, Some(b)));
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            let name = Spanned::new(0..0, Cow::Borrowed(name));
            return self.unknown(keys, &name, value, above, into);
        };
        let here = join(above, name);
        match (&key.kind, below) {
            (_, None) => self.entry(key, value, &here, into),
            (Kind::Table(keys), Some(below)) => {
                self.set_below(keys, table_in(into, name), &here, below, value);
            }
            (Kind::Tables { keys, .. }, Some(below)) => {
                self.set_in_list(keys, into, &here, below, value);
            }
            _ => self.at(0..0, &join(above, path), "this key has no keys below".to_owned(), None),
        }
    }

    /// Sets a key of one of a list of tables.
    fn set_in_list(
        &mut self,
        keys: &'static [Key],
        into: &mut Table,
        list: &str,
        path: &str,
        value: &Spanned<DeValue<'_>>,
    ) {
        let (nth, below) = path.split_once('.').unwrap_or((path, ""));
        let name = list.rsplit('.').next().unwrap_or_default();
        let entries = into.get_mut(name).and_then(Value::as_array_mut);
        let count = entries.as_ref().map_or(0, |entries| entries.len());
        let nth = nth.parse::<usize>().ok();
        let entry =
            nth.zip(entries).and_then(|(nth, entries)| entries.get_mut(nth)?.as_table_mut());
        let (Some(nth), Some(entry)) = (nth, entry) else {
            let what = format!("expected the number of an entry, from 0 to {}", count.max(1) - 1);
            return self.at(0..0, &join(list, path), what, None);
        };
        let here = format!("{list}.{nth}");
        match value.get_ref() {
            _ if !below.is_empty() => self.set_below(keys, entry, &here, below, value),
            DeValue::Table(entries) => self.table(keys, entries, &here, entry),
            _ => {
                let found = Mismatch::new(value).found;
                self.at(0..0, &here, format!("found {found}, expected a table"), None);
            }
        }
    }

    /// Adds a problem at these bytes of the file, or with the flag that is being read.
    fn at(&mut self, span: Range<usize>, path: &str, what: String, remedy: Option<String>) {
        let Self { source, flag, .. } = self;
        self.problems.add(|| {
            let at = flag.map_or_else(|| At::Place(source.place(span)), At::Flag);
            Problem::new(at, path, what, remedy)
        });
    }
}

/// The remedy for a line that is not TOML.
fn syntax_remedy(line: &str) -> String {
    let value = line.split_once('=').filter(|(key, _)| !key.contains(['#', '"', '\'', '[']));
    match value.map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, "")) => format!("write a value: `{} = ...`", cut(key)),
        Some((_, value)) if value.starts_with(char::is_alphabetic) => {
            "strings need quotes, like \"info\"; true and false have none".to_owned()
        }
        _ => "correct the TOML syntax first (https://toml.io); keys are checked after".to_owned(),
    }
}

/// A name of the file's author: cut when it is long, with control characters escaped.
fn cut(name: &str) -> String {
    let shown: String = name.chars().take(64).collect();
    let dots = if shown.len() < name.len() { "..." } else { "" };
    format!("{}{dots}", shown.escape_debug())
}
