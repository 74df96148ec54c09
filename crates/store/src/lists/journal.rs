//! The journal of changes to the list of info hashes: in the state directory, so that changes made
//! while the tracker ran survive a restart and a reload of the list's file.
//!
//! One change per line: the mode of the list, a sign, the info hash and perhaps a comment, as in
//! `deny + 0123456789abcdef0123456789abcdef01234567 # why`. The last line of an info hash counts.
//! Lines of the
//! other mode are kept for when that mode is configured again. A start or a reload drops changes
//! that the list's file contains already, so that the file decides from then on, and lines that
//! cannot be parsed, with a warning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::atomic_file::{self, sync_directory_of};
use crate::state_file;
use onrush_tracker::access::origins::{MAX_COMMENT, comment};
use onrush_tracker::access::overlay::{ListChange, OverlaySet};
use onrush_tracker::access::{AccessList, ListKind};

/// File name of the journal in the state directory.
pub const FILE: &str = "access.changes";

/// Permissions of the file.
const MODE: u32 = 0o600;

/// Maximum bytes of a line, with its end.
const MAX_LINE: u64 = 52 + MAX_COMMENT as u64;

/// The journal of one state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    path: PathBuf,
}

/// The contents of a journal.
#[derive(Clone, Debug, Default)]
pub struct JournalContents {
    /// Changes to the list of the requested kind, in order.
    pub changes: Vec<ListChange>,
    /// Changes to the list of the other kind.
    others: Vec<(ListKind, ListChange)>,
    /// Number of lines that cannot be parsed.
    pub unreadable: usize,
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
        let mut read = Self::default();
        for line in from.split(b'\n') {
            let line = line?;
            match change(&line) {
                _ if line.is_empty() => {}
                Some((of, change)) if of == kind => read.changes.push(change),
                Some(other) => read.others.push(other),
                None => read.unreadable += 1,
            }
        }
        Ok(read)
    }
}

impl ReplayedList {
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
        let before = len.min(MAX_LINE);
        file.seek(SeekFrom::Start(len - before))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A line may have been half written at that length: it counts as new.
        let known = &text[..text.len().min(before as usize)];
        let begin = known.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = text[begin..].split(|byte| *byte == b'\n').filter_map(change);
        Ok(lines.filter(|(of, _)| *of == kind).map(|(_, change)| change).collect())
    }

    /// Applies the changes of the journal to a list that was just loaded.
    pub fn replay(&self, list: AccessList) -> ReplayedList {
        let Some(kind) = list.kind() else {
            let read = JournalContents::default();
            return ReplayedList { list, warning: None, unreadable: false, read };
        };
        let path = self.path.display();
        let (read, warning, unreadable) = match self.read(kind) {
            Ok(read) => {
                let lines = read.unreadable;
                let what = format!("{path}: {lines} lines cannot be parsed and are ignored");
                (read, (lines > 0).then_some(what), false)
            }
            Err(error) => {
                let what = format!(
                    "{path} cannot be read: {error}; changes made to the list while the tracker \
                     ran are not applied"
                );
                (JournalContents::default(), Some(what), true)
            }
        };
        ReplayedList { list: list.with(&read.changes), warning, unreadable, read }
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
    /// reverted, and lines that cannot be parsed. The caller must hold the lock of the state
    /// directory.
    ///
    /// # Errors
    /// When the file cannot be replaced; it is unchanged then.
    pub fn compact(&self, replayed: &ReplayedList) -> io::Result<()> {
        let ReplayedList { list, read, .. } = replayed;
        let (Some(kind), Some(listing)) = (list.kind(), list.set()) else { return Ok(()) };
        let lines = read.changes.len() + read.unreadable;
        if lines == listing.changes().count() {
            return Ok(());
        }
        let others = read.others.iter().map(|(kind, change)| line(*kind, change));
        let of_kind = listing.changes().map(|change| line(kind, &change));
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
    let ListChange { info_hash, listed, comment } = change;
    let sign = if *listed { '+' } else { '-' };
    let comment = comment.as_ref().map(|comment| format!(" # {comment}")).unwrap_or_default();
    format!("{} {sign} {info_hash}{comment}\n", kind.name())
}

fn change(line: &[u8]) -> Option<(ListKind, ListChange)> {
    let line = std::str::from_utf8(line).ok()?;
    let (words, behind) = match line.split_once(" # ") {
        Some((words, behind)) => (words, Some(comment(behind))),
        None => (line, None),
    };
    let words: Vec<&str> = words.split(' ').collect();
    let [kind, sign @ ("+" | "-"), hash] = words[..] else { return None };
    let kind = [ListKind::Allow, ListKind::Deny].into_iter().find(|known| known.name() == kind)?;
    let info_hash = hash.parse().ok().filter(|_| hash.len() == 40)?;
    Some((kind, ListChange { info_hash, listed: sign == "+", comment: behind }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use onrush_config::settings::{Access, Listed};
    use onrush_proto::InfoHash;

    fn of(number: u8, listed: bool) -> ListChange {
        ListChange::new(InfoHash([number; 20]), listed)
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path());
        (directory, journal)
    }

    #[test]
    fn changes_are_read_back_by_kind() {
        let (_directory, journal) = journal();
        assert!(journal.read(ListKind::Deny).unwrap().changes.is_empty());
        journal.append(ListKind::Deny, &[of(1, true), of(2, false)]).unwrap();
        journal.append(ListKind::Allow, &[of(3, true)]).unwrap();
        journal.append(ListKind::Deny, &[of(1, false)]).unwrap();
        let read = journal.read(ListKind::Deny).unwrap();
        assert_eq!(read.changes, [of(1, true), of(2, false), of(1, false)]);
        assert_eq!(journal.read(ListKind::Allow).unwrap().changes, [of(3, true)]);
    }

    #[test]
    fn comments_are_read_back_until_the_file_has_the_info_hash() {
        let (_directory, journal) = journal();
        let long = comment(&"x".repeat(MAX_COMMENT + 1));
        let changes = [("2026-11-22 order # 7", 3), (&*long, 4)]
            .map(|(why, number)| ListChange { comment: Some(comment(why)), ..of(number, true) });
        journal.append(ListKind::Deny, &changes).unwrap();
        assert_eq!(journal.read(ListKind::Deny).unwrap().changes, changes);
        assert_eq!(journal.since(ListKind::Deny, journal.length() - 1).unwrap(), changes[1..]);
        let replayed = journal.replay(deny(&[4]));
        let shown = replayed.list.set().unwrap().comment(&InfoHash([3; 20]));
        assert_eq!(shown, Some("2026-11-22 order # 7"));
        journal.compact(&replayed).unwrap();
        assert_eq!(journal.read(ListKind::Deny).unwrap().changes, changes[..1]);
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
        assert_eq!(journal.since(ListKind::Deny, len).unwrap(), [of(2, true), of(1, false)]);
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
        let left = journal.read(ListKind::Deny).unwrap();
        assert_eq!(left.changes, [of(3, true), of(2, false)]);
        assert_eq!(journal.read(ListKind::Allow).unwrap().changes, [of(6, true)]);
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
        assert_eq!(
            (replayed.read.changes.as_slice(), replayed.read.unreadable),
            (&[of(1, true)][..], 4)
        );
        assert!(replayed.warning.as_deref().is_some_and(|text| text.contains("4 lines")));
        // The next change is not appended to the half-written line.
        journal.append(ListKind::Deny, &[of(2, true)]).unwrap();
        assert_eq!(journal.read(ListKind::Deny).unwrap().changes, [of(1, true), of(2, true)]);
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
