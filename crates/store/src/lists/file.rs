//! Files of entries, one per line, with comments and empty lines. A file is used as a whole or not
//! at all.
//!
//! An info hash is 40 hexadecimal digits or 32 base32 characters, as in older magnet links (RFC
//! 4648, section 6).

use std::fs::{self, Metadata};
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use onrush_config::regular_file;
use onrush_proto::InfoHash;
use onrush_proto::id::InvalidInfoHash;
use onrush_tracker::access::addresses::{AddressBlock, excerpt};
use thiserror::Error;

/// Bad lines that an error lists.
const SHOWN: usize = 10;
/// Maximum bytes of a line, with its comment.
pub(super) const MAX_LINE: u64 = 4096;
/// Bad lines after which reading stops: the file is not a list.
const MAX_BAD: usize = 10_000;
/// Lines between two reports of progress.
const LINES_PER_STEP: usize = 20_000;

/// The format of the entries of a file.
pub struct EntryFormat<T> {
    /// Plural name of the entries, for errors.
    pub name: &'static str,
    /// The form of a line, for errors.
    pub form: &'static str,
    /// Characters that start a comment.
    pub comments: &'static [u8],
    /// Bytes of a line with only an entry, to estimate the number of entries.
    pub bytes_per_line: u64,
    /// Parses an entry without the blanks around it; the error names the problem.
    pub parse: fn(&[u8]) -> Result<T, String>,
}

/// Info hashes.
pub const INFO_HASHES: EntryFormat<[u8; 20]> = EntryFormat {
    name: "info hashes",
    form: "a line is 40 hexadecimal digits or 32 base32 characters; # starts a comment",
    comments: b"#",
    bytes_per_line: 41,
    parse: info_hash,
};

/// Address blocks.
pub const BLOCKS: EntryFormat<AddressBlock> = EntryFormat {
    name: "address blocks",
    form: "a line is an address, a block like 192.0.2.0/24 or 2001:db8::/32, or a range like \
           192.0.2.1-192.0.2.9; # and ; start a comment",
    comments: b"#;",
    bytes_per_line: 16,
    parse: |word| {
        let text =
            std::str::from_utf8(word).map_err(|_| format!("{:?} is not UTF-8", excerpt(word)))?;
        text.parse()
    },
};

/// A list file that was refused. No entry of it is used.
#[derive(Debug, Error)]
#[error("{}{fault}", place(path, fault))]
pub struct ListError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub fault: ListFault,
}

/// Why a list file was refused.
#[derive(Debug, Error)]
pub enum ListFault {
    /// The file cannot be read.
    #[error("the list cannot be read: {0}")]
    Read(io::Error),
    /// The file was written or replaced while it was read, so the entries may be a part of it.
    #[error(
        "the list was changed while it was read, and a part of it may be missing: write a new file \
         and rename it over this one, then reload"
    )]
    Changed,
    /// The file lost so many entries that it may be incomplete.
    #[error(
        "the file has {now} {name}, and has had {most} since the last start without an upgrade, or \
         the last forced reload or upgrade, each counted once: it may be incomplete; if it is not, \
         apply it with `onrush ctl reload --force`, or in an upgrade with `upgrade --force` or \
         after a reload that accepts it"
    )]
    Lost {
        /// Plural name of the entries.
        name: &'static str,
        /// The most distinct entries of the file, as counted by
        /// [`EntryHighWaterMark`](super::shrinkage::EntryHighWaterMark).
        most: usize,
        /// Distinct entries of the file that was read.
        now: usize,
    },
    /// More entries than `limits.list_entries`.
    #[error("the list has more than {most} {name}: raise limits.list_entries")]
    Long {
        /// The limit.
        most: usize,
        /// Plural name of the entries.
        name: &'static str,
    },
    /// An empty allow list.
    #[error(
        "the list is empty, and access.mode = \"allow\" would serve nothing; if the file was \
         truncated, restore it; to serve every info hash, set access.mode = \"open\""
    )]
    Empty,
    /// Lines that are not entries: the first of them with file, number and fault, their number, and
    /// the form of a line.
    #[error("{0}")]
    Lines(String),
}

/// The file, where the text of the fault does not name it.
fn place(path: &Path, fault: &ListFault) -> String {
    match fault {
        ListFault::Lines(_) => String::new(),
        _ => format!("{}: ", path.display()),
    }
}

impl ListFault {
    pub(super) fn of(self, path: &Path) -> ListError {
        ListError { path: path.to_owned(), fault: self }
    }
}

/// Reads a file with at most `most` entries, which must not change meanwhile. Calls `progress`
/// every few milliseconds, and `comment` for each entry that has one.
///
/// # Errors
/// [`ListError`].
pub fn read_with_comments<T>(
    path: &Path,
    most: usize,
    entries: &EntryFormat<T>,
    progress: &mut dyn FnMut(),
    comment: &mut dyn FnMut(&T, &str),
) -> Result<Vec<T>, ListError> {
    let unreadable = |error| ListFault::Read(error).of(path);
    let file = regular_file::open(path).map_err(unreadable)?;
    let before = file.metadata().map_err(unreadable)?;
    let likely = (before.len() / entries.bytes_per_line) as usize + 1;
    let found = Vec::with_capacity(likely.min(most));
    let read = entries.read_all(path, most, &file, found, progress, comment);
    // Even if lines were wrong: half a line of a file that is being written is no mistake in it.
    let is_same = |now: io::Result<Metadata>| now.is_ok_and(|now| state(&now) == state(&before));
    if !(is_same(file.metadata()) && is_same(fs::metadata(path))) {
        return Err(ListFault::Changed.of(path));
    }
    read
}

/// Differs after a change of a file's contents, or once another file has its name.
fn state(metadata: &Metadata) -> impl PartialEq + use<> {
    let file = (metadata.dev(), metadata.ino(), metadata.len());
    let modified = (metadata.mtime(), metadata.mtime_nsec());
    (file, modified, (metadata.ctime(), metadata.ctime_nsec()))
}

/// Reads entries from a stream, such as a pipe, until its end, and calls `comment` for each that
/// has one. Errors name the stream `name`.
///
/// # Errors
/// [`ListError`].
pub fn read_stream<T>(
    from: impl io::Read,
    name: &Path,
    entries: &EntryFormat<T>,
    comment: &mut dyn FnMut(&T, &str),
) -> Result<Vec<T>, ListError> {
    entries.read_all(name, usize::MAX, from, Vec::new(), &mut || {}, comment)
}

/// Lines that are no entries.
#[derive(Default)]
struct WrongLines {
    shown: String,
    total: usize,
}

impl WrongLines {
    /// Returns whether to go on.
    fn add(&mut self, path: &Path, number: usize, what: &str) -> bool {
        self.total += 1;
        if self.total <= SHOWN {
            self.shown += &format!("{}:{number}: {what}\n", path.display());
        }
        self.total < MAX_BAD
    }

    fn error<T>(&self, path: &Path, entries: &EntryFormat<T>) -> ListError {
        let Self { shown, total } = self;
        let EntryFormat { name, form, .. } = *entries;
        let more = if *total > SHOWN { "; the first are shown" } else { "" };
        let least = if *total == MAX_BAD { "at least " } else { "" };
        let text = format!("{shown}{least}{total} lines of the list are not {name}{more}; {form}");
        ListFault::Lines(text).of(path)
    }
}

/// Reads the next line with its end. Returns whether it is whole, and `None` at the end of the
/// file. The rest of a line longer than [`MAX_LINE`] is skipped.
pub(super) fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    if from.by_ref().take(MAX_LINE).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    let whole = line.len() < MAX_LINE as usize || line.ends_with(b"\n");
    if !whole {
        from.skip_until(b'\n')?;
    }
    Ok(Some(whole))
}

impl<T> EntryFormat<T> {
    /// Reads entries into `found`, which is empty and has room for those that are likely; more than
    /// `most` are an error. `path` is for errors.
    fn read_all(
        &self,
        path: &Path,
        most: usize,
        from: impl io::Read,
        mut found: Vec<T>,
        progress: &mut dyn FnMut(),
        comment: &mut dyn FnMut(&T, &str),
    ) -> Result<Vec<T>, ListError> {
        let unreadable = |error| ListFault::Read(error).of(path);
        let mut from = BufReader::with_capacity(1 << 16, from);
        let (mut wrong, mut number, mut line) = (WrongLines::default(), 0, Vec::new());
        while let Some(whole) = next_line(&mut from, &mut line).map_err(unreadable)? {
            number += 1;
            if usize::is_multiple_of(number, LINES_PER_STEP) {
                progress();
            }
            let entry = match whole {
                true => self.parse_line(&line),
                false => Err(format!("is longer than {MAX_LINE} bytes")),
            };
            match entry {
                Ok(Some(_)) if found.len() == most => {
                    return Err(ListFault::Long { most, name: self.name }.of(path));
                }
                Ok(Some((entry, behind))) => {
                    if !behind.is_empty() {
                        comment(&entry, &String::from_utf8_lossy(behind));
                    }
                    found.push(entry);
                }
                Ok(None) => {}
                Err(what) if wrong.add(path, number, &what) => {}
                Err(_) => break,
            }
        }
        if wrong.total == 0 { Ok(found) } else { Err(wrong.error(path, self)) }
    }

    /// Parses a line into the entry and the comment behind it; `None` if it is empty or only a
    /// comment.
    fn parse_line<'l>(&self, line: &'l [u8]) -> Result<Option<(T, &'l [u8])>, String> {
        let end = line.iter().position(|byte| self.comments.contains(byte)).unwrap_or(line.len());
        let comment = line.get(end + 1..).unwrap_or_default().trim_ascii();
        match line[..end].trim_ascii() {
            [] => Ok(None),
            word => (self.parse)(word).map(|entry| Some((entry, comment))),
        }
    }
}

fn info_hash(word: &[u8]) -> Result<[u8; 20], String> {
    InfoHash::from_text(word).map(|hash| hash.0).map_err(|error| match error {
        InvalidInfoHash::Length(len) => {
            format!("{:?} has {len} characters, not 40 or 32", excerpt(word))
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::access::addresses::AddressSet;

    #[test]
    fn address_blocks_with_comments() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("drop.txt");
        std::fs::write(&path, "; a list\n192.0.2.0/24 ; SBL1\n\n2001:db8::/32 # why\n").unwrap();
        let blocks = read(&path, 2, &BLOCKS, &mut || {}).unwrap();
        let list = AddressSet::new(blocks);
        assert!(list.contains_v4("192.0.2.200".parse().unwrap()));
        assert!(!list.contains_v4("192.0.3.0".parse().unwrap()));
        assert!(list.contains_v6("2001:db8:1::".parse().unwrap()));
        assert!(!list.contains_v6("2001:db9::".parse().unwrap()));
        std::fs::write(&path, "192.0.2.1/24\n").unwrap();
        let error = read(&path, 2, &BLOCKS, &mut || {}).unwrap_err().to_string();
        assert!(error.contains("drop.txt:1: \"192.0.2.1/24\" has bits behind"), "{error}");
        assert!(error.contains("not address blocks; "), "{error}");
    }

    fn read<T>(
        path: &Path,
        most: usize,
        entries: &EntryFormat<T>,
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<T>, ListError> {
        read_with_comments(path, most, entries, progress, &mut |_, _| {})
    }

    fn list(text: &str, most: usize) -> Result<Vec<[u8; 20]>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        std::fs::write(&path, text).unwrap();
        let place = path.display().to_string();
        read(&path, most, &INFO_HASHES, &mut || {})
            .map_err(|error| error.to_string().replace(&place, "LIST"))
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
    fn errors_list_bad_lines_by_number() {
        let text =
            format!("{}\nnonsense\n{}x\n{}1\n", "a".repeat(40), "b".repeat(39), "A".repeat(31));
        let error = list(&text, 10).unwrap_err();
        assert!(error.contains("LIST:2: \"nonsense\" has 8 characters, not 40 or 32"), "{error}");
        assert!(error.contains("LIST:3: character 40 is 'x', which is not hexadecimal"), "{error}");
        assert!(error.contains("LIST:4: character 32 is '1', which is not base32"), "{error}");
        assert!(error.contains("3 lines of the list are not info hashes; "), "{error}");
        let error = list(&"?\n".repeat(1_000), 10).unwrap_err();
        assert!(error.contains("1000 lines") && error.contains("first"), "{error}");
        assert_eq!(error.lines().count(), SHOWN + 1);
    }

    /// The file is changed when a part of it has been read.
    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let line = format!("{}\n", "a".repeat(40));
        let whole = line.repeat(2 * LINES_PER_STEP);
        let changes: [fn(&Path, &str); 5] = [
            |_, _| {},
            |path, _| fs::write(path, "").unwrap(),
            |path, text| fs::write(path, text).unwrap(),
            |path, text| {
                fs::write(path.with_extension("new"), text).unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
            |path, _| fs::remove_file(path).unwrap(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            fs::write(at("list"), &whole).unwrap();
            let past = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
            fs::File::open(at("list")).unwrap().set_modified(past).unwrap();
            let mut steps = 0;
            let read = read(&at("list"), usize::MAX, &INFO_HASHES, &mut || {
                steps += 1;
                if steps == 1 {
                    change(&at("list"), &whole);
                }
            });
            match read {
                Ok(read) => assert_eq!((number, read.len()), (0, 2 * LINES_PER_STEP)),
                Err(ListError { fault: ListFault::Changed, .. }) => assert_ne!(number, 0),
                Err(other) => panic!("change {number}: {other}"),
            }
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&path, 1, &INFO_HASHES, &mut || {}).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn long_lists_long_lines_and_missing_files_are_errors() {
        let three = format!("{}\n", "a".repeat(40)).repeat(3);
        assert!(list(&three, 3).is_ok());
        assert!(list(&three, 2).unwrap_err().contains("more than 2 info hashes"));
        let hash = "a".repeat(40);
        let fits = format!("{hash} #{}\n{hash}", "x".repeat(MAX_LINE as usize - 43));
        assert_eq!(list(&fits, 2).unwrap().len(), 2);
        let long = format!("{hash}\n{hash} #{}\n{hash}", "x".repeat(200_000));
        let error = list(&long, 9).unwrap_err();
        assert!(error.contains("LIST:2: is longer than 4096 bytes\n1 lines"), "{error}");
        assert!(list(&"?\n".repeat(50_000), 9).unwrap_err().contains("at least 10000 lines"));
        let pipe =
            read(Path::new("/dev/null"), 1, &INFO_HASHES, &mut || {}).unwrap_err().to_string();
        assert!(pipe.contains("not a regular file"), "{pipe}");
        let error =
            read(Path::new("/nowhere/list"), 1, &INFO_HASHES, &mut || {}).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/list: the list cannot be read: No such"), "{error}");
    }
}
