//! The defaults as a file with comments: what `onrush --print-config` writes.

use super::Written;
use super::keys::{Key, Standard, TABLES, Table};

/// Width of the printed file.
const WIDTH: usize = 96;

/// What stands above the first key.
const HEAD: &str = "\
# onrush: every key, with its default. `onrush --print-config` writes this file.
#
# Keep only the lines that you change: an absent key has its default, and a key with a # before it
# has none of its own. No file is needed at all.
#
#   onrush --check-config --config FILE     says what a file means on this host, or what is wrong
#   onrush --config FILE                    starts with it; flags override it (onrush --help)
";

/// Every key with its text, type, unit, range and default, as a configuration file that changes
/// nothing.
pub fn print_config() -> String {
    let mut out = String::from(HEAD);
    for table in TABLES {
        print_table(table, &mut out);
    }
    out
}

fn print_table(table: &Table, out: &mut String) {
    if !table.name.is_empty() {
        out.push_str(&format!("\n\n[{}]\n", table.name));
    }
    comment(table.doc, out);
    for key in table.keys {
        out.push('\n');
        print_key(key, out);
    }
}

fn print_key(key: &Key, out: &mut String) {
    comment(key.doc, out);
    let expects = (key.field)(&mut Written::default()).expects(key);
    match key.default {
        Standard::Is(text) => {
            comment(&format!("Takes {expects}. {}", key.limit), out);
            out.push_str(&format!("{} = {text}\n", key.name));
        }
        Standard::Absent { means, example } => {
            comment(&format!("Takes {expects}. {} When absent: {means}.", key.limit), out);
            out.push_str(&format!("# {} = {example}\n", key.name));
        }
    }
}

/// A text as comment lines, broken at spaces.
fn comment(text: &str, out: &mut String) {
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.chars().count() <= WIDTH {
            out.push(' ');
            width += 1;
        } else {
            if width > 0 {
                out.push('\n');
            }
            out.push_str("# ");
            width = 2;
        }
        out.push_str(word);
        width += word.chars().count();
    }
    if width > 0 {
        out.push('\n');
    }
}
