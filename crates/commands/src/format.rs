//! Rates and bars, and text of servers, for a terminal.

use std::borrow::Cow;
use std::fmt::Write;
use std::io;

use onrush_text::numbers::compact;

/// A rate per second; `-` if there is none yet.
pub(crate) fn rate(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), compact)
}

/// A share from 0 to 1 as a bar of `columns` columns.
pub(crate) fn bar(share: f64, columns: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(columns - full))
}

/// Text that a server, or another user of this host, has written. Characters that control a
/// terminal are escaped as in JSON, so that JSON stays the same: C0 except line break and tab, DEL,
/// C1, and those that change the direction of text.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(controls_terminal) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 32);
    for character in text.chars() {
        match controls_terminal(character) {
            // Writing to a string cannot fail.
            true => drop(write!(safe, "\\u{:04x}", u32::from(character))),
            false => safe.push(character),
        }
    }
    safe.into()
}

/// Bytes of a line that [`Printable`] writes at once at most.
const MAX_LINE: usize = 1 << 16;

/// Writes long text of a server line by line, without the characters that control a terminal. A
/// closed pipe is not an error. Flush it at the end: the last line may lack its line break.
#[derive(Debug)]
pub(crate) struct Printable<W> {
    to: W,
    /// The beginning of a line, which may end within a character.
    line: Vec<u8>,
}

impl<W: io::Write> Printable<W> {
    /// Writes to `to`.
    pub(crate) fn new(to: W) -> Self {
        Self { to, line: Vec::new() }
    }

    /// Writes the first bytes of `line`.
    fn print(&mut self, length: usize) -> io::Result<()> {
        let mut text = String::from_utf8_lossy(&self.line[..length]).into_owned();
        text.retain(|character| !controls_terminal(character));
        self.line.drain(..length);
        match self.to.write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

impl<W: io::Write> io::Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        let end = self.line.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        if let Some(length) = end.or((self.line.len() > MAX_LINE).then_some(self.line.len())) {
            self.print(length)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.print(self.line.len())?;
        self.to.flush()
    }
}

fn controls_terminal(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        for (text, safe) in [
            ("plain\ttext, bücher ██\n", "plain\ttext, bücher ██\n"),
            ("\x1b]0;title\x07\x1b[2J", "\\u001b]0;title\\u0007\\u001b[2J"),
            ("\u{9b}31m\u{9c}\x7f\r\x08\0", "\\u009b31m\\u009c\\u007f\\u000d\\u0008\\u0000"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\\u202eb\\u2066c\\u200f"),
        ] {
            assert_eq!(escaped(text), safe);
        }
        let json = "{\"a\": \"\u{9b}\u{202e}\"}\n";
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&escaped(json)), read(json));
    }

    #[test]
    fn printable_text_is_written_alone() {
        let mut written = Printable::new(Vec::new());
        // Each byte by itself, as a character may be divided between two writes.
        for byte in "a\x1b[2J \u{9b}München\n\u{202e}\x7f~".bytes() {
            io::Write::write_all(&mut written, &[byte]).unwrap();
        }
        assert_eq!(written.to, "a[2J München\n".as_bytes());
        io::Write::flush(&mut written).unwrap();
        assert_eq!(written.to, "a[2J München\n~".as_bytes());
    }

    #[test]
    fn a_bar_has_its_number_of_columns() {
        assert_eq!([-1.0, 0.5, 7.0].map(|share| bar(share, 4)), ["░░░░", "██░░", "████"]);
    }
}
