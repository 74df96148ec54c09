//! Files of info hashes: one a line, in hexadecimal (40 digits) or base32 (32 characters, as in older magnet
//! links; RFC 4648, section 6). What follows a `#` is a comment; lines without anything else are skipped.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use data_encoding::{BASE32_NOPAD_NOCASE, HEXLOWER_PERMISSIVE};
use thiserror::Error;

/// Bad lines that are told one by one.
const SHOWN: usize = 10;
/// Bytes of a line that is a hash and has a comment, on average, at most.
const BYTES_PER_ENTRY: u64 = 256;

/// Why a file is not used. Nothing of it is.
#[derive(Debug, Error)]
pub enum ListError {
    /// It cannot be read.
    #[error("{}: the list cannot be read: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is longer than is allowed.
    #[error(
        "{}: the list has more than {most} info hashes, or very long comments: raise \
         limits.list_entries", path.display()
    )]
    Long {
        /// The file.
        path: PathBuf,
        /// How many there may be.
        most: usize,
    },
    /// Some lines are no info hashes.
    #[error("{}", Shown(path, lines, *total))]
    Lines {
        /// The file.
        path: PathBuf,
        /// The first bad lines, counted from 1, and what is wrong.
        lines: Vec<(usize, String)>,
        /// How many there are.
        total: usize,
    },
}

/// Bad lines as people read them.
struct Shown<'a>(&'a Path, &'a [(usize, String)], usize);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, lines, total) = self;
        for (line, what) in *lines {
            writeln!(f, "{}:{line}: {what}", path.display())?;
        }
        let more = if *total > lines.len() { ", the first of them are shown" } else { "" };
        write!(
            f,
            "{total} lines of the list are no info hashes{more}; a line is 40 hexadecimal digits or \
             32 base32 characters, and what follows a # is a comment"
        )
    }
}

/// Reads a file with `most` info hashes at most.
///
/// # Errors
/// [`ListError`].
pub fn read(path: &Path, most: usize) -> Result<Vec<[u8; 20]>, ListError> {
    let unreadable = |error| ListError::Read { path: path.to_owned(), error };
    let longest = (most as u64).saturating_mul(BYTES_PER_ENTRY).max(1 << 16);
    let mut text = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(longest + 1).read_to_end(&mut text).map_err(unreadable)?;
    let long = || ListError::Long { path: path.to_owned(), most };
    if text.len() as u64 > longest {
        return Err(long());
    }
    let mut hashes = Vec::with_capacity(text.len() / 41);
    let (mut bad, mut total) = (Vec::new(), 0);
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        match entry(line) {
            Ok(Some(hash)) => hashes.push(hash),
            Ok(None) => {}
            Err(what) => {
                total += 1;
                if bad.len() < SHOWN {
                    bad.push((number + 1, what));
                }
            }
        }
    }
    match total {
        0 if hashes.len() > most => Err(long()),
        0 => Ok(hashes),
        _ => Err(ListError::Lines { path: path.to_owned(), lines: bad, total }),
    }
}

/// What a line lists; nothing where it is empty or only a comment.
fn entry(line: &[u8]) -> Result<Option<[u8; 20]>, String> {
    let end = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
    let word = line[..end].trim_ascii();
    let encoding = match word.len() {
        0 => return Ok(None),
        40 => &HEXLOWER_PERMISSIVE,
        32 => &BASE32_NOPAD_NOCASE,
        _ => {
            let shown: String = String::from_utf8_lossy(word).chars().take(50).collect();
            return Err(format!("{shown:?} has {} characters, not 40 or 32", word.len()));
        }
    };
    let mut hash = [0; 20];
    match encoding.decode_mut(word, &mut hash) {
        Ok(_) => Ok(Some(hash)),
        Err(error) => {
            let at = error.error.position;
            let kind = if word.len() == 40 { "hexadecimal" } else { "base32" };
            let character = char::from(word[at.min(word.len() - 1)]);
            Err(format!("character {} is {character:?}, which is not {kind}", at + 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str, most: usize) -> Result<Vec<[u8; 20]>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        std::fs::write(&path, text).unwrap();
        let place = path.display().to_string();
        read(&path, most).map_err(|error| error.to_string().replace(&place, "LIST"))
    }

    #[test]
    fn hexadecimal_and_base32_comments_and_empty_lines() {
        let hex = "aB".repeat(20);
        let text =
            format!("# a list\n\n{hex}\r\n  {hex} # why\nVOV2XK5LVOV2XK5LVOV2XK5LVOV2XK5L\n");
        let twice = [0xAB; 20];
        assert_eq!(list(&text, 10).unwrap(), [twice, twice, twice]);
        assert_eq!(list(&text.to_lowercase(), 10).unwrap().len(), 3);
        assert_eq!(list("", 10).unwrap(), [[0; 20]; 0]);
        assert_eq!(list(&"0".repeat(40), 10).unwrap(), [[0; 20]]);
    }

    #[test]
    fn bad_lines_are_told_by_their_numbers() {
        let text =
            format!("{}\nnonsense\n{}x\n{}1\n", "a".repeat(40), "b".repeat(39), "A".repeat(31));
        let error = list(&text, 10).unwrap_err();
        assert!(error.contains("LIST:2: \"nonsense\" has 8 characters, not 40 or 32"), "{error}");
        assert!(error.contains("LIST:3: character 40 is 'x', which is not hexadecimal"), "{error}");
        assert!(error.contains("LIST:4: character 32 is '1', which is not base32"), "{error}");
        assert!(error.contains("3 lines of the list are no info hashes; "), "{error}");
        let error = list(&"?\n".repeat(1_000), 10).unwrap_err();
        assert!(error.contains("1000 lines") && error.contains("first of them"), "{error}");
        assert_eq!(error.lines().count(), SHOWN + 1);
    }

    #[test]
    fn what_is_too_long_or_not_there_is_named() {
        let three = format!("{}\n", "a".repeat(40)).repeat(3);
        assert!(list(&three, 3).is_ok());
        assert!(list(&three, 2).unwrap_err().contains("more than 2 info hashes"));
        let comments = "#".repeat(100_000);
        assert!(list(&comments, 2).unwrap_err().contains("very long comments"));
        let error = read(Path::new("/nowhere/list"), 1).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/list: the list cannot be read: No such"), "{error}");
    }
}
