//! Text for terminals of 80 columns.

/// Columns of a line.
pub(crate) const WIDTH: usize = 80;
/// Columns of the names of facts.
const NAME: usize = 18;

/// Lines of a fact: its name, then its text in a column.
pub(crate) fn fact(name: &str, text: &str) -> Vec<String> {
    wrapped(&format!("{name:<NAME$}"), text)
}

/// Breaks a text at spaces. Its first line begins with `first`, the others with as many spaces. A
/// word that is too long has a line of its own.
pub(crate) fn wrapped(first: &str, text: &str) -> Vec<String> {
    let indent = first.chars().count();
    let mut rows: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let needed = 1 + word.chars().count();
        match rows.last_mut() {
            Some(row) if indent + row.chars().count() + needed <= WIDTH => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(word.to_owned()),
        }
    }
    let begin = |n: usize| if n == 0 { first.to_owned() } else { " ".repeat(indent) };
    rows.iter().enumerate().map(|(n, row)| begin(n) + row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_at_spaces() {
        let text = "a word and ".repeat(20);
        let lines = wrapped("warning: ", text.trim());
        assert!(lines.len() == 4 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:#?}");
        assert!(lines[0].starts_with("warning: a") && lines[1].starts_with("         "));
        let joined: Vec<_> = lines.iter().map(|line| line[9..].to_owned()).collect();
        assert_eq!(joined.join(" "), text.trim());
    }

    #[test]
    fn a_long_word_stays_whole() {
        let word = "x".repeat(200);
        assert_eq!(wrapped("", &format!("a {word} b")), ["a", word.as_str(), "b"]);
        assert_eq!(fact("seed", "7"), [format!("{:<18}7", "seed")]);
    }
}
