//! The default file with comments, and the reference page, both from the declarations.

use crate::key::{Absent, Applied, Key, Schema, join};

/// Columns of the default file.
const FILE_WIDTH: usize = 96;

/// Columns of the reference page.
const PAGE_WIDTH: usize = 120;

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
            let path = table.map_or("", |table| table.name);
            match table {
                None => out += "\n## Top level\n",
                Some(table) => {
                    out += &format!("\n## `[{path}]`\n\n{}", wrap(table.doc, "", PAGE_WIDTH));
                }
            }
            keys.into_iter().for_each(|key| out += &described(&join(path, key.name), key));
        }
        out
    }

    /// The keys at the top level, and those of each table.
    fn sections(&self) -> Vec<(Option<&Key>, Vec<&Key>)> {
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

/// A section of the reference page.
fn described(path: &str, key: &Key) -> String {
    let takes = format!("Takes {}.", key.kind.expects());
    let absent = match key.absent {
        Absent::Default(value) => Some(format!("Default: `{value}`.")),
        Absent::Derived { from, example } => {
            Some(format!("Without it: {from}. Example: `{example}`."))
        }
        Absent::Base => None,
    };
    let applied = applied(key).to_owned();
    let items = [Some(takes), absent, Some(applied)].into_iter().flatten();
    let items: String =
        items.map(|item| wrap(&item, "  ", PAGE_WIDTH).replacen("  ", "- ", 1)).collect();
    format!("\n### `{path}`\n\n{}\n{items}", wrap(key.doc, "", PAGE_WIDTH))
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
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}");
            }
            _ => lines.push(format!("{prefix}{word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
