//! Texts in lines of limited width.

/// A text broken at spaces into lines of at most `width` characters, the first behind `first`, the
/// others behind `rest`. A word that is too long has a line of its own.
pub fn wrapped(text: &str, first: &str, rest: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{rest}{word}")),
            None => lines.push(format!("{first}{word}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_at_spaces() {
        let text = "a word and ".repeat(20);
        let lines = wrapped(&text, "warning: ", "         ", 80);
        assert!(lines.len() == 4 && lines.iter().all(|line| line.len() <= 80), "{lines:#?}");
        assert!(lines[0].starts_with("warning: a") && lines[1].starts_with("         "));
        let joined: Vec<_> = lines.iter().map(|line| line[9..].to_owned()).collect();
        assert_eq!(joined.join(" "), text.trim());
    }

    #[test]
    fn a_long_word_stays_whole() {
        let word = "x".repeat(200);
        assert_eq!(wrapped(&format!("a {word} b"), "", "", 80), ["a", word.as_str(), "b"]);
    }
}
