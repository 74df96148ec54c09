//! The journal of changes to the list of info hashes: in the state directory, so that changes made
//! while the tracker ran survive a restart and a reload of the list's file.
//!
//! One change per line: the checksum of the rest, the mode of the list, a sign, the info hash, and
//! perhaps the time in seconds since 1970 with the author, and a comment, as in
//! `ee0232d5 deny + 0123456789abcdef0123456789abcdef01234567 1795442400 user 0 # why`. Lines of
//! former versions have no checksum. The last line of an info hash counts; the sign `=` is a reset,
//! which returns it to what the list's files say. Lines of the other mode are kept for when that
//! mode is configured again. A start or a reload drops changes that the list's file contains
//! already, so that the file decides from then on, and damaged lines, with a warning.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use onrush_proto::InfoHash;

use super::file::{MAX_LINE, next_line};
use crate::atomic_file::{self, sync_directory_of};
use crate::state_file;
use onrush_tracker::access::addresses::excerpt;
use onrush_tracker::access::origins::comment;
use onrush_tracker::access::overlay::{Author, ListChange, OverlaySet};
use onrush_tracker::access::{AccessList, ListKind};

/// File name of the journal in the state directory.
pub const FILE: &str = "access.changes";

/// Permissions of the file.
const MODE: u32 = 0o600;

/// The journal of one state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    path: PathBuf,
}

/// The contents of a journal.
#[derive(Clone, Debug, Default)]
pub struct JournalContents {
    /// The last change of each info hash to the list of the requested kind.
    pub changes: BTreeMap<InfoHash, ListChange>,
    /// Changes to the list of the other kind, in order.
    others: Vec<(ListKind, ListChange)>,
    /// Number of lines.
    lines: usize,
    /// Number of damaged lines: they cannot be parsed, or differ from their checksum.
    pub damaged: usize,
    /// The first of them, as a text for the operator.
    first_damaged: String,
}

/// A list after the changes of its journal.
#[derive(Clone, Debug)]
pub struct ReplayedList {
    /// The list, with the changes in its overlay.
    pub list: AccessList,
    /// A warning for the operator, if a part of the journal could not be used.
    pub warning: Option<String>,
    /// Whether the journal could not be read.
    pub unreadable: bool,
    read: JournalContents,
}

impl JournalContents {
    /// Reads the lines of a journal, of which `kind` is requested.
    ///
    /// # Errors
    /// When the source fails.
    pub fn read(from: impl BufRead, kind: ListKind) -> io::Result<Self> {
        let (mut from, mut line) = (from, Vec::new());
        let (mut read, mut author) = (Self::default(), None);
        while let Some(is_whole) = next_line(&mut from, &mut line)? {
            read.lines += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            match change(line).filter(|_| is_whole) {
                _ if line.is_empty() => {}
                Some((of, mut change)) if of == kind => {
                    // Changes of one request share their author.
                    let last = if change.author == author { &author } else { &change.author };
                    author = last.clone();
                    change.author.clone_from(&author);
                    read.add(change);
                }
                Some(other) => read.others.push(other),
                None => {
                    read.damaged += 1;
                    if read.damaged == 1 {
                        read.first_damaged = format!("line {}, {:?}", read.lines, excerpt(line));
                    }
                }
            }
        }
        Ok(read)
    }

    fn add(&mut self, mut change: ListChange) {
        let former = self.changes.remove(&change.info_hash);
        if change.is_reset {
            return;
        }
        if change.listed && change.comment.is_none() {
            change.comment = former.filter(|it| it.listed).and_then(|it| it.comment);
        }
        self.changes.insert(change.info_hash, change);
    }
}

impl ReplayedList {
    /// The changes that the files of the list do not have, each info hash once.
    pub fn changes(&self) -> impl Iterator<Item = &ListChange> {
        self.read.changes.values()
    }

    /// The list; merged if its overlay is large.
    pub fn compacted(&self) -> AccessList {
        let needs_merge = self.list.set().is_some_and(OverlaySet::should_merge);
        if needs_merge { self.list.merged() } else { self.list.clone() }
    }
}

impl Journal {
    /// The journal in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE) }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file to read it; `None` if it is missing.
    fn open(&self) -> io::Result<Option<File>> {
        match state_file::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(Some),
        }
    }

    /// Reads the journal. A missing file has no changes.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn read(&self, kind: ListKind) -> io::Result<JournalContents> {
        match self.open()? {
            Some(file) => JournalContents::read(BufReader::new(file), kind),
            None => Ok(JournalContents::default()),
        }
    }

    /// The length of the file in bytes, a position for [`since`](Self::since).
    pub fn length(&self) -> u64 {
        self.path.symlink_metadata().map_or(0, |metadata| metadata.len())
    }

    /// Changes to the list of this kind that were appended after the first `len` bytes. The file
    /// must not have been replaced since `len` was read.
    ///
    /// # Errors
    /// When the file exists and cannot be read.
    pub fn since(&self, kind: ListKind, len: u64) -> io::Result<Vec<ListChange>> {
        let Some(mut file) = self.open()? else { return Ok(Vec::new()) };
        // A line may have been half written at that length: it counts as new.
        let before = len.min(MAX_LINE);
        file.seek(SeekFrom::Start(len - before))?;
        let mut known = Vec::new();
        (&file).take(before).read_to_end(&mut known)?;
        let begin = known.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        file.seek(SeekFrom::Start(len - before + begin as u64))?;
        let read = JournalContents::read(BufReader::new(file), kind)?;
        Ok(read.changes.into_values().collect())
    }

    /// Applies the changes of the journal to a list that was just loaded.
    pub fn replay(&self, list: AccessList) -> ReplayedList {
        let (Some(kind), Some(set)) = (list.kind(), list.set()) else {
            let read = JournalContents::default();
            return ReplayedList { list, warning: None, unreadable: false, read };
        };
        let path = self.path.display();
        let (mut read, warning, unreadable) = match self.read(kind) {
            Ok(read) => {
                let JournalContents { damaged, first_damaged, .. } = &read;
                let what = format!(
                    "{path}: damaged lines, whose changes are not applied: {damaged}; the first is \
                     {first_damaged}"
                );
                let warning = (*damaged > 0).then_some(what);
                (read, warning, false)
            }
            Err(error) => {
                let what = format!(
                    "{path} cannot be read: {error}; changes made to the list while the tracker \
                     ran are not applied"
                );
                (JournalContents::default(), Some(what), true)
            }
        };
        read.changes.retain(|hash, change| set.contains(hash) != change.listed);
        ReplayedList { list: list.with(read.changes.values()), warning, unreadable, read }
    }

    /// Appends changes and syncs them to the disk.
    ///
    /// # Errors
    /// When they cannot be written. A part that was written is truncated, as far as the disk allows
    /// it.
    pub fn append(&self, kind: ListKind, changes: &[ListChange]) -> io::Result<()> {
        let is_new = self.path.symlink_metadata().is_err();
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(MODE);
        let mut file = state_file::open_with(&mut options, &self.path)?;
        let before = file.metadata()?.len();
        let mut last = *b"\n";
        if before > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let text = addition(last[0], kind, changes);
        let synced = || if is_new { sync_directory_of(&self.path) } else { Ok(()) };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        let written = written.and_then(|()| synced());
        if written.is_err() {
            let _ = file.set_len(before);
        }
        written
    }

    /// Rewrites the journal without changes that the list's file contains, changes that were
    /// reverted, and damaged lines. The caller must hold the lock of the state directory.
    ///
    /// # Errors
    /// When the file cannot be replaced; it is unchanged then.
    pub fn compact(&self, replayed: &ReplayedList) -> io::Result<()> {
        let ReplayedList { list, read, .. } = replayed;
        let Some(kind) = list.kind() else { return Ok(()) };
        if read.lines == read.changes.len() + read.others.len() {
            return Ok(());
        }
        let others = read.others.iter().map(|(kind, change)| line(*kind, change));
        let of_kind = read.changes.values().map(|change| line(kind, change));
        let text: String = others.chain(of_kind).collect();
        atomic_file::write(&self.path, MODE, text.as_bytes()).map(drop)
    }

    /// As [`compact`](Self::compact); returns an error as a warning for the operator.
    pub fn compact_or_warn(&self, replayed: &ReplayedList) -> Option<String> {
        let error = self.compact(replayed).err()?;
        Some(format!("{} cannot be compacted: {error}", self.path.display()))
    }
}

/// The text that is appended for these changes to a journal whose last byte is `last`. A line that
/// a full disk or a power failure cut off is ended first.
pub fn addition(last: u8, kind: ListKind, changes: &[ListChange]) -> String {
    let mut text = String::from(if last == b'\n' { "" } else { "\n" });
    text.extend(changes.iter().map(|change| line(kind, change)));
    text
}

fn line(kind: ListKind, change: &ListChange) -> String {
    let ListChange { info_hash, listed, is_reset, comment, author } = change;
    let sign = match listed {
        _ if *is_reset => '=',
        true => '+',
        false => '-',
    };
    let by = author.as_ref().map(|author| format!(" {} {}", author.unix, author.name));
    let comment = comment.as_ref().map(|comment| format!(" # {comment}"));
    let [by, comment] = [by, comment].map(Option::unwrap_or_default);
    let text = format!("{} {sign} {info_hash}{by}{comment}", kind.name());
    format!("{} {text}\n", checksum(&text))
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

fn change(line: &[u8]) -> Option<(ListKind, ListChange)> {
    let line = std::str::from_utf8(line).ok()?;
    let text = match line.split_once(' ')? {
        (sum, text) if sum.len() == 8 => Some(text).filter(|text| sum == checksum(text))?,
        _ => line,
    };
    let (words, behind) = match text.split_once(" # ") {
        Some((words, behind)) => (words, Some(comment(behind))),
        None => (text, None),
    };
    let words: Vec<&str> = words.splitn(5, ' ').collect();
    let (&[kind, sign @ ("+" | "-" | "="), hash], by) = words.split_first_chunk()? else {
        return None;
    };
    let author = match *by {
        [] => None,
        [unix, name] => Some(Author { unix: unix.parse().ok()?, name: name.to_owned() }.into()),
        _ => return None,
    };
    let info_hash = hash.parse().ok().filter(|_| hash.len() == 40)?;
    let (listed, is_reset) = (sign == "+", sign == "=");
    let change = ListChange { info_hash, listed, is_reset, comment: behind, author };
    Some((ListKind::named(kind)?, change))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use onrush_config::settings::{Access, Listed};
    use onrush_tracker::access::origins::MAX_COMMENT;

    fn of(number: u8, listed: bool) -> ListChange {
        ListChange::new(InfoHash([number; 20]), listed)
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path());
        (directory, journal)
    }

    /// The changes of this kind, by info hash.
    fn changes_of(journal: &Journal, kind: ListKind) -> Vec<ListChange> {
        journal.read(kind).unwrap().changes.into_values().collect()
    }

    #[test]
    fn changes_are_read_back_by_kind() {
        let (_directory, journal) = journal();
        assert!(journal.read(ListKind::Deny).unwrap().changes.is_empty());
        journal.append(ListKind::Deny, &[of(1, true), of(2, false)]).unwrap();
        journal.append(ListKind::Allow, &[of(3, true)]).unwrap();
        journal.append(ListKind::Deny, &[of(1, false)]).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), [of(1, false), of(2, false)]);
        assert_eq!(changes_of(&journal, ListKind::Allow), [of(3, true)]);
    }

    #[test]
    fn a_reset_leaves_no_change_and_authors_are_read_back() {
        let (_directory, journal) = journal();
        let by = |change, unix| {
            let author = Arc::new(Author { unix, name: "[::1]:9 (admin API)".to_owned() });
            ListChange { author: Some(author), ..change }
        };
        let why = ListChange { comment: Some(comment("a # b")), ..of(1, true) };
        let batch = [by(why.clone(), 7), by(of(2, false), 7), by(of(3, true), 8)];
        journal.append(ListKind::Deny, &batch).unwrap();
        let reset = ListChange { is_reset: true, ..of(3, false) };
        journal.append(ListKind::Deny, std::slice::from_ref(&reset)).unwrap();
        let read = changes_of(&journal, ListKind::Deny);
        assert_eq!(read, batch[..2]);
        assert!(Arc::ptr_eq(read[0].author.as_ref().unwrap(), read[1].author.as_ref().unwrap()));
        // After the reset 3 is listed only if the file has it.
        for (file, in_force) in [(&[2, 3][..], 2), (&[2][..], 1)] {
            assert_eq!(journal.replay(deny(file)).list.len(), in_force);
        }
        journal.append(ListKind::Deny, &[by(of(3, false), 9)]).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny)[2], by(of(3, false), 9));
        journal.compact(&journal.replay(deny(&[2]))).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), batch[..2]);
    }

    /// A flipped digit would deny another info hash, and a cut comment would be another one.
    #[test]
    fn a_damaged_line_is_not_applied_and_the_others_are() {
        let (_directory, journal) = journal();
        let why = ListChange { comment: Some(comment("why")), ..of(2, true) };
        journal.append(ListKind::Deny, &[of(1, true), why.clone(), of(3, true)]).unwrap();
        let whole = fs::read(journal.path()).unwrap();
        let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let end = second + whole[second..].iter().position(|byte| *byte == b'\n').unwrap();
        for at in second..end {
            for bit in 0..7 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                fs::write(journal.path(), &damaged).unwrap();
                let replayed = journal.replay(deny(&[]));
                let applied: Vec<_> = replayed.changes().cloned().collect();
                assert_eq!(applied, [of(1, true), of(3, true)], "bit {bit} of byte {at}");
                let warning = replayed.warning.unwrap();
                assert!(warning.contains("line 2, ") && warning.contains(FILE), "{warning}");
            }
        }
        // Lines of former versions have no checksum.
        let old = format!("deny - {}\ndeny + {} # why\n", "01".repeat(20), "02".repeat(20));
        fs::write(journal.path(), old).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), [of(1, false), why]);
    }

    /// Junk of any length is read in constant memory: only the longest line that is possible.
    #[test]
    fn a_line_without_an_end_is_not_read_whole() {
        let line = line(ListKind::Deny, &of(1, true));
        let junk =
            io::Cursor::new(format!("{line}deny + 01")).chain(io::repeat(b'1').take(1 << 24));
        let read = JournalContents::read(BufReader::new(junk), ListKind::Deny).unwrap();
        assert_eq!((read.changes.len(), read.damaged, read.lines), (1, 1, 2));
        let (mut from, mut buffer) = (BufReader::new(io::repeat(b'1').take(1 << 24)), Vec::new());
        assert_eq!(next_line(&mut from, &mut buffer).unwrap(), Some(false));
        assert!(buffer.capacity() as u64 <= 2 * MAX_LINE);
    }

    #[test]
    fn comments_are_read_back_until_the_file_has_the_info_hash() {
        let (_directory, journal) = journal();
        let long = comment(&"x".repeat(MAX_COMMENT + 1));
        let changes = [("2026-11-22 order # 7", 3), (&*long, 4)]
            .map(|(why, number)| ListChange { comment: Some(comment(why)), ..of(number, true) });
        journal.append(ListKind::Deny, &changes).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), changes);
        assert_eq!(journal.since(ListKind::Deny, journal.length() - 1).unwrap(), changes[1..]);
        let replayed = journal.replay(deny(&[4]));
        let shown = replayed.list.set().unwrap().comment(&InfoHash([3; 20]));
        assert_eq!(shown, Some("2026-11-22 order # 7"));
        journal.compact(&replayed).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), changes[..1]);
    }

    #[test]
    fn changes_since_a_length_are_read_alone() {
        let (_directory, journal) = journal();
        assert_eq!((journal.length(), journal.since(ListKind::Deny, 0).unwrap().len()), (0, 0));
        journal.append(ListKind::Deny, &[of(1, true)]).unwrap();
        let len = journal.length();
        assert!(journal.since(ListKind::Deny, len).unwrap().is_empty());
        assert_eq!(
            journal.since(ListKind::Deny, len - 7).unwrap(),
            [of(1, true)],
            "a half-written line is new"
        );
        journal.append(ListKind::Deny, &[of(2, true), of(1, false)]).unwrap();
        journal.append(ListKind::Allow, &[of(3, true)]).unwrap();
        assert_eq!(journal.since(ListKind::Deny, len).unwrap(), [of(1, false), of(2, true)]);
    }

    #[test]
    fn compaction_drops_redundant_changes_and_keeps_the_other_kind() {
        let (directory, journal) = journal();
        let changes =
            [of(1, true), of(2, false), of(3, true), of(4, false), of(5, true), of(5, false)];
        journal.append(ListKind::Deny, &changes).unwrap();
        journal.append(ListKind::Allow, &[of(6, true)]).unwrap();
        // 1 is listed and 4 is not, so these changes are redundant; 5 was added and removed.
        let replayed = journal.replay(deny(&[1, 2]));
        let permitted = [1, 2, 3, 4, 5].map(|n| replayed.list.permits(InfoHash([n; 20])));
        assert_eq!(permitted, [false, true, false, true, true]);
        journal.compact(&replayed).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), [of(2, false), of(3, true)]);
        assert_eq!(changes_of(&journal, ListKind::Allow), [of(6, true)]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn lines_that_cannot_be_parsed_are_counted() {
        let (_directory, journal) = journal();
        journal.append(ListKind::Deny, &[of(1, true)]).unwrap();
        let mut text = fs::read(journal.path()).unwrap();
        text.extend_from_slice(b"deny * 00\nnonsense\nallow + 0101 more\ndeny + 0202020202");
        fs::write(journal.path(), text).unwrap();
        let replayed = journal.replay(deny(&[]));
        assert_eq!((replayed.read.changes.len(), replayed.read.damaged), (1, 4));
        let warning = replayed.warning.unwrap();
        assert!(
            warning.contains(": 4; ") && warning.contains("line 2, \"deny * 00\""),
            "{warning}"
        );
        // The next change is not appended to the half-written line.
        journal.append(ListKind::Deny, &[of(2, true)]).unwrap();
        assert_eq!(changes_of(&journal, ListKind::Deny), [of(1, true), of(2, true)]);
        journal.compact(&journal.replay(deny(&[]))).unwrap();
        assert_eq!(fs::read_to_string(journal.path()).unwrap().lines().count(), 2);
    }

    /// A deny list of these info hashes.
    fn deny(numbers: &[u8]) -> AccessList {
        let hashes = numbers.iter().map(|number| InfoHash([*number; 20])).collect();
        let listed = Listed { hashes, ..Listed::default() };
        crate::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap()
    }

    #[test]
    fn a_failing_append_is_an_error() {
        let journal = Journal::new(Path::new("/nowhere"));
        assert!(journal.append(ListKind::Deny, &[of(1, true)]).is_err());
    }
}
