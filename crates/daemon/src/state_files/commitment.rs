//! Interval commitments on disk: a line in the state directory, so that they survive a restart.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onrush_store::atomic_file::AtomicFile;
use onrush_store::state_file;

use super::first_failure::FirstFailure;
use crate::overload::LONGEST_LIFETIME;
use onrush_replica::handoff::IntervalCommitment;

/// The file's name in the state directory.
pub const FILE: &str = "overload.interval";
/// Permissions of the file.
const MODE: u32 = 0o600;
/// How often the file is rewritten: each reply with a longer interval extends the commitment.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// The file of the commitment: `LIFETIME UNTIL`, seconds and seconds since 1970.
#[derive(Debug)]
pub struct CommitmentFile {
    path: PathBuf,
    /// `None` until the first write.
    written: Option<Instant>,
    failure: FirstFailure,
}

impl CommitmentFile {
    /// The file in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE), written: None, failure: FirstFailure::default() }
    }

    /// The commitment of the previous process, if it has not expired at `unix` (seconds since
    /// 1970).
    pub fn read(&self, unix: u64) -> Option<IntervalCommitment> {
        let text = state_file::read_to_string(&self.path).ok()?;
        let (lifetime, until) = text.trim_end().split_once(' ')?;
        let left = until.parse::<u64>().ok()?.checked_sub(unix).filter(|left| *left > 0)?;
        // After the clock was set back, the file's end may be years away.
        let seconds = u32::try_from(left).ok()?.min(2 * LONGEST_LIFETIME);
        Some(IntervalCommitment { lifetime: lifetime.parse().ok()?, seconds })
    }

    /// Call every second: writes the commitment once a minute, or at once if it has `changed`.
    /// Returns a warning for the operator when the file cannot be written for the first time since
    /// it was last written.
    pub fn tick(
        &mut self,
        commitment: Option<IntervalCommitment>,
        changed: bool,
        unix: u64,
        now: Instant,
    ) -> Option<String> {
        let due = self.written.is_none_or(|written| now.duration_since(written) >= WRITE_EVERY);
        let commitment = commitment.filter(|_| due || changed)?;
        self.written = Some(now);
        let error = self.write(commitment, unix).err();
        let error = self.failure.of(error)?;
        Some(format!(
            "{}: how long peers have to be kept cannot be written: {error}; after a restart those \
             that announce at the longer interval are dropped too early",
            self.path.display()
        ))
    }

    /// The main thread writes, so it does not wait for the disk.
    fn write(&self, commitment: IntervalCommitment, unix: u64) -> io::Result<()> {
        let IntervalCommitment { lifetime, seconds } = commitment;
        let mut file = AtomicFile::create(&self.path, MODE)?;
        writeln!(file, "{lifetime} {}", unix + u64::from(seconds))?;
        file.finish_without_sync()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_commitment_expires_and_is_rewritten_every_minute() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = CommitmentFile::new(directory.path());
        let start = Instant::now();
        assert_eq!(file.read(1000), None);
        assert_eq!(file.tick(None, true, 1000, start), None);
        assert_eq!(file.read(1000), None);
        let commitment = IntervalCommitment { lifetime: 7200, seconds: 3780 };
        assert_eq!(file.tick(Some(commitment), false, 1000, start), None);
        let metadata = fs::metadata(directory.path().join(FILE)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(file.read(1000), Some(commitment));
        assert_eq!(file.read(4000), Some(IntervalCommitment { lifetime: 7200, seconds: 780 }));
        assert_eq!((file.read(4780), file.read(9000)), (None, None));
        // Rewritten every minute, or at once after a change.
        let later = start + Duration::from_secs(30);
        assert_eq!(file.tick(Some(commitment), false, 1030, later), None);
        assert_eq!(file.read(4780), None);
        assert_eq!(file.tick(Some(commitment), true, 1030, later), None);
        assert_eq!(file.read(4780), Some(IntervalCommitment { lifetime: 7200, seconds: 30 }));
        assert_eq!(file.tick(Some(commitment), false, 1090, later + WRITE_EVERY), None);
        assert_eq!(file.read(4780).unwrap().seconds, 90);
        for malformed in ["", "7200", "x 5000\n", "7200 later\n"] {
            fs::write(directory.path().join(FILE), malformed).unwrap();
            assert_eq!(file.read(1000), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_warned_of_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let mut file = CommitmentFile::new(directory.path());
        let commitment = Some(IntervalCommitment { lifetime: 7200, seconds: 3780 });
        let start = Instant::now();
        let mut warns = |minute: u32| {
            let warning = file.tick(commitment, false, 1000, start + minute * WRITE_EVERY);
            warning.is_some_and(|text| text.contains(path.to_str().unwrap()))
        };
        // A file cannot replace a directory.
        fs::create_dir(&path).unwrap();
        assert_eq!([0, 1, 2].map(&mut warns), [true, false, false]);
        fs::remove_dir(&path).unwrap();
        assert!(!warns(3) && path.is_file());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!([4, 5].map(&mut warns), [true, false]);
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let file = CommitmentFile::new(directory.path());
        fs::write(directory.path().join("other"), "7200 5000\n").unwrap();
        symlink("other", &path).unwrap();
        assert_eq!(file.read(1000), None);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(file.read(1000), None);
    }
}
