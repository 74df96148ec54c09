//! The default file with comments, and the reference page, both from the declarations.

use onrush_text::lines;

use crate::key::{Absent, Applied, Key, Schema, join};

/// Columns of the default file.
const FILE_WIDTH: usize = 96;

/// Columns of the reference page.
const PAGE_WIDTH: usize = 120;

impl Key {
    /// Sentences of the reference: the values that the key accepts, what holds without it, when a
    /// change has effect. What belongs into a file is between backticks, as in its documentation.
    pub fn facts(&self) -> Vec<String> {
        let absent = match self.absent {
            Absent::Default(value) => Some(format!("Default: `{value}`.")),
            Absent::Derived { from, example } => {
                Some(format!("Without it: {from}. Example: `{example}`."))
            }
            Absent::Base => None,
        };
        let takes = format!("Takes {}.", self.kind.expects());
        [Some(takes), absent, Some(applied(self).to_owned())].into_iter().flatten().collect()
    }
}

impl Schema {
    /// A file with every key and its documentation that has the effect of an empty file.
    pub fn print(&self) -> String {
        let mut out = self.head.to_owned();
        for (table, keys) in self.sections() {
            if let Some(table) = table {
                out += &format!("\n\n[{}]\n{}", table.name, wrap(table.doc, "# ", FILE_WIDTH));
            }
            keys.into_iter().for_each(|key| out += &printed(key));
        }
        out
    }

    /// A reference of every key, in Markdown, with a section per table. `introduction` has the
    /// paragraphs above it.
    pub fn markdown(&self, title: &str, introduction: &[&str]) -> String {
        let mut out = format!("# {title}\n");
        for paragraph in introduction {
            out += &format!("\n{}", wrap(paragraph, "", PAGE_WIDTH));
        }
        for (table, keys) in self.sections() {
            match table {
                None => out += "\n## Top level\n",
                Some(Key { name, doc, .. }) => {
                    out += &format!("\n## `[{name}]`\n\n{}", wrap(doc, "", PAGE_WIDTH));
                }
            }
            let path = table.map_or("", |table| table.name);
            keys.into_iter().for_each(|key| out += &described(path, key));
        }
        out
    }

    /// The keys at the top level, and those of each table.
    pub fn sections(&self) -> Vec<(Option<&'static Key>, Vec<&'static Key>)> {
        let (top, tables): (Vec<_>, Vec<_>) =
            self.keys.iter().partition(|key| key.keys().is_empty());
        let tables = tables.into_iter().map(|table| (Some(table), table.keys().iter().collect()));
        [(None, top)].into_iter().chain(tables).collect()
    }
}

/// The lines of a key in the default file.
fn printed(key: &Key) -> String {
    let (absent, line) = match key.absent {
        Absent::Derived { from, example } => {
            (format!(" Without this key: {from}."), format!("# {} = {example}", key.name))
        }
        Absent::Default(value) => (String::new(), format!("{} = {value}", key.name)),
        Absent::Base => (String::new(), format!("{} =", key.name)),
    };
    let doc = wrap(key.doc, "# ", FILE_WIDTH);
    let takes = format!("Takes {}.{absent} {}", key.kind.expects(), applied(key));
    format!("\n{doc}{}{line}\n", wrap(&takes, "# ", FILE_WIDTH))
}

/// A key of this table on the reference page.
fn described(table: &str, key: &Key) -> String {
    let item = |fact: &String| wrap(fact, "  ", PAGE_WIDTH).replacen("  ", "- ", 1);
    let items: String = key.facts().iter().map(item).collect();
    let (path, doc) = (join(table, key.name), wrap(key.doc, "", PAGE_WIDTH));
    format!("\n### `{path}`\n\n{doc}\n{items}")
}

fn applied(key: &Key) -> &'static str {
    match key.applied {
        Applied::OnReload => "A change applies on a reload.",
        Applied::OnUpgrade => "A change applies on an upgrade or a restart.",
        Applied::OnRestart => "A change applies on a restart.",
    }
}

/// A text in lines of at most `width` columns, each with a prefix, broken at spaces.
fn wrap(text: &str, prefix: &str, width: usize) -> String {
    let lines = lines::wrapped(text, prefix, prefix, width);
    lines.iter().map(|line| format!("{line}\n")).collect()
}
