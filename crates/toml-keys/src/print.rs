//! The default file with comments, and the reference page, both from the declarations.

use crate::key::{Absent, Applied, Key, Schema};

/// Columns of the default file.
const FILE_WIDTH: usize = 96;

/// Columns of the reference page.
const PAGE_WIDTH: usize = 120;

impl Schema {
    /// A file with every key and its documentation that has the effect of an empty file.
    pub fn print(&self) -> String {
        let mut out = self.head.to_owned();
        for key in self.keys.iter().filter(|key| key.keys().is_empty()) {
            print_key(key, &mut out);
        }
        for table in self.keys.iter().filter(|key| !key.keys().is_empty()) {
            out.push_str(&format!("\n\n[{}]\n", table.name));
            wrap(table.doc, "# ", FILE_WIDTH, &mut out);
            table.keys().iter().for_each(|key| print_key(key, &mut out));
        }
        out
    }

    /// A reference of every key, in Markdown, with a section per table. `introduction` has the
    /// paragraphs above it.
    pub fn markdown(&self, title: &str, introduction: &[&str]) -> String {
        let mut out = format!("# {title}\n");
        for paragraph in introduction {
            out.push('\n');
            wrap(paragraph, "", PAGE_WIDTH, &mut out);
        }
        out.push_str("\n## Top level\n");
        for key in self.keys.iter().filter(|key| key.keys().is_empty()) {
            describe(key.name, key, &mut out);
        }
        for table in self.keys.iter().filter(|key| !key.keys().is_empty()) {
            out.push_str(&format!("\n## `[{}]`\n\n", table.name));
            wrap(table.doc, "", PAGE_WIDTH, &mut out);
            let path = |key: &Key| format!("{}.{}", table.name, key.name);
            table.keys().iter().for_each(|key| describe(&path(key), key, &mut out));
        }
        out
    }
}

fn print_key(key: &Key, out: &mut String) {
    out.push('\n');
    wrap(key.doc, "# ", FILE_WIDTH, out);
    let expects = key.kind.expects();
    let applied = applied(key);
    match key.absent {
        Absent::Derived { from, example } => {
            let text = format!("Takes {expects}. Without this key: {from}. {applied}");
            wrap(&text, "# ", FILE_WIDTH, out);
            out.push_str(&format!("# {} = {example}\n", key.name));
        }
        Absent::Default(_) | Absent::Base => {
            let value = if let Absent::Default(value) = key.absent { value } else { "" };
            wrap(&format!("Takes {expects}. {applied}"), "# ", FILE_WIDTH, out);
            out.push_str(&format!("{} = {value}\n", key.name));
        }
    }
}

/// A section of the reference page.
fn describe(path: &str, key: &Key, out: &mut String) {
    out.push_str(&format!("\n### `{path}`\n\n"));
    wrap(key.doc, "", PAGE_WIDTH, out);
    let accepted = format!("- Takes {}.", key.kind.expects());
    let absent = match key.absent {
        Absent::Default(value) => format!("- Default: `{value}`."),
        Absent::Derived { from, example } => format!("- Without it: {from}. Example: `{example}`."),
        Absent::Base => String::new(),
    };
    out.push('\n');
    for item in [accepted, absent, format!("- {}", applied(key))] {
        let mut lines = String::new();
        wrap(&item, "", PAGE_WIDTH - 2, &mut lines);
        out.push_str(lines.trim_end().replace('\n', "\n  ").as_str());
        out.push('\n');
    }
}

fn applied(key: &Key) -> &'static str {
    match key.applied {
        Applied::OnReload => "A change applies on a reload.",
        Applied::OnUpgrade => "A change applies on an upgrade or a restart.",
        Applied::OnRestart => "A change applies on a restart.",
    }
}

/// A text in lines of at most `width` columns, each with a prefix, broken at spaces.
fn wrap(text: &str, prefix: &str, width: usize, out: &mut String) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length <= width {
            out.push(' ');
            column += 1 + length;
        } else {
            if column > 0 {
                out.push('\n');
            }
            out.push_str(prefix);
            column = prefix.len() + length;
        }
        out.push_str(word);
    }
    if column > 0 {
        out.push('\n');
    }
}
