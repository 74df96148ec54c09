//! Lines, columns and excerpts of a file.

use std::ops::Range;

/// Characters of a line that an excerpt shows.
const SHOWN: usize = 100;

/// A text and its name.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    /// The offset of each line.
    lines: Vec<usize>,
}

/// A place in a file: line and column from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The line with its number, and carets below the range.
    pub(crate) excerpt: String,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.to_owned(), text: text.to_owned(), lines }
    }

    /// The place of a range of bytes, which is first fitted to the text and to its characters.
    pub(crate) fn place(&self, span: Range<usize>) -> Box<Place> {
        let start = self.boundary(span.start);
        let marked = &self.text[start..self.boundary(span.end.max(start))];
        let marked = marked.lines().next().unwrap_or_default().chars().count();
        let line = self.line_of(start);
        let column = self.text[self.lines[line - 1]..start].chars().count();
        let excerpt = excerpt(line, self.line(line), column, marked.max(1));
        Box::new(Place { file: self.name.clone(), line, column: column + 1, excerpt })
    }

    /// The number of the line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|line| *line <= at)
    }

    /// A line by its number, from 1, without its end.
    pub(crate) fn line(&self, number: usize) -> &str {
        self.text[self.lines[number - 1]..].lines().next().unwrap_or_default()
    }

    /// The last character boundary up to `at`.
    fn boundary(&self, at: usize) -> usize {
        let mut up_to = (0..=at.min(self.text.len())).rev();
        up_to.find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// A line, cut around the column if it is long, without control characters, and carets below the
/// column and those behind it. Columns count from 0.
fn excerpt(number: usize, line: &str, column: usize, marked: usize) -> String {
    let characters = line.chars().count();
    let from = if characters <= SHOWN { 0 } else { column.saturating_sub(SHOWN / 2) };
    let lead = if from > 0 { "..." } else { "" };
    let tail = if characters > from + SHOWN { "..." } else { "" };
    let shown = line.chars().skip(from).take(SHOWN).map(|c| match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    });
    let shown: String = shown.collect();
    let carets = marked.min(SHOWN.min(characters - from).saturating_sub(column - from)).max(1);
    let (skip, carets) = (" ".repeat(lead.len() + column - from), "^".repeat(carets));
    let margin = " ".repeat(number.to_string().len());
    format!("  {margin} |\n  {number} | {lead}{shown}{tail}\n  {margin} | {skip}{carets}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_from_one() {
        let source = Source::new("f", "a = 1\r\n\té = \"ß\" # x\nlast");
        let at = |needle: &str| {
            let start = source.text.find(needle).unwrap();
            let place = source.place(start..start + needle.len());
            (place.line, place.column, place.excerpt.matches('^').count())
        };
        assert_eq!(at("a"), (1, 1, 1));
        assert_eq!(at("é"), (2, 2, 1));
        assert_eq!(at("\"ß\""), (2, 6, 3));
        assert_eq!(at("last"), (3, 1, 4));
        assert_eq!(source.place(500..900).line, 3);
    }

    #[test]
    fn long_lines_are_cut_around_the_place_and_control_characters_are_masked() {
        let text = format!("{}\u{1b}[31mX{}", "a".repeat(300), "b".repeat(300));
        let at = text.find('X').unwrap();
        let place = Source::new("f", &text).place(at..at + 1);
        let lines: Vec<_> = place.excerpt.lines().collect();
        assert_eq!(lines[1].chars().nth(lines[2].find('^').unwrap()), Some('X'));
        assert!(lines[1].starts_with("  1 | ...a") && lines[1].ends_with("b..."));
        assert_eq!((lines[2].matches('^').count(), place.column), (1, 306));
        assert!(!place.excerpt.contains('\u{1b}'));
    }
}
