//! Lines, columns and excerpts of a file.

use std::fmt;
use std::ops::Range;

/// Characters of a line that an excerpt shows.
const SHOWN: usize = 100;

/// A text and its name.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    name: String,
    text: String,
    /// The offset of each line.
    lines: Vec<usize>,
}

impl Source {
    /// A byte order mark is dropped, so that it does not count as a column.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let lines = [0].into_iter().chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.to_owned(), text, lines }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The place of a range of bytes, which is first fitted to the text and to its characters.
    pub(crate) fn place(&self, span: Range<usize>) -> Place {
        let start = self.boundary(span.start);
        let end = self.boundary(span.end.max(start));
        let line = self.line_of(start);
        let column = self.text[self.lines[line - 1]..start].chars().count();
        let marked = self.text[start..end].split('\n').next().unwrap_or_default().chars().count();
        Place {
            file: self.name.clone(),
            line,
            column: column + 1,
            excerpt: Excerpt::new(self.line(line), column, marked.max(1)),
        }
    }

    /// The number of the line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.lines.partition_point(|line| *line <= at)
    }

    /// A line by its number, from 1, without its end.
    pub(crate) fn line(&self, number: usize) -> &str {
        let line = self.text[self.lines[number - 1]..].split('\n').next().unwrap_or_default();
        line.trim_end_matches('\r')
    }

    /// The last character boundary up to `at`.
    fn boundary(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

/// A place in a file: line and column from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
    excerpt: Excerpt,
}

impl Place {
    /// Writes the line with its number, and carets below the range.
    pub(crate) fn write_excerpt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let Excerpt { text, skip, carets } = &self.excerpt;
        writeln!(f, "  {margin} |")?;
        writeln!(f, "  {number} | {text}")?;
        writeln!(f, "  {margin} | {}{}", " ".repeat(*skip), "^".repeat(*carets))
    }
}

/// The part of a line that is shown, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    skip: usize,
    carets: usize,
}

impl Excerpt {
    fn new(line: &str, column: usize, marked: usize) -> Self {
        let characters = line.chars().count();
        let from = if characters <= SHOWN { 0 } else { column.saturating_sub(SHOWN / 2) };
        let lead = if from > 0 { "..." } else { "" };
        let tail = if characters > from + SHOWN { "..." } else { "" };
        let shown = line.chars().skip(from).take(SHOWN).map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        });
        let carets = marked.min(SHOWN.min(characters - from).saturating_sub(column - from)).max(1);
        let text = lead.chars().chain(shown).chain(tail.chars()).collect();
        Self { text, skip: lead.len() + column - from, carets }
    }
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
            (place.line, place.column, place.excerpt.carets)
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
        let Excerpt { text, skip, carets } = place.excerpt;
        assert_eq!(text.chars().nth(skip), Some('X'));
        assert!(!text.contains('\u{1b}') && text.starts_with("...") && text.ends_with("..."));
        assert_eq!((carets, place.column), (1, 306));
    }
}
