//! A TOML document, key by key, into a [`Config`]. Goes on after a problem, so that one run finds
//! them all.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::keys::{self, Standard, TABLES, Table};
use super::problem::Problem;
use super::suggest;
use super::{Config, Written};

/// Reads the text of `config`'s source into its fields and problems.
pub(crate) fn document(config: &mut Config) {
    let text = config.source.text().to_owned();
    let (root, errors) = DeTable::parse_recoverable(&text);
    if errors.is_empty() {
        Reading { config }.root(root.get_ref());
    } else {
        Reading { config }.syntax(&errors);
    }
}

/// Gives every field its default out of the table of keys.
pub(crate) fn defaults(written: &mut Written) {
    for (_, key) in keys::all() {
        if let Standard::Is(text) = key.default {
            let value = DeValue::parse(text).expect("a default is TOML");
            let slot = (key.field)(written);
            slot.read(key, &value).expect("a default is in its key's range");
            slot.forget_origin();
        }
    }
}

struct Reading<'c> {
    config: &'c mut Config,
}

impl Reading<'_> {
    /// What the parser says, one problem a line. The keys are not looked at: what the parser made
    /// of the rest may have nothing to do with what was meant.
    fn syntax(&mut self, errors: &[Error]) {
        let source = &self.config.source;
        let end = source.text().len();
        let mut last_line = 0;
        for error in errors {
            let span = error.span().unwrap_or(end..end);
            let line = source.line_of(span.start);
            if line == last_line {
                continue;
            }
            last_line = line;
            self.config.findings.add(|| {
                let what = format!("syntax: {}", error.message());
                Problem::at(source.place(span), "", what, Some(syntax_help(source.line(line))))
            });
        }
    }

    fn root(&mut self, root: &DeTable<'_>) {
        let (top, tables) = TABLES.split_first().expect("there is a table of top keys");
        for (name, value) in root {
            match tables.iter().find(|table| table.name == name.get_ref()) {
                Some(table) => match value.get_ref() {
                    DeValue::Table(entries) => self.table(table, entries),
                    _ => self.not_a_table(table, value),
                },
                None => match value.get_ref() {
                    DeValue::Table(entries)
                        if !top.keys.iter().any(|k| k.name == name.get_ref()) =>
                    {
                        self.unknown_table(name, entries);
                    }
                    _ => self.entry(top, name, value),
                },
            }
        }
    }

    fn table(&mut self, table: &'static Table, entries: &DeTable<'_>) {
        for (name, value) in entries {
            self.entry(table, name, value);
        }
    }

    /// A key of a table, known or not.
    fn entry(
        &mut self,
        table: &'static Table,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let Some(key) = table.keys.iter().find(|key| key.name == name.get_ref()) else {
            let path = shown_path(table.name, name.get_ref());
            let help = suggest::for_key(table, name.get_ref());
            self.problem(name.span(), &path, "unknown key".to_owned(), Some(help));
            return;
        };
        let slot = (key.field)(&mut self.config.written);
        if let Err(wrongs) = slot.read(key, value) {
            let expects = slot.expects(key);
            for wrong in wrongs {
                let what = format!("found {}, expected {expects}", wrong.found);
                let help = wrong.help.or_else(|| key.default.help());
                self.problem(wrong.span, &key.path(table), what, help);
            }
        }
    }

    /// A mistyped table is read as the one that it is likely to be, for the sake of the problems
    /// in it.
    fn unknown_table(&mut self, name: &Spanned<std::borrow::Cow<'_, str>>, entries: &DeTable<'_>) {
        let meant = suggest::for_table(name.get_ref());
        let help = match meant {
            Some(table) => format!("did you mean [{}]?", table.name),
            None => {
                let names: Vec<_> =
                    TABLES[1..].iter().map(|table| format!("[{}]", table.name)).collect();
                format!("the tables are {}", names.join(", "))
            }
        };
        let path = shown_path("", name.get_ref());
        self.problem(name.span(), &path, "unknown table".to_owned(), Some(help));
        if let Some(table) = meant {
            self.table(table, entries);
        }
    }

    fn not_a_table(&mut self, table: &Table, value: &Spanned<DeValue<'_>>) {
        let what = format!("found {}, expected a table", article(value.get_ref()));
        let help = format!("write `[{}]` on a line of its own and its keys below", table.name);
        self.problem(value.span(), table.name, what, Some(help));
    }

    fn problem(
        &mut self,
        span: std::ops::Range<usize>,
        path: &str,
        what: String,
        help: Option<String>,
    ) {
        let source = &self.config.source;
        self.config.findings.add(|| Problem::at(source.place(span), path, what, help));
    }
}

/// What may be meant by a line that is no TOML.
fn syntax_help(line: &str) -> String {
    let value = line.split_once('=').filter(|(key, _)| !key.contains(['#', '"', '\'', '[']));
    match value.map(|(key, value)| (key.trim(), value.trim())) {
        Some((key, "")) => format!("a value is missing: `{} = ...`", shown_path("", key)),
        Some((_, value)) if value.starts_with(char::is_alphabetic) => {
            "texts stand in quotes, like \"info\"; true and false do not".to_owned()
        }
        _ => "this is no TOML yet (https://toml.io); keys are checked once it is".to_owned(),
    }
}

/// The path of something that the file's writer named: cut when it is long, and masked.
fn shown_path(table: &str, name: &str) -> String {
    let mut shown: String = name.chars().take(64).collect();
    if shown.len() < name.len() {
        shown.push_str("...");
    }
    let shown = shown.escape_debug();
    if table.is_empty() { shown.to_string() } else { format!("{table}.{shown}") }
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
