//! Text for terminals of 80 columns.

use onrush_text::lines;

/// Columns of a line.
pub(crate) const WIDTH: usize = 80;
/// Columns of the names of facts.
const NAME: usize = 18;

/// Lines of a fact: its name, then its text in a column.
pub(crate) fn fact(name: &str, text: &str) -> Vec<String> {
    wrapped(&format!("{name:<NAME$}"), text)
}

/// Breaks a text into lines. The first begins with `first`, the others with as many spaces.
pub(crate) fn wrapped(first: &str, text: &str) -> Vec<String> {
    lines::wrapped(text, first, &" ".repeat(first.chars().count()), WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_has_its_text_in_a_column() {
        let lines = fact("seed", &"7 ".repeat(40));
        assert_eq!(lines[0], format!("{:<18}{}", "seed", ["7"; 31].join(" ")));
        assert_eq!(lines[1], format!("{:<18}{}", "", ["7"; 9].join(" ")));
    }
}
