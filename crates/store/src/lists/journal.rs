//! What was added to a list and removed from it while the tracker ran, kept in the state directory, so that it
//! outlives a restart and a reload of the list's file.
//!
//! One change a line: the mode of the list that it was made to, a sign, and the info hash, as in
//! `deny + 0123456789abcdef0123456789abcdef01234567`. Later lines count. Lines of the other mode stay for the
//! day when that mode comes back: "add" means the opposite there. What the list says anyway is dropped when the
//! tracker starts or has read its list again, so that the list's file decides from then on; and so are lines that
//! are none, with a warning.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use onrush_proto::InfoHash;

use crate::atomic_file::sync_directory_of;
use onrush_tracker::access::listing::{Change, Listing};
use onrush_tracker::access::{AccessList, Kind};

/// The file's name in the state directory.
pub const FILE: &str = "access.changes";

/// Bytes of a line at most, with its end.
const LONGEST_LINE: u64 = 49;

/// The journal of one state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    path: PathBuf,
}

/// What a journal says.
#[derive(Clone, Debug, Default)]
pub struct JournalContents {
    /// The changes to the list of the kind that was asked for, in order.
    pub changes: Vec<Change>,
    /// Those to the other.
    others: Vec<(Kind, Change)>,
    /// Lines that are no changes.
    pub unreadable: usize,
}

/// A list with what its journal says of it.
#[derive(Clone, Debug)]
pub struct ReplayedList {
    /// The list, not merged.
    pub list: AccessList,
    /// What is odd about the journal, in a sentence with the remedy.
    pub warning: Option<String>,
    /// Whether it could not be read at all.
    pub unreadable: bool,
    read: JournalContents,
}

impl ReplayedList {
    /// The list, merged where so much has changed that it is worth it.
    pub fn settled(&self) -> AccessList {
        let ragged = self.list.listing().is_some_and(Listing::is_ragged);
        if ragged { self.list.merged() } else { self.list.clone() }
    }
}

impl Journal {
    /// In this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it. A journal that is not there has no changes.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn read(&self, kind: Kind) -> io::Result<JournalContents> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(JournalContents::default());
            }
            file => file?,
        };
        let mut read = JournalContents::default();
        for line in BufReader::new(file).split(b'\n') {
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

    /// How long it is, to read later on what has come since.
    pub fn length(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    /// The changes to the list of this kind behind so many bytes. For whoever knows that nobody replaces it.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn since(&self, kind: Kind, len: u64) -> io::Result<Vec<Change>> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let before = len.min(LONGEST_LINE);
        file.seek(SeekFrom::Start(len - before))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // When it was so long a line may have been in the middle of being written: that line is new, too.
        let known = &text[..text.len().min(before as usize)];
        let begin = known.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = text[begin..].split(|byte| *byte == b'\n').filter_map(change);
        Ok(lines.filter(|(of, _)| *of == kind).map(|(_, change)| change).collect())
    }

    /// A list that was just loaded, after all changes that were made to it while trackers ran.
    pub fn replay(&self, list: AccessList) -> ReplayedList {
        let Some(kind) = list.kind() else {
            return ReplayedList {
                list,
                warning: None,
                unreadable: false,
                read: JournalContents::default(),
            };
        };
        let path = self.path.display();
        let (read, warning, unreadable) = match self.read(kind) {
            Ok(read) => {
                let lines = read.unreadable;
                let what = format!("{path}: {lines} lines are no changes of a list, and left out");
                (read, (lines > 0).then_some(what), false)
            }
            Err(error) => {
                let what = format!(
                    "{path} cannot be read: {error}; what was added to the list and removed from it \
                     while the tracker ran is not in force"
                );
                (JournalContents::default(), Some(what), true)
            }
        };
        ReplayedList { list: list.with(&read.changes), warning, unreadable, read }
    }

    /// Adds changes, on the disk when it returns.
    ///
    /// # Errors
    /// When they cannot be written. Whatever part of them was is taken back, as far as the disk allows it.
    pub fn append(&self, kind: Kind, changes: &[Change]) -> io::Result<()> {
        let is_new = !self.path.exists();
        let mut file = open(&self.path)?;
        let before = file.metadata()?.len();
        let text: String = changes.iter().map(|change| line(kind, change)).collect();
        // Whatever was torn off by a full disk or a power cut ends here.
        let torn = before > 0 && last_byte(&self.path)? != b'\n';
        let text = if torn { format!("\n{text}") } else { text };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        let written =
            written.and_then(|()| if is_new { sync_directory_of(&self.path) } else { Ok(()) });
        if written.is_err() {
            let _ = file.set_len(before);
        }
        written
    }

    /// Leaves out what the list says without it, what was taken back later, and lines that are none. Only for
    /// whoever holds the state directory's lock.
    ///
    /// # Errors
    /// When the file cannot be replaced; it is as it was then.
    pub fn compact(&self, resumed: &ReplayedList) -> io::Result<()> {
        let ReplayedList { list, read, .. } = resumed;
        let (Some(kind), Some(listing)) = (list.kind(), list.listing()) else { return Ok(()) };
        let lines = read.changes.len() + read.unreadable;
        if lines == listing.changes().count() {
            return Ok(());
        }
        let others = read.others.iter().map(|(kind, change)| line(*kind, change));
        let of_kind = listing.changes().map(|change| line(kind, &change));
        self.replace(&others.chain(of_kind).collect::<String>())
    }

    /// The same; what the operator should know where it cannot be.
    pub fn shorten(&self, resumed: &ReplayedList) -> Option<String> {
        let error = self.compact(resumed).err()?;
        Some(format!("{} cannot be made shorter: {error}", self.path.display()))
    }

    /// Written beside and renamed: there is always a whole one.
    fn replace(&self, text: &str) -> io::Result<()> {
        let beside = self.path.with_extension("changes.new");
        let _ = fs::remove_file(&beside);
        let mut file = open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&beside, &self.path)?;
        sync_directory_of(&self.path)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0])
}

fn line(kind: Kind, change: &Change) -> String {
    let sign = if change.listed { '+' } else { '-' };
    format!("{} {sign} {}\n", kind.word(), change.info_hash)
}

fn change(line: &[u8]) -> Option<(Kind, Change)> {
    let mut words = line.split(|byte| *byte == b' ');
    let kind = match words.next()? {
        b"allow" => Kind::Allow,
        b"deny" => Kind::Deny,
        _ => return None,
    };
    let listed = match words.next()? {
        b"+" => true,
        b"-" => false,
        _ => return None,
    };
    let hash = words.next().filter(|hash| hash.len() == 40 && words.next().is_none())?;
    let info_hash = InfoHash::from_text(hash).ok()?;
    Some((kind, Change { info_hash, listed }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::settings::{Access, Listed};

    fn of(number: u8, listed: bool) -> Change {
        Change { info_hash: InfoHash([number; 20]), listed }
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path());
        (directory, journal)
    }

    #[test]
    fn what_is_written_is_read_again_by_its_kind() {
        let (_directory, journal) = journal();
        assert!(journal.read(Kind::Deny).unwrap().changes.is_empty());
        journal.append(Kind::Deny, &[of(1, true), of(2, false)]).unwrap();
        journal.append(Kind::Allow, &[of(3, true)]).unwrap();
        journal.append(Kind::Deny, &[of(1, false)]).unwrap();
        let read = journal.read(Kind::Deny).unwrap();
        assert_eq!(read.changes, [of(1, true), of(2, false), of(1, false)]);
        assert_eq!(journal.read(Kind::Allow).unwrap().changes, [of(3, true)]);
    }

    #[test]
    fn what_has_come_since_is_read_by_itself() {
        let (_directory, journal) = journal();
        assert_eq!((journal.length(), journal.since(Kind::Deny, 0).unwrap().len()), (0, 0));
        journal.append(Kind::Deny, &[of(1, true)]).unwrap();
        let len = journal.length();
        assert!(journal.since(Kind::Deny, len).unwrap().is_empty());
        assert_eq!(journal.since(Kind::Deny, len - 7).unwrap(), [of(1, true)], "it was torn");
        journal.append(Kind::Deny, &[of(2, true), of(1, false)]).unwrap();
        journal.append(Kind::Allow, &[of(3, true)]).unwrap();
        assert_eq!(journal.since(Kind::Deny, len).unwrap(), [of(2, true), of(1, false)]);
    }

    #[test]
    fn what_the_list_says_anyway_is_left_out_and_the_other_kind_stays() {
        let (directory, journal) = journal();
        let changes =
            [of(1, true), of(2, false), of(3, true), of(4, false), of(5, true), of(5, false)];
        journal.append(Kind::Deny, &changes).unwrap();
        journal.append(Kind::Allow, &[of(6, true)]).unwrap();
        // 1 is listed and 4 is not, as the changes have it; 5 came and went.
        let resumed = journal.replay(deny(&[1, 2]));
        let permitted = [1, 2, 3, 4, 5].map(|n| resumed.list.permits(InfoHash([n; 20])));
        assert_eq!(permitted, [false, true, false, true, true]);
        journal.compact(&resumed).unwrap();
        let left = journal.read(Kind::Deny).unwrap();
        assert_eq!(left.changes, [of(3, true), of(2, false)]);
        assert_eq!(journal.read(Kind::Allow).unwrap().changes, [of(6, true)]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside");
    }

    #[test]
    fn lines_that_are_none_are_counted_and_a_torn_one_is_one() {
        let (_directory, journal) = journal();
        journal.append(Kind::Deny, &[of(1, true)]).unwrap();
        let mut text = fs::read(journal.path()).unwrap();
        text.extend_from_slice(b"deny * 00\nnonsense\nallow + 0101 more\ndeny + 0202020202");
        fs::write(journal.path(), text).unwrap();
        let resumed = journal.replay(deny(&[]));
        assert_eq!(
            (resumed.read.changes.as_slice(), resumed.read.unreadable),
            (&[of(1, true)][..], 4)
        );
        assert!(resumed.warning.as_deref().is_some_and(|text| text.contains("4 lines")));
        // The next one is not torn with it, whether or not it was left out first.
        journal.append(Kind::Deny, &[of(2, true)]).unwrap();
        assert_eq!(journal.read(Kind::Deny).unwrap().changes, [of(1, true), of(2, true)]);
        journal.compact(&journal.replay(deny(&[]))).unwrap();
        assert_eq!(fs::read_to_string(journal.path()).unwrap().lines().count(), 2);
    }

    /// A list of these and nothing else.
    fn deny(numbers: &[u8]) -> AccessList {
        let hashes = numbers.iter().map(|number| InfoHash([*number; 20])).collect();
        crate::lists::access_list(&Access::Deny(Listed { hashes, file: None }), 0, &mut || {})
            .unwrap()
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let journal = Journal::new(Path::new("/nowhere"));
        assert!(journal.append(Kind::Deny, &[of(1, true)]).is_err());
    }
}
