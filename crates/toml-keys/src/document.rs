//! A file, with flags and variables over it, read according to a schema.
//! Reading continues after a problem, so that one run reports all of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Error};

use crate::key::{Key, Kind, Schema, Values, describe, entries, join, nested};
use crate::problem::{At, Problem, Problems};
use crate::regular_file;
use crate::source::Source;

/// Bytes of a file. A list of 100,000 info hashes takes about 5 MB.
pub const MAX_FILE_LEN: u64 = 16 << 20;

/// The values of a file and of the flags and variables over it, and the problems found so far.
#[derive(Clone, Debug)]
pub struct Document {
    schema: &'static Schema,
    file: Source,
    values: Values,
    origins: BTreeMap<String, Origin>,
    /// Misspelled tables: the name that is probably meant, and the one in the file.
    misspelled: BTreeMap<&'static str, String>,
    problems: Problems,
    /// Whether the file could be read in part at most, so that contradictions between keys are no
    /// news.
    is_partial: bool,
    /// Where the values that are being read come from.
    reading: Origin,
}

/// Where the value of a key comes from. Keys without an origin have the value of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// The file.
    File,
    /// The flag or the variable with this name.
    Named(Arc<str>),
    /// The value was not accepted, which is reported; the one before is in its place.
    Rejected,
}

impl Document {
    /// Reads `text` over `base`, which has every key that is not derived; `name` stands for the
    /// file in messages.
    pub fn parse(schema: &'static Schema, base: Values, name: &str, text: &str) -> Self {
        // A byte order mark would count as a column.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut document = Self {
            schema,
            file: Source::new(name, text),
            values: base,
            origins: BTreeMap::new(),
            misspelled: BTreeMap::new(),
            problems: Problems::default(),
            is_partial: false,
            reading: Origin::File,
        };
        document.read_file(text);
        document
    }

    /// Reads a file over `base`. That it cannot be read, is longer than [`MAX_FILE_LEN`] or is not
    /// UTF-8 is a problem.
    pub fn load(schema: &'static Schema, base: Values, path: &Path) -> Self {
        let read = text_of(path);
        let text = read.as_deref().unwrap_or_default();
        let mut document = Self::parse(schema, base, &path.display().to_string(), text);
        if let Err(problem) = read {
            document.add(problem);
            document.is_partial = true;
        }
        document
    }

    fn read_file(&mut self, text: &str) {
        let (root, errors) = DeTable::parse_recoverable(text);
        match errors.as_slice() {
            [] => self.table(self.schema.keys, root.get_ref(), ""),
            errors => {
                let first = self.syntax(errors);
                let (root, _) = DeTable::parse_recoverable(&text[..first]);
                // A part of the keys: a problem in it may be none once the syntax is corrected.
                let problems = mem::take(&mut self.problems);
                self.table(self.schema.keys, root.get_ref(), "");
                self.problems = problems;
            }
        }
    }

    /// Reads a value over those so far: TOML, or a string without quotes. `name` is that of the
    /// flag or variable, and `path` that of a key.
    pub fn set(&mut self, name: &str, path: &str, value: &str) {
        let value = DeValue::parse(value)
            .unwrap_or_else(|_| Spanned::new(0..0, DeValue::String(Cow::Borrowed(value))));
        let root = path.rsplit('.').fold(value, |value, name| {
            let name = Spanned::new(0..0, Cow::Borrowed(name));
            Spanned::new(0..0, DeValue::Table(DeTable::from_iter([(name, value)])))
        });
        if let DeValue::Table(root) = root.get_ref() {
            self.reading = Origin::Named(name.into());
            self.table(self.schema.keys, root, "");
        }
    }

    /// Reads a value without TOML's quotes over those so far: the entries of a list have commas
    /// between them. `name` is that of a flag or variable, and `path` that of a key.
    pub fn set_plain(&mut self, name: &str, path: &str, text: &str) {
        let key = self.schema.key(path);
        let value = key.map_or_else(|| Cow::Borrowed(text), |key| key.kind.toml_of_plain(text));
        self.set(name, path, &value);
    }

    /// Adds a problem that was found elsewhere.
    pub fn add(&mut self, problem: Problem) {
        self.problems.add(|| problem);
    }

    /// The values as a struct. For rejected values it has those of the base.
    ///
    /// # Panics
    /// When the declaration of a key accepts a value that its field does not.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        let root = nested(self.schema.keys, "", &self.values);
        root.try_into().expect("a key accepts what its field can hold")
    }

    /// The values of all keys that have one.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The name of the file, the flag or the variable that the value of a key, or the list with
    /// this entry, comes from.
    pub fn origin(&self, path: &str) -> Option<&str> {
        match self.origin_of(path)? {
            Origin::File => Some(&self.file.name),
            Origin::Named(name) => Some(name),
            Origin::Rejected => None,
        }
    }

    fn origin_of(&self, path: &str) -> Option<&Origin> {
        self.origins.get(path).or_else(|| self.origin_of(path.rsplit_once('.')?.0))
    }

    /// Whether the file, a flag or a variable gives an accepted value for a key.
    pub fn is_given(&self, path: &str) -> bool {
        matches!(self.origins.get(path), Some(Origin::File | Origin::Named(_)))
    }

    /// Whether the value of a key was rejected, so that what follows from it is no news.
    pub fn is_rejected(&self, path: &str) -> bool {
        self.origins.get(path) == Some(&Origin::Rejected)
    }

    /// Adds a problem with the value of a key that was accepted by itself, or with an entry of a
    /// list (`listen.0`).
    pub fn problem(&mut self, path: &str, what: String, remedy: Option<&str>) {
        if self.is_partial {
            return;
        }
        let at = match (self.origin_of(path), self.span(path)) {
            (Some(Origin::Named(name)), _) => At::Named(name.to_string()),
            (_, Some(span)) => At::Place(self.file.place(span)),
            (_, None) => At::File(self.file.name.clone()),
        };
        self.problems.add(|| Problem::new(at, path, what, remedy.map(str::to_owned)));
    }

    /// Whether any problem was found so far.
    pub fn has_problems(&self) -> bool {
        self.problems.total() > 0
    }

    /// Whether the file could not be read, or only up to an error of its syntax.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Forgets the problems so far, which are reported already.
    pub fn forget_problems(&mut self) {
        self.problems = Problems::default();
        self.is_partial = false;
    }

    /// Ends reading.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn finish(self) -> Result<(), Problems> {
        self.problems.into_result()
    }

    /// The place of a value, or of the innermost table or list around it, in the file. It is
    /// parsed once more: spans of long lists are not kept.
    fn span(&self, path: &str) -> Option<Range<usize>> {
        let (root, _) = DeTable::parse_recoverable(&self.file.text);
        let root = DeValue::Table(root.into_inner());
        let (mut value, mut span) = (&root, None);
        for part in path.split('.') {
            let in_list = || value.get(part.parse::<usize>().ok()?);
            let misspelled = || value.get(self.misspelled.get(part)?.as_str());
            let below = value.get(part).or_else(in_list).or_else(misspelled);
            let Some(below) = below else { break };
            (value, span) = (below.get_ref(), Some(below.span()));
        }
        span
    }

    /// Errors of the TOML parser, one per line. Returns where the line of the first one begins:
    /// from there on the parser's recovery may have put keys anywhere.
    fn syntax(&mut self, errors: &[Error]) -> usize {
        self.is_partial = true;
        let source = &self.file;
        let end = source.text.len();
        let (mut last_line, mut first) = (0, end);
        for error in errors {
            let span = error.span().unwrap_or(end..end);
            first = first.min(span.start);
            let line = source.line_of(span.start);
            if line == last_line {
                continue;
            }
            last_line = line;
            self.problems.add(|| {
                let what = format!("syntax: {}", error.message());
                let remedy = syntax_remedy(source.line(line));
                Problem::new(At::Place(source.place(span)), "", what, Some(remedy))
            });
        }
        let before = &source.text.as_bytes()[..first.min(end)];
        before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    fn table(&mut self, keys: &'static [Key], entries: &DeTable<'_>, path: &str) {
        for (name, value) in entries {
            match keys.iter().find(|key| key.name == name.get_ref()) {
                Some(key) => self.entry(key, value, &join(path, key.name)),
                None => self.unknown(keys, name, value, path),
            }
        }
    }

    fn entry(&mut self, key: &'static Key, value: &Spanned<DeValue<'_>>, path: &str) {
        match (&key.kind, value.get_ref()) {
            (Kind::Table(keys), DeValue::Table(entries)) => self.table(keys, entries, path),
            (Kind::Tables(keys, _), DeValue::Table(entries))
                if matches!(self.reading, Origin::Named(_)) =>
            {
                self.numbered(keys, entries, path);
            }
            (Kind::Tables(keys, most), DeValue::Array(list))
                if (1..=*most).contains(&list.len()) =>
            {
                self.tables(keys, list, path);
            }
            _ => match key.kind.accept(value) {
                Ok(accepted) => {
                    self.origins.insert(path.to_owned(), self.reading.clone());
                    self.values.insert(path.to_owned(), accepted);
                }
                Err(mismatches) => {
                    self.origins.insert(path.to_owned(), Origin::Rejected);
                    for wrong in mismatches {
                        let expected = key.kind.expects();
                        let what = format!("found {}, expected {expected}", wrong.found);
                        self.at(wrong.span, path, what, wrong.remedy.or_else(|| key.remedy(path)));
                    }
                }
            },
        }
    }

    /// A list of tables replaces the whole list of the base; each has to have every key.
    fn tables(&mut self, keys: &'static [Key], list: &DeArray<'_>, path: &str) {
        let below = format!("{path}.");
        self.values.retain(|path, _| !path.starts_with(&below));
        self.origins.retain(|path, _| !path.starts_with(&below));
        for (nth, entry) in list.iter().enumerate() {
            let path = format!("{below}{nth}");
            self.list_entry(keys, entry, &path);
            let DeValue::Table(given) = entry.get_ref() else { continue };
            for key in keys.iter().filter(|key| !given.contains_key(key.name)) {
                let what = format!("`{}` is missing: each entry needs all keys", key.name);
                self.at(entry.span(), &path, what, None);
            }
        }
    }

    /// Changes of single entries of a list of tables.
    fn numbered(&mut self, keys: &'static [Key], changes: &DeTable<'_>, path: &str) {
        let count = entries(keys, path, &self.values);
        for (name, entry) in changes {
            match name.get_ref().parse::<usize>().ok().filter(|nth| *nth < count) {
                Some(nth) => self.list_entry(keys, entry, &format!("{path}.{nth}")),
                None => {
                    let last = count.saturating_sub(1);
                    let what = format!("expected the number of an entry, from 0 to {last}");
                    self.at(entry.span(), &join(path, &cut(name.get_ref())), what, None);
                }
            }
        }
    }

    fn list_entry(&mut self, keys: &'static [Key], entry: &Spanned<DeValue<'_>>, path: &str) {
        match entry.get_ref() {
            DeValue::Table(entries) => self.table(keys, entries, path),
            other => {
                let what = format!("found {}, expected a table", describe(other));
                self.at(entry.span(), path, what, None);
            }
        }
    }

    /// An unknown key, or an unknown table, which is read as the one that it probably means, for
    /// the sake of the problems in it.
    fn unknown(
        &mut self,
        keys: &'static [Key],
        name: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        path: &str,
    ) {
        let shown = join(path, &cut(name.get_ref()));
        match value.get_ref() {
            DeValue::Table(entries) if path.is_empty() => {
                let (remedy, meant) = self.schema.table_remedy(name.get_ref());
                self.at(name.span(), &shown, "unknown table".to_owned(), Some(remedy));
                if let Some(key) = meant {
                    self.misspelled.insert(key.name, name.get_ref().to_string());
                    self.table(key.keys(), entries, key.name);
                }
            }
            _ => {
                let remedy = self.schema.remedy(keys, path, name.get_ref());
                self.at(name.span(), &shown, "unknown key".to_owned(), Some(remedy));
            }
        }
    }

    /// Adds a problem at these bytes of the file, or with the flag or variable, that is being read.
    fn at(&mut self, span: Range<usize>, path: &str, what: String, remedy: Option<String>) {
        let Self { file, reading, .. } = self;
        self.problems.add(|| {
            let at = match reading {
                Origin::Named(name) => At::Named(name.to_string()),
                _ => At::Place(file.place(span)),
            };
            Problem::new(at, path, what, remedy)
        });
    }
}

/// The text of a file.
fn text_of(path: &Path) -> Result<String, Problem> {
    let name = path.display().to_string();
    let whole = |what: String| Problem::new(At::File(name.clone()), "", what, None);
    let mut bytes = Vec::new();
    regular_file::open(path)
        .and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_end(&mut bytes))
        .map_err(|error| whole(format!("the file cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_LEN {
        return Err(whole(format!("the file is longer than {MAX_FILE_LEN} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (start, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let source = Source::new(&name, &String::from_utf8_lossy(bytes));
        let what = format!("byte {:#04x} is not UTF-8, as TOML must be", bytes[start]);
        Problem::new(At::Place(source.place(start..start + 1)), "", what, None)
    })
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
